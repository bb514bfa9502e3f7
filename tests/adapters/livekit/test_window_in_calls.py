"""A long call stays within its window, and loses nothing but what a summary stands for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from adapters.livekit.remembered import (
    ASKED,
    ObedientStore,
    a_caller,
    answered,
    looked_up,
    remembered_in,
    speaking,
    texting,
)
from adapters.livekit.waiting import until
from livekit.agents import Agent, AgentSession, llm, stt
from livekit.agents.llm import function_tool

from secondcall import Message, SessionMemory
from secondcall.adapters.livekit.agent import attach_memory, handoff_context, with_memory
from secondcall.adapters.livekit.attached import AttachedMemory
from secondcall.adapters.livekit.chat import is_memory, item_of
from secondcall.adapters.livekit.lookup import LookupOptions
from secondcall.adapters.livekit.preload import preload
from secondcall.adapters.livekit.source import CallMemory
from secondcall.adapters.livekit.window import WindowOptions, tokens_of
from secondcall.registry import default_counter
from secondcall.testing.livekit import FedSTT, Reply, ScriptedLLM

pytestmark = pytest.mark.anyio

PATIENT = LookupOptions(deadline_seconds=5.0, max_tokens=100)
SMALL = WindowOptions(max_tokens=1_600)
ORDER = "My order number is TK-88213 and I was promised a refund of 40 euros."


def _size(items: list[llm.ChatItem]) -> int:
    counter = default_counter()
    return sum(tokens_of(one, counter) for one in items)


_NOUNS = [
    "rain",
    "trains",
    "music",
    "gardens",
    "bread",
    "rivers",
    "clocks",
    "winter",
    "lamps",
    "horses",
]


def _talk(number: int) -> str:
    hundreds, tens, ones = number // 100 % 10, number // 10 % 10, number % 10
    about = f"{_NOUNS[hundreds]} and {_NOUNS[tens]} and {_NOUNS[ones]}"
    more = " and so on" * (number // 1_000)
    return f"It is nice to chat a while about {about}, is it not, while we are waiting{more}?"


class _Watched(Agent):
    """Keeps in which state it was told of another context."""

    def __init__(self) -> None:
        super().__init__(instructions="You are patient.")
        self.told: list[tuple[str, bool]] = []

    async def update_chat_ctx(self, chat_ctx: llm.ChatContext, **more: Any) -> None:
        """Look, then as it is."""
        session = cast("AgentSession[None]", self.session)
        self.told.append((session.agent_state, session.current_speech is None))
        await super().update_chat_ctx(chat_ctx, **more)

    @function_tool
    async def look(self) -> str:
        """Look it up."""
        return "It is on its way."


def _recording(session: AgentSession[Any], record: SessionMemory) -> Callable[[], int]:
    """Record what is committed, one after the other; gives how much is waiting."""
    waiting: list[llm.ChatMessage] = []
    tasks: set[asyncio.Task[None]] = set()
    lock = asyncio.Lock()

    async def write(said: llm.ChatMessage) -> None:
        async with lock:
            item = item_of(said)
            if item is not None:
                await record.record(item)
            waiting.remove(said)

    def added(event: Any) -> None:
        if isinstance(event.item, llm.ChatMessage):
            waiting.append(event.item)
            task = asyncio.ensure_future(write(event.item))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    session.on("conversation_item_added", added)
    return lambda: len(waiting)


def _attached(session: AgentSession[Any]) -> AttachedMemory:
    return vars(session)["_secondcall_memory"]


async def _quiet(session: AgentSession[Any]) -> None:
    """Wait until nothing is being summarised."""
    keeper = _attached(session).keeper
    await until(lambda: not keeper.busy)


async def test_a_recorded_call_is_kept_within_its_window() -> None:
    """Eighty turns with tools: every request and the kept context stay within the window, older
    turns stand in summary and key facts, the context is changed between replies only, and history
    and record are complete."""
    async with a_caller() as user:
        await user.remember("seat preference", "aisle", kind="preference")
        record = await user.session("now")
        source = CallMemory(
            user,
            preloaded=await preload(user, deadline_seconds=5.0),
            session=record,
            options=PATIENT,
            window=SMALL,
        )
        agent = with_memory(_Watched(), source)

        def reply(asked: llm.ChatContext) -> Reply | str:
            newest = [one for one in asked.items if one.type != "agent_config_update"][-1]
            if isinstance(newest, llm.ChatMessage) and "horses" in (newest.text_content or ""):
                return Reply(tools=[("look", {})])
            return "It is on its way, and it will be there soon, I am sure of that."

        model = ScriptedLLM(reply)
        async with texting(model, agent) as session:
            waiting = _recording(session, record)
            for number in range(80):
                await session.run(user_input=ORDER if number == 1 else _talk(number))
                await until(lambda: waiting() == 0)
                await _quiet(session)
                assert _size(agent.chat_ctx.items) <= SMALL.max_tokens
            assert _attached(session).keeper.condensed >= 3
        assert all(_size(one.items) <= SMALL.max_tokens for one in model.requests)
        last = model.requests[-1]
        (summary,) = remembered_in(last, "summary")
        assert "TK-88213" in (summary.text_content or "")
        assert len(remembered_in(last, "brief")) == 1
        assert last.items[0].id == "lk.agent_task.instructions"
        assert last.messages()[-1].text_content == _talk(79)
        assert agent.told
        assert all(one == ("listening", True) for one in agent.told)
        said = [one.text_content for one in session.history.messages() if one.role == "user"]
        assert said == [ORDER if number == 1 else _talk(number) for number in range(80)]
        items = await record.items(limit=10_000)
        texts = [one.item.text for one in items if isinstance(one.item, Message)]
        assert len([text for text in texts if text in said]) == 80


async def test_turns_are_cut_with_their_tools() -> None:
    """After the cut every call has its output and every output its call, and what is left begins
    with something that the caller said."""
    async with a_caller() as user:
        agent = with_memory(_Watched(), CallMemory(user, options=PATIENT, window=SMALL))
        model = ScriptedLLM(
            lambda asked: (
                Reply(tools=[("look", {}), ("look", {})])
                if isinstance(asked.items[-1], llm.ChatMessage)
                else "It is on its way, and it will be there soon, I am sure of that."
            )
        )
        async with texting(model, agent) as session:
            for number in range(40):
                await session.run(user_input=_talk(number))
                await _quiet(session)
            assert _attached(session).keeper.condensed >= 1
        for request in [*model.requests, agent.chat_ctx]:
            calls = [one.call_id for one in request.items if isinstance(one, llm.FunctionCall)]
            outputs = [
                one.call_id for one in request.items if isinstance(one, llm.FunctionCallOutput)
            ]
            assert sorted(calls) == sorted(outputs)
            talk = [
                one
                for one in request.items
                if one.type in ("message", "function_call", "function_call_output")
                and not is_memory(one)
                and one.id != "lk.agent_task.instructions"
            ]
            assert isinstance(talk[0], llm.ChatMessage)
            assert talk[0].role == "user"


async def test_a_call_that_nothing_records_is_summarised_too() -> None:
    """Without a session, and with one that gets nothing, the older turns stand in a summary."""
    async with a_caller() as user:
        for record in (None, await user.session("empty")):
            source = CallMemory(user, session=record, options=PATIENT, window=SMALL)
            agent = with_memory(_Watched(), source)
            model = ScriptedLLM(lambda _: "It is on its way and will be there soon.")
            async with texting(model, agent) as session:
                for number in range(50):
                    await session.run(user_input=ORDER if number == 1 else _talk(number))
                    await _quiet(session)
            (summary,) = remembered_in(model.requests[-1], "summary")
            assert "TK-88213" in (summary.text_content or "")
            assert all(_size(one.items) <= SMALL.max_tokens for one in model.requests)


async def test_five_thousand_items_are_cut_to_the_window() -> None:
    """An agent that takes up a context of 5,000 items asks its model with what fits, and keeps what
    fits from the first reply on."""
    async with a_caller() as user:
        agent = _Watched()
        whole = llm.ChatContext.empty()
        for number in range(2_500):
            whole.add_message(role="user", content=_talk(number), created_at=1e6 + number)
            whole.add_message(role="assistant", content="Soon.", created_at=1e6 + number + 0.5)
        await Agent.update_chat_ctx(agent, whole)
        with_memory(agent, CallMemory(user, options=PATIENT, window=SMALL))
        model = ScriptedLLM(lambda _: "Yes.")
        async with texting(model, agent) as session:
            await session.run(user_input="The newest.")
            assert _size(model.requests[0].items) <= SMALL.max_tokens
            assert model.requests[0].messages()[-1].text_content == "The newest."
            await _quiet(session)
            assert _size(agent.chat_ctx.items) <= SMALL.max_tokens
            await session.run(user_input="The next.")
        assert _size(model.requests[1].items) <= SMALL.max_tokens
        assert "The newest." in str(model.requests[1].items)


async def test_a_turn_costs_the_same_however_long_the_call_is() -> None:
    """With 5,000 items in a window that holds them, a turn counts the tokens of what is new."""

    class Counting:
        id = "counting"
        asked = 0

        def count(self, text: str) -> int:
            """A word is a token."""
            self.asked += 1
            return text.count(" ") + 1

    counter: Any = Counting()
    async with a_caller() as user:
        agent = _Watched()
        whole = llm.ChatContext.empty()
        for number in range(5_000):
            role: Any = "assistant" if number % 2 else "user"
            whole.add_message(role=role, content=_talk(number), created_at=1e6 + number)
        await Agent.update_chat_ctx(agent, whole)
        source = CallMemory(
            user, options=PATIENT, counter=counter, window=WindowOptions(max_tokens=500_000)
        )
        model = ScriptedLLM(lambda _: "Yes.")
        async with texting(model, with_memory(agent, source)) as session:
            await session.run(user_input="hello there")
            costs: list[int] = []
            for number in range(4):
                before = counter.asked
                await session.run(user_input=f"hello there {number}")
                costs.append(counter.asked - before)
        assert len(model.requests[-1].items) > 5_000
        assert max(costs) <= 20


async def test_nothing_is_cut_while_the_caller_speaks() -> None:
    """Between the first words that are heard and the message the context stays as it is, so that
    the early reply is kept; after the reply it is cut."""
    async with a_caller() as user:
        agent = _Watched()
        whole = llm.ChatContext.empty()
        for number in range(200):
            role: Any = "assistant" if number % 2 else "user"
            whole.add_message(role=role, content=_talk(number), created_at=1e6 + number)
        await Agent.update_chat_ctx(agent, whole)
        with_memory(agent, CallMemory(user, options=PATIENT, window=SMALL))
        model, ears = ScriptedLLM(lambda _: "Yes."), FedSTT()
        async with speaking(model, ears, agent, delay=0.3) as session:
            ears.feed(stt.SpeechEventType.START_OF_SPEECH)
            ears.feed(stt.SpeechEventType.PREFLIGHT_TRANSCRIPT, ASKED)
            await until(lambda: len(model.requests) == 1)
            keeper = _attached(session).keeper
            assert keeper.hearing
            keeper.between_replies()
            await until(lambda: not keeper.busy)
            assert agent.told == []
            ears.feed(stt.SpeechEventType.FINAL_TRANSCRIPT, ASKED)
            ears.feed(stt.SpeechEventType.END_OF_SPEECH)
            await answered(session, 2)
            await until(lambda: keeper.condensed == 1)
        assert len(model.requests) == 1
        assert len(looked_up(model)) == 1
        assert _size(model.requests[0].items) <= SMALL.max_tokens


class _Next(Agent):
    def __init__(self, chat_ctx: llm.ChatContext) -> None:
        super().__init__(instructions="You are next.", chat_ctx=chat_ctx)


async def test_a_handoff_may_pass_the_summary_on() -> None:
    """``handoff_context`` of a long call has brief, summary and newest turns in half the window,
    without instructions; the next agent has each of them once."""
    async with a_caller() as user:
        await user.remember("seat preference", "aisle", kind="preference")
        source = CallMemory(
            user,
            preloaded=await preload(user, deadline_seconds=5.0),
            options=PATIENT,
            window=SMALL,
        )
        agent = with_memory(_Watched(), source)
        model = ScriptedLLM(lambda _: "It is on its way and will be there soon.")
        async with texting(model, agent) as session:
            for number in range(28):
                await session.run(user_input=ORDER if number == 1 else _talk(number))
                await _quiet(session)
            given = await handoff_context(agent)
            assert _size(given.items) <= SMALL.kept_tokens + 200
            assert "You are patient." not in str(given.items)
            following = _Next(given)
            session.update_agent(following)
            await until(lambda: "You are next." in str(following.chat_ctx.items))
            await session.run(user_input="And now?")
        last = model.requests[-1]
        assert "TK-88213" in (remembered_in(last, "summary")[0].text_content or "")
        assert len(remembered_in(last, "summary")) == len(remembered_in(last, "brief")) == 1
        assert _talk(27) in str(last.items)
        assert "You are next." in str(last.items[0])


async def test_a_short_call_is_handed_over_whole() -> None:
    """While all fits, with a window or without, or without memory at all, every turn is passed."""
    async with a_caller() as user:
        for source in (
            CallMemory(user, options=PATIENT, window=SMALL),
            CallMemory(user, options=PATIENT),
            None,
        ):
            agent: Agent = _Watched()
            if source is not None:
                agent = with_memory(agent, source)
            async with texting(ScriptedLLM(["One.", "Two."]), agent) as session:
                await session.run(user_input="first")
                await session.run(user_input="second")
                given = await handoff_context(agent)
            said = [(one.text_content or "").strip() for one in given.messages()]
            assert said == ["first", "One.", "second", "Two."]


async def test_a_store_that_fails_leaves_the_window_kept() -> None:
    """When the summary cannot be had the context is cut all the same, and every turn answered."""
    store = ObedientStore()
    async with a_caller(store) as user:
        record = await user.session("now")
        agent = with_memory(
            _Watched(), CallMemory(user, session=record, options=PATIENT, window=SMALL)
        )
        store.error = RuntimeError("broken")
        model = ScriptedLLM(lambda _: "It is on its way and will be there soon.")
        async with texting(model, agent) as session:
            for number in range(50):
                await session.run(user_input=_talk(number))
                await _quiet(session)
                assert _size(agent.chat_ctx.items) <= SMALL.max_tokens
        assert len(model.requests) == 50
        assert all(_size(one.items) <= SMALL.max_tokens for one in model.requests)
        store.error = None


async def test_without_a_window_the_context_is_left_alone() -> None:
    """A call whose memory has no window keeps all of its turns in the context."""
    async with a_caller() as user:
        session = AgentSession[None](
            llm=ScriptedLLM(lambda _: "Yes."), vad=None, turn_handling={"turn_detection": None}
        )
        attach_memory(session, CallMemory(user, options=PATIENT))
        agent = _Watched()
        await session.start(agent)
        for number in range(5):
            await session.run(user_input=_talk(number))
        assert agent.told == []
        assert len(agent.chat_ctx.messages()) == 11
        await session.aclose()
