"""Calls in real worker processes, and what is left of them however they end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from adapters.livekit.calls import recorded, said
from adapters.livekit.waiting import until

from secondcall import Memory
from secondcall.adapters.livekit.replay import Replayed, replay

pytestmark = pytest.mark.anyio

WORKER = Path(__file__).with_name("worker.py")
TALKED = [("user", "first"), ("assistant", "One."), ("user", "second"), ("assistant", "Two.")]
_SECONDS = 120.0


@dataclass
class _Ended:
    """What a worker left: the items before and after a replay, and what that found."""

    before: list[tuple[str, str]]
    after: list[tuple[str, str]]
    replayed: Replayed
    files: list[Path]


async def _run(folder: Path, mode: str, act: Callable[[Path], None] | None = None) -> _Ended:
    """Run a worker, ``act`` when two turns were said, and look at what it left."""
    log = os.open(folder / "log", os.O_CREAT | os.O_WRONLY)
    worker = await asyncio.create_subprocess_exec(
        sys.executable,
        str(WORKER),
        str(folder),
        mode,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(WORKER.parents[2]), *sys.path])},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=log,
    )
    try:
        await until(
            lambda: (folder / "talked").exists() or worker.returncode is not None,
            seconds=_SECONDS,
        )
        assert (folder / "talked").exists(), (folder / "log").read_text()
        if act is not None:
            act(folder)
        async with asyncio.timeout(_SECONDS):
            await worker.wait()
    finally:
        os.close(log)
        if worker.returncode is None:
            worker.kill()
            await worker.wait()
    async with Memory.open(f"sqlite:///{folder}/memory.db") as memory:
        before = said(await recorded(memory))
        replayed = await replay(memory, folder / "journals")
        after = said(await recorded(memory))
    return _Ended(before, after, replayed, _journals(folder))


def _journals(folder: Path) -> list[Path]:
    return list(folder.rglob("*.journal"))


def _kill(folder: Path) -> None:
    os.kill(int((folder / "pid").read_text()), signal.SIGKILL)


async def test_a_normal_end_keeps_the_last_words(tmp_path: Path) -> None:
    """A call that ends by itself is complete in the store, with what was said on leaving, and
    leaves no journal."""
    ended = await _run(tmp_path, "normal")
    assert ended.before == [*TALKED, ("assistant", "Goodbye.")]
    assert (ended.replayed, ended.files) == (Replayed(), [])


async def test_a_worker_that_stops_in_mid_call(tmp_path: Path) -> None:
    """A worker that is stopped while a call goes on saves it whole."""
    ended = await _run(tmp_path, "stop")
    assert ended.before == [*TALKED, ("assistant", "Goodbye.")]
    assert (ended.replayed, ended.files) == (Replayed(), [])


async def test_a_call_that_is_killed(tmp_path: Path) -> None:
    """kill -9 in mid-call loses nothing that was acknowledged."""
    ended = await _run(tmp_path, "kill", _kill)
    assert ended.after == TALKED
    assert ended.files == []


async def test_a_call_that_is_killed_while_the_store_hangs(tmp_path: Path) -> None:
    """What only the journal had when the process was killed is in the store after the next start,
    once."""
    ended = await _run(tmp_path, "hung", _kill)
    assert ended.before == TALKED[:2]
    assert ended.after == TALKED
    assert (ended.replayed.calls, ended.replayed.items) == (1, 2)
    assert ended.files == []


async def test_a_worker_that_is_out_of_patience(tmp_path: Path) -> None:
    """A process that is killed since its shutdown took too long, with a store that hangs, has left
    everything in the journal."""
    ended = await _run(tmp_path, "late")
    assert ended.before == TALKED[:2]
    assert ended.after == [*TALKED, ("assistant", "Goodbye.")]
    assert ended.files == []


async def test_a_sibling_callback_that_raises(tmp_path: Path) -> None:
    """Without ``on_session_end``, beside a shutdown callback that raises, and with a slow store,
    nothing is lost: what the process did not get done is in the journal."""
    ended = await _run(tmp_path, "sibling")
    assert ended.after == [*TALKED, ("assistant", "Goodbye.")]
    assert ended.files == []


async def test_a_session_that_never_closes(tmp_path: Path) -> None:
    """When ``aclose`` hangs and ``close`` never comes, the history is still gone through."""
    ended = await _run(tmp_path, "hang")
    assert ended.before == [*TALKED, ("user", "wait, one more thing")]
    assert (ended.replayed, ended.files) == (Replayed(), [])
