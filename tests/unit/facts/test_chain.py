"""The history of one predicate."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secondcall.errors import StoreCorrupt, TooLarge
from secondcall.facts.chain import (
    MAX_REVISIONS,
    chain_key,
    end,
    holds_at,
    insert,
    move_start,
    normalise,
    says_the_same,
    stands,
)
from secondcall.facts.stored import decode_fact, encode_fact
from secondcall.types import Belief, Fact, ItemKey

START = datetime(2026, 1, 1, tzinfo=UTC)


def _fact(number: int, day: int, recorded_day: int | None = None) -> Fact:
    return Fact(
        id=f"fact_{number}",
        kind="preference",
        subject="user",
        predicate="diet",
        value=f"value {number}",
        status="current",
        valid_from=START + timedelta(days=day),
        recorded_at=START + timedelta(days=day if recorded_day is None else recorded_day),
    )


def _grow(facts: list[Fact]) -> dict[str, Fact]:
    chain: dict[str, Fact] = {}
    for fact in facts:
        changed = insert(chain.values(), fact)
        chain.update({one.id: one for one in changed.facts})
    return chain


@given(st.lists(st.integers(0, 30), min_size=1, max_size=12))
def test_exactly_one_fact_holds_from_the_first_beginning_on(days: list[int]) -> None:
    """In whatever order facts arrive, at every later moment exactly one of them is true."""
    chain = _grow([_fact(number, day, 100 + number) for number, day in enumerate(days)])
    for day in range(min(days), 32):
        moment = START + timedelta(days=day)
        assert sum(holds_at(fact, moment) for fact in chain.values()) == 1


@given(st.lists(st.integers(0, 30), min_size=1, max_size=12))
def test_no_value_is_lost(days: list[int]) -> None:
    """Every fact that was ever told is still in the chain with its own value."""
    facts = [_fact(number, day, 100 + number) for number, day in enumerate(days)]
    chain = _grow(facts)
    assert {fact.id: fact.value for fact in facts} == {
        fact.id: fact.value for fact in chain.values()
    }


def test_a_late_correction_sorts_into_history() -> None:
    """A fact with an older beginning ends where its successor begins and leaves the head alone."""
    chain = _grow([_fact(1, 0), _fact(2, 10)])
    changed = insert(chain.values(), _fact(3, 5, recorded_day=20))
    assert changed.head.id == "fact_2"
    by_id = {fact.id: fact for fact in changed.facts}
    assert by_id["fact_3"].invalid_at == START + timedelta(days=10)
    assert by_id["fact_3"].superseded_by == "fact_2"
    assert by_id["fact_1"].invalid_at == START + timedelta(days=5)


def test_predicates_are_compared_without_case_and_spacing() -> None:
    """Case, width and white space make no second predicate."""
    assert normalise("  Seat\tＰreference ") == "seat preference"
    assert chain_key("User", "Seat  preference") == chain_key("user", "seat preference")


def test_subject_and_predicate_do_not_run_together() -> None:
    """The parts of a chain's key keep apart: (ab, c) is not (a, bc)."""
    assert chain_key("ab", "c") != chain_key("a", "bc")


def test_facts_come_back_as_they_were() -> None:
    """Encoding and decoding a fact changes nothing."""
    fact = replace(
        _fact(1, 0),
        value={"seats": [1, 2.5, None, "ß"]},
        sources=(ItemKey("u", "s", "message", "m\n1"),),
        metadata={"topic": "food"},
        due_at=START,
        invalid_at=START + timedelta(days=1),
        sensitive=True,
        multi=True,
        rests_on=("fact_7",),
        confirmed=("fact_9",),
        earlier=(Belief(until=START, valid_from=START, superseded_by="fact_8", rests_on=("x",)),),
    )
    assert decode_fact(encode_fact(fact)) == fact


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"id": 1}', b"\xff"])
def test_damaged_facts_raise_the_named_error(body: bytes) -> None:
    """Bytes that are no fact raise StoreCorrupt."""
    with pytest.raises(StoreCorrupt, match="a stored fact cannot be read"):
        decode_fact(body)


