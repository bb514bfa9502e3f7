"""Typed short-term memory: what is in it, when it is gone, and that nothing is lost or grows."""

from __future__ import annotations

import asyncio
import copy
import logging
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secondcall import InvalidValue, Message, TooLarge, UnknownName, UsageError
from secondcall.abc import TokenCounter
from secondcall.shortterm.userdata import ShortTermMemory


@dataclass
class Address:
    city: str = ""
    lines: list[str] = field(default_factory=list[str])


@dataclass
class CallData:
    name: str = ""
    tries: int = 0
    items: list[str] = field(default_factory=list[str])
    verification_code: str | None = None
    address: Address = field(default_factory=Address)
    notes: dict[str, str] = field(default_factory=dict[str, str])
    client: object = None


class Seconds:
    """A monotonic clock that is told what to show."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Words(TokenCounter):
    """One token a word."""

    id = "words"

    def count(self, text: str) -> int:
        """The words of a text."""
        return len(text.split())


@pytest.fixture
def seconds() -> Seconds:
    """A clock of its own for each test."""
    return Seconds()


@pytest.fixture
def memory(seconds: Seconds) -> ShortTermMemory[CallData]:
    """A memory with the default TTL, and a shorter one for the code."""
    return ShortTermMemory(
        CallData, ttl_seconds={"verification_code": 60}, monotonic=seconds, counter=Words()
    )


# Reading and writing


def test_starts_with_the_defaults_or_what_it_is_given() -> None:
    """A class starts with its defaults, an instance with what it holds, copied."""
    mine = CallData(name="Ana", items=["a"])
    memory = ShortTermMemory(mine)
    mine.items.append("b")
    assert memory.data == CallData(name="Ana", items=["a"])
    assert ShortTermMemory(CallData).data == CallData()


def test_update_changes_all_or_nothing(memory: ShortTermMemory[CallData]) -> None:
    """An update that raises has changed nothing, however deep it wrote before."""

    def fail(data: CallData) -> None:
        data.address.lines.append("half")
        data.notes["a"] = "b"
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        memory.update(fail)
    assert memory.data == CallData()
    memory.set(name="still works")


def test_update_gives_back_what_the_function_returns(memory: ShortTermMemory[CallData]) -> None:
    """What an update returns is a copy: writing to it changes nothing in the memory."""
    memory.set(items=["a", "b"])
    assert memory.update(lambda data: data.items.pop(0)) == "a"
    given_out = memory.update(lambda data: data.items)
    given_out.append("mine")
    assert memory.data.items == ["b"]


def test_update_takes_a_new_instance(memory: ShortTermMemory[CallData]) -> None:
    """An instance that the function returns takes the place of the data."""
    memory.update(lambda data: replace(data, name="Bo"))
    assert memory.data.name == "Bo"


def test_what_comes_in_is_copied(memory: ShortTermMemory[CallData]) -> None:
    """A list that the host goes on writing to does not change the memory."""
    mine = ["a"]

    def put(data: CallData) -> None:
        data.items = mine

    memory.update(put)
    mine.append("b")
    assert memory.data.items == ["a"]


def test_data_is_a_copy(memory: ShortTermMemory[CallData]) -> None:
    """Writing to ``data``, also deep inside, changes nothing."""
    memory.data.address.lines.append("x")
    memory.data.name = "x"
    assert memory.data == CallData()


def test_live_objects_stay_the_same(memory: ShortTermMemory[CallData]) -> None:
    """A client or a lock in a field is shared, never copied."""
    lock = threading.Lock()
    memory.set(client=lock)
    assert memory.data.client is lock
    assert memory.copy().data.client is lock


def test_get_reads_nested_values(memory: ShortTermMemory[CallData]) -> None:
    """A dotted path leads through fields, keys and positions, and ends in the default."""
    memory.set(address=Address(city="Oslo", lines=["first"]), notes={"a": "b"})
    assert memory.get("address.city") == "Oslo"
    assert memory.get("address.lines.0") == "first"
    assert memory.get("notes.a") == "b"
    assert memory.get("address.lines.7", "none") == "none"
    assert memory.get("address.__class__") is None
    with pytest.raises(UnknownName, match="no field of CallData"):
        memory.get("adress.city")


def test_a_slip_of_the_pen_is_an_error(memory: ShortTermMemory[CallData]) -> None:
    """An attribute that is no field is refused by name, in ``update`` as in ``set``."""

    def slip(data: CallData) -> None:
        cast("Any", data).tires = 1

    for change in (lambda: memory.update(slip), lambda: memory.set(tires=1)):
        with pytest.raises(UnknownName, match="'tires'"):
            change()
    with pytest.raises(InvalidValue, match="items was deleted"):
        memory.update(lambda data: delattr(data, "items"))
    assert memory.data == CallData()


def test_an_update_inside_an_update(memory: ShortTermMemory[CallData]) -> None:
    """Inside an update the memory can be read, and writing to it is an error that changes
    nothing."""
    memory.set(tries=1)

    def inner(data: CallData) -> int:
        data.tries = 7
        return memory.data.tries

    assert memory.update(inner) == 1
    for write in (
        lambda: memory.update(lambda data: None),
        lambda: memory.increment("tries"),
        lambda: memory.set_flag("x"),
    ):
        with pytest.raises(UsageError, match="inside an update"):
            memory.update(lambda data, write=write: write())
    assert memory.data.tries == 7


def test_an_async_function_is_refused(memory: ShortTermMemory[CallData]) -> None:
    """An async function given to ``update`` is refused, and no coroutine is left behind."""

    async def change(data: CallData) -> None:
        data.tries = 1

    with pytest.raises(InvalidValue, match="not an async one"):
        _ = memory.update(change)
    assert memory.data.tries == 0


def test_flags_and_intent(memory: ShortTermMemory[CallData], seconds: Seconds) -> None:
    """Flags are set, cleared and expire one by one; the last intent counts."""
    memory.set_flag("vip")
    seconds.now += 200
    memory.set_flag("angry")
    memory.set_intent("book a table")
    memory.set_intent("cancel it")
    assert (memory.flags, memory.intent) == ({"vip", "angry"}, "cancel it")
    seconds.now += 150
    assert memory.flags == {"angry"}
    assert memory.clear_flag("angry")
    assert not memory.clear_flag("angry")
    memory.set_intent(None)
    assert memory.intent is None
    for bad in ("", 7):
        with pytest.raises(InvalidValue):
            memory.set_flag(cast("str", bad))


def test_clear(memory: ShortTermMemory[CallData]) -> None:
    """``clear`` puts single things back, or all of them."""
    memory.set(name="Ana", tries=3)
    memory.set_flag("vip")
    memory.set_intent("x")
    memory.add(Message("user", "hi"))
    memory.clear("tries", "messages")
    assert (memory.data, memory.messages) == (CallData(name="Ana"), [])
    memory.clear()
    assert (memory.data, memory.flags, memory.intent) == (CallData(), frozenset(), None)
    with pytest.raises(UnknownName):
        memory.clear("nmae")


def test_says_nothing_of_its_content(
    memory: ShortTermMemory[CallData], caplog: pytest.LogCaptureFixture
) -> None:
    """Neither the representation, nor the log, nor an error holds a value."""
    caplog.set_level(logging.DEBUG)
    memory.set(name="Ana-Secret")
    memory.append("items", "Secret-1", limit=1)
    memory.append("items", "Secret-2", limit=1)
    with pytest.raises(TooLarge) as caught:
        memory.set(name="Secret" * 100_000)
    logged = " ".join(f"{one.getMessage()} {vars(one)}" for one in caplog.records)
    assert caplog.records
    assert "Secret" not in f"{memory!r}{caught.value}{logged}"


# Life


def test_expired_is_gone_at_read(memory: ShortTermMemory[CallData], seconds: Seconds) -> None:
    """A field has its default again in the instant it runs out, without any write."""
    memory.set(verification_code="1234", name="Ana")
    seconds.now += 59.9
    assert memory.data.verification_code == "1234"
    seconds.now += 0.1
    assert memory.data.verification_code is None
    assert memory.get("verification_code", "?") is None
    assert memory.data.name == "Ana"
    seconds.now += 240
    assert memory.data == CallData()


def test_expired_is_gone_inside_an_update(
    memory: ShortTermMemory[CallData], seconds: Seconds
) -> None:
    """An update works on what has not run out."""
    memory.set(verification_code="1234")
    seconds.now += 60
    assert memory.update(lambda data: data.verification_code) is None
    memory.increment("tries")
    seconds.now += 300
    assert memory.increment("tries") == 1


def test_writing_begins_a_new_life(memory: ShortTermMemory[CallData], seconds: Seconds) -> None:
    """What an update changes lives anew, what it leaves alone does not; ``set`` and ``touch``
    renew the same value."""
    memory.set(name="Ana", tries=1, items=["a"], notes={"a": "b"})
    seconds.now += 200
    memory.update(lambda data: data.items.append("b"))
    memory.set(name="Ana")
    memory.touch("notes", "address")
    assert memory.left_seconds("tries") == 100
    assert memory.left_seconds("items") == memory.left_seconds("name") == 300
    assert (memory.left_seconds("notes"), memory.left_seconds("address")) == (300, None)
    seconds.now += 150
    assert memory.data == CallData(name="Ana", items=["a", "b"], notes={"a": "b"})


def test_ttl_for_ever_and_for_the_rest(seconds: Seconds) -> None:
    """``None`` keeps for ever; ``*`` is for all that is not named."""
    memory = ShortTermMemory(
        CallData, ttl_seconds={"*": 10, "name": None, "flags": 20}, monotonic=seconds
    )
    memory.set(name="Ana", tries=1)
    memory.set_flag("vip")
    seconds.now += 10
    assert (memory.data, memory.flags) == (CallData(name="Ana"), {"vip"})
    seconds.now += 1e9
    assert (memory.data, memory.flags) == (CallData(name="Ana"), frozenset())
    assert memory.longest_left_seconds() is None


def test_longest_left(memory: ShortTermMemory[CallData], seconds: Seconds) -> None:
    """The longest life is that of the last thing to run out, 0 when nothing is held."""
    assert memory.longest_left_seconds() == 0
    memory.set(verification_code="1")
    assert memory.longest_left_seconds() == 60
    memory.add(Message("user", "hi"))
    seconds.now += 1
    assert memory.longest_left_seconds() == 299


@settings(max_examples=100, deadline=None)
@given(
    ttl=st.floats(0.5, 1e6),
    steps=st.lists(st.tuples(st.booleans(), st.floats(0, 1e6)), max_size=20),
)
def test_a_value_lives_exactly_its_ttl(ttl: float, steps: list[tuple[bool, float]]) -> None:
    """Whatever is written and read when, a value is there until its TTL after the last write."""
    seconds = Seconds()
    memory = ShortTermMemory(CallData, ttl_seconds=ttl, monotonic=seconds)
    ends_at, expected = 0.0, 0
    for writes, passed in steps:
        seconds.now += passed
        expected = expected if seconds.now < ends_at else 0
        if writes:
            memory.increment("tries")
            ends_at, expected = seconds.now + ttl, expected + 1
        assert memory.data.tries == expected


# Bounds


def test_messages_are_bounded_by_count(memory: ShortTermMemory[CallData]) -> None:
    """The last ten messages are kept, older ones go and are counted."""
    assert sum(memory.add(Message("user", f"m{n}")) for n in range(25)) == 15
    assert [one.text for one in memory.messages] == [f"m{n}" for n in range(15, 25)]
    assert memory.dropped.entries == {"messages": 15}


def test_messages_are_bounded_by_tokens() -> None:
    """Older messages go until all fit; one that is too large is held by its beginning."""
    memory = ShortTermMemory(CallData, message_tokens=8, counter=Words())
    memory.add(Message("user", "one two three four"), Message("assistant", "five six"))
    assert memory.add(Message("user", "seven eight nine")) == 1
    memory.add(Message("user", "word " * 50))
    [only] = memory.messages
    assert only.text.startswith("word word")
    assert "characters more)" in only.text
    assert len(only.text.split()) == 8
    assert memory.dropped.shortened_messages == 1


@settings(max_examples=100, deadline=None)
@given(
    limit=st.integers(1, 5),
    tokens=st.integers(1, 30),
    texts=st.lists(st.text(alphabet="ab \n", max_size=80), max_size=12),
)
def test_messages_are_never_over(limit: int, tokens: int, texts: list[str]) -> None:
    """Count and tokens hold after every message, and the newest is always there."""
    memory = ShortTermMemory(CallData, message_limit=limit, message_tokens=tokens, counter=Words())
    for text in texts:
        memory.add(Message("user", text))
        kept = memory.messages
        assert 1 <= len(kept) <= limit
        assert sum(len(one.text.split()) for one in kept) <= tokens
        if len(text.split()) <= tokens:
            assert kept[-1].text == text


def test_messages_expire_one_by_one(memory: ShortTermMemory[CallData], seconds: Seconds) -> None:
    """Each message has its own life, and what ran out makes room."""
    memory.add(Message("user", "old", metadata={"a": [1]}))
    seconds.now += 200
    memory.add(Message("user", "new"))
    cast("Any", memory.messages[0].metadata)["a"].append(2)
    assert memory.messages[0].metadata == {"a": [1]}
    seconds.now += 100
    assert [one.text for one in memory.messages] == ["new"]


@pytest.mark.parametrize(
    "message",
    [
        "hello",
        None,
        Message(cast("Any", "robot"), "x"),
        Message("user", cast("Any", None)),
        Message("user", "x", id=""),
        Message("user", "x", metadata={"a": float("nan")}),
        Message("user", "x", interrupted=cast("Any", 1)),
    ],
)
def test_bad_messages(memory: ShortTermMemory[CallData], message: object) -> None:
    """A bad message is refused by its place, and the good ones beside it are not taken."""
    with pytest.raises(InvalidValue, match=r"messages\[1\]"):
        memory.add(Message("user", "fine"), cast("Message", message))
    assert memory.messages == []


def test_append_lets_the_oldest_go(memory: ShortTermMemory[CallData]) -> None:
    """``append`` keeps the newest ``limit`` entries and says how many went."""
    assert [memory.append("items", str(n), limit=3) for n in range(5)] == [0, 0, 0, 1, 1]
    assert memory.data.items == ["2", "3", "4"]
    assert memory.append("items", "5", limit=1) == 3
    assert memory.dropped.entries == {"items": 5}


def test_append_holds_to_the_bounds_of_a_field() -> None:
    """Without a limit of its own, ``append`` keeps to the entries and characters of a field."""
    memory = ShortTermMemory(CallData, max_entries=4, max_characters=10)
    for text in ("aaaa", "bbbb", "cccc"):
        memory.append("items", text)
    assert memory.data.items == ["bbbb", "cccc"]
    for _ in range(9):
        memory.append("items", "x")
    assert memory.data.items == ["x"] * 4
    with pytest.raises(TooLarge, match="items holds more than 10 characters"):
        memory.append("items", "x" * 11)
    assert memory.data.items == ["x"] * 4
    assert memory.dropped.refused == {"items": 1}


@settings(max_examples=100, deadline=None)
@given(
    entries=st.integers(1, 6),
    characters=st.integers(1, 20),
    values=st.lists(st.one_of(st.text(max_size=25), st.lists(st.text(max_size=5))), max_size=15),
)
def test_append_is_never_over(entries: int, characters: int, values: list[object]) -> None:
    """Whatever is appended, nested too, the field stays within both bounds or refuses."""
    memory = ShortTermMemory(CallData, max_entries=entries, max_characters=characters)
    for value in values:
        try:
            memory.append("items", value)
        except TooLarge:
            continue
        held = cast("list[object]", memory.data.items)
        nested = [part for one in held if isinstance(one, list) for part in cast("list[str]", one)]
        assert len(held) + len(nested) <= entries
        flat = [one for one in held if isinstance(one, str)] + nested
        assert sum(map(len, flat)) <= characters
        assert held[-1] == value


def _growths() -> list[Callable[[CallData], object]]:
    def cycle(data: CallData) -> None:
        loop: list[object] = []
        for _ in range(40):
            loop = [loop]
        data.client = loop

    return [
        lambda data: data.items.extend(["x"] * 1_001),
        lambda data: setattr(data, "name", "x" * 100_001),
        lambda data: data.notes.update({str(n): "" for n in range(1_001)}),
        lambda data: data.notes.update({"x" * 100_001: ""}),
        lambda data: setattr(data.address, "lines", ["x" * 60_000, "y" * 60_000]),
        lambda data: setattr(data, "client", b"x" * 100_001),
        lambda data: setattr(data, "client", bytearray(100_001)),
        lambda data: setattr(data, "client", set(range(1_001))),
        lambda data: setattr(data, "client", deque(range(1_001))),
        lambda data: setattr(data, "client", tuple(range(1_001))),
        lambda data: setattr(data, "client", defaultdict(list, {n: [n] for n in range(501)})),
        lambda data: setattr(data, "tries", 1 << 10_000_000),
        cycle,
    ]


@pytest.mark.parametrize("grow", _growths())
def test_no_field_grows_without_bound(
    memory: ShortTermMemory[CallData], grow: Callable[[CallData], object]
) -> None:
    """Text, bytes, numbers and every kind of container are refused over the limit, by name."""
    with pytest.raises(InvalidValue, match=r"^CallData\.\w+ (holds|is) more than"):
        memory.update(grow)
    assert memory.data == CallData()


def test_cycles_are_copied(memory: ShortTermMemory[CallData]) -> None:
    """A list that holds itself is copied as one, and ends."""
    loop: list[object] = []
    loop.append(loop)
    memory.set(client=loop)
    found = cast("list[object]", memory.data.client)
    assert found[0] is found
    assert found is not loop


def test_flags_are_bounded() -> None:
    """A new flag beyond the limit is refused, one that stands is renewed."""
    memory = ShortTermMemory(CallData, flag_limit=2)
    memory.set_flag("a")
    memory.set_flag("b")
    memory.set_flag("b")
    with pytest.raises(TooLarge, match="2 flags stand already"):
        memory.set_flag("c")
    assert memory.dropped.refused == {"flags": 1}


# Many at once


def test_eight_threads_lose_no_increment() -> None:
    """8 threads with 1,000 increments, appends and updates each: every one counts."""
    memory = ShortTermMemory(CallData, ttl_seconds=None)
    start = threading.Barrier(8)

    def work(number: int) -> None:
        start.wait()
        for _ in range(1_000):
            memory.increment("tries")
            if number % 2:
                memory.update(lambda data: setattr(data.address, "city", data.address.city + "x"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert memory.data.tries == 8_000
    assert memory.data.address.city == "x" * 4_000


@pytest.mark.anyio
async def test_tasks_lose_no_increment() -> None:
    """Three tools that run at once and pause between reading and writing lose nothing."""
    memory = ShortTermMemory(CallData)

    async def tool() -> None:
        for _ in range(100):
            memory.increment("tries")
            await asyncio.sleep(0)
            memory.update(lambda data: data.items.append("x"))

    await asyncio.gather(tool(), tool(), tool())
    assert (memory.data.tries, len(memory.data.items)) == (300, 300)


# Handing it over


def test_frameworks_keep_the_one_memory(memory: ShortTermMemory[CallData]) -> None:
    """A host that copies its state keeps the same memory; ``copy()`` makes another."""
    memory.set(name="Ana")
    memory.add(Message("user", "hi"))
    memory.set_flag("vip")
    memory.set_intent("x")
    assert copy.copy(memory) is memory
    assert copy.deepcopy({"userdata": memory})["userdata"] is memory
    other = memory.copy()
    assert (other.data, other.flags, other.intent) == (memory.data, memory.flags, memory.intent)
    assert other.messages == memory.messages
    assert other.left_seconds("name") == memory.left_seconds("name")
    other.set(name="Bo")
    other.clear("flags", "messages")
    assert (memory.data.name, memory.flags, len(memory.messages)) == ("Ana", {"vip"}, 1)


def test_frozen_and_slotted_types() -> None:
    """A frozen dataclass with slots works: by new instances in ``update``, and in every verb."""

    @dataclass(frozen=True, slots=True)
    class Frozen:
        count: int = 0
        names: tuple[str, ...] = ()

    seconds = Seconds()
    memory = ShortTermMemory(Frozen, monotonic=seconds)
    memory.update(lambda data: replace(data, names=("a",)))
    memory.increment("count")
    memory.set(names=("b",))
    assert memory.data == Frozen(1, ("b",))
    seconds.now += 300
    assert memory.data == Frozen()


# Bad input


@pytest.mark.parametrize("name", ["message_limit", "message_tokens", "flag_limit", "max_entries"])
@pytest.mark.parametrize("value", [0, -1, True, 1.5, "7", None])
def test_bad_limits(name: str, value: object) -> None:
    """A limit that is no whole number above 0 is refused by its name."""
    with pytest.raises(InvalidValue, match=name):
        ShortTermMemory(CallData, **cast("Any", {name: value}))


@pytest.mark.parametrize("value", [0, -1, True, float("nan"), float("inf"), "60", {"name": 0}])
def test_bad_ttl(value: object) -> None:
    """A TTL that is no positive finite number is refused."""
    with pytest.raises(InvalidValue, match="ttl_seconds"):
        ShortTermMemory(CallData, ttl_seconds=cast("Any", value))


def test_ttl_of_no_field() -> None:
    """A TTL for a name that is no field is refused by that name."""
    with pytest.raises(UnknownName, match="'verification'"):
        ShortTermMemory(CallData, ttl_seconds={"verification": 60})


def test_types_that_will_not_do() -> None:
    """What is no dataclass, a field without default and a name that is taken are refused."""

    @dataclass
    class Needs:
        name: str

    @dataclass
    class Takes:
        messages: list[str] = field(default_factory=list[str])

    class Plain:
        pass

    for kind, said in (
        (dict, "neither a dataclass"),
        (Plain, "neither a dataclass"),
        (Needs, r"Needs\.name has no default"),
        (Takes, "'messages'"),
    ):
        with pytest.raises(InvalidValue, match=said):
            ShortTermMemory(cast("Any", kind))
    for value in cast("list[object]", [None, 7, {}, Needs("x")]):
        with pytest.raises(InvalidValue):
            ShortTermMemory(value)


def test_counting_what_cannot_be_counted(memory: ShortTermMemory[CallData]) -> None:
    """Only whole numbers count up, only lists take an append."""
    memory.set(client=True)
    for call in (
        lambda: memory.increment("name"),
        lambda: memory.increment("client"),
        lambda: memory.increment("tries", cast("int", 0.5)),
        lambda: memory.increment("tries", True),
        lambda: memory.append("name", "x"),
        lambda: memory.append("items", "x", limit=0),
    ):
        with pytest.raises(InvalidValue):
            call()
    for unknown in (lambda: memory.increment("tires"), lambda: memory.append("itmes", 1)):
        with pytest.raises(UnknownName):
            unknown()
    assert memory.data == CallData(client=True)


def test_values_that_cannot_be_compared(memory: ShortTermMemory[CallData]) -> None:
    """NaN and values whose ``==`` raises are held like any other, and count as changed."""

    class Odd:
        def __eq__(self, other: object) -> bool:
            raise RuntimeError("no")

        __hash__ = object.__hash__

    memory.set(client=float("nan"))
    memory.update(lambda data: setattr(data, "client", [Odd()]))
    memory.update(lambda data: setattr(data, "client", [Odd()]))
    assert isinstance(memory.data.client, list)
