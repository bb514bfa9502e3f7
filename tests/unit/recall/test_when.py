"""Times that only the record can resolve, and how near its items are to them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from recall_kit import ids, index_of, row, vectors

from secondcall.recall.index import UserIndex

NOW = datetime(2026, 6, 17, 12, tzinfo=UTC)


def _index(cuts: tuple[int, ...] = ()) -> UserIndex:
    rows = [
        row(1, "the vendor should be Acme", session="a", at=NOW - timedelta(days=30)),
        row(2, "we move house, boxes everywhere", session="b", at=NOW - timedelta(days=20)),
        row(3, "the vendor should be Birch", session="c", at=NOW - timedelta(days=10)),
        row(4, "last week we saw the vendor fair", session="d", at=NOW - timedelta(days=2)),
        row(5, "now the vendor again", session="e", at=NOW - timedelta(minutes=1)),
    ]
    return index_of(rows, cuts=cuts)


def _hard(question: str, cuts: tuple[int, ...] = ()) -> list[str]:
    found = _index(cuts).search(question, vectors([question])[0], at=NOW, limit=9, time="hard")
    return sorted(ids(found))


@pytest.mark.parametrize("cuts", [(), (2,), (2, 5)])
@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("vendor in our last call", ["m004"]),
        ("vendor two calls ago", ["m003"]),
        ("vendor in our first conversation", ["m001"]),
        ("vendor since we last spoke", ["m005"]),
        ("vendor before the move", ["m001"]),
    ],
)
def test_the_record_resolves_its_own_times(
    question: str, expected: list[str], cuts: tuple[int, ...]
) -> None:
    """Calls are counted without the one that is going on; events are found in the record."""
    assert _hard(question, cuts) == expected


def test_a_conversation_that_never_was_filters_nothing() -> None:
    """What the record cannot resolve is no time."""
    assert {"m001", "m003"} <= set(_hard("vendor 90 calls ago"))


@pytest.mark.parametrize("cuts", [(), (5,)])
def test_a_day_is_found_by_the_message_that_spoke_of_it(cuts: tuple[int, ...]) -> None:
    """ "Last week" in a message of the 15th is the week of the 8th, also from a segment."""
    assert "m004" in _hard("vendor on 2026-06-10", cuts)


def test_a_hard_time_without_anything_says_so() -> None:
    """Nothing in the named time is nothing found, with the reason."""
    found = _index().search("vendor in 2019", None, at=NOW, limit=3, time="hard")
    assert not found.hits
    assert found.reason_if_empty is not None
    assert "time" in found.reason_if_empty


def test_a_soft_time_filters_nothing() -> None:
    """As a hint the time moves items up and leaves the others in."""
    question = "vendor two calls ago"
    found = _index().search(question, vectors([question])[0], at=NOW, limit=9)
    assert ids(found)[0] == "m003"
    assert len(found.hits) > 2


def test_a_question_of_time_alone_finds_what_was_said_then() -> None:
    """ "What did we say 30 days ago?" has no words to search for, and is answered."""
    found = _index().search("what was said 30 days ago?", None, at=NOW, limit=1)
    assert ids(found) == ["m001"]
