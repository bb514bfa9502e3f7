"""Several processes record into one SQLite file at once.

``SECONDCALL_CONTENTION_SECONDS`` sets for how long (3; ``make soak``: 30).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from secondcall.abc import Scope
from secondcall.stores.sqlite import SqliteStore

pytestmark = pytest.mark.anyio

SECONDS = float(os.environ.get("SECONDCALL_CONTENTION_SECONDS", "3"))
WORKER = Path(__file__).with_name("record_worker.py")
PROCESSES = 4
SHARED = Scope("tenant", "user", "shared")
PAGE = 5_000


async def _recorded_ids(store: SqliteStore) -> set[str]:
    """Every item id in the change log, whose numbers must have no gap."""
    ids: set[str] = set()
    seen = 0
    while page := await store.changes(SHARED, after=seen, limit=PAGE):
        assert [one.number for one in page] == list(range(seen + 1, seen + len(page) + 1))
        seen = page[-1].number
        ids |= {one.key.id for one in page if one.key is not None}
    header = await store.header(SHARED)
    assert header is not None
    assert header.change == seen
    return ids


def _run_workers(path: Path) -> list[dict[str, Any]]:
    """What each process reports at its end."""
    workers = [
        subprocess.Popen(
            [sys.executable, str(WORKER), "contend", str(path), f"p{number}", str(SECONDS)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    outputs = [worker.communicate(timeout=SECONDS + 90) for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * PROCESSES, outputs
    return [json.loads(out) for out, _ in outputs]


async def test_processes_record_into_one_file(tmp_path: Path) -> None:
    """No write fails or waits over 5 s, no item is lost, numbers are gapless, none starves."""
    path = tmp_path / "memory.db"
    reports = await anyio.to_thread.run_sync(_run_workers, path)
    worst = max(report["worst_seconds"] for report in reports)
    writes = [report["writes"] for report in reports]
    print(f"{PROCESSES} processes, {SECONDS:g} s: {writes} writes, worst wait {worst:.3f} s")
    assert [report["errors"] for report in reports] == [[]] * PROCESSES
    assert worst < 5
    store = SqliteStore(f"sqlite:///{path}")
    await store.open()
    expected = {f"p{n}-{number}" for n in range(PROCESSES) for number in range(1, writes[n] + 1)}
    assert await _recorded_ids(store) == expected
    assert min(writes) * 10 > max(writes)
    assert list(await store.problems()) == []
    await store.aclose()
