# pyright: basic, reportMissingImports=false
"""LiveKit agents with and without memory, driven turn by turn: what ``livekit_replies`` measures.

Reads commands as JSON lines from standard input and answers each with one. It runs with the Python
that has the libraries of its arms; of secondcall the others need ``secondcall.testing`` alone. What
LiveKit itself has loaded is kept from the garbage collector, as it is in the jobs of its workers
(``livekit.agents.ipc._preload_freeze``): a full collection of it takes a tenth of a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from livekit.agents import Agent, AgentSession, stt

from secondcall.testing.livekit import FedSTT, Reply, ScriptedLLM

INSTRUCTIONS = "You answer the telephone. Be brief."
_SETTLE_SECONDS = 0.1
"""Callers pause for longer than that."""
_ANSWER = "I see, let me look into that for you right away."
_TOLD = [
    "2025-03-04 the caller asked for an aisle seat near the front and was given seat 4C.",
    "2025-03-11 the caller said that the delivery should come to the office and not to the house.",
    "2025-04-02 the caller decided for the second vendor, since the first one was late twice.",
]


class Arm:
    """An agent without memory; the others derive from it."""

    package: str | None = None
    early = True
    """Whether a reply may be begun before the caller's turn is over."""

    def __init__(self, place: dict[str, Any]) -> None:
        self.place = place
        self.stack = contextlib.AsyncExitStack()

    async def agent(self) -> Agent:
        """The agent."""
        return Agent(instructions=INSTRUCTIONS)

    def attach(self, session: Any) -> None:
        """What is to be done with the session before it starts."""

    async def aclose(self) -> None:
        """Let go of everything."""
        await self.stack.aclose()


class Late(Arm):
    """The agent without memory when every reply waits for the end of the turn."""

    early = False


class Ours(Arm):
    """The whole of ``secondcall.livekit.call``: brief, lookup, recording, journal."""

    package = "secondcall"
    where: Literal["llm_node", "hook"] = "llm_node"

    async def agent(self) -> Agent:
        """The agent of a call."""
        from livekit.agents.testing import fake_job_context

        from secondcall import Memory
        from secondcall.adapters.livekit import CallSettings, LookupOptions, call

        memory = await self.stack.enter_async_context(Memory.open(self.place["url"]))
        metadata = json.dumps({"user_id": self.place["users"][self.where]})
        name = f"AJ_{self.where}_{os.urandom(4).hex()}"
        ctx = self.stack.enter_context(fake_job_context(job_id=name, job_metadata=metadata))
        settings = CallSettings(
            lookup=LookupOptions(where=self.where),
            journal=self.place["journal"],
            grace_seconds=0,
            preload_seconds=5.0,
        )
        live = await self.stack.enter_async_context(call(ctx, memory, settings=settings))
        self.stack.push_async_callback(live.aclose)
        return live.agent(Agent(instructions=INSTRUCTIONS))


class OurHook(Ours):
    """The same with the lookup in ``on_user_turn_completed``."""

    where = "hook"


class RecallLiveKit(Arm):
    """recall-livekit on the server that it starts on this machine, filled with facts."""

    package = "recall-livekit"

    async def agent(self) -> Agent:
        """The agent."""
        import recall_livekit

        folder = Path(self.place["folder"]) / "recall"
        registry = Path(str(recall_livekit.__file__)).parent / "registry_voice.json"
        memory = recall_livekit.RecallMemory.open(
            local_dir=folder, predicates=str(registry), timeout=60.0
        )
        self.stack.callback(_end_server, folder)
        self.stack.callback(memory.close)
        subject = memory.for_subject("ana", write_timeout=60.0)
        for text in self.place["facts"]:
            await subject.remember("open_issue", text)
        return recall_livekit.RecallAgent(memory=subject, instructions=INSTRUCTIONS)


class Hindsight(Arm):
    """hindsight-livekit; its service answers at once."""

    package = "hindsight-livekit"

    async def agent(self) -> Agent:
        """The agent."""
        from hindsight_livekit import HindsightAgent, HindsightMemory

        found = SimpleNamespace(results=[SimpleNamespace(text=one) for one in _TOLD])
        self.memory = HindsightMemory("ana", client=_service(arecall=found, aretain=None))
        return HindsightAgent(memory=self.memory, instructions=INSTRUCTIONS)

    def attach(self, session: Any) -> None:
        """Record it."""
        self.memory.attach(session)


class Zep(Arm):
    """zep-livekit; its service answers at once."""

    package = "zep-livekit"

    async def agent(self) -> Agent:
        """The agent."""
        from zep_livekit import ZepUserAgent

        found = SimpleNamespace(context="\n".join(_TOLD))
        client: Any = SimpleNamespace(thread=_service(add_messages=found))
        return ZepUserAgent(
            zep_client=client, user_uuid="user", thread_uuid="thread", instructions=INSTRUCTIONS
        )


class MemorySync(Arm):
    """livekit-memorysync; its service answers at once."""

    package = "livekit-memorysync"

    async def agent(self) -> Agent:
        """The agent."""
        from livekit_memorysync import MemorySyncAgent, MemorySyncMemory

        found = {"context": "\n".join(_TOLD)}
        api = _service(resolve_tenant_id="t", recall=found, query={}, add_turn={}, aclose=None)
        memory = MemorySyncMemory(user_id="ana", api=api)
        return MemorySyncAgent(user_id="ana", memory=memory, instructions=INSTRUCTIONS)


