"""What LiveKit does, as this package counts on it: a release that does otherwise fails here first.

What follows from each for memory is tested where it is written; here is what stands nowhere else.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

import pytest
from adapters.livekit.calls import recording, said
from adapters.livekit.realtime_model import ScriptedRealtime
from adapters.livekit.remembered import (
    ASKED,
    ObedientStore,
    a_caller,
    answered,
    looked_up,
    speaking,
    texting,
)
from adapters.livekit.waiting import until
from livekit.agents import (
    Agent,
    AgentSession,
    CloseReason,
    ConversationItemAddedEvent,
    StopResponse,
    llm,
)

from secondcall import Message
from secondcall.adapters.livekit import CallSettings, LookupOptions, with_memory
from secondcall.adapters.livekit.source import CallMemory
from secondcall.testing.livekit import FedSTT, Reply, ScriptedLLM
from secondcall.testing.livekit_audio import Loudspeaker, ToneTTS, connect_audio

pytestmark = pytest.mark.anyio

LONG = " ".join(f"word{number}" for number in range(60))


class _Hooked(Agent):
    """An agent whose hook is counted, may be held up, and may fail."""

    def __init__(self, error: BaseException | None = None) -> None:
        super().__init__(instructions="Be brief.")
        self.heard: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self._error = error

    async def on_user_turn_completed(
        self, turn_ctx: llm.ChatContext, new_message: llm.ChatMessage
    ) -> None:
        """Hear, wait, fail."""
        del turn_ctx
        self.heard.append(new_message.text_content or "")
        await self.gate.wait()
        if self._error is not None:
            raise self._error


class _Told:
    """Tells that an event came."""

    def __init__(self, event: asyncio.Event) -> None:
        self._event = event

    def __call__(self, _: object) -> None:
        self._event.set()


async def test_no_hook_for_what_the_application_says() -> None:
    """``generate_reply(user_input=...)`` runs no hook; memory is looked up for it all the same."""
    async with a_caller() as user:
        agent = with_memory(_Hooked(), CallMemory(user))
        model = ScriptedLLM(["4C."])
        async with texting(model, agent) as session:
            await session.generate_reply(user_input=ASKED)
        assert agent.heard == []
        assert len(looked_up(model)) == 1


@pytest.mark.parametrize(
    "error", [ValueError("odd"), asyncio.CancelledError(), StopResponse()], ids=repr
)
async def test_a_hook_that_fails_loses_the_turn(error: BaseException) -> None:
    """Without memory's guard an error out of the hook leaves neither the caller's words nor a
    reply: that is why ours lets none out."""
    agent, model, ears = _Hooked(error), ScriptedLLM(["Never."]), FedSTT()
    async with speaking(model, ears, agent, early=False) as session:
        ears.say("Hello?")
        await until(lambda: agent.heard == ["Hello?"])
        await session.wait_for_idle()
        assert session.history.messages() == []
    assert model.requests == []


async def test_a_second_turn_waits_for_the_first_hook() -> None:
    """A hook is waited for without a limit, and the next turn's hook begins after it."""
    agent, model, ears = _Hooked(), ScriptedLLM(["One.", "Two."]), FedSTT()
    async with speaking(model, ears, agent, early=False) as session:
        agent.gate.clear()
        ears.say("First.")
        await until(lambda: agent.heard == ["First."])
        heard = asyncio.Event()
        session.on("user_input_transcribed", _Told(heard))
        ears.say("Second.")
        await heard.wait()
        assert agent.heard == ["First."]
        agent.gate.set()
        await until(lambda: agent.heard == ["First.", "Second."])
        await answered(session, 3)
        first = session.history.messages()[0]
    assert first.text_content == "First."
    assert first.metrics.get("on_user_turn_completed_delay", 0.0) > 0.0


@pytest.mark.parametrize("where", ["llm_node", "hook"])
async def test_who_speaks_while_memory_hangs_is_recorded(
    where: Literal["llm_node", "hook"], tmp_path: Path
) -> None:
    """Two turns that are spoken while the store answers nobody are both in the record, in the order
    in which they were said."""
    store = ObedientStore()
    options = LookupOptions(deadline_seconds=0.1, where=where, prefetch=False)
    async with a_caller(store) as user, recording(tmp_path) as kept:
        agent = with_memory(_Hooked(), CallMemory(user, options=options))
        model, ears = ScriptedLLM(["One.", "Two.", "Three."]), FedSTT()
        async with speaking(model, ears, agent, early=False) as session:
            kept.recorder.attach(session)
            store.gate.clear()
            ears.say(ASKED)
            await until(lambda: agent.heard != [])
            ears.say("And what is my dog called?")
            await until(lambda: len(agent.heard) == 2)
            await until(lambda: session.history.messages()[-1].role == "assistant")
            store.gate.set()
        await kept.recorder.finish(session.history)
        words = [text for role, text in said(await kept.items()) if role == "user"]
    assert words == [ASKED, "And what is my dog called?"]


