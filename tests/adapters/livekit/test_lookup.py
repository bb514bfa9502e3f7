"""Memory is asked once for each thing that the caller says, in time or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from adapters.livekit.remembered import (
    ASKED,
    HELD,
    UNKNOWN,
    ObedientStore,
    a_caller,
    answered,
    looked_up,
    said_to,
    speaking,
    texting,
)
from adapters.livekit.waiting import until
from livekit.agents import Agent, llm, stt
from livekit.agents.llm import function_tool
from livekit.agents.voice.room_io import TextInputEvent, TextInputOptions

from secondcall import Message, StoreUnavailable, UserMemory
from secondcall.adapters.livekit.agent import with_memory
from secondcall.adapters.livekit.lookup import Lookup, LookupOptions
from secondcall.adapters.livekit.source import CallMemory
from secondcall.errors import InvalidValue
from secondcall.testing.livekit import FedSTT, Reply, ScriptedLLM

pytestmark = pytest.mark.anyio

PATIENT = LookupOptions(deadline_seconds=5.0)
"""A slow machine is no miss."""


def _agent(user: UserMemory | None, options: LookupOptions = PATIENT) -> tuple[Agent, CallMemory]:
    source = CallMemory(user, options=options)
    return with_memory(Agent(instructions="Be brief."), source), source


async def test_what_is_typed_is_looked_up_and_told_before_it() -> None:
    """``run`` and ``generate_reply(user_input=)`` find the old words, which stand fenced right
    before the caller's; one model call a turn, and nothing of it in history or context."""
    async with a_caller() as user:
        agent, source = _agent(user)
        model = ScriptedLLM(["Seat 4C.", "Still 4C."])
        async with texting(model, agent) as session:
            await session.run(user_input=ASKED)
            (found,) = looked_up(model)
            items = model.requests[0].items
            place = items.index(found)
            assert items[place + 1].id == session.history.messages()[0].id
            assert found.created_at < items[place + 1].created_at
            assert "<memory" in (found.text_content or "")
            assert HELD in (found.text_content or "")
            await session.generate_reply(user_input="And which aisle seat was it again?")
            assert len(looked_up(model)) == 1
            assert len(model.requests) == 2
            assert source.lookup.searches == 2
            assert all(HELD not in (one.text_content or "") for one in session.history.messages())
            kept = [one.text_content or "" for one in agent.chat_ctx.messages()]
            assert all(HELD not in text for text in kept)


async def test_nothing_is_added_when_nothing_is_found() -> None:
    """For words that memory has nothing for, the model is asked with the very context that it is
    asked with where there is no memory."""
    async with a_caller() as user:
        agent, _ = _agent(user)
        model, bare = ScriptedLLM(["No idea."]), ScriptedLLM(["No idea."])
        async with texting(model, agent) as session:
            await session.run(user_input=UNKNOWN)
        async with texting(bare, Agent(instructions="Be brief.")) as session:
            await session.run(user_input=UNKNOWN)
        assert said_to(model) == said_to(bare)
        assert len(model.requests) == 1


async def test_without_a_user_nothing_is_looked_up() -> None:
    """A call that has no memory, since the store was down at its start, goes on without."""
    agent, source = _agent(None)
    model = ScriptedLLM(["Hello."])
    async with texting(model, agent) as session:
        await session.run(user_input=ASKED)
    assert source.lookup.searches == 0
    assert len(model.requests) == 1


