"""What tries to outgrow, outlive or break a short-term memory does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any, cast

import pytest
from pydantic import BaseModel, PrivateAttr

from secondcall import InvalidValue, Message, TooLarge
from secondcall.abc import TokenCounter
from secondcall.shortterm.userdata import ShortTermMemory


@dataclass
class CallData:
    name: str = ""
    tries: int = 0
    items: list[Any] = field(default_factory=list[Any])
    amount: Decimal = Decimal(0)


@dataclass
class Logged:
    """Keeps a list beside its fields."""

    tries: int = 0

    def __post_init__(self) -> None:
        self.log: list[str] = []


@dataclass
class Holding:
    inner: Logged = field(default_factory=Logged)


class Private(BaseModel):
    """Keeps a list where pydantic hides it."""

    tries: int = 0
    _log: list[str] = PrivateAttr(default_factory=list[str])

    @property
    def log(self) -> list[str]:
        """The list."""
        return self._log


@dataclass
class Worked:
    """Works a value out once."""

    words: list[str] = field(default_factory=list[str])

    @cached_property
    def count(self) -> int:
        """How many words there were when it was first asked for."""
        return len(self.words)


class Seconds:
    """A clock that is told what to show."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Broken(TokenCounter):
    """A counter that gives what it is told to, or raises it."""

    id = "broken"

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def count(self, text: str) -> int:
        """No sensible number."""
        if isinstance(self.answer, Exception):
            raise self.answer
        return cast("int", self.answer)


@pytest.mark.parametrize("kind", [Logged, Private])
def test_what_stands_beside_the_fields_is_bounded_and_copied(kind: type[Logged | Private]) -> None:
    """A list that a class keeps for itself, which no field names, holds no more than a field may,
    and cannot be changed from outside."""
    memory = ShortTermMemory[Any](kind, max_entries=3)
    for _ in range(3):
        memory.update(lambda data: data.log.append("x"))
    with pytest.raises(TooLarge, match=r"log holds more than 3 entries"):
        memory.update(lambda data: data.log.append("x"))
    memory.data.log.append("from outside")
    taken: list[Any] = []
    memory.update(lambda data: taken.append(data))
    taken[0].log.append("later")
    assert memory.data.log == ["x"] * 3
    assert memory.dropped.refused == {"other attributes": 1}


def test_what_stands_beside_the_fields_of_a_part_counts_too() -> None:
    """The same inside a field: it counts towards that field's bounds."""
    memory = ShortTermMemory(Holding, max_entries=2)
    memory.update(lambda data: data.inner.log.extend(["a", "b"]))
    memory.data.inner.log.append("from outside")
    with pytest.raises(TooLarge, match="inner"):
        memory.update(lambda data: data.inner.log.append("c"))
    assert memory.data.inner.log == ["a", "b"]


def test_a_value_worked_out_once_is_no_stray_attribute() -> None:
    """A cached property may be asked for inside an update and outside."""
    memory = ShortTermMemory(Worked)
    assert memory.update(lambda data: data.count) == 0
    assert memory.data.count == 0


def test_one_part_in_many_places_counts_in_each() -> None:
    """A list of the same list over and over would be a thousand times as long in a snapshot."""
    memory = ShortTermMemory(CallData)
    doubled: list[Any] = ["a" * 100]
    for _ in range(20):
        doubled = [doubled, doubled]
    with pytest.raises(TooLarge, match="items"):
        memory.set(items=doubled)
    shared = ["a" * 60_000]
    with pytest.raises(TooLarge, match="characters"):
        memory.set(items=[shared, shared])
    memory.set(items=[["b"]] * 2)
    first, second = memory.data.items
    assert first is second


def _count_far(memory: ShortTermMemory[CallData]) -> None:
    memory.increment("tries", 1 << 100_000)


def _long_amount(memory: ShortTermMemory[CallData]) -> None:
    memory.set(amount=Decimal("1" * 10_000))


@pytest.mark.parametrize(
    "grow",
    [
        _count_far,
        _long_amount,
    ],
)
def test_no_number_is_too_long_either(grow: Callable[[ShortTermMemory[CallData]], object]) -> None:
    """Numbers of many digits are held to the bounds of their field."""
    memory = ShortTermMemory(CallData, max_characters=1_000)
    with pytest.raises(TooLarge):
        grow(memory)
    assert (memory.data.tries, memory.data.amount) == (0, 0)
    assert sum(memory.dropped.refused.values()) == 1
    memory.set(amount=Decimal("1234567890.12"))
    assert memory.increment("tries") == 1


def test_an_update_whose_answer_cannot_be_copied_changes_nothing() -> None:
    """What an update gives back is copied before anything is taken over."""
    memory = ShortTermMemory(CallData)
    deep: list[Any] = []
    for _ in range(40):
        deep = [deep]

    def change(data: CallData) -> list[Any]:
        data.tries = 5
        return deep

    with pytest.raises(InvalidValue, match="levels deep"):
        memory.update(change)
    assert memory.data.tries == 0


def test_a_clock_that_goes_back_lengthens_no_life() -> None:
    """When the seconds are put back, what has passed before has passed, and what passes after
    counts."""
    clock = Seconds()
    memory = ShortTermMemory(CallData, ttl_seconds=60, monotonic=clock)
    memory.set(tries=1)
    clock.now += 20
    other = memory.copy()
    clock.now = 5.0
    assert memory.left_seconds("tries") == other.left_seconds("tries") == 40
    clock.now += 39
    assert memory.data.tries == other.data.tries == 1
    clock.now += 1
    assert memory.data.tries == other.data.tries == 0


@pytest.mark.parametrize("answer", [RuntimeError("no"), float("nan"), -1, None])
def test_a_counter_that_fails_loses_no_message(answer: object) -> None:
    """Its messages are taken at two bytes a token, and are still bounded."""
    memory = ShortTermMemory(CallData, counter=Broken(answer), message_limit=3, message_tokens=30)
    for number in range(5):
        memory.add(Message("user", f"message {number}"))
    memory.add(Message("user", "a" * 1_000))
    assert memory.messages[-1].text.startswith("aaa")
    assert len(memory.messages[-1].text.encode()) <= 60
    assert memory.dropped.shortened_messages == 1


@pytest.mark.parametrize("left", [10**400, "soon", -1, [1]], ids=["huge", "text", "less", "list"])
def test_a_life_that_is_no_number_of_seconds_is_named(left: object) -> None:
    """A snapshot with a life that cannot be one is read but for that field, which is named."""
    memory = ShortTermMemory(CallData)
    memory.set(name="Ana", tries=2)
    wire = json.loads(json.dumps(memory.snapshot()))
    wire["fields"]["tries"]["left_seconds"] = left
    report = memory.restore(wire)
    assert report.restored == ("name",)
    assert set(report.refused) == {"tries"}
