"""A worker in a process of its own, with one call in a job process. For ``test_ending_worker``.

``python worker.py FOLDER MODE``: what the call does, and how it ends, is named by MODE. It tells
its steps by files in FOLDER: ``pid`` of the job process, ``talked`` when two turns were said,
``ended`` when the worker is gone.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from adapters.livekit.waiting import until
from livekit.agents import Agent, AgentServer, AgentSession, JobContext
from livekit.agents.ipc import job_proc_lazy_main

from secondcall import Memory, SessionMemory
from secondcall.abc import Batch, Epoch, Scope, Written
from secondcall.adapters.livekit.ending import Ending, on_session_end
from secondcall.adapters.livekit.recording import Recorder
from secondcall.adapters.livekit.replay import Journals
from secondcall.stores.sqlite import SqliteStore
from secondcall.testing.livekit import ScriptedLLM

FOLDER = Path(sys.argv[1]) if len(sys.argv) > 2 else Path(os.environ.get("CALL_FOLDER", "."))
_PATIENCE_SECONDS = 100.0
MODE = sys.argv[2] if len(sys.argv) > 2 else os.environ.get("CALL_MODE", "normal")


class _Store(SqliteStore):
    """SQLite that is slow in mode ``sibling``, and hangs after the first turn in ``hung`` and
    ``late``."""

    async def write(
        self, scope: Scope, batch: Batch, *, epoch: Epoch, now_us: int, create: bool = False
    ) -> Written:
        """See ``Store.write``."""
        if MODE in ("hung", "late") and (FOLDER / "one").exists():
            await asyncio.Event().wait()
        if MODE == "sibling":
            await asyncio.sleep(0.5)
        return await super().write(scope, batch, epoch=epoch, now_us=now_us, create=create)


def _tell(name: str, text: str = "") -> None:
    (FOLDER / f"{name}.new").write_text(text)
    (FOLDER / f"{name}.new").rename(FOLDER / name)


async def _entrypoint(ctx: JobContext) -> None:
    memory = Memory.open(_Store(f"sqlite:///{FOLDER}/memory.db"))
    await memory.__aenter__()
    journals = Journals(memory, FOLDER / "journals")
    await journals.replay()

    async def session_memory() -> SessionMemory:
        return await memory.user("ana").session("call")

    recorder = Recorder(session_memory, journal=lambda: journals.journal("call", user_id="ana"))
    Ending(ctx, recorder, deadline_seconds=3.0 if MODE == "late" else 8.0)
    if MODE == "sibling":
        ctx.add_shutdown_callback(_raises)
    session = AgentSession[Any](
        llm=ScriptedLLM(["One.", "Two.", "Three."]),
        vad=None,
        turn_handling={"turn_detection": None},
    )
    recorder.attach(session)
    await session.start(_Parting())
    _tell("pid", str(os.getpid()))
    await session.run(user_input="first")
    await until(lambda: recorder.progress.store >= 2, seconds=_PATIENCE_SECONDS)
    _tell("one")
    await session.run(user_input="second")
    if MODE == "hang":
        _hang(session)
    if MODE != "sibling":
        await until(lambda: recorder.progress.acknowledged >= 4, seconds=_PATIENCE_SECONDS)
    _tell("talked")
    if MODE in ("normal", "sibling", "hang"):
        ctx.shutdown("the caller hung up")


class _Parting(Agent):
    """Says something when it leaves, which is committed at the very end."""

    def __init__(self) -> None:
        super().__init__(instructions="Be brief.")

    async def on_exit(self) -> None:
        """Says goodbye."""
        await self.session.say("Goodbye.")


def _hang(session: AgentSession[Any]) -> None:
    """Let the session never finish to close, with words in its history that no event told."""

    async def never() -> None:
        await asyncio.Event().wait()

    session.history.add_message(role="user", content="wait, one more thing")
    session.aclose = never
    job_proc_lazy_main._SESSION_ACLOSE_TIMEOUT = 0.2  # pyright: ignore[reportPrivateUsage] - a minute else


async def _raises(reason: str) -> None:
    raise RuntimeError(f"a sibling fails: {reason}")


async def _work() -> None:
    timeout = 1.0 if MODE == "late" else 10.0
    server = AgentServer(
        host="127.0.0.1",
        port=0,
        shutdown_process_timeout=timeout,
        initialize_process_timeout=_PATIENCE_SECONDS,
    )
    ended = None if MODE == "sibling" else on_session_end
    server.rtc_session(_entrypoint, on_session_end=ended)
    running = asyncio.create_task(server.run(devmode=True, unregistered=True))
    started = asyncio.Event()
    server.once("worker_started", lambda: started.set())
    await started.wait()
    await server.simulate_job("room", fake_job=True)
    await until(lambda: (FOLDER / "talked").exists(), seconds=_PATIENCE_SECONDS)
    if MODE in ("normal", "sibling", "hang", "kill", "hung"):
        await until(lambda: not server.active_jobs, seconds=_PATIENCE_SECONDS)
    await server.aclose()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    _tell("ended")


if __name__ == "__main__":
    os.environ.update(CALL_FOLDER=str(FOLDER), CALL_MODE=MODE)
    asyncio.run(_work())
