"""What is kept of each change of a fact: in order of time, whatever clocks and imports bring."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secondcall.errors import TooLarge
from secondcall.facts.belief import believed
from secondcall.facts.chain import MAX_REVISIONS, end, holds_at, insert, revised
from secondcall.types import Belief, Fact

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def _fact(number: int, day: int, recorded_day: int) -> Fact:
    return Fact(
        id=f"fact_{number}",
        kind="attribute",
        subject="user",
        predicate="city",
        value=number,
        status="current",
        valid_from=START + day * DAY,
        recorded_at=START + recorded_day * DAY,
    )


def _grown(facts: list[Fact], *, keep_recorded: bool) -> dict[str, Fact]:
    chain: dict[str, Fact] = {}
    for fact in facts:
        changed = insert(chain.values(), fact, keep_recorded=keep_recorded)
        chain |= {one.id: one for one in changed.facts}
    return chain


def _holding(chain: dict[str, Fact], at: datetime, moment: datetime) -> list[str]:
    return [one.id for one in believed(chain.values(), at) if holds_at(one, moment)]


def test_a_belief_is_never_before_the_last_one() -> None:
    """A clock that is behind what was recorded adds no belief in front of the others."""
    fact = revised(_fact(1, 0, 5), START + 9 * DAY, confirmed=("a",))
    fact = revised(fact, START + 7 * DAY, confirmed=("a", "b"))
    assert [one.until for one in fact.earlier] == [START + 9 * DAY] * 2
    (known,) = believed([fact], START + 8 * DAY)
    assert known.confirmed == ()


Told = st.lists(
    st.tuples(st.integers(0, 8), st.integers(10, 30)),
    min_size=1,
    max_size=7,
    unique_by=lambda one: one[1],
)


@given(Told, st.permutations(range(7)))
def test_restoring_in_any_order_believes_the_same(
    told: list[tuple[int, int]], order: list[int]
) -> None:
    """Facts that come back one by one, in whatever order, are believed at every time as if they
    had been told when they were recorded."""
    facts = [_fact(n, day, recorded) for n, (day, recorded) in enumerate(told)]
    in_time = _grown(sorted(facts, key=lambda one: one.recorded_at), keep_recorded=True)
    back = _grown([facts[n] for n in order if n < len(facts)], keep_recorded=True)
    for known in range(9, 32):
        for day in range(9):
            at, moment = START + (known + 0.5) * DAY, START + (day + 0.5) * DAY
            assert _holding(back, at, moment) == _holding(in_time, at, moment)
    assert all(
        [one.until for one in fact.earlier] == sorted(one.until for one in fact.earlier)
        for fact in back.values()
    )


def _worn(fact: Fact) -> Fact:
    beliefs = [
        Belief(until=fact.recorded_at + n * timedelta(seconds=1), valid_from=fact.valid_from)
        for n in range(MAX_REVISIONS)
    ]
    return replace(fact, earlier=tuple(beliefs))


def test_what_was_revised_often_can_still_be_ended() -> None:
    """However often a fact was revised, a newer one takes its place, and it can be retracted."""
    worn = _worn(_fact(1, 0, 0))
    changed = insert([worn], _fact(2, 5, 5))
    assert {one.id: one.invalid_at for one in changed.facts}["fact_1"] == START + 5 * DAY
    assert end([worn], worn, START + 6 * DAY, START + 6 * DAY).result.invalid_at is not None
    with pytest.raises(TooLarge, match="was revised 256 times"):
        revised(worn, START + 7 * DAY, confirmed=("x",))
