"""Snapshots: JSON that holds everything it can, names what it cannot, and never extends a life."""

from __future__ import annotations

import json
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntFlag, StrEnum
from typing import Annotated, Any, Literal, NamedTuple, NewType, cast
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secondcall import InvalidValue, Message, Restored
from secondcall.shortterm.snapshot import Snapshot
from secondcall.shortterm.userdata import ShortTermMemory
from secondcall.testing.fakes import FrozenClock

START = datetime(2026, 5, 4, 9, tzinfo=UTC)


class Colour(StrEnum):
    RED = "red"


class Step(Enum):
    ASK = (1, "ask")


class Rights(IntFlag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: int = 0


@dataclass
class Line:
    text: str
    price: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class Order:
    lines: tuple[Line, ...] = ()
    colour: Colour | None = None


@dataclass
class Everything:
    text: str = ""
    number: int = 0
    real: float = 0.0
    raw: bytes = b""
    when: datetime | None = None
    day: date | None = None
    hour: time | None = None
    span: timedelta | None = None
    price: Decimal = Decimal(0)
    id: UUID | None = None
    step: Step | None = None
    rights: Rights = Rights.READ
    names: set[str] = field(default_factory=set[str])
    fixed: frozenset[int] = frozenset()
    last: deque[int] = field(default_factory=lambda: deque[int](maxlen=3))
    by_number: dict[int, list[Line]] = field(default_factory=dict[int, list[Line]])
    counted: Counter[str] = field(default_factory=Counter[str])
    grouped: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    ordered: OrderedDict[str, int] = field(default_factory=OrderedDict[str, int])
    where: Point | None = None
    order: Order = field(default_factory=Order)
    client: Any = None


FULL: Mapping[str, object] = {
    "text": 'Zoë \x00 "quoted"',
    "number": -(2**200),
    "real": float("inf"),
    "raw": b"\xff\x00",
    "when": datetime(2026, 1, 2, 3, 4, 5, 6, timezone(timedelta(hours=2))),
    "day": date(2026, 1, 2),
    "hour": time(3, 4),
    "span": timedelta(days=-1, microseconds=7),
    "price": Decimal("19.90"),
    "id": UUID(int=7),
    "step": Step.ASK,
    "rights": Rights.READ | Rights.WRITE,
    "names": {"b", "a"},
    "fixed": frozenset({1, 2}),
    "last": deque([1, 2], maxlen=3),
    "by_number": {7: [Line("x", Decimal(1))]},
    "counted": Counter("aab"),
    "grouped": defaultdict(list, {"a": [1]}),
    "ordered": OrderedDict([("b", 1), ("a", 2)]),
    "where": Point(1, 2),
    "order": Order((Line("y"),), Colour.RED),
    "client": {"$": "looks like a tag", "deep": [None, True, {"a": [cast("Any", {})]}]},
}


class Seconds:
    """A monotonic clock that is told what to show."""

    def __init__(self) -> None:
        self.now = 500.0

    def __call__(self) -> float:
        return self.now


def _memory(clock: FrozenClock | None = None, **settings: Any) -> ShortTermMemory[Everything]:
    return ShortTermMemory(
        Everything, clock=clock or FrozenClock(START), monotonic=Seconds(), **settings
    )


def _through_json(snapshot: Snapshot) -> dict[str, Any]:
    return json.loads(json.dumps(snapshot, allow_nan=False))


def test_every_kind_of_value_comes_back_as_it_was() -> None:
    """Dates, decimals, enums, bytes, sets, containers and nested records keep value and type."""
    memory = _memory()
    memory.set(**FULL)
    snapshot = memory.snapshot()
    assert snapshot.skipped == {}
    other = _memory()
    report = other.restore(_through_json(snapshot))
    assert report.refused == {}
    assert sorted(report.restored) == sorted(FULL)
    for name, value in FULL.items():
        found = getattr(other.data, name)
        assert (found, type(found)) == (value, type(value)), name
    assert other.data.last.maxlen == 3
    assert other.data.grouped["new"] == []


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**300), 2**300),
        st.floats(allow_nan=False),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
        st.binary(max_size=20),
        st.datetimes(timezones=st.just(UTC)),
        st.dates(),
        st.timedeltas(),
        st.decimals(allow_nan=False),
        st.uuids(),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(st.text("ab$", max_size=3), inner, max_size=4),
        st.dictionaries(st.integers(), inner, max_size=3),
        st.frozensets(st.integers(), max_size=4),
    ),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None)
