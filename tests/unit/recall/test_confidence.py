"""Whether the record answers at all."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st
from recall_kit import index_of, row, vectors

from secondcall.recall.analyze import Analyzer
from secondcall.recall.confidence import DEFAULT_CONFIDENCE, confidence
from secondcall.recall.query import parse

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