async def test_a_greeting_asks_memory_nothing() -> None:
    """A reply that answers nobody makes no lookup, examples in the prompt or not."""
    store = ObedientStore()
    async with a_caller(store) as user:
        agent, source = _agent(user)
        example = agent.chat_ctx.copy()
        example.add_message(role="user", content="Which aisle seat?")
        example.add_message(role="assistant", content="An example of an answer.")
        await agent.update_chat_ctx(example)
        model = ScriptedLLM(["Good morning."])
        async with texting(model, agent) as session:
            reads = store.reads
            await session.generate_reply(instructions="Greet the caller.")
            assert store.reads == reads
        assert source.lookup.searches == 0
        assert len(model.requests) == 1


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("words", [ASKED, UNKNOWN])
async def test_a_spoken_turn_costs_one_model_call(early: bool, words: str) -> None:
    """With preemptive generation on and off, found or not, a spoken turn is one model call, and
    what is found stands in it."""
    async with a_caller() as user:
        agent, _ = _agent(user)
        model, ears = ScriptedLLM(["Well.", "Too many."]), FedSTT()
        async with speaking(model, ears, agent, early=early) as session:
            ears.feed(stt.SpeechEventType.START_OF_SPEECH)
            ears.feed(stt.SpeechEventType.PREFLIGHT_TRANSCRIPT, words)
            ears.feed(stt.SpeechEventType.FINAL_TRANSCRIPT, words)
            ears.feed(stt.SpeechEventType.END_OF_SPEECH)
            await answered(session, 2)
            said = [one.text_content or "" for one in session.history.messages()]
        assert said[0] == words
        assert len(model.requests) == 1
        assert len(looked_up(model)) == (1 if words == ASKED else 0)


async def test_the_early_reply_is_kept_while_memory_is_asked() -> None:
    """The model is asked while the caller may still go on, before the turn is over, with what was
    found; and the turn adds no second request."""
    async with a_caller() as user:
        agent, _ = _agent(user)
        model, ears = ScriptedLLM(["Seat 4C.", "Too many."]), FedSTT()
        async with speaking(model, ears, agent, delay=0.5) as session:
            ears.feed(stt.SpeechEventType.START_OF_SPEECH)
            ears.feed(stt.SpeechEventType.PREFLIGHT_TRANSCRIPT, ASKED)
            await until(lambda: len(model.requests) == 1)
            assert session.history.messages() == []
            ears.feed(stt.SpeechEventType.FINAL_TRANSCRIPT, ASKED)
            ears.feed(stt.SpeechEventType.END_OF_SPEECH)
            await answered(session, 2)
        assert len(model.requests) == 1
        assert len(looked_up(model)) == 1


class _Desk(Agent):
    """An agent with tools that take their time."""

    def __init__(self) -> None:
        super().__init__(instructions="Use tools.")
        self.done: list[str] = []

    @function_tool
    async def first(self) -> str:
        """First."""
        await asyncio.sleep(0.02)
        self.done.append("first")
        return "one"

    @function_tool
    async def second(self) -> str:
        """Second."""
        self.done.append("second")
        return "two"


async def test_tool_follow_ups_are_told_once() -> None:
    """Parallel tools and two follow-ups ask memory once, and each request has what was found once,
    right before the caller's words."""
    async with a_caller() as user:
        source = CallMemory(user, options=PATIENT)
        agent = with_memory(_Desk(), source)
        model = ScriptedLLM(
            [
                Reply(text="Let me see.", tools=[("first", {}), ("second", {})]),
                Reply(tools=[("second", {})]),
                "Done.",
            ]
        )
        async with texting(model, agent) as session:
            await session.run(user_input=ASKED)
        assert sorted(agent.done) == ["first", "second", "second"]
        assert source.lookup.searches == 1
        assert [len(looked_up(model, number)) for number in range(3)] == [1, 1, 1]
        for request in model.requests:
            texts = [one.text_content for one in request.messages()]
            assert HELD in (texts[texts.index(ASKED) - 1] or "")


