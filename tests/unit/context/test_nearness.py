"""Facts are found by words near to those of the question and by what their predicate means."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from secondcall.context.known import know
from secondcall.context.nearness import Asked, asked_of, asked_texts, nearness, texts_of
from secondcall.memory import Memory
from secondcall.types import Fact, ItemKey

START = datetime(2026, 1, 1, tzinfo=UTC)
DIRECTIONS = {
    "family doctor": (0.6, 0.8, 0, 0),
    "doctor": (1, 0, 0, 0),
    "family": (0, 1, 0, 0),
    "Quill": (0, 0, 1, 0),
    "car": (0, 0, 0, 1),
    "Skoda": (0, 0, 0, 1),
}
WORDS = {text: np.array(vector, np.float32) for text, vector in DIRECTIONS.items()}


def _fact(name: str, predicate: str, value: str, *, sensitive: bool = False) -> Fact:
    return Fact(
        id=name,
        kind="attribute",
        subject="user",
        predicate=predicate,
        value=value,
        status="current",
        valid_from=START,
        recorded_at=START,
        sensitive=sensitive,
        sources=(ItemKey("ann", "s1", "message", name),),
    )


DOCTOR = _fact("f1", "family_doctor", "Quill")
CAR = _fact("f2", "car", "Skoda")


def _asked(together: Sequence[float], *words: Sequence[float]) -> Asked:
    return Asked(np.array(together, np.float32), np.array(words, np.float32).reshape(-1, 4))


def _told(facts: Sequence[Fact], asked: Asked, *, sensitive: bool = True) -> list[str]:
    known = know(facts, frozenset(), words=WORDS)
    at = START + timedelta(days=1)
    found, _ = known.search("who?", None, at=at, limit=5, sensitive=sensitive, asked=asked)
    return [one.fact.id for one in found]


def test_the_texts_of_a_fact_are_its_predicate_and_its_words() -> None:
    """The predicate stands as one text, then each word of it and of its value once; words that say
    nothing, numbers and single letters are left out."""
    assert texts_of(DOCTOR) == ["family doctor", "family", "doctor", "Quill"]
    assert texts_of(_fact("f3", "seat", "the 61 of a seat B")) == ["seat", "seat"]


def test_a_question_without_words_has_no_texts() -> None:
    """What is only made of words that say nothing asks for nothing."""
    assert asked_texts("Who was it?") == []
    assert asked_of(np.zeros((0, 4), np.float32)) is None
    assert asked_texts("Which physician was it?") == ["physician", "physician"]


def test_each_fact_has_the_cosines_of_its_predicate_and_of_its_nearest_word() -> None:
    """Without vectors, or with those of another width, both are 0."""
    near = nearness([CAR, DOCTOR, _fact("f3", "unknown", "x")], WORDS)
    meant, nearest = near.of(_asked((0.6, 0.8, 0, 0), (0.8, 0.6, 0, 0), (0, 0, 0.5, 0)))
    assert meant == pytest.approx([0, 1, 0])
    assert nearest == pytest.approx([0, 0.8, 0])
    other = Asked(np.ones(3, np.float32), np.ones((1, 3), np.float32))
    for asked in (None, other):
        assert not any(one.any() for one in near.of(asked))
    assert not any(one.any() for one in nearness([CAR], {}).of(_asked((0, 0, 0, 1))))


def test_a_near_word_tells_a_fact_and_a_far_one_does_not() -> None:
    """A word of the fact at a cosine of 0.36 is near, one at 0.35 is not."""
    assert _told([DOCTOR, CAR], _asked((0, 0, 0, 0), (0.37, 0, 0, 0))) == ["f1"]
    assert _told([DOCTOR, CAR], _asked((0, 0, 0, 0), (0.35, 0, 0, 0))) == []


def test_the_meaning_of_a_predicate_tells_its_facts() -> None:
    """What a question means and what a predicate does are compared as wholes."""
    assert _told([DOCTOR, CAR], _asked((0.6, 0.8, 0, 0), (0, 0, 0, 0.1))) == ["f1"]


def test_words_of_withheld_facts_tell_nothing() -> None:
    """A fact that may not be shown is not found by its words, nor is another found through it."""
    hidden = _fact("f4", "family_doctor", "Quill", sensitive=True)
    asked = _asked((0.6, 0.8, 0, 0), (1, 0, 0, 0))
    assert _told([hidden, CAR], asked, sensitive=False) == []


def _beside(cosine: float) -> list[str]:
    known = know([CAR], frozenset(), words=WORDS)
    found, _ = known.search(
        "how?",
        None,
        at=START + timedelta(days=1),
        limit=5,
        sensitive=True,
        asked=_asked((0, 0, 0, cosine)),
        answering=[ItemKey("ann", "s1", "message", "another")],
    )
    return [one.fact.id for one in found]


def test_a_fact_beside_what_was_found_is_told_unless_it_means_something_else() -> None:
    """A fact of a conversation of which something was found answers, but not when its predicate is
    turned away from the question."""
    assert _beside(0.05) == ["f2"]
    assert _beside(-0.05) == []


async def test_a_question_in_other_words_finds_the_fact() -> None:
    """With the default embedder "physician" finds the doctor, and the vehicle is the car."""
    async with Memory.open("memory://") as memory:
        user = memory.user("ann")
        await user.remember("family_doctor", "Dr Quill", kind="attribute")
        await user.remember("car", "grey Octavia", kind="attribute")
        await user.remember("landlord", "Mrs Petrov", kind="attribute")
        for question, value in (
            ("Which physician do I ring first?", "Dr Quill"),
            ("Which vehicle do I drive?", "grey Octavia"),
        ):
            found = await user.recall(question)
            assert found.facts[0].fact.value == value
            assert len(found.facts) == 1
