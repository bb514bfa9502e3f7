"""The hook variant gives memory to an application's own hook, and never costs the caller's turn."""

from __future__ import annotations

import asyncio

import pytest
from adapters.livekit.remembered import (
    ASKED,
    HELD,
    UNKNOWN,
    ObedientStore,
    a_caller,
    answered,
    looked_up,
    speaking,
    texting,
)
from adapters.livekit.waiting import until
from livekit.agents import Agent, StopResponse, llm, stt

from secondcall import StoreUnavailable
from secondcall.adapters.livekit.agent import with_memory
from secondcall.adapters.livekit.lookup import LookupOptions
from secondcall.adapters.livekit.source import CallMemory
from secondcall.testing.livekit import FedSTT, ScriptedLLM

pytestmark = pytest.mark.anyio

HOOK = LookupOptions(deadline_seconds=5.0, where="hook")


class _Hooked(Agent):
    """Keeps what its own hook is shown."""

    def __init__(self) -> None:
        super().__init__(instructions="Be brief.")
        self.shown: list[list[str]] = []
        self.stop = False

    async def on_user_turn_completed(
        self, turn_ctx: llm.ChatContext, new_message: llm.ChatMessage
    ) -> None:
        """Look, and stop where that is wanted."""
        self.shown.append([one.text_content or "" for one in turn_ctx.messages()])
        if self.stop:
            raise StopResponse


def _say(ears: FedSTT, words: str) -> None:
    ears.feed(stt.SpeechEventType.START_OF_SPEECH)
    ears.feed(stt.SpeechEventType.PREFLIGHT_TRANSCRIPT, words)
    ears.feed(stt.SpeechEventType.FINAL_TRANSCRIPT, words)
    ears.feed(stt.SpeechEventType.END_OF_SPEECH)


async def test_the_hook_sees_what_was_found_before_the_callers_words() -> None:
    """A spoken turn's own hook finds the old words in its ``turn_ctx``, the model finds them once
    and right before what was said, and the history has only what was said."""
    async with a_caller() as user:
        agent = with_memory(_Hooked(), CallMemory(user, options=HOOK))
        model, ears = ScriptedLLM(["4C."]), FedSTT()
        async with speaking(model, ears, agent, early=False) as session:
            _say(ears, ASKED)
            await answered(session, 2)
            said = [one.text_content or "" for one in session.history.messages()]
        assert HELD in agent.shown[0][-1]
        assert said[0] == ASKED
        texts = [one.text_content or "" for one in model.requests[0].messages()]
        assert HELD in texts[texts.index(ASKED) - 1]
        assert len(looked_up(model)) == 1
        assert len(model.requests) == 1


async def test_what_the_hook_was_given_is_for_one_turn() -> None:
    """What was found for one turn is not in the next turn's request, nor in what the agent keeps,
    as nothing is that a hook adds."""
    async with a_caller() as user:
        agent = with_memory(_Hooked(), CallMemory(user, options=HOOK))
        model, ears = ScriptedLLM(["4C.", "No idea."]), FedSTT()
        async with speaking(model, ears, agent, early=False) as session:
            _say(ears, ASKED)
            await answered(session, 2)
            _say(ears, UNKNOWN)
            await answered(session, 4)
        assert [len(looked_up(model, number)) for number in range(2)] == [1, 0]
        assert all(HELD not in text for text in agent.shown[1])
        assert all(HELD not in (one.text_content or "") for one in agent.chat_ctx.messages())


async def test_typed_words_are_looked_up_though_no_hook_runs() -> None:
    """LiveKit runs no hook for typed words; they are looked up before the model is asked."""
    async with a_caller() as user:
        agent = with_memory(_Hooked(), CallMemory(user, options=HOOK))
        model = ScriptedLLM(["4C."])
        async with texting(model, agent) as session:
            await session.run(user_input=ASKED)
        assert agent.shown == []
        assert len(looked_up(model)) == 1


async def test_nothing_found_keeps_the_early_reply() -> None:
    """With preemptive generation a turn for which the hook finds nothing is one model call."""
    async with a_caller() as user:
        agent = with_memory(_Hooked(), CallMemory(user, options=HOOK))
        model, ears = ScriptedLLM(["No idea.", "Too many."]), FedSTT()
        async with speaking(model, ears, agent) as session:
            _say(ears, UNKNOWN)
            await answered(session, 2)
        assert len(model.requests) == 1


async def test_something_found_costs_the_early_reply() -> None:
    """With preemptive generation LiveKit throws the early reply away when the hook adds something:
    two model calls, as the option says, of which only the second was told."""
    async with a_caller() as user:
        agent = with_memory(_Hooked(), CallMemory(user, options=HOOK))
        model, ears = ScriptedLLM(["Early.", "4C."]), FedSTT()
        async with speaking(model, ears, agent) as session:
            _say(ears, ASKED)
            await answered(session, 2)
        assert [len(looked_up(model, number)) for number in range(2)] == [0, 1]


@pytest.mark.parametrize(
    "error",
    [
        StoreUnavailable("down"),
        TypeError("odd"),
        asyncio.CancelledError(),
        StopResponse(),
        TimeoutError(),
        MemoryError(),
        RecursionError(),
    ],
)
async def test_whatever_fails_inside_the_turn_is_kept(error: BaseException) -> None:
    """Any error of the store, even one by which LiveKit would drop the turn, leaves the caller's
    words in the history and answered."""
    store = ObedientStore()
    async with a_caller(store) as user:
        agent = with_memory(_Hooked(), CallMemory(user, options=HOOK))
        model, ears = ScriptedLLM(["Yes."]), FedSTT()
        async with speaking(model, ears, agent, early=False) as session:
            store.error = error
            _say(ears, ASKED)
            await answered(session, 2)
            said = [one.text_content or "" for one in session.history.messages()]
        assert said[0] == ASKED
        assert len(agent.shown) == 1


async def test_a_store_that_hangs_holds_the_turn_up_for_the_deadline_only() -> None:
    """The hook returns at its deadline, and a second turn spoken meanwhile is answered too."""
    store = ObedientStore()
    async with a_caller(store) as user:
        options = LookupOptions(deadline_seconds=0.1, where="hook", prefetch=False)
        agent = with_memory(_Hooked(), CallMemory(user, options=options))
        model, ears = ScriptedLLM(["One.", "Two.", "Three.", "Four."]), FedSTT()
        async with speaking(model, ears, agent, early=False) as session:
            store.gate.clear()
            _say(ears, ASKED)
            await asyncio.sleep(0.03)
            _say(ears, "What is my dog called?")
            await until(
                lambda: (
                    "What is my dog called?" in str(session.history.messages())
                    and ASKED in str(session.history.messages())
                )
            )
            await until(lambda: session.history.messages()[-1].role == "assistant")
            store.gate.set()
        assert len(agent.shown) >= 1


async def test_an_application_that_stops_the_turn_still_stops_it() -> None:
    """``StopResponse`` out of the application's own hook keeps its meaning."""
    async with a_caller() as user:
        agent = with_memory(_Hooked(), CallMemory(user, options=HOOK))
        agent.stop = True
        model, ears = ScriptedLLM(["Never."]), FedSTT()
        async with speaking(model, ears, agent, early=False) as session:
            _say(ears, ASKED)
            await until(lambda: len(agent.shown) == 1)
            assert session.history.messages() == []
        assert model.requests == []
