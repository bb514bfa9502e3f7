"""What slots take."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag
from typing import Any, Literal

import pytest
from state_kit import Size

from secondcall import InvalidValue, TooLarge
from secondcall.state import Slot
from secondcall.state.codec import decode, encode
from secondcall.state.slots import MAX_SLOT_BYTES, accept, json_schema_of, type_name


@dataclass(frozen=True)
class Address:
    """Where somebody lives."""

    street: str
    number: int = 1
    tags: list[str] = field(default_factory=list[str])


class Right(Flag):
    """What somebody may do."""

    READ = 1
    WRITE = 2


class Price(Enum):
    """Members whose values JSON does not have."""

    LOW = Decimal("1.50")
    SPAN = (1, 2)


@dataclass(frozen=True)
class Positive:
    """A record that checks itself."""

    n: int

    def __post_init__(self) -> None:
        if self.n < 0:
            raise ValueError("secret")


EAST = timezone(timedelta(hours=2))
TAKEN: list[tuple[Any, object, object]] = [
    (str, "été\n😀", "été\n😀"),
    (str, "a\ud800", "a\ufffd"),
    (int, 7, 7),
    (float, 7, 7.0),
    (bool, False, False),
    (Decimal, "12.50", Decimal("12.50")),
    (Decimal, 12.1, Decimal("12.1")),
    (Decimal, 3, Decimal(3)),
    (date, "2026-12-01", date(2026, 12, 1)),
    (datetime, "2026-12-01T09:00:00Z", datetime(2026, 12, 1, 9, tzinfo=UTC)),
    (datetime, datetime(2026, 12, 1, 9, tzinfo=EAST), datetime(2026, 12, 1, 9, tzinfo=EAST)),
    (time, "09:30", time(9, 30)),
    (timedelta, 90, timedelta(seconds=90)),
    (bytes, "AAE=", b"\x00\x01"),
    (Size, "l", Size.LARGE),
    (Size, "LARGE", Size.LARGE),
    (Literal["window", "aisle"], "aisle", "aisle"),
    (Literal[Size.LARGE, "none"], "l", Size.LARGE),
    (Price, "1.50", Price.LOW),
    (Price, [1, 2], Price.SPAN),
    (Right, 3, Right.READ | Right.WRITE),
    (set[Positive], [Positive(1), {"n": 1}], frozenset({Positive(1)})),
    (list[date], ["2026-12-01"], (date(2026, 12, 1),)),
    (set[str], ["a", "b", "a"], frozenset({"a", "b"})),
    (dict[str, int], {"a": 1}, {"a": 1}),
    (int | None, None, None),
    (int | str, "7", "7"),
    (Address, {"street": "Rua"}, Address("Rua", 1, ())),  # pyright: ignore[reportArgumentType] - what comes out is frozen
    (Address, Address("Rua", 2, ["a"]), Address("Rua", 2, ("a",))),  # pyright: ignore[reportArgumentType] - what comes out is frozen
    (list[Address], [{"street": "Rua"}], (Address("Rua", 1, ()),)),  # pyright: ignore[reportArgumentType] - what comes out is frozen
    (object, {"a": [1, {"b": None}]}, {"a": (1, {"b": None})}),
]


@pytest.mark.parametrize(("declared", "value", "expected"), TAKEN)
def test_values_are_taken_as_declared(declared: Any, value: object, expected: object) -> None:
    """A value in its type or in JSON's form is given back in its type."""
    taken = accept("x", declared, value)
    assert taken == expected
    assert type(taken) is type(expected) or isinstance(expected, dict)


