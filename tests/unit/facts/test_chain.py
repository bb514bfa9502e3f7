"""The history of one predicate."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secondcall.errors import StoreCorrupt
from secondcall.facts.chain import (
    chain_key,
    decode_fact,
    encode_fact,
    holds_at,
    insert,
    normalise,
    stands,
)
from secondcall.types import Fact, ItemKey

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
        _, changed = insert(chain.values(), fact)
        chain.update({one.id: one for one in changed})
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
    head, changed = insert(chain.values(), _fact(3, 5, recorded_day=20))
    assert head.id == "fact_2"
    by_id = {fact.id: fact for fact in changed}
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
