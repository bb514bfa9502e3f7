"""Whether the record answers at all."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from recall_kit import index_of, row, vectors

from secondcall.recall.analyze import Analyzer
from secondcall.recall.confidence import (
    DEFAULT_CONFIDENCE,
    confidence,
    confidence_then,
    coverage,
)
from secondcall.recall.query import parse
from secondcall.recall.rank import Postings

NOW = datetime(2026, 6, 17, tzinfo=UTC)
_QUERY = parse("where is the dog", at=NOW, speakers=(), analyzer=Analyzer())


@given(st.floats(0, 1), st.floats(0, 1), st.floats(-1, 1), st.floats(-1, 1))
def test_more_is_never_less_sure(one: float, other: float, near: float, far: float) -> None:
    """Better covered and nearer in meaning is at least as sure, from 0 to 1."""
    low, high = sorted((one, other)), sorted((near, far))
    least = confidence(_QUERY, low[0], high[0], rows=70)
    most = confidence(_QUERY, low[1], high[1], rows=70)
    assert 0 <= least <= most <= 1
    assert confidence(_QUERY, low[0], None, rows=9) <= confidence(_QUERY, low[1], None, rows=9)


def test_what_was_said_in_the_named_time_with_some_of_the_words_is_an_answer() -> None:
    """Among 300 items, too many for one shared word to say much, the named time makes it sure."""
    rows = [
        row(number, f"note {number} on paper", at=datetime(2026, 6, 1, 1, tzinfo=UTC))
        for number in range(1, 301)
    ]
    told = row(301, "ukulele lesson with Rachel", at=datetime(2026, 4, 15, 9, tzinfo=UTC))
    index = index_of([*rows, told])
    question = "what did Rachel and I cook on {}?"
    there, elsewhere = (
        index.search(question.format(when), None, at=NOW, limit=3).confidence
        for when in ("15 April 2026", "15 May 2026")
    )
    assert there >= confidence_then(1.0) > elsewhere


def test_only_words_beside_the_times_are_asked_of_what_was_said_then() -> None:
    """The words that name a time lower no share of what lies in it."""
    view = index_of([row(1, "lesson with Rachel")])._snapshot(()).view  # pyright: ignore[reportPrivateUsage] - seen from inside
    query = parse("Rachel two months ago", at=NOW, speakers=(), analyzer=Analyzer())
    rachel = Postings(rows=np.array([0]), counts=np.ones(1, np.float32))
    postings = {query.hashes[0]: rachel}
    assert coverage(query, postings, view.live, beside_times=True)[0] == 1.0
    assert coverage(query, postings, view.live)[0] < 1.0
    assert confidence_then(0.29) == 0.0


def test_an_unrelated_question_finds_nothing_and_says_why() -> None:
    """What the record says nothing about is not answered with the least bad item."""
    rows = [row(1, "my dog is called Rex"), row(2, "I work at a bakery in Porto")]
    index = index_of(rows)
    question = "what is the boiling point of tungsten"
    found = index.search(
        question, vectors([question])[0], at=NOW, limit=3, least_confidence=DEFAULT_CONFIDENCE
    )
    assert not found.hits
    assert found.reason_if_empty is not None
    known = index.search(
        "the bakery", vectors(["the bakery"])[0], at=NOW, limit=3, least_confidence=0.5
    )
    assert known.hits
    assert known.confidence >= 0.5