def test_what_has_no_time_lands_behind_the_callers_words() -> None:
    """A message that is added without a time stands behind what the caller said; with a time just
    before it, in front of it."""
    asked = llm.ChatMessage(role="user", content=["Where is it?"])
    behind, before = llm.ChatContext.empty(), llm.ChatContext.empty()
    for context in (behind, before):
        context.insert(asked)
    behind.add_message(role="user", content="memory")
    before.add_message(role="user", content="memory", created_at=asked.created_at - 1e-6)
    assert [one.text_content for one in behind.messages()] == ["Where is it?", "memory"]
    assert [one.text_content for one in before.messages()] == ["memory", "Where is it?"]


async def test_a_handler_that_raises_a_type_error_costs_the_reply() -> None:
    """Of all errors LiveKit lets a handler's ``TypeError`` through, and the turn it was told of is
    not answered: that is why ours lets none out."""

    def odd(event: ConversationItemAddedEvent) -> None:
        if isinstance(event.item, llm.ChatMessage) and event.item.role == "user":
            raise TypeError("not JSON")

    agent, model, ears = _Hooked(), ScriptedLLM(["Never."]), FedSTT()
    async with speaking(model, ears, agent, early=False) as session:
        session.on("conversation_item_added", odd)
        ears.say("Hello?")
        await until(lambda: agent.heard == ["Hello?"])
        await session.wait_for_idle()
        roles = [one.role for one in session.history.messages()]
    assert "assistant" not in roles


async def test_livekit_keeps_nothing_itself() -> None:
    """A new session knows nothing of the one before, what was loaded is not in its history, and its
    userdata is the very object that it was given."""
    kept = {"count": 1}
    first = AgentSession[dict[str, int]](
        llm=ScriptedLLM(["Hello."]), vad=None, turn_handling={"turn_detection": None}, userdata=kept
    )
    agent = Agent(instructions="x", chat_ctx=llm.ChatContext.empty())
    earlier = llm.ChatContext.empty()
    earlier.add_message(role="user", content="From an earlier call.", created_at=1.0)
    await agent.update_chat_ctx(earlier)
    await first.start(agent)
    await first.run(user_input="Hi.")
    assert [one.text_content for one in first.history.messages()] == ["Hi.", "Hello."]
    assert first.userdata is kept
    await first.aclose()
    async with texting(ScriptedLLM(["Who?"]), Agent(instructions="x")) as second:
        await second.run(user_input="Me again.")
        assert "Hi." not in str(second.history.messages())


async def test_a_realtime_model_has_no_lookup() -> None:
    """LiveKit calls no ``llm_node`` for a realtime model: nothing is looked up for what is typed,
    and the answer comes all the same."""
    async with a_caller() as user:
        source = CallMemory(user)
        model = ScriptedRealtime(lambda _: Reply(text="Seat 4C."))
        session = AgentSession[None](llm=model, vad=None)
        await session.start(with_memory(Agent(instructions="x"), source))
        await session.run(user_input=ASKED)
        replies = [one.text_content for one in session.history.messages()]
        await session.aclose()
    assert replies == [ASKED, "Seat 4C."]
    assert source.lookup.searches == 0


async def test_who_leaves_while_the_agent_speaks_has_heard_the_beginning(tmp_path: Path) -> None:
    """What was played of the last reply when the caller's line went is recorded, flagged, and not
    the rest of it."""
    speaker, model = Loudspeaker(), ScriptedLLM([LONG])
    session = AgentSession[object](
        llm=model,
        vad=None,
        tts=ToneTTS(),
        turn_handling={"turn_detection": None},
        aec_warmup_duration=None,
    )
    async with recording(tmp_path) as kept:
        kept.recorder.attach(session)
        synchronizer = connect_audio(session, speaker)
        await session.start(Agent(instructions="Be brief."))
        session.generate_reply(user_input="Tell me everything.")
        await until(lambda: speaker.played_seconds >= 1.0)
        await session._aclose_impl(reason=CloseReason.PARTICIPANT_DISCONNECTED)  # pyright: ignore[reportPrivateUsage] - a room's own way
        await synchronizer.aclose()
        await kept.recorder.finish()
        last = (await kept.items())[-1].item
    assert isinstance(last, Message)
    assert last.role == "assistant"
    assert last.interrupted
    assert LONG.startswith(last.text.strip())
    assert 0 < len(last.text.strip()) < len(LONG)


def test_the_end_of_a_call_is_within_a_workers_patience() -> None:
    """A worker kills its process ten seconds after the session's end; two ends of a call, one after
    the other, are over by then, and the one that counts within eight."""
    assert CallSettings().end_seconds <= 8.0
