"""``call`` in the job processes of a real worker."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from adapters.livekit.calls import said

from secondcall import Memory

pytestmark = pytest.mark.anyio

WORKER = Path(__file__).with_name("call_worker.py")
_SECONDS = 240.0


async def test_a_second_call_in_a_fresh_process_is_known(tmp_path: Path) -> None:
    """Two calls that end by themselves, in two job processes, are whole in the store with what was
    said on leaving; the second is told what the first remembered, and no journal is left."""
    await _work(tmp_path)
    first, second = (_told(tmp_path, number) for number in ("1", "2"))
    assert first["pid"] != second["pid"]
    assert '"seat" = "aisle"' not in "".join(first["given"])
    assert '"seat" = "aisle"' in "".join(second["given"])
    async with Memory.open(f"sqlite:///{tmp_path}/memory.db") as memory:
        ana = memory.user(await memory.identify(subject="ana"))
        sessions = [await ana.session(one.session_id) for one in await ana.sessions()]
        items = [said(await one.items()) for one in sessions]
    assert sorted(items) == [
        [("user", f"Words of call {number}"), ("assistant", "Ok."), ("assistant", "Goodbye.")]
        for number in (1, 2)
    ]
    assert [*(tmp_path / "journals").rglob("*.journal")] == []


def _told(folder: Path, number: str) -> dict[str, Any]:
    return json.loads((folder / number).read_text())


async def _work(folder: Path) -> None:
    worker = await asyncio.create_subprocess_exec(
        sys.executable,
        str(WORKER),
        str(folder),
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(WORKER.parents[2]), *sys.path])},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_SECONDS):
            _, log = await worker.communicate()
    finally:
        if worker.returncode is None:
            worker.kill()
            await worker.wait()
    assert (folder / "2").exists(), log.decode(errors="replace")
