"""A state to bytes and back: fields of the host's own, versions, damage and size."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from state_kit import BOOKING, KEY, NOW, UNTYPED, Size, fresh, reloaded, stored

from secondcall import InvalidValue, SchemaTooNew, StoreCorrupt, TooLarge, UnknownName
from secondcall.state import Migration, Step, Workflow, Workflows
from secondcall.state.body import Fields, decode_state, encode_state, fresh_state


@dataclass(frozen=True)
class Line:
    """A line of a cart."""

    name: str
    price: Decimal
    size: Size = Size.SMALL


@dataclass(frozen=True)
class Cart:
    """Fields of a host."""

    lines: list[Line] = field(default_factory=list[Line])
    since: date | None = None
    token: bytes = b""
    tags: frozenset[str] = frozenset()
    by_number: dict[str, Line] = field(default_factory=dict[str, Line])


CART = Fields(Cart)
FULL = Cart(
    lines=[Line("tea", Decimal("2.50")), Line("mug", Decimal(7), Size.LARGE)],
    since=date(2026, 1, 1),
    token=b"\x00\xff",
    tags=frozenset({"a", "b"}),
    by_number={"1": Line("tea", Decimal("2.50"))},
)


def _cart(fields: Cart = FULL) -> Any:
    state = fresh_state(KEY, CART, now=NOW, trust="verified", known=Workflows())
    return state.with_fields(**vars(fields))


def test_a_dataclass_comes_back_as_it_was() -> None:
    """Dates, decimals, bytes, enums, sets and nested records come back equal and of their types."""
    back = reloaded(_cart(), CART)
    assert back.fields == FULL
    # Equal is not enough (1 == 1.0), and a set has no order to be read in.
    assert type(back.fields.tags) is frozenset
    plain = replace(FULL, tags=frozenset())
    assert repr(replace(back.fields, tags=frozenset())) == repr(plain)


def test_a_field_that_does_not_exist_is_refused() -> None:
    """A mistyped field is an error, not a new field; nor is the owner a field."""
    for name in ("linse", "user_id"):
        with pytest.raises(InvalidValue, match=f"there is no field {name}; there are"):
            _cart().with_fields(**{name: 1})


def _with(change: Callable[[dict[str, Any]], None], state: Any, fields: Any = UNTYPED) -> Any:
    one = stored(state, fields)
    body: dict[str, Any] = json.loads(one.body)
    change(body)
    return replace(one, body=json.dumps(body).encode())


def _newer(body: dict[str, Any]) -> None:
    body["mood"] = {"$": "colour", "v": "blue"}
    body["frames"][0]["urgency"] = 3
    body["fields"]["gift"] = True
    body["fields"]["lines"][0]["v"]["weight"] = 5


def _read(one: Any, fields: Any = UNTYPED, now: datetime = NOW, known: Any = None) -> Any:
    return decode_state(
        one,
        fields,
        now=now,
        trust="verified",
        known=Workflows([BOOKING]) if known is None else known,
    )


def test_what_a_newer_release_wrote_survives() -> None:
    """Keys that this release does not know, at every level, are still there after a change."""
    state = _read(_with(_newer, _cart().start(BOOKING), CART), CART)
    changed = state.fill(amount=1).with_fields(since=date(2027, 1, 1))
    body = json.loads(encode_state(changed, CART, max_bytes=10_000))
    assert body["mood"] == {"$": "colour", "v": "blue"}
    assert body["frames"][0]["urgency"] == 3
    assert body["fields"]["gift"] is True
    assert body["fields"]["lines"][0]["v"]["weight"] == 5
    assert body["fields"]["since"]["v"] == "2027-01-01"


def test_unknown_keys_in_a_slot_survive() -> None:
    """What a newer release wrote inside a record in a slot is there after another slot changed."""
    order = Workflow(
        "order",
        {"a": Step(), "b": Step(terminal=True)},
        {"a": "b"},
        slots={"line": Line, "n": int},
    )
    one = stored(fresh().start(order, line={"name": "tea", "price": "1"}))
    body = json.loads(one.body)
    body["frames"][0]["slots"]["line"]["v"]["weight"] = 5
    state = _read(replace(one, body=json.dumps(body).encode()), known=Workflows([order]))
    assert state.slots["line"] == Line("tea", Decimal(1))
    again = json.loads(encode_state(state.advance("b", slots={"n": 1}), UNTYPED, max_bytes=10_000))
    assert again["frames"][0]["slots"]["line"]["v"]["weight"] == 5


def test_what_is_read_without_its_class_survives() -> None:
    """Read and written by a process without its classes and workflows, a state stays as it was."""
    state = _cart().start(BOOKING, size="l")
    one = stored(state, CART)
    seen = _read(one, known=Workflows())
    assert seen.step == "details"
    again = encode_state(seen.with_fields(more=1), UNTYPED, max_bytes=10_000)
    back = _read(replace(one, body=again), CART)
    assert back.fields == FULL
    assert back.slots["size"] is Size.LARGE


def test_fields_are_migrated() -> None:
    """Fields of an older version go through each migration; without one the error says so."""
    first = Fields(Cart, version=1)
    third = Fields(
        Cart,
        version=3,
        migrations={
            1: lambda old: {**old, "tags": ["x"]},
            2: lambda old: {**old, "tags": frozenset([*old["tags"], "y"])},
        },
    )
    one = stored(_cart(), first)
    state = _read(one, third)
    assert state.fields.tags == frozenset({"x", "y"})
    assert state.fields.lines == FULL.lines
    body = json.loads(encode_state(state, third, max_bytes=10_000))
    assert body["fields_version"] == 3
    with pytest.raises(InvalidValue, match=r"migrations=\{1:"):
        _read(one, Fields(Cart, version=2))
    with pytest.raises(SchemaTooNew, match="version 3 of Cart, newer than version 1"):
        _read(replace(one, body=json.dumps(body).encode()), first)


def test_fields_that_cannot_begin_are_refused() -> None:
    """A class without defaults needs one given; what is no class of fields is refused."""

    @dataclass(frozen=True)
    class Strict:
        name: str

    with pytest.raises(InvalidValue, match="Strict cannot begin empty"):
        Fields(Strict).first()
    assert Fields(Strict, default=lambda: Strict("x")).first() == Strict("x")
    for kind in (dict, "Cart", 7):
        with pytest.raises(InvalidValue, match="must be a dataclass or a pydantic model"):
            Fields(kind)  # pyright: ignore[reportArgumentType] - callers err


DAMAGED: list[bytes] = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff",
    b'{"frames": 7}',
    b'{"frames": [7]}',
    b'{"frames": [{}]}',
    b'{"frames": [{"workflow": 1, "version": 1, "step": "a", "slots": {}, "entered_us": 0}]}',
    b'{"frames": [{"workflow": "w", "version": 1, "step": "a", "slots": [], "entered_us": 0}]}',
    b'{"frames": [{"workflow": "w", "version": 1, "step": "a", "slots": {}, "entered_us": 1e99}]}',
    b'{"fields": 7}',
    b'{"fields": {"a": {"$": "date", "v": 7}}}',
    b"[" * 100_000,
]


@pytest.mark.parametrize("body", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_body_is_named(body: bytes) -> None:
    """Bytes that are no state raise StoreCorrupt, whatever they are."""
    with pytest.raises(StoreCorrupt, match=r"cannot be read|not an object"):
        _read(replace(stored(fresh()), body=body))


def test_a_newer_format_is_refused() -> None:
    """A body of a newer format is refused instead of being guessed at."""
    with pytest.raises(SchemaTooNew, match="format 2, this release knows up to 1"):
        _read(replace(stored(fresh()), schema=2))


def test_a_state_that_is_too_large_names_the_field() -> None:
    """Over the limit, the error names the largest field or slot and its bytes."""
    state = fresh().start(BOOKING).with_fields(note="a" * 1_000_000, small=1)
    with pytest.raises(TooLarge, match=r"fields\.note alone has 1,000,002"):
        encode_state(state, UNTYPED, max_bytes=262_144)


def test_timers_of_unknown_workflows_go_off_too() -> None:
    """A process that does not know the workflow shows the step that its timer leads to."""
    state = fresh().start(BOOKING, date="2026-12-01").advance("payment")
    late = NOW + timedelta(hours=1)
    assert reloaded(state, now=late, known=Workflows()).step == "abandoned"
    assert reloaded(state, now=NOW, known=Workflows()).step == "payment"


def test_a_clock_that_jumps_back_changes_no_time() -> None:
    """Seen by an earlier clock, a state is not older than its last save."""
    state = fresh().start(BOOKING)
    back = reloaded(state, now=NOW - timedelta(days=400))
    assert back.now == NOW
    assert back.advance("payment", slots={"date": "2026-12-01"}).frames[-1].entered_at == NOW


MIGRATE: Migration = lambda step, slots: ("a2", slots)  # noqa: E731 - as hosts write them


def _version(number: int, **more: Any) -> Workflow:
    return Workflow(
        "w",
        {f"a{number}": Step(), "end": Step(terminal=True)},
        {f"a{number}": "end"},
        version=number,
        slots={"x": int},
        **more,
    )


def test_a_running_instance_keeps_its_version() -> None:
    """With both versions known, what runs stays in the old one and what starts takes the new."""
    old, new = _version(1), _version(2, migrations={1: MIGRATE})
    state = fresh().start(old, x=1)
    back = reloaded(state, known=Workflows([old, new]))
    assert (back.workflow_version, back.step) == (1, "a1")
    assert back.advance("end").start(new).workflow_version == 2


def test_an_old_version_is_migrated_when_it_is_gone() -> None:
    """Without the old version what runs goes through the migrations, one after the other."""
    state = fresh().start(_version(1), x=1)
    moves: dict[int, Migration] = {1: lambda step, slots: ("a3", {"x": 2}), 2: MIGRATE}
    third = _version(3, migrations=moves)
    back = reloaded(state, known=Workflows([third]))
    assert (back.workflow_version, back.step, dict(back.slots)) == (3, "a3", {"x": 2})


MIGRATIONS: list[tuple[Callable[[Any, Any], Any], str]] = [
    (lambda step, slots: ("gone", slots), "gave the step 'gone'"),
    (lambda step, slots: ("a2", {"y": 1}), "gave the slot 'y'"),
    (lambda step, slots: ("a2", {"x": "one"}), "must be a whole number"),
    (lambda step, slots: "a2", "must give"),
    (lambda step, slots: ("a2", None), "must give slots by name"),
]


@pytest.mark.parametrize(("migration", "words"), MIGRATIONS)
def test_a_migration_that_errs_is_named(migration: Any, words: str) -> None:
    """A migration that gives what the newer version does not have is an error that names it."""
    state = fresh().start(_version(1), x=1)
    with pytest.raises(InvalidValue, match=words):
        reloaded(state, known=Workflows([_version(2, migrations={1: migration})]))


def test_a_newer_workflow_is_read_but_not_changed() -> None:
    """A process with the older version alone can read the state, and is told to be deployed."""
    state = fresh().start(_version(2), x=1)
    back = reloaded(state, known=Workflows([_version(1)]))
    assert back.step == "a2"
    with pytest.raises(
        SchemaTooNew, match="version 2 of workflow 'w', which is newer than version 1"
    ):
        back.advance("end")


def test_a_version_that_nobody_knows_is_said() -> None:
    """An older version without a migration is an error that says what to do."""
    back = reloaded(fresh().start(_version(1), x=1), known=Workflows([_version(2)]))
    with pytest.raises(UnknownName, match="known are versions 2"):
        back.advance("end")


def test_two_workflows_of_one_version_are_refused() -> None:
    """Two declarations under one name and version cannot both be known."""
    other = Workflow("w", {"a1": Step(), "end": Step(terminal=True)}, {"a1": "end"})
    with pytest.raises(InvalidValue, match="two different workflows"):
        Workflows([_version(1), other])
    assert Workflows([_version(1), _version(1)]).get("w", 1) is not None


def test_a_step_that_was_taken_out_is_said() -> None:
    """A workflow that was changed without a new version is an error, not a guess."""
    other = Workflow("w", {"b": Step(), "end": Step(terminal=True)}, {"b": "end"}, slots={"x": int})
    back = reloaded(fresh().start(_version(1), x=1), known=Workflows())
    with pytest.raises(UnknownName, match="no longer declares"):
        replace(back, known=Workflows([other])).advance("end")


def test_an_absent_state_has_no_version() -> None:
    """A fresh state has no version and no time of saving."""
    state = fresh(datetime(2026, 1, 1, tzinfo=UTC))
    assert (state.version, state.updated_at, state.ended, state.due_at) == (None, None, True, None)


def test_a_migration_that_fails_is_not_taken_for_damage() -> None:
    """An error inside a migration says which one: the state is sound and stays as it is."""

    def fails(*_: Any) -> Any:
        raise KeyError("x")

    state = fresh().start(_version(1), x=1)
    with pytest.raises(InvalidValue, match=r"'w' from version 1 to 2 failed \(KeyError\)"):
        reloaded(state, known=Workflows([_version(2, migrations={1: fails})]))
    with pytest.raises(InvalidValue, match=r"fields from version 1 failed \(KeyError\)"):
        _read(stored(_cart(), CART), Fields(Cart, version=2, migrations={1: fails}))


def test_a_state_at_a_step_that_is_gone_is_read() -> None:
    """A workflow changed without a new version: the state is shown, and written as it was."""
    other = Workflow("w", {"b": Step(), "end": Step(terminal=True)}, {"b": "end"}, slots={"x": int})
    back = reloaded(fresh().start(_version(1), x=1), known=Workflows([other]))
    assert back.step == "a1"
    with pytest.raises(UnknownName, match="no longer declares"):
        back.advance("end")
    again = reloaded(back.with_fields(n=1), known=Workflows([_version(1)]))
    assert (again.step, dict(again.slots)) == ("a1", {"x": 1})


def test_fields_without_a_class_can_be_taken_out() -> None:
    """What a state without a class of fields no longer holds is gone."""
    back = reloaded(fresh().with_fields(a=1, b=2))
    assert dict(reloaded(replace(back, fields={"a": 1})).fields) == {"a": 1}


def test_two_states_share_no_part_of_their_first_fields() -> None:
    """Fields that begin as a given value begin as a copy of it."""
    fields = Fields(Cart, default=lambda: FULL)
    assert fields.first() == FULL
    assert fields.first().lines is not FULL.lines