async def test_a_store_that_raises_costs_the_reply_nothing() -> None:
    """Whatever the store raises, the model is asked without memory, and after two misses it is left
    alone for a while."""
    store = ObedientStore()
    async with a_caller(store) as user:
        agent, source = _agent(user)
        model = ScriptedLLM(["a", "b", "c", "d"])
        async with texting(model, agent) as session:
            errors = (StoreUnavailable("down"), TypeError("odd"), RuntimeError("broken"))
            for number, error in enumerate(errors):
                store.error = error
                await session.run(user_input=f"Which aisle seat, {number}?")
                assert len(looked_up(model)) == 0
            assert source.lookup.cooling
            assert source.lookup.searches == 2
        assert len(model.requests) == 3


@pytest.mark.parametrize("where", ["llm_node", "hook"])
async def test_a_store_that_cancels_loses_no_turn(where: Any) -> None:
    """A store out of which a cancellation comes loses neither the reply nor the caller's words."""
    store = ObedientStore()
    async with a_caller(store) as user:
        agent, _ = _agent(user, LookupOptions(deadline_seconds=5.0, where=where))
        model, ears = ScriptedLLM(["Yes.", "Yes."]), FedSTT()
        async with speaking(model, ears, agent) as session:
            store.error = asyncio.CancelledError()
            ears.say(ASKED)
            await answered(session, 2)
            assert session.history.messages()[0].text_content == ASKED


async def test_a_slow_store_is_not_waited_for_and_then_left_alone() -> None:
    """The deadline holds while the store hangs; after two misses no reply waits or asks, and when
    the time is over memory is asked again."""
    store = ObedientStore()
    async with a_caller(store) as user:
        options = LookupOptions(deadline_seconds=0.05, misses=2, cool_down_seconds=0.4)
        agent, source = _agent(user, options)
        model = ScriptedLLM([f"{number}" for number in range(9)])
        async with texting(model, agent) as session:
            store.gate.clear()
            for number in range(4):
                await session.run(user_input=f"Which aisle seat, number {number}?")
            assert source.lookup.searches == 2
            assert source.lookup.cooling
            store.gate.set()
            await until(lambda: not source.lookup.cooling)
            await session.run(user_input="My dog Bramble, what is he?")
            assert source.lookup.searches == 3
        assert len(model.requests) == 5


async def test_one_success_forgives_a_miss() -> None:
    """Only misses in a row make it stand back."""
    store = ObedientStore()
    async with a_caller(store) as user:
        agent, source = _agent(user)
        model = ScriptedLLM(["a", "b", "c"])
        async with texting(model, agent) as session:
            for error in (RuntimeError(), None, RuntimeError()):
                store.error = error
                await session.run(user_input=ASKED)
        assert source.lookup.searches == 3
        assert not source.lookup.cooling


async def test_what_comes_late_is_told_in_the_follow_up() -> None:
    """What was begun early and missed the deadline is there for the reply after a tool, without a
    second question."""
    store = ObedientStore()
    async with a_caller(store) as user:
        lookup = Lookup(user, LookupOptions(deadline_seconds=0.05))
        message = llm.ChatMessage(role="user", content=[ASKED])
        store.gate.clear()
        lookup.prefetch(ASKED)
        assert await lookup.for_turn(message) is None
        store.gate.set()
        found: list[llm.ChatMessage] = []
        async with asyncio.timeout(5):
            while not found:
                again = await lookup.for_turn(message)
                found += [] if again is None else [again]
                await asyncio.sleep(0.01)
        assert HELD in (found[0].text_content or "")
        assert lookup.searches == 1


async def test_a_cancelled_reply_does_not_cancel_the_lookup() -> None:
    """The question goes on for whoever asks next, and the cancellation is passed on."""
    store = ObedientStore()
    async with a_caller(store) as user:
        lookup = Lookup(user, PATIENT)
        message = llm.ChatMessage(role="user", content=[ASKED])
        store.gate.clear()
        reply = asyncio.ensure_future(lookup.for_turn(message))
        await until(lambda: lookup.searches == 1)
        await asyncio.sleep(0)
        reply.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reply
        store.gate.set()
        found = await lookup.for_turn(message)
        assert found is not None
        assert HELD in (found.text_content or "")
        assert lookup.searches == 1