REFUSED: list[tuple[Any, object]] = [
    (str, 7),
    (int, True),
    (int, "7"),
    (int, 7.0),
    (int, 1 << 2_000),
    (float, float("nan")),
    (float, float("-inf")),
    (float, 10**400),
    (bool, 1),
    (Decimal, Decimal("NaN")),
    (Decimal, "sNaN"),
    (Decimal, "ten"),
    (Decimal, True),
    (date, datetime(2026, 1, 1, tzinfo=UTC)),
    (date, "01.12.2026"),
    (datetime, "2026-12-01T09:00:00"),
    (datetime, datetime(2026, 1, 1)),  # noqa: DTZ001 - that is the point
    (timedelta, 1e300),
    (bytes, "!"),
    (Size, "x"),
    (Literal[1], True),
    (list[int], "12"),
    (list[int], [1, "2"]),
    (dict[str, int], {1: 1}),
    (Address, {"street": "Rua", "door": 3}),
    (Address, {}),
    (Address, {"street": 7}),
    (object, float("nan")),
    (object, object()),
]


@pytest.mark.parametrize(("declared", "value"), REFUSED)
def test_other_values_are_refused(declared: Any, value: object) -> None:
    """What is not of the type, NaN included, is refused naming the slot and never the value."""
    with pytest.raises(InvalidValue, match=r"slots\.x") as refused:
        accept("slots.x", declared, value)
    assert "01.12.2026" not in str(refused.value)


def test_what_is_too_deep_or_too_long_is_refused() -> None:
    """10,000 levels and over 64 KiB of text are refused without harm."""
    deep: object = 1
    for _ in range(10_000):
        deep = [deep]
    with pytest.raises(InvalidValue, match="levels deep"):
        accept("x", object, deep)
    with pytest.raises(TooLarge, match=r"x has 1,000,000 bytes"):
        accept("x", str, "a" * 1_000_000)
    assert accept("x", str, "a" * MAX_SLOT_BYTES)


def _raising(value: object) -> bool:
    raise ValueError(f"secret {value}")


async def _waiting(value: object) -> bool:
    return True


CHECKS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda _: False, "refused by its check"),
    (lambda _: "it is taken", "refused: it is taken"),
    (_raising, "ValueError"),
    (lambda _: None, "gave NoneType"),
    (lambda value: _waiting(value), "gave coroutine"),
]


@pytest.mark.parametrize(("check", "words"), CHECKS)
def test_checks_refuse(check: Any, words: str) -> None:
    """A check refuses by False, a reason or a ValueError, whose text is not shown."""
    with pytest.raises(InvalidValue, match=words) as refused:
        Slot(str, check=check).take("slots.x", "hello")
    assert "secret" not in str(refused.value)


def test_a_check_lets_pass() -> None:
    """A check that says True lets the value pass."""
    assert Slot(int, check=lambda value: value > 1).take("x", 2) == 2


@pytest.mark.parametrize("declared", [one[0] for one in TAKEN])
def test_every_type_has_a_schema_and_a_name(declared: Any) -> None:
    """Each type has a JSON Schema and a name in words."""
    assert isinstance(json_schema_of(declared), dict)
    assert type_name(declared)
    assert "NoneType" not in type_name(declared)


@pytest.mark.parametrize(("declared", "value", "expected"), TAKEN)
def test_what_is_taken_comes_back(declared: Any, value: object, expected: object) -> None:
    """Whatever a slot takes is the same after it was stored and read."""
    raw = json.loads(json.dumps(encode("x", accept("x", declared, value))))
    assert accept("x", declared, decode(raw)) == expected


def test_a_record_that_refuses_a_value_is_a_refusal() -> None:
    """What a record's own check raises is an error for the caller, and the value is not shown."""
    with pytest.raises(InvalidValue, match=r"x was refused by Positive \(ValueError\)") as refused:
        accept("x", Positive, {"n": -1})
    assert "secret" not in str(refused.value)


def test_schemas_are_json() -> None:
    """Enums and literals of any values have a schema that can be sent, and what follows it is
    taken."""
    assert json_schema_of(Price) == {"enum": ["1.50", [1, 2]]}
    assert json_schema_of(Literal[Size.LARGE, b"a"]) == {"enum": ["l", "YQ=="]}