ARMS: dict[str, type[Arm]] = {
    "none": Arm,
    "none, late": Late,
    "llm_node": Ours,
    "hook": OurHook,
    "recall-livekit": RecallLiveKit,
    "hindsight-livekit": Hindsight,
    "zep-livekit": Zep,
    "livekit-memorysync": MemorySync,
}


class Line:
    """One session with one arm, typed to or spoken to."""

    def __init__(self, arm: Arm, *, speech: bool, place: dict[str, Any]) -> None:
        self.arm = arm
        self.ears = FedSTT() if speech else None
        answer = Reply(text=_ANSWER, delay_seconds=place["llm_seconds"] if speech else 0.0)
        self.model = ScriptedLLM(lambda _: answer)
        self.replied = asyncio.Event()
        self.endpointing = place["endpointing_seconds"]

    async def open(self) -> None:
        """Start the session."""
        turn: Any = {"turn_detection": None}
        more: dict[str, Any] = {}
        if self.ears is not None:
            delay = self.endpointing
            turn = {
                "turn_detection": "stt",
                "endpointing": {"min_delay": delay, "max_delay": delay},
                "preemptive_generation": {"enabled": self.arm.early},
            }
            more = {"stt": self.ears, "session_close_transcript_timeout": 0.1}
        agent = await self.arm.agent()
        session = AgentSession[Any](llm=self.model, vad=None, turn_handling=turn, **more)
        session.on("conversation_item_added", self._on_item)
        self.arm.attach(session)
        await session.start(agent)
        self.session = session

    async def turn(self, text: str) -> dict[str, float]:
        """Say something, and measure until the answer stands in the conversation."""
        asked = len(self.model.requests)
        self.replied.clear()
        cpu, started = time.process_time(), time.perf_counter()
        if self.ears is None:
            await self.session.run(user_input=text)
        else:
            _say(self.ears, text)
            async with asyncio.timeout(20):
                await self.replied.wait()
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        await asyncio.sleep(_SETTLE_SECONDS)
        requests = self.model.requests[asked:]
        told = any(_ANSWER not in one and "memor" in one.lower() for one in _texts(requests[-1:]))
        return {"seconds": seconds, "cpu": cpu, "requests": len(requests), "told": told}

    async def aclose(self) -> None:
        """End the session and what its arm holds."""
        await self.session.aclose()
        await self.arm.aclose()

    def _on_item(self, event: Any) -> None:
        if getattr(event.item, "role", None) == "assistant":
            self.replied.set()


async def _preload(place: dict[str, Any], rounds: int) -> dict[str, list[float]]:
    """Seconds of ``preload`` with a memory that was opened for it, without and with last turns."""
    from secondcall import Memory
    from secondcall.adapters.livekit import preload

    found: dict[str, list[float]] = {"brief": [], "brief and 4 turns": []}
    for number in range(rounds + 2):
        for name, turns in (("brief", 0), ("brief and 4 turns", 4)):
            async with Memory.open(place["url"]) as memory:
                user = memory.user(await memory.identify(subject=place["users"]["llm_node"]))
                started = time.perf_counter()
                await preload(user, deadline_seconds=5.0, last_turns=turns)
                if number >= 2:
                    found[name].append(time.perf_counter() - started)
    return found


async def _serve() -> None:
    lines: dict[str, Line] = {}
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command: dict[str, Any] = json.loads(line)
        try:
            answer = await _done(command, lines)
        except Exception as error:  # told to the process that asked, which prints it
            answer = {"error": f"{type(error).__name__}: {error}"}
        _OUT.write(json.dumps(answer) + "\n")
        _OUT.flush()


async def _done(command: dict[str, Any], lines: dict[str, Line]) -> Any:
    match command["do"]:
        case "open":
            kind, place = ARMS[command["arm"]], command["place"]
            about = "" if kind.package is None else version(kind.package)
            line = Line(kind(place), speech=command["speech"], place=place)
            await line.open()
            lines[command["arm"]] = line
            gc.collect()
            return {"version": about, "livekit-agents": version("livekit-agents")}
        case "turn":
            return await lines[command["arm"]].turn(command["text"])
        case "close":
            for line in lines.values():
                await line.aclose()
            lines.clear()
            return {}
        case "preload":
            return await _preload(command["place"], command["rounds"])
        case other:
            raise ValueError(f"no command is named {other!r}")


def _say(ears: FedSTT, text: str) -> None:
    """As a recogniser gives it that knows when a turn is about to end."""
    ears.feed(stt.SpeechEventType.START_OF_SPEECH)
    ears.feed(stt.SpeechEventType.INTERIM_TRANSCRIPT, text[: len(text) // 2])
    ears.feed(stt.SpeechEventType.PREFLIGHT_TRANSCRIPT, text)
    ears.feed(stt.SpeechEventType.FINAL_TRANSCRIPT, text)
    ears.feed(stt.SpeechEventType.END_OF_SPEECH)


def _service(**answers: Any) -> Any:
    """A client whose methods give these answers at once."""

    def method(answer: Any) -> Any:
        async def call(*_: Any, **__: Any) -> Any:
            return answer

        return call

    return SimpleNamespace(**{name: method(answer) for name, answer in answers.items()})


def _texts(requests: Any) -> list[str]:
    return [one.text_content or "" for request in requests for one in request.messages()]


def _end_server(folder: Path) -> None:
    """End the server that recall-livekit leaves running."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        os.kill(json.loads((folder / "runtime.json").read_text())["pid"], 15)


if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    _OUT = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    logging.disable(logging.CRITICAL)
    asyncio.run(_serve())