async def test_an_interrupted_reply_leaves_the_next_turn_its_own_lookup() -> None:
    """After a barge-in the new words are looked up, and both turns stay in the history."""
    async with a_caller() as user:
        agent, source = _agent(user)
        model = ScriptedLLM([Reply(text="Well", delay_seconds=30.0), "Bramble."])
        async with texting(model, agent) as session:
            slow = session.generate_reply(user_input=ASKED)
            await until(lambda: len(model.requests) == 1)
            await session.interrupt()
            assert slow.interrupted
            await session.run(user_input="What is my dog called?")
            said = [one.text_content for one in session.history.messages() if one.role == "user"]
        assert said == [ASKED, "What is my dog called?"]
        assert source.lookup.searches == 2
        assert "Bramble" in (looked_up(model)[-1].text_content or "")


async def test_who_barges_in_is_looked_up_too() -> None:
    """Spoken over a reply that has not come, the second turn has its own lookup, and both turns
    stay in the history."""
    async with a_caller() as user:
        agent, source = _agent(user)
        slow = Reply(text="Well", delay_seconds=30.0)
        model = ScriptedLLM(
            lambda asked: "Bramble." if "dog" in str(asked.messages()[-1].content) else slow
        )
        ears = FedSTT()
        async with speaking(model, ears, agent, early=False) as session:
            ears.say(ASKED)
            await until(lambda: len(model.requests) == 1)
            await until(lambda: len(session.history.messages()) == 1)
            ears.say("What is my dog called?")
            await answered(session, 3)
            said = [one.text_content for one in session.history.messages() if one.role == "user"]
        assert said == [ASKED, "What is my dog called?"]
        assert "Bramble" in (looked_up(model)[-1].text_content or "")
        assert source.lookup.searches >= 2


async def test_text_typed_in_the_room_is_looked_up() -> None:
    """What a participant types, which runs no hook, is looked up like speech."""
    async with a_caller() as user:
        agent, _ = _agent(user)
        model = ScriptedLLM(["4C."])
        async with texting(model, agent) as session:
            typed_in = TextInputOptions().text_input_cb(session, TextInputEvent(text=ASKED))
            assert typed_in is not None
            await typed_in
            await answered(session, 2)
        assert len(looked_up(model)) == 1
        assert len(model.requests) == 1


async def test_a_session_closes_while_memory_is_asked() -> None:
    """A call that ends during a lookup ends, leaves no task, and has the caller's words."""
    store = ObedientStore()
    async with a_caller(store) as user:
        agent, source = _agent(user)
        model = ScriptedLLM(["Never."])
        before = asyncio.all_tasks()
        async with texting(model, agent) as session:
            store.gate.clear()
            session.generate_reply(user_input=ASKED)
            await until(lambda: source.lookup.searches == 1)
            await answered(session, 1)
        assert session.history.messages()[0].text_content == ASKED
        assert model.requests == []
        store.gate.set()
        await until(lambda: not [one for one in asyncio.all_tasks() - before if not one.done()])


async def test_what_the_brief_told_is_not_told_again() -> None:
    """A fact of the brief and this call's own words are not added as something found."""
    async with a_caller() as user:
        await user.remember("seat preference", "aisle seat near the front", kind="preference")
        lookup = Lookup(user, PATIENT, session_id="now")
        message = llm.ChatMessage(role="user", content=["What is my seat preference?"])
        before = await lookup.for_turn(message)
        assert before is not None
        assert "seat preference" in (before.text_content or "")
        lookup.told(await user.brief(max_tokens=400))
        again = message.model_copy(update={"id": "another"})
        after = await lookup.for_turn(again)
        assert after is None or "seat preference" not in (after.text_content or "")


