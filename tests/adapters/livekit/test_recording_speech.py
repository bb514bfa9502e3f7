"""Spoken calls: what was heard is what is recorded."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_args

import pytest
from adapters.livekit.calls import recording, said
from adapters.livekit.waiting import until
from livekit.agents import Agent, AgentSession, function_tool
from livekit.agents.voice.events import EventTypes

from secondcall.testing.livekit import FedSTT, Reply, ScriptedLLM
from secondcall.testing.livekit_audio import FedVAD, Loudspeaker, ToneTTS, connect_audio
from secondcall.types import Message, ToolCall

pytestmark = pytest.mark.anyio

LONG = " ".join(f"word{number}" for number in range(60))


@asynccontextmanager
async def _speaking(
    model: ScriptedLLM,
    ears: FedSTT,
    speaker: Loudspeaker,
    agent: Agent | None = None,
    noise: FedVAD | None = None,
) -> AsyncGenerator[AgentSession[Any]]:
    session = AgentSession[Any](
        llm=model,
        stt=ears,
        vad=noise,
        tts=ToneTTS(),
        turn_handling={
            "turn_detection": "stt",
            "endpointing": {"min_delay": 0.01, "max_delay": 0.05},
        },
        session_close_transcript_timeout=0.3,
        aec_warmup_duration=None,
    )
    synchronizer = connect_audio(session, speaker)
    await session.start(Agent(instructions="Be brief.") if agent is None else agent)
    try:
        yield session
    finally:
        await session.aclose()
        await synchronizer.aclose()


async def test_a_spoken_reply_is_recorded_when_it_was_heard(tmp_path: Path) -> None:
    """The caller's words carry how sure they are; the reply is recorded after it was played."""
    ears, speaker = FedSTT(), Loudspeaker()
    async with recording(tmp_path) as call:
        async with _speaking(ScriptedLLM(["Good morning."]), ears, speaker) as session:
            call.recorder.attach(session)
            ears.say("hello there")
            await until(lambda: call.recorder.progress.store == 2)
        found = await call.items()
    assert said(found) == [("user", "hello there"), ("assistant", "Good morning.")]
    assert found[0].item.metadata == {"transcript_confidence": 0.9}
    assert speaker.heard_seconds > 0


async def test_an_interrupted_reply_keeps_what_was_heard(tmp_path: Path) -> None:
    """When the caller breaks in, the record has the beginning that was played, flagged, and not
    the words that were only generated."""
    ears, speaker, noise = FedSTT(), Loudspeaker(), FedVAD()
    model = ScriptedLLM([LONG, "Sorry."])
    async with recording(tmp_path) as call:
        async with _speaking(model, ears, speaker, noise=noise) as session:
            call.recorder.attach(session)
            ears.say("tell me everything")
            await until(lambda: speaker.playing)
            await _played(speaker, 1.5)
            noise.start_speech()
            await until(lambda: not speaker.playing)
            noise.end_speech()
            ears.say("stop please")
            await until(lambda: call.recorder.progress.store == 4)
        found = await call.items()
    replies = [one.item for one in found if isinstance(one.item, Message)]
    first = replies[1]
    assert [one.role for one in replies] == ["user", "assistant", "user", "assistant"]
    assert first.interrupted
    assert LONG.startswith(first.text.strip())
    assert 0 < len(first.text) < len(LONG) / 2
    assert not replies[3].interrupted


async def test_a_reply_that_nobody_heard_is_not_recorded(tmp_path: Path) -> None:
    """A reply that was interrupted before its first sound leaves no item."""
    ears, speaker = FedSTT(), Loudspeaker()
    model = ScriptedLLM([Reply(text=LONG, delay_seconds=0.3), "Yes?"])
    async with recording(tmp_path) as call:
        async with _speaking(model, ears, speaker) as session:
            call.recorder.attach(session)
            ears.say("tell me everything")
            await until(lambda: len(model.requests) == 1)
            await session.interrupt()
            ears.say("wait")
            await until(lambda: "Yes?" in str(said(_of(session))))
        await call.recorder.finish()
        found = await call.items()
    assert ("assistant", LONG) not in said(found)
    assert said(found)[-1] == ("assistant", "Yes?")


async def test_last_words_are_kept(tmp_path: Path) -> None:
    """What the caller says while the agent speaks and the call ends is committed after ``on_exit``
    and recorded."""
    ears, speaker, exited = FedSTT(), Loudspeaker(), list[int]()

    class _Leaving(Agent):
        async def on_exit(self) -> None:
            exited.append(call.recorder.progress.store)
            ears.say("and call me back tomorrow")

    async with recording(tmp_path) as call:
        agent = _Leaving(instructions="Be brief.")
        async with _speaking(ScriptedLLM(["Bye."]), ears, speaker, agent) as session:
            call.recorder.attach(session)
            ears.say("goodbye")
            await until(lambda: call.recorder.progress.store == 2)
        await call.recorder.finish()
        found = await call.items()
    assert exited == [2]
    assert said(found)[-1] == ("user", "and call me back tomorrow")


async def test_tools_of_an_interrupted_turn_are_recorded(tmp_path: Path) -> None:
    """The result of a tool is recorded although the caller breaks into what is said beside it.

    Older releases throw the result away and tell nobody: then there is nothing to record.
    """
    ears, speaker = FedSTT(), Loudspeaker()

    class _Shop(Agent):
        @function_tool
        async def book(self) -> str:
            """Books a table."""
            return "booked table 7"

    model = ScriptedLLM([Reply(text=LONG, tools=[("book", {})]), "Fine."])
    async with recording(tmp_path) as call:
        async with _speaking(model, ears, speaker, _Shop(instructions="Be brief.")) as session:
            call.recorder.attach(session)
            ears.say("book a table")
            await until(lambda: speaker.playing)
            await until(lambda: bool(model.requests))
            await _played(speaker, 0.5)
            await session.interrupt()
            await call.recorder.finish()
            found = await call.items()
    calls = [one.item for one in found if isinstance(one.item, ToolCall)]
    told = [("book", "booked table 7")] if "tool_execution_updated" in get_args(EventTypes) else []
    assert [(one.name, one.output) for one in calls] == told


def _of(session: AgentSession[Any]) -> list[Message]:
    return [
        Message("user" if one.role == "user" else "assistant", one.text_content or "")
        for one in session.history.messages()
    ]


async def _played(speaker: Loudspeaker, seconds: float) -> None:
    """Wait until so much was played of the present segment."""
    await until(lambda: speaker.played_seconds >= seconds)
