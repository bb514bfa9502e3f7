"""A worker that takes two calls of one caller, each in a job process of its own, through ``call``.

For ``test_call_worker``: ``python call_worker.py FOLDER``. Each job writes what its model was given
and its process id to ``FOLDER/1`` and ``FOLDER/2``.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from adapters.livekit.waiting import until
from livekit.agents import Agent, AgentServer, AgentSession, JobContext

from secondcall import Memory
from secondcall.adapters.livekit import CallNotes, CallSettings, call, on_session_end
from secondcall.shortterm.userdata import ShortTermMemory
from secondcall.testing.livekit import Reply, ScriptedLLM

FOLDER = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(os.environ.get("CALL_FOLDER", "."))
_PATIENCE_SECONDS = 100.0


class _Receptionist(Agent):
    """Says something when it leaves, which is committed at the very end."""

    async def on_exit(self) -> None:
        """Says goodbye."""
        await self.session.say("Goodbye.")


async def _entrypoint(ctx: JobContext) -> None:
    # A job of a server has the backend's id in its metadata; a simulated one has none.
    ctx.job.metadata = json.dumps({"user_id": "ana"})
    number = ctx.job.room.name
    memory = Memory.open(f"sqlite:///{FOLDER}/memory.db")
    settings = CallSettings(journal=FOLDER / "journals", preload_seconds=30.0, grace_seconds=0)
    async with call(ctx, memory, settings=settings) as live:
        model = ScriptedLLM(
            [Reply(tools=[("remember", {"name": "seat", "value": "aisle"})]), "Ok."]
        )
        session = AgentSession[ShortTermMemory[CallNotes]](
            llm=model,
            vad=None,
            turn_handling={"turn_detection": None},
            userdata=live.userdata,
        )
        agent = _Receptionist(instructions="Be brief.", tools=[*await live.tools()])
        await session.start(live.agent(agent))
    await session.run(user_input=f"Words of call {number}")
    given = [one.text_content or "" for one in model.requests[0].messages()]
    (FOLDER / number).write_text(json.dumps({"pid": os.getpid(), "given": given}))
    ctx.shutdown("the caller hung up")


async def _work() -> None:
    server = AgentServer(host="127.0.0.1", port=0, initialize_process_timeout=_PATIENCE_SECONDS)
    server.rtc_session(_entrypoint, on_session_end=on_session_end)
    running = asyncio.create_task(server.run(devmode=True, unregistered=True))
    started = asyncio.Event()
    server.once("worker_started", lambda: started.set())
    await started.wait()
    for number in ("1", "2"):
        await server.simulate_job(number, fake_job=True)
        await until(lambda: not server.active_jobs, seconds=_PATIENCE_SECONDS)
    await server.aclose()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


if __name__ == "__main__":
    os.environ.update(CALL_FOLDER=str(FOLDER))
    asyncio.run(_work())
