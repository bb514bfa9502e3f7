"""What is looked up while the caller is still speaking is used for that turn, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from adapters.livekit.remembered import (
    ASKED,
    HELD,
    ObedientStore,
    a_caller,
    answered,
    looked_up,
    speaking,
)
from adapters.livekit.waiting import until
from livekit.agents import Agent, llm, stt

from secondcall import Message, UserMemory
from secondcall.abc import Change, Scope
from secondcall.adapters.livekit.agent import with_memory
from secondcall.adapters.livekit.lookup import Lookup, LookupOptions
from secondcall.adapters.livekit.source import CallMemory
from secondcall.adapters.livekit.utterance import Utterance, words_of
from secondcall.testing.livekit import FedSTT, ScriptedLLM

pytestmark = pytest.mark.anyio

PATIENT = LookupOptions(deadline_seconds=5.0)


def _asked(text: str) -> llm.ChatMessage:
    return llm.ChatMessage(role="user", content=[text])


@pytest.mark.parametrize(
    ("early", "said"),
    [
        ("which seat did I choose", "Which seat did I choose?"),
        ("which seat did i choose", "Uh, which seat did I choose, please?"),
        ("don't move me", "Don’t move me!"),
        ("move me to the 4c", "Move me to 4C."),
    ],
)
def test_the_same_words_are_the_same_question(early: str, said: str) -> None:
    """Case, punctuation, apostrophes and fillers make no other question."""
    assert words_of(early) == words_of(said)


@pytest.mark.parametrize(
    ("early", "said"),
    [
        ("which aisle seat", "Which window seat?"),
        ("which seat did I choose", "Which seat did I choose last month?"),
        ("do move me", "Do not move me."),
        ("four tickets", "Forty tickets."),
        ("seat four", "Four seat."),
        ("I like tea", "I tea."),
    ],
)
def test_one_other_word_is_another_question(early: str, said: str) -> None:
    """A word that is new, missing, changed or elsewhere makes another question."""
    assert words_of(early) != words_of(said)


def test_a_turn_is_put_together_from_its_pieces() -> None:
    """Interim words are taken back, final pieces stand, a committed turn and a long silence begin
    anew."""
    heard = Utterance()
    assert heard.hear("which", final=False, at=100.0) == "which"
    assert heard.hear("which seat", final=True, at=100.2) == "which seat"
    assert heard.hear("did", final=False, at=100.4) == "which seat did"
    assert heard.hear("did I choose", final=True, at=100.6) == "which seat did I choose"
    number = heard.number
    heard.over()
    assert heard.number == number + 1
    assert heard.hear("hello", final=True, at=100.8) == "hello"
    assert heard.hear("bye", final=False, at=110.0) == "bye"
    assert len(heard.hear("x" * 9_000, final=True, at=110.1)) == 4_000


async def test_interim_words_are_looked_up_once_for_the_turn() -> None:
    """A spoken turn whose interim words were the final ones asks memory once, before the turn is
    over, and is told what was found."""
    async with a_caller() as user:
        source = CallMemory(user, options=PATIENT)
        agent = with_memory(Agent(instructions="Be brief."), source)
        model, ears = ScriptedLLM(["4C."]), FedSTT()
        async with speaking(model, ears, agent, early=False, delay=0.2) as session:
            ears.feed(stt.SpeechEventType.START_OF_SPEECH)
            ears.feed(stt.SpeechEventType.INTERIM_TRANSCRIPT, "which aisle seat did i ask for")
            await until(lambda: source.lookup.searches == 1)
            assert model.requests == []
            ears.feed(stt.SpeechEventType.FINAL_TRANSCRIPT, ASKED)
            ears.feed(stt.SpeechEventType.END_OF_SPEECH)
            await answered(session, 2)
        assert source.lookup.searches == 1
        assert HELD in (looked_up(model)[0].text_content or "")


async def test_a_turn_is_told_only_what_its_own_words_found() -> None:
    """Where the recogniser changes its mind, what was found for its first guess is not told."""
    async with a_caller() as user:
        source = CallMemory(user, options=LookupOptions(deadline_seconds=5.0, limit=1))
        agent = with_memory(Agent(instructions="Be brief."), source)
        model, ears = ScriptedLLM(["Bramble."]), FedSTT()
        async with speaking(model, ears, agent, early=False) as session:
            ears.say("What is my dog called?", interim=["which aisle seat did I ask for"])
            await answered(session, 2)
        (found,) = looked_up(model)
        assert "Bramble" in (found.text_content or "")
        assert HELD not in (found.text_content or "")


async def test_words_of_the_last_turn_are_not_used_for_the_next() -> None:
    """The same words in another turn are looked up anew, since memory may have changed."""
    async with a_caller() as user:
        lookup = Lookup(user, PATIENT)
        first, second = _asked(ASKED), _asked(ASKED)
        lookup.hear(ASKED, final=False)
        lookup.committed(first.id)
        assert await lookup.for_turn(first) is not None
        assert lookup.searches == 1
        assert await lookup.for_turn(second) is not None
        assert lookup.searches == 2


async def test_words_that_come_at_once_are_one_question() -> None:
    """A recogniser's versions of one sentence, and the reply that is begun early for the last of
    them, ask memory once; so does the turn that ends with the same words."""
    async with a_caller() as user:
        lookup = Lookup(user, PATIENT)
        lookup.hear("Which aisle seat", final=False)
        lookup.hear(ASKED, final=False)
        early = await lookup.for_turn(_asked(ASKED))
        lookup.hear(ASKED, final=True)
        await asyncio.sleep(0.05)
        turn = await lookup.for_turn(_asked(ASKED))
        assert early is not None
        assert turn is not None
        assert turn.text_content == early.text_content
        assert lookup.searches == 1


async def test_a_turn_that_was_dropped_leaves_nothing_to_the_next() -> None:
    """What was looked up for words that came to nothing is not used for a typed message."""
    async with a_caller() as user:
        lookup = Lookup(user, PATIENT)
        lookup.hear(ASKED, final=True)
        await until(lambda: lookup.searches == 1)
        lookup.committed("typed meanwhile")
        assert await lookup.for_turn(_asked(ASKED)) is not None
        assert lookup.searches == 2


async def test_one_early_question_at_a_time_and_the_newest_next() -> None:
    """While one question is under way the guesses in between are skipped, and the last is asked."""
    store = ObedientStore()
    async with a_caller(store) as user:
        lookup = Lookup(user, PATIENT)
        store.gate.clear()
        for words in ("which aisle", "which aisle seat", "which aisle seat did", ASKED):
            lookup.hear(words, final=False)
            await until(lambda: lookup.searches == 1)
            await asyncio.sleep(0.05)
        assert lookup.searches == 1
        store.gate.set()
        await until(lambda: lookup.searches == 2)
        found = await lookup.for_turn(_asked(ASKED))
        assert found is not None
        assert HELD in (found.text_content or "")
        assert lookup.searches == 2


async def test_an_early_question_that_failed_is_asked_again() -> None:
    """A failed early question is no answer for the turn, and no miss."""
    store = ObedientStore()
    async with a_caller(store) as user:
        lookup = Lookup(user, PATIENT)
        store.error = RuntimeError("broken")
        lookup.hear(ASKED, final=False)
        await until(lambda: lookup.searches == 1 and not lookup.running)
        store.error = None
        found = await lookup.for_turn(_asked(ASKED))
        assert found is not None
        assert HELD in (found.text_content or "")


async def _early(user: UserMemory | None, options: LookupOptions, words: str) -> int:
    lookup = Lookup(user, options)
    lookup.hear(words, final=False)
    await asyncio.sleep(0.05)
    return lookup.searches


async def test_no_early_question_where_none_is_wanted() -> None:
    """One word, a lookup without prefetch, one without a user, or one that cools down asks nothing
    early."""
    store = ObedientStore()
    async with a_caller(store) as user:
        assert await _early(user, PATIENT, "hello") == 0
        assert await _early(user, LookupOptions(prefetch=False), ASKED) == 0
        assert await _early(None, PATIENT, ASKED) == 0
        lookup = Lookup(user, LookupOptions(deadline_seconds=5.0, misses=1))
        store.error = RuntimeError("broken")
        assert await lookup.for_turn(_asked(ASKED)) is None
        assert lookup.cooling
        lookup.hear("What is my dog called", final=False)
        await asyncio.sleep(0.05)
        assert lookup.searches == 1


async def test_what_is_running_can_be_ended() -> None:
    """A lookup that is cancelled leaves no task behind and tells nothing."""
    store = ObedientStore()
    async with a_caller(store) as user:
        lookup = Lookup(user, PATIENT)
        store.gate.clear()
        lookup.hear(ASKED, final=False)
        waiting = asyncio.ensure_future(lookup.for_turn(_asked(ASKED)))
        await asyncio.sleep(0.02)
        lookup.cancel()
        assert await waiting is None
        store.gate.set()


class _Tailed(ObedientStore):
    """Counts how often what is new is read."""

    tails = 0

    async def changes(self, scope: Scope, *, after: int, limit: int) -> Sequence[Change]:
        """Counted."""
        self.tails += 1
        return await super().changes(scope, after=after, limit=limit)


async def test_what_was_recorded_is_taken_in_between_turns() -> None:
    """After a reply the index takes in what was recorded, so that the next question need not; no
    question is counted for it."""
    store = _Tailed()
    async with a_caller(store) as user:
        lookup = Lookup(user, PATIENT)
        await lookup.for_turn(_asked(ASKED))
        session = await user.session("now")
        await session.record(Message("user", "My cat is called Thistle.", id="cat"))
        store.tails = 0
        lookup.rest()
        await until(lambda: store.tails > 0 and not lookup.running)
        assert lookup.searches == 1
        assert store.tails == 1
        await lookup.for_turn(_asked("What is my cat called?"))
        assert store.tails == 1


@pytest.mark.parametrize("why", ["nothing was asked", "the next turn begins", "it is over"])
async def test_nothing_is_taken_in_where_it_is_of_no_use(why: str) -> None:
    """A call that asks memory nothing reads nothing between its turns; a question and the end of
    the call take the place of a catching up that has not begun."""
    store = ObedientStore()
    async with a_caller(store) as user:
        lookup = Lookup(user, PATIENT)
        if why != "nothing was asked":
            await lookup.for_turn(_asked(ASKED))
        lookup.rest()
        if why == "the next turn begins":
            await lookup.for_turn(_asked("What is my dog called?"))
        if why == "it is over":
            lookup.cancel()
        reads = store.reads
        await asyncio.sleep(0.15)
        assert store.reads == reads