@given(VALUES)
def test_plain_values_round_trip(value: object) -> None:
    """Whatever plain value a field holds, its snapshot gives it back equal and of its type."""
    memory, other = _memory(), _memory()
    memory.set(client=value)
    other.restore(_through_json(memory.snapshot()))
    assert (other.data.client, type(other.data.client)) == (value, type(value))


@settings(max_examples=150, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["$", "v", "type", "format", "at", "fields", "left_seconds", "a"]),
                inner
                | st.sampled_from(["tuple", "enum", "record", "deque", "defaultdict", "decimal"]),
                max_size=4,
            )
        ),
        max_leaves=15,
    )
)
def test_any_json_is_restored_or_refused(value: Any) -> None:
    """A snapshot with anything in any place gives a report or ``InvalidValue``, nothing else."""
    memory = _memory()
    memory.set(text="before")
    good = _through_json(memory.snapshot())
    for place in ("fields", "flags", "intent", "messages", "names", "at", "format"):
        with suppress(InvalidValue):
            _memory().restore({**good, place: value})
    field_of = {"client": {"value": value, "left_seconds": 5}, "number": value}
    report = _memory().restore(
        {**good, "fields": field_of, "messages": [value], "flags": {"x": value}}
    )
    assert isinstance(report, Restored)


def test_what_cannot_be_held_is_named() -> None:
    """Live objects, unknown classes and lone surrogates are left out with the place and reason."""

    @dataclass
    class Local:
        a: int = 1

    memory = _memory()
    memory.set(text="kept", client=[{"lock": threading.Lock()}])
    snapshot = memory.snapshot()
    assert list(snapshot.skipped) == ["client"]
    assert snapshot.skipped["client"].startswith("client[0].lock is a lock")
    for value, said in (
        (Local(), "Local, which a snapshot cannot hold"),
        ("\ud800", "lone surrogate"),
        (1 << 2_000, "over 1024 bits"),
        (1j, "complex"),
    ):
        memory.set(client=value)
        assert said in memory.snapshot().skipped["client"]
    report = _memory().restore(_through_json(memory.snapshot()))
    assert (report.restored, report.missing) == (("text",), ("client",))


def test_a_live_object_survives_restore() -> None:
    """A field that the snapshot had to skip keeps what the memory has now."""
    memory = _memory()
    memory.set(client=threading.Lock())
    other, lock = _memory(), threading.Lock()
    other.set(client=lock, text="old")
    other.restore(_through_json(memory.snapshot()))
    assert other.data.client is lock
    assert other.data.text == ""


def test_messages_intent_and_flags_come_back() -> None:
    """The rest of the memory is carried too, each with its remaining life."""
    memory = _memory(ttl_seconds={"flags": 50})
    said = Message(
        "assistant", "Hi", id="1", speaker="Bo", at=START, interrupted=True, metadata={"a": [1]}
    )
    memory.add(said)
    memory.set_intent("book")
    memory.set_flag("vip")
    clock = FrozenClock(START + timedelta(seconds=49))
    other = _memory(clock, ttl_seconds={"flags": 50})
    other.restore(_through_json(memory.snapshot()))
    assert (other.messages, other.intent, other.flags) == ([said], "book", {"vip"})
    clock.advance(timedelta(seconds=1))
    other.restore(_through_json(memory.snapshot()))
    assert (other.messages, other.flags) == ([said], frozenset())


@settings(max_examples=100, deadline=None)
@given(
    old=st.none() | st.floats(1, 1e5),
    new=st.none() | st.floats(1, 1e5),
    before=st.floats(0, 1e5),
    between=st.floats(-1e5, 1e5),
)
def test_restoring_never_extends_a_life(
    old: float | None, new: float | None, before: float, between: float
) -> None:
    """Time between snapshot and restore counts, the shorter TTL holds, and a clock that went back
    adds nothing."""
    clock, seconds = FrozenClock(START), Seconds()
    memory = ShortTermMemory(Everything, ttl_seconds=old, clock=clock, monotonic=seconds)
    memory.set(number=1)
    seconds.now += before
    snapshot = _through_json(memory.snapshot())
    clock.set(START + timedelta(seconds=between))
    other = ShortTermMemory(Everything, ttl_seconds=new, clock=clock, monotonic=Seconds())
    report = other.restore(snapshot)
    lived = (before if old is not None else 0.0) + max(0.0, between)
    lives = [one for one in (old, new) if one is not None]
    if old is not None and before >= old:
        assert other.data.number == 0
        return
    left = other.left_seconds("number")
    if not lives:
        assert (left, other.data.number) == (None, 1)
    elif left is None:
        assert report.expired == ("number",)
        assert min(lives) - lived <= 1e-3
    else:
        assert left <= min(lives) - max(0.0, between) + 1e-3
        assert left <= (old or float("inf")) - lived + 1e-3