async def test_what_is_less_urgent_waits_for_a_reply_but_not_for_ever() -> None:
    """``idle`` comes back when memory has answered; where it does not answer, when no reply would
    wait for it any more."""
    store = ObedientStore()
    async with a_caller(store) as user:
        lookup = Lookup(user, LookupOptions(deadline_seconds=0.3))
        await lookup.idle()
        store.gate.clear()
        asking = asyncio.ensure_future(
            lookup.for_turn(llm.ChatMessage(role="user", content=[ASKED]))
        )
        await until(lambda: lookup.running)
        await lookup.idle()
        assert await asking is None
        store.gate.set()


async def test_this_calls_own_words_are_found_only_where_the_context_lacks_them() -> None:
    """What was said in this call since the context begins is in it; what was said before that, in
    a long call, is found."""
    async with a_caller() as user:
        now = await user.session("now")
        recorded = await now.record(Message("user", "My locker code is tangerine.", id="code"))
        assert recorded.added == 1
        (item,) = await now.items()
        lookup = Lookup(user, PATIENT, session_id="now")
        message = llm.ChatMessage(role="user", content=["What is my locker code?"])
        there = await lookup.for_turn(message, since=item.at.timestamp() - 1)
        assert there is None
        lookup.committed(message.id)
        later = message.model_copy(update={"id": "later"})
        cut = await lookup.for_turn(later, since=item.at.timestamp() + 1)
        assert cut is not None
        assert "tangerine" in (cut.text_content or "")


async def test_a_long_call_does_not_hide_what_was_said_before_it() -> None:
    """When this call has said the same a hundred times, the one old item is still found."""
    async with a_caller() as user:
        now = await user.session("now")
        text = "Which aisle seat near the front did I ask to be moved to?"
        await now.record(*[Message("user", text, id=f"m{number}") for number in range(100)])
        since = (await now.items())[0].at.timestamp()
        lookup = Lookup(user, PATIENT, session_id="now")
        found: llm.ChatMessage | None = None
        for number in range(10):
            message = llm.ChatMessage(role="user", content=[f"{text} {number}"])
            found = await lookup.for_turn(message, since=since)
        assert found is not None
        assert HELD in (found.text_content or "")


@pytest.mark.parametrize("text", ["", "   ", "\n"])
async def test_words_without_words_are_not_looked_up(text: str) -> None:
    """An image alone, or white space, asks memory nothing."""
    async with a_caller() as user:
        lookup = Lookup(user, PATIENT)
        assert await lookup.for_turn(llm.ChatMessage(role="user", content=[text])) is None
        assert lookup.searches == 0


async def test_a_very_long_text_is_looked_up() -> None:
    """Of a text of a million characters the end is asked for."""
    async with a_caller() as user:
        lookup = Lookup(user, PATIENT)
        text = "blah " * 200_000 + ASKED
        found = await lookup.for_turn(llm.ChatMessage(role="user", content=[text]))
        assert lookup.searches == 1
        assert found is not None


@pytest.mark.parametrize(
    "wrong",
    [
        {"deadline_seconds": 0},
        {"deadline_seconds": 60},
        {"cool_down_seconds": -1},
        {"limit": 0},
        {"max_tokens": 0},
        {"misses": 0},
        {"where": "tts_node"},
    ],
)
def test_wrong_options_are_refused(wrong: dict[str, Any]) -> None:
    """Options out of their range name the field."""
    with pytest.raises(InvalidValue, match=next(iter(wrong))):
        LookupOptions(**wrong)


async def test_a_question_asked_again_brings_its_answer() -> None:
    """What was answered to the same question in an earlier call is told with it."""
    asked = "What is the code of the office door?"
    async with a_caller() as user:
        earlier = await user.session("earlier")
        await earlier.record(Message("user", asked), Message("assistant", "It is tulip42."))
        agent, _ = _agent(user)
        model = ScriptedLLM(["tulip42."])
        async with texting(model, agent) as session:
            await session.run(user_input=asked)
        (found,) = looked_up(model)
        assert "tulip42" in (found.text_content or "")