def test_settled_facts_do_not_stand() -> None:
    """A kept promise and an ended fact are no longer to be reckoned with."""
    assert stands(_fact(1, 0))
    assert not stands(replace(_fact(1, 0), status="kept"))
    assert not stands(replace(_fact(1, 0), invalid_at=START))


@given(st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=10))
def test_what_holds_is_the_last_that_was_said_to_begin(steps: list[tuple[int, bool]]) -> None:
    """At every moment that value holds which of those begun by then began last, and of two which
    began together was told later; an end counts as saying that nothing holds."""
    chain: dict[str, Fact] = {}
    told: list[tuple[int, int, str | None]] = []
    for number, (day, ends) in enumerate(steps):
        moment, at = START + timedelta(days=day), START + timedelta(days=100 + number)
        holder = next((one for one in chain.values() if holds_at(one, moment)), None)
        if ends and holder is not None:
            if holder.superseded_by is None and holder.invalid_at is not None:
                before = (holder.invalid_at - START).days  # the end is corrected, not added
                told = [one for one in told if one[2] is not None or one[0] != before]
            changed = end(chain.values(), holder, moment, at)
            told.append((day, number, None))
        elif not ends:
            changed = insert(chain.values(), _fact(number, day, 100 + number))
            told.append((day, number, f"fact_{number}"))
        else:
            continue
        chain |= {one.id: one for one in changed.facts}
        assert changed.head == max(
            chain.values(), key=lambda one: (one.valid_from, one.recorded_at)
        )
    for day in range(14):
        begun = [one for one in told if one[0] <= day]
        expected = max(begun)[2] if begun else None
        moment = START + timedelta(days=day)
        found = [fact.id for fact in chain.values() if holds_at(fact, moment)]
        assert found == ([] if expected is None else [expected])


def test_a_fact_told_late_does_not_outlive_an_end() -> None:
    """What began before the predicate ended ends with it and is not current."""
    chain = _grow([_fact(1, 0)])
    gone = end(chain.values(), chain["fact_1"], START + timedelta(days=10), START)
    changed = insert(gone.facts, _fact(2, 5, recorded_day=20))
    assert changed.result.invalid_at == START + timedelta(days=10)
    assert not stands(changed.head)


def test_an_earlier_start_moves_the_start() -> None:
    """The same value said again from an earlier time on is the same fact, which began then."""
    chain = _grow([_fact(1, 0), _fact(2, 10)])
    again = replace(_fact(3, 5, recorded_day=20), value="value 2")
    changed = move_start(chain.values(), again)
    assert changed is not None
    assert changed.result.id == changed.head.id == "fact_2"
    assert changed.result.valid_from == START + timedelta(days=5)
    assert changed.result.earlier[-1].valid_from == START + timedelta(days=10)
    first = changed.facts[1]
    assert (first.id, first.invalid_at) == ("fact_1", START + timedelta(days=5))


def test_a_start_is_not_moved_over_something_else() -> None:
    """Where another fact, or an end, lies between, the value becomes a fact of its own."""
    chain = _grow([_fact(1, 0), _fact(2, 10), _fact(3, 20)])
    assert move_start(chain.values(), replace(_fact(4, 5), value="value 3")) is None
    gap = end(chain.values(), chain["fact_1"], START + timedelta(days=7), START)
    chain |= {one.id: one for one in gap.facts}
    assert move_start(chain.values(), replace(_fact(4, 5), value="value 2")) is None


def test_what_holds_is_not_said_twice() -> None:
    """The same value from any time on at which it holds is the fact that is there."""
    chain = _grow([_fact(1, 0), _fact(2, 10)])
    assert says_the_same(chain.values(), replace(_fact(3, 5), value="value 1")) == chain["fact_1"]
    assert says_the_same(chain.values(), replace(_fact(3, 12), value="value 1")) is None


def test_a_fact_is_not_revised_without_end() -> None:
    """After 256 revisions the error says what to do instead."""
    days = range(MAX_REVISIONS + 1, 0, -1)
    chain = _grow([_fact(0, 0), *(_fact(day, day, 1_000 - day) for day in days[:-1])])
    with pytest.raises(TooLarge, match="was revised 256 times"):
        insert(chain.values(), _fact(1, 1, 2_000))