class NewRights(Enum):
    ALL = "all"


UserName = NewType("UserName", str)


@dataclass
class Later:
    """A later release of ``Everything``: fields changed their types, went and came."""

    text: int = 0
    number: float = 0.5
    price: Annotated[Decimal, "euros"] = Decimal(0)
    names: list[str] = field(default_factory=list[str])
    fixed: frozenset[str] = frozenset()
    by_number: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    step: Literal["ask", "done"] | None = None
    rights: NewRights | None = None
    order: Order | None = None
    where: tuple[int, int] = (0, 0)
    name: UserName = UserName("")


def test_a_type_that_changed_is_named() -> None:
    """Changed, gone and new fields are each named; what still fits comes back."""
    memory = _memory()
    memory.set(**FULL)
    later = ShortTermMemory(Later, clock=FrozenClock(START))
    report = later.restore(_through_json(memory.snapshot()))
    assert sorted(report.restored) == ["number", "order", "price"]
    assert sorted(report.refused) == [
        "by_number",
        "fixed",
        "names",
        "rights",
        "step",
        "text",
        "where",
    ]
    assert report.refused["text"] == "text is now of another type than str"
    assert report.missing == ("name",)
    assert {"raw", "when", "client"} <= set(report.unknown)
    assert later.data == Later(
        number=float(-(2**200)),
        price=Decimal("19.90"),
        order=Order((Line("y"),), Colour.RED),
    )


def test_limits_hold_for_what_is_restored() -> None:
    """A snapshot made under larger limits is cut or refused by name, never taken whole."""
    memory = _memory()
    memory.set(text="x" * 50, number=1)
    for number in range(5):
        memory.add(Message("user", f"m{number}"))
        memory.set_flag(str(number))
    other = _memory(max_characters=20, message_limit=2, flag_limit=3)
    report = other.restore(_through_json(memory.snapshot()))
    assert list(report.refused) == ["text"]
    assert (other.data.text, other.data.number) == ("", 1)
    assert [one.text for one in other.messages] == ["m3", "m4"]
    assert len(other.flags) == 3
    assert other.dropped.entries == {"messages": 3, "flags": 2}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 2}, "format '2', this release reads 1"),
        ({"format": None}, "format 'None'"),
        ({"at": "2026-01-01T00:00:00"}, "aware time"),
        ({"at": 7}, "aware time"),
        ({"fields": []}, "fields must be a dict"),
        ({"messages": {}}, "messages must be a list"),
    ],
)
def test_what_is_no_snapshot(change: dict[str, Any], said: str) -> None:
    """Another format or shape is refused whole, and the memory stays as it is."""
    memory = _memory()
    memory.set(text="before")
    with pytest.raises(InvalidValue, match=said):
        memory.restore({**_through_json(memory.snapshot()), **change})
    with pytest.raises(InvalidValue, match="must be a dict"):
        memory.restore(cast("Any", [1]))
    assert memory.data.text == "before"


def test_no_class_is_found_by_name_alone() -> None:
    """A snapshot that names a class outside the user's type makes no instance of it."""
    memory = _memory()
    good = _through_json(memory.snapshot())
    for tag in ("record", "enum"):
        held = {"$": tag, "type": "subprocess:Popen", "v": {"args": "id"}}
        fields = {"client": {"value": held, "left_seconds": 5}}
        report = _memory().restore({**good, "fields": fields})
        assert report.refused == {"client": "client is of a class that is not known any more"}


def test_a_class_that_moved_is_found() -> None:
    """A nested class whose module was renamed is found by its own name."""
    memory = _memory()
    memory.set(order=Order(colour=Colour.RED))
    moved = json.dumps(memory.snapshot()).replace(f"{__name__}:", "old.module:")
    other = _memory()
    assert other.restore(json.loads(moved)).restored == ("order",)
    assert other.data.order.colour is Colour.RED
