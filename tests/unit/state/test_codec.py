"""Values to JSON and back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from state_kit import Size

from secondcall import InvalidValue, StoreCorrupt
from secondcall.state.codec import Tagged, decode, encode, keep_unknown, plain

_TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    _TEXT,
    st.binary(max_size=20),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-3, minutes=-30))])),
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.frozensets(_SCALARS, max_size=3),
        st.dictionaries(st.one_of(_TEXT, st.just("$")), inner, max_size=3),
        st.dictionaries(st.integers(), inner, max_size=3),
    ),
    max_leaves=10,
)


@given(_VALUES)
def test_values_come_back_as_they_were(value: object) -> None:
    """Dates, decimals, bytes, sets, keys that are numbers or "$": all come back, types included."""
    back = decode(json.loads(json.dumps(encode("x", value), allow_nan=False)))
    assert back == value
    assert repr(type(back)) == repr(type(value))


@dataclass(frozen=True)
class Inner:
    """A record in a record."""

    size: Size
    at: date


@dataclass(frozen=True)
class Outer:
    """A record."""

    inner: Inner
    many: list[Inner]


def test_records_and_enums_keep_their_names() -> None:
    """A record or enum whose class is not known is written again as it was read."""
    inner = Inner(Size.LARGE, date(2026, 1, 1))
    raw = encode("x", {"outer": Outer(inner, [inner])})
    back: Any = decode(raw)
    assert back["outer"].name == "Outer"
    assert back["outer"].value["inner"].value["size"] == Tagged("enum", "Size", "l")
    assert encode("x", back) == raw
    assert plain(back) == {
        "outer": {
            "inner": {"size": "l", "at": date(2026, 1, 1)},
            "many": [{"size": "l", "at": date(2026, 1, 1)}],
        }
    }


def test_unknown_keys_of_records_stay() -> None:
    """What a newer release wrote inside a record stays when this one changes another field."""
    inner = Inner(Size.LARGE, date(2026, 1, 1))
    raw = encode("x", Outer(inner, [inner]))
    raw["v"]["colour"] = "red"
    raw["v"]["inner"]["v"]["smell"] = "rose"
    raw["v"]["many"][0]["v"]["taste"] = "salt"
    changed = encode("x", Outer(Inner(Size.SMALL, inner.at), [inner]))
    kept = keep_unknown(raw, changed)
    assert kept["v"]["colour"] == "red"
    assert kept["v"]["inner"]["v"]["smell"] == "rose"
    assert kept["v"]["inner"]["v"]["size"]["v"] == "s"
    assert kept["v"]["many"][0]["v"]["taste"] == "salt"
    gone = keep_unknown({"a": 1, "b": 2}, {"a": 1})
    assert gone == {"a": 1}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (float("nan"), "x is nan"),
        ({"a": [1, float("inf")]}, r"x\.a\[1\] is inf"),
        (Decimal("Infinity"), "only finite"),
        (datetime(2026, 1, 1), "naive"),  # noqa: DTZ001 - that is the point
        (object(), "a object, which a state cannot hold"),
        ({"a": "\ud800"}, "lone surrogate"),
        ({"\ud800": 1}, "lone surrogate"),
        (test_records_and_enums_keep_their_names, "function"),
    ],
)
def test_what_cannot_be_held_is_named(value: object, words: str) -> None:
    """A value that no state can hold is refused with its path."""
    with pytest.raises(InvalidValue, match=words):
        encode("x", value)


DAMAGED: list[Any] = [
    {"$": "date", "v": "2026-13-01"},
    {"$": "date"},
    {"$": "decimal", "v": "NaN"},
    {"$": "datetime", "v": "2026-01-01T00:00:00"},
    {"$": "bytes", "v": "?"},
    {"$": "timedelta", "v": "1"},
    {"$": "no such tag", "v": 1},
    {"$": "enum", "v": 1},
    {"$": ["a"], "v": 1},
    {"$": "map", "v": [1]},
    {"$": "set", "v": [{}]},
]


@pytest.mark.parametrize("raw", DAMAGED)
def test_damaged_values_are_refused(raw: Any) -> None:
    """A stored value that nothing here writes is corrupt, and never guessed at."""
    with pytest.raises(StoreCorrupt, match="cannot be read"):
        decode(raw)


def test_times_of_day_and_spans_come_back() -> None:
    """A time of day and a span keep their microseconds."""
    for value in (time(9, 30, 0, 1), timedelta(days=-1, microseconds=3)):
        assert decode(encode("x", value)) == value


@dataclass(frozen=True)
class Point:
    """A record that can be in a set."""

    x: int


def test_records_can_be_in_sets_and_keys() -> None:
    """What is hashable in the host's class is so before its class is known."""
    for value in (frozenset({Point(1), Point(2)}), {Point(1): 2}, {(Point(1), 2): 3}):
        raw = encode("x", value)
        assert encode("x", decode(json.loads(json.dumps(raw)))) == raw


def test_a_named_tuple_is_refused() -> None:
    """It would come back as a bare tuple, without its names."""

    class Row(NamedTuple):
        a: int

    with pytest.raises(InvalidValue, match="named tuple Row"):
        encode("x", {"a": [Row(1)]})


@pytest.mark.parametrize(
    ("numbers", "kept"),
    [
        ([0, 1, 2, 3], [0, 1, 2, None]),
        ([9, 0, 1, 2], [None, 0, 1, 2]),
        ([0, 2], [0, 2]),
        ([1, 2], [1, 2]),
        ([0, 9, 2], [0, 1, 2]),
        ([2, 1], [None, None]),
        ([], []),
    ],
)
def test_unknown_keys_stay_with_the_parts_of_a_list(
    numbers: list[int], kept: list[int | None]
) -> None:
    """When a list grows or shrinks, what a newer release wrote in its parts stays with them; a part
    that changed in its place keeps what was there, and one that is new gets nothing."""
    old = encode("x", [Point(number) for number in range(3)])
    for number, part in enumerate(old):
        part["v"]["weight"] = number
    merged = keep_unknown(old, encode("x", [Point(number) for number in numbers]))
    assert [part["v"]["x"] for part in merged] == numbers
    assert [part["v"].get("weight") for part in merged] == kept
