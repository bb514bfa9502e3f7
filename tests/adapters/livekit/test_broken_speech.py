"""Spoken calls in which agents and callers change in mid-word: nothing is lost, doubled or mixed
up, with the lookup in the hook too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from adapters.livekit.jobs import ANN, end, texts
from adapters.livekit.remembered import ASKED, HELD, looked_up
from adapters.livekit.waiting import until
from livekit.agents import Agent, AgentSession, function_tool, llm

from secondcall import Memory, Message, UserMemory
from secondcall.adapters.livekit import CallSettings, LookupOptions, call
from secondcall.testing.livekit import FedSTT, Reply, ScriptedLLM
from secondcall.testing.livekit_audio import FedVAD, Loudspeaker, ToneTTS, connect_audio
from secondcall.testing.livekit_room import room_job

pytestmark = pytest.mark.anyio

LONG = " ".join(f"word{number}" for number in range(60))
WHERE = pytest.mark.parametrize("where", ["llm_node", "hook"])


@pytest.fixture
async def memory() -> AsyncIterator[Memory]:
    """The memory of Ann, who spoke about her seat."""
    async with Memory.open("memory://") as memory:
        ann = memory.user(await memory.identify(phone=ANN))
        earlier = await ann.session("earlier")
        await earlier.record(Message("user", HELD, id="seat"), Message("assistant", "4C.", id="r"))
        await memory.flush()
        await ann.recall("warm up", limit=1)
        yield memory


def _settings(folder: Path, where: Any) -> CallSettings:
    lookup = LookupOptions(deadline_seconds=5.0, where=where)
    return CallSettings(journal=folder, preload_seconds=60, max_tokens=1, lookup=lookup)


@asynccontextmanager
async def _speaking(
    agent: Agent, model: ScriptedLLM, ears: FedSTT, speaker: Loudspeaker, noise: FedVAD
) -> AsyncGenerator[AgentSession[Any]]:
    session = AgentSession[Any](
        llm=model,
        stt=ears,
        vad=noise,
        tts=ToneTTS(seconds_per_word=0.05),
        turn_handling={
            "turn_detection": "stt",
            "endpointing": {"min_delay": 0.01, "max_delay": 0.05},
        },
        session_close_transcript_timeout=0.1,
        aec_warmup_duration=None,
    )
    synchronizer = connect_audio(session, speaker)
    await session.start(agent)
    try:
        yield session
    finally:
        await session.aclose()
        await synchronizer.aclose()


class _Desk(Agent):
    """Keeps what its own hook is shown, and hands over."""

    def __init__(self) -> None:
        super().__init__(instructions="Be brief.")
        self.shown: list[str] = []
        self.following: _Desk | None = None
        self.has_entered = False

    async def on_enter(self) -> None:
        """Note that it is there."""
        self.has_entered = True

    async def on_user_turn_completed(
        self, turn_ctx: llm.ChatContext, new_message: llm.ChatMessage
    ) -> None:
        """Look."""
        self.shown.append(texts(turn_ctx))

    @function_tool
    async def to_sales(self) -> Agent:
        """Hands over to sales."""
        self.following = _Desk()
        return self.following

    @function_tool
    async def seats(self) -> str:
        """The free seats."""
        return "4C, 5D"


async def _said(user: UserMemory) -> list[tuple[str, str]]:
    return [
        (one.item.role, one.item.text.strip())
        async for one in user.items()
        if isinstance(one.item, Message) and one.key.session_id != "earlier"
    ]


@WHERE
async def test_a_spoken_turn_with_a_tool_is_told_once(
    memory: Memory, tmp_path: Path, where: str
) -> None:
    """What was found for the caller's words stands once in the first request and in the one after
    the tool, and the record holds no word of it."""
    ears, speaker, noise = FedSTT(), Loudspeaker(), FedVAD()
    with room_job() as job:
        job.call_in(ANN)
        async with call(job.ctx, memory, settings=_settings(tmp_path, where)) as live:
            model = ScriptedLLM(_seats)
            agent = live.agent(_Desk())
            async with _speaking(agent, model, ears, speaker, noise) as session:
                ears.say(ASKED)
                await until(lambda: "4C is free." in str(session.history.messages()))
        await end(job.ctx)
        said = await _said(live.user)
    told = [len(looked_up(model, number)) for number in range(len(model.requests))]
    assert told[-2:] == [1, 1]
    assert said == [("user", ASKED), ("assistant", "4C is free.")]


def _seats(chat_ctx: llm.ChatContext) -> Reply:
    if any(isinstance(one, llm.FunctionCallOutput) for one in chat_ctx.items):
        return Reply(text="4C is free.")
    return Reply(tools=[("seats", {})])


@WHERE
async def test_words_spoken_as_the_next_agent_enters_are_answered_with_memory(
    memory: Memory, tmp_path: Path, where: str
) -> None:
    """Who speaks in the moment when the next agent enters, which nobody wrapped, is answered by it
    with memory; every word is recorded once, in order."""
    ears, speaker, noise = FedSTT(), Loudspeaker(), FedVAD()

    def script(chat_ctx: llm.ChatContext) -> Reply:
        if "sales" in texts(chat_ctx).casefold():
            return Reply(tools=[("to_sales", {})], delay_seconds=0.05)
        return Reply(text="4C is yours.")

    with room_job() as job:
        job.call_in(ANN)
        async with call(job.ctx, memory, settings=_settings(tmp_path, where)) as live:
            model, desk = ScriptedLLM(script), _Desk()
            async with _speaking(live.agent(desk), model, ears, speaker, noise) as session:
                ears.say("To sales, please")
                # Words that come while LiveKit changes agents it drops itself, and tells nobody.
                await until(lambda: desk.following is not None and desk.following.has_entered)
                ears.say(ASKED)
                await until(lambda: "4C is yours." in str(session.history.messages()))
                await until(lambda: not speaker.playing)
                assert session.current_agent is desk.following
        await end(job.ctx)
        said = await _said(live.user)
    assert said == [
        ("user", "To sales, please"),
        ("user", ASKED),
        ("assistant", "4C is yours."),
    ]
    assert len(looked_up(model)) == 1
    assert desk.following is not None
    assert (HELD in desk.following.shown[-1]) is (where == "hook")


@WHERE
async def test_who_turns_out_to_be_another_hears_nothing_of_the_first(
    memory: Memory, tmp_path: Path, where: str
) -> None:
    """While a reply to Ann is being spoken the backend proves that it is Ben, who breaks in: what
    was heard of the reply is in Ann's record, flagged; Ben's words are in his, answered without
    anything of hers."""
    ears, speaker, noise = FedSTT(), Loudspeaker(), FedVAD()
    with room_job() as job:
        job.call_in(ANN)
        async with call(job.ctx, memory, settings=_settings(tmp_path, where)) as live:
            ann = live.user
            model = ScriptedLLM(
                lambda asked: Reply(text="Hello." if "Ben" in texts(asked) else LONG)
            )
            async with _speaking(live.agent(_Desk()), model, ears, speaker, noise) as session:
                ears.say("Tell me all")
                await until(lambda: speaker.played_seconds > 0.6)
                job.set_attributes("sip_1", {"sip.phoneNumber": ANN, "user_id": "ben"})
                await until(lambda: live.recorder.since is not None)
                noise.start_speech()
                await until(lambda: not speaker.playing)
                noise.end_speech()
                ears.say(f"I am Ben. {ASKED}")
                await until(lambda: "Hello." in str(session.history.messages()))
                await until(lambda: not speaker.playing)
            ben = live.user
        await end(job.ctx)
        of_ann, of_ben = await _said(ann), await _said(ben)
        interrupted = [
            one.item.interrupted async for one in ann.items() if isinstance(one.item, Message)
        ]
    assert of_ann[0] == ("user", "Tell me all")
    assert LONG.startswith(of_ann[1][1])
    assert len(of_ann) == 2
    assert interrupted[-1]
    assert of_ben == [("user", f"I am Ben. {ASKED}"), ("assistant", "Hello.")]
    assert looked_up(model) == []
    assert HELD not in texts(model.requests[-1])


async def test_a_hook_that_waits_gives_the_next_caller_nothing_of_the_one_before(
    memory: Memory, tmp_path: Path
) -> None:
    """What is found for the one, after it has become known that it is the other, reaches neither
    hook nor model."""
    ears, speaker, noise = FedSTT(), Loudspeaker(), FedVAD()
    with room_job() as job:
        job.call_in(ANN)
        async with call(job.ctx, memory, settings=_settings(tmp_path, "hook")) as live:
            model, desk = ScriptedLLM(["Hello."]), _Desk()
            lookup = live._source.lookup  # pyright: ignore[reportPrivateUsage] - no public way in to hold a lookup back
            gate, waits, ask = asyncio.Event(), asyncio.Event(), lookup.for_turn

            async def held(*args: Any, **more: Any) -> llm.ChatMessage | None:
                found = await ask(*args, **more)
                waits.set()
                await gate.wait()
                return found

            lookup.for_turn = held
            async with _speaking(live.agent(desk), model, ears, speaker, noise):
                ears.say(ASKED)
                await waits.wait()
                job.set_attributes("sip_1", {"sip.phoneNumber": ANN, "user_id": "ben"})
                await until(lambda: live.recorder.since is not None)
                await until(lambda: live._source.lookup is not lookup)  # pyright: ignore[reportPrivateUsage] - no public name tells when the caller has changed
                gate.set()
                await until(lambda: len(desk.shown) == 1)
                await until(lambda: len(model.requests) > 0)
        await end(job.ctx)
    assert HELD not in desk.shown[0]
    assert HELD not in texts(model.requests[-1])
