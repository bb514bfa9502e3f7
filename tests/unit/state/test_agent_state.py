"""The verbs of a state: what each changes, and that a refusal changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, cast

import pytest
from state_kit import BOOKING, CHECK, NOW, Size, fresh

from secondcall import (
    GuardFailed,
    IllegalTransition,
    InvalidValue,
    MissingSlots,
    NotConfirmed,
    StateError,
    UnknownName,
)
from secondcall.state import AgentState, Step, To, Workflow, Workflows

State = AgentState[Mapping[str, Any]]
AT_PAYMENT = fresh().start(BOOKING, date="2026-12-01").advance("payment")
READY = AT_PAYMENT.fill(amount=40)


def test_a_booking_is_made() -> None:
    """Start, fill, advance: each gives a new state and leaves the one before as it was."""
    before = fresh()
    state = before.start(BOOKING).fill(date="2026-12-01", size="l").advance("payment")
    assert (state.workflow, state.workflow_version, state.step) == ("booking", 1, "payment")
    assert state.slots == {"date": date(2026, 12, 1), "size": Size.LARGE}
    assert state.due_at == NOW + timedelta(minutes=15)
    done = state.advance("done", slots={"amount": "40"}, confirmed=True)
    assert done.ended
    assert done.slots["amount"] == Decimal(40)
    assert done.allowed == ()
    assert before.workflow is None
    assert before.slots == {}


REFUSED: list[tuple[str, State, Callable[[State], State], type[StateError], str]] = [
    ("unknown step", AT_PAYMENT, lambda s: s.advance("paid"), IllegalTransition, "has no step"),
    ("no way", fresh().start(BOOKING), lambda s: s.advance("done"), IllegalTransition, "no transi"),
    ("missing", fresh().start(BOOKING), lambda s: s.advance("payment"), MissingSlots, "'date'"),
    ("guard", AT_PAYMENT, lambda s: s.advance("done", slots={"amount": 3}, confirmed=True),
     GuardFailed, "the amount is not 40"),
    ("not confirmed", READY, lambda s: s.advance("done"), NotConfirmed, "confirmation"),
    ("truthy is not confirmed", READY, lambda s: s.advance("done", confirmed="yes"),  # pyright: ignore[reportArgumentType] - callers err
     NotConfirmed, "confirmation"),
    ("clearing", AT_PAYMENT, lambda s: s.fill(date=None), MissingSlots, "requires 'date'"),
    ("two at once", AT_PAYMENT, lambda s: s.start(CHECK), IllegalTransition, "cannot be started"),
    ("nothing runs", fresh(), lambda s: s.fill(date="2026-12-01"), IllegalTransition, "start a"),
    ("nothing to leave", fresh(), lambda s: s.advance("x"), IllegalTransition, "start a"),
    ("nothing to cancel", fresh(), lambda s: s.cancel(), IllegalTransition, "start a"),
    ("no step before", fresh().start(BOOKING), lambda s: s.back(), IllegalTransition, "no step"),
    ("no cancel", fresh().start(CHECK), lambda s: s.cancel(), IllegalTransition, "cannot be canc"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("state", "change", "error", "words"),
    [one[1:] for one in REFUSED],
    ids=[one[0] for one in REFUSED],
)
def test_what_is_not_allowed_says_what_is(
    state: State, change: Callable[[State], State], error: type[StateError], words: str
) -> None:
    """A refusal is of its own kind, names what is allowed and missing, and changes nothing."""
    before = replace(state)
    with pytest.raises(error) as refused:
        change(state)
    assert words in str(refused.value)
    assert "nothing was changed" in str(refused.value)
    assert refused.value.workflow == state.workflow
    assert refused.value.step == state.step
    assert refused.value.allowed == tuple(one.step for one in state.allowed)
    assert state == before


def test_a_missing_slot_is_named() -> None:
    """The error and ``allowed`` both name the slots that a step still needs."""
    state = fresh().start(BOOKING)
    with pytest.raises(MissingSlots) as refused:
        state.advance("payment")
    assert refused.value.missing == ("date",)
    assert [(one.step, one.missing) for one in state.allowed] == [
        ("payment", ("date",)), ("check", ("date",)), ("cancelled", ())
    ]  # fmt: skip
    assert [one.needs_confirmation for one in READY.allowed] == [True, False, False]


@pytest.mark.parametrize(
    ("slots", "words"),
    [
        ({"dates": "2026-12-01"}, "has no slot 'dates'"),
        ({"user_id": "bob"}, "has no slot 'user_id'"),
        ({"date": "tomorrow"}, r"slots\.date must be a date"),
        ({"amount": float("nan")}, "only finite"),
        ({"amount": -1}, "it must be above 0"),
        ({"self": 1}, "has no slot 'self'"),
    ],
)
def test_wrong_slots_are_refused(slots: dict[str, Any], words: str) -> None:
    """An unknown slot or a value of another type is refused by every verb that takes slots."""
    for change in (
        lambda: fresh().start(BOOKING, **slots),
        lambda: AT_PAYMENT.fill(**slots),
        lambda: AT_PAYMENT.advance("details", slots=slots),
    ):
        with pytest.raises(InvalidValue, match=words):
            change()


def test_a_state_cannot_be_changed_from_outside() -> None:
    """Slots, fields and preferences are read-only."""
    state = AT_PAYMENT.with_fields(tags=["a"]).prefer("diet", "vegan")
    for mapping in (state.slots, state.fields, state.preferences):
        with pytest.raises(TypeError):
            mapping["x"] = 1  # pyright: ignore[reportIndexIssue] - what must fail
    assert state.fields["tags"] == ("a",)


def test_back_is_a_transition_that_is_declared() -> None:
    """Back leads to the step before where a transition does, and does not flip to and fro."""
    state = AT_PAYMENT.back()
    assert state.step == "details"
    with pytest.raises(IllegalTransition, match="no step before"):
        state.back()
    oneway = Workflow(
        "w", {"a": Step(), "b": Step(), "c": Step(terminal=True)}, {"a": "b", "b": "c"}
    )
    with pytest.raises(IllegalTransition, match="no transition leads back"):
        fresh().start(oneway).advance("b").back()


def test_cancel_goes_where_the_workflow_says() -> None:
    """Cancel leads to the declared step; then another workflow can be started."""
    state = AT_PAYMENT.cancel()
    assert (state.step, state.ended) == ("cancelled", True)
    assert state.start(CHECK).workflow == "identity check"


def test_a_workflow_runs_another_and_goes_on() -> None:
    """A step that runs a workflow is left where that one ends, by the step it ends in."""
    inside = fresh().start(BOOKING, date="2026-12-01").advance("check")
    assert (inside.workflow, inside.step) == ("identity check", "code")
    assert [(one.workflow, one.step) for one in inside.stack] == [("booking", "check")]
    passed = inside.advance("passed", slots={"code": "123"})
    assert (passed.workflow, passed.step, len(passed.stack)) == ("booking", "payment", 0)
    assert "code" not in passed.slots
    failed = inside.advance("failed")
    assert (failed.workflow, failed.step) == ("booking", "details")


def test_back_and_cancel_leave_a_workflow_that_was_run() -> None:
    """From its first step, back returns to before the caller's step; cancel is the caller's."""
    inside = fresh().start(BOOKING, date="2026-12-01").advance("check")
    with pytest.raises(IllegalTransition, match="no transition leads back from 'check'"):
        inside.back()
    gone = inside.cancel()
    assert (gone.workflow, gone.step, gone.stack) == ("booking", "cancelled", ())


def test_shared_slots_go_in_and_come_back() -> None:
    """The slots that a step shares are handed in filled and come back changed."""
    address = Workflow(
        "address",
        {"ask": Step(), "known": Step(terminal=True, requires=["street"])},
        {"ask": "known"},
        slots={"street": str, "floor": int},
    )
    order = Workflow(
        "order",
        {
            "where": Step(runs=address, returns={"known": "send"}, shares=["street"]),
            "send": Step(requires=["street"]),
            "sent": Step(terminal=True),
        },
        {"send": "sent"},
        slots={"street": str, "floor": int},
    )
    state = fresh().start(order, street="Rua A", floor=2)
    assert (state.workflow, dict(state.slots)) == ("address", {"street": "Rua A"})
    state = state.fill(street="Rua B", floor=9).advance("known")
    assert (state.step, dict(state.slots)) == ("send", {"street": "Rua B", "floor": 2})


def test_only_a_verified_caller_makes_some_transitions() -> None:
    """Neither a claimed caller nor text of low trust makes a transition that needs a verified one;
    an argument cannot raise what the handle is."""
    workflow = Workflow(
        "w", {"a": Step(), "b": Step(terminal=True)}, {"a": [To("b", needs_verified=True)]}
    )
    verified = fresh().start(workflow)
    assert verified.advance("b").ended
    claimed = replace(fresh(), trust="claimed").start(workflow)
    for change in (
        lambda: verified.advance("b", trust="claimed"),
        lambda: claimed.advance("b"),
        lambda: claimed.advance("b", trust="verified", confirmed=True),
    ):
        with pytest.raises(NotConfirmed, match="verified"):
            change()


async def _later(state: object) -> bool:
    return True


GUARDS: list[Callable[[object], Any]] = [
    lambda _: None,
    lambda _: 1,
    lambda s: _later(s),
    lambda _: "",
]


@pytest.mark.parametrize("guard", GUARDS)
def test_a_guard_that_says_nothing_lets_nothing_pass(guard: Any) -> None:
    """A guard that gives neither True, False nor a reason is an error, not a yes."""
    workflow = Workflow(
        "w",
        {"a": Step(), "b": Step(terminal=True)},
        {"a": [To("b", guards=["g"])]},
        guards={"g": guard},
    )
    with pytest.raises(InvalidValue, match="the guard 'g' gave"):
        fresh().start(workflow).advance("b")


def test_timers_go_off_in_the_order_of_time() -> None:
    """What ran out is where it would be by now; a timer's target has its own time from then."""
    late = replace(AT_PAYMENT, now=NOW + timedelta(minutes=15)).run_out()
    assert (late.step, late.ended) == ("abandoned", True)
    early = replace(AT_PAYMENT, now=NOW + timedelta(minutes=15) - timedelta(microseconds=1))
    assert early.run_out().step == "payment"
    chain = Workflow(
        "w",
        {
            "a": Step(expires="1m", then="b"),
            "b": Step(expires="1m", then="c"),
            "c": Step(expires="1h", then="d"),
            "d": Step(terminal=True),
        },
        {},
    )
    state = replace(fresh().start(chain), now=NOW + timedelta(minutes=30)).run_out()
    assert state.step == "c"
    assert state.due_at == NOW + timedelta(minutes=62)


def test_a_timer_inside_returns_and_one_outside_takes_it_along() -> None:
    """A run workflow that expires returns; when the caller's own step expires, both are left."""
    inside = fresh().start(BOOKING, date="2026-12-01").advance("check")
    assert replace(inside, now=NOW + timedelta(minutes=5)).run_out().step == "details"
    slow = Workflow("slow", {"a": Step(), "b": Step(terminal=True)}, {"a": "b"})
    outer = Workflow(
        "outer",
        {
            "wait": Step(runs=slow, returns={"b": "ok"}, expires="10m", then="late"),
            "ok": Step(terminal=True),
            "late": Step(terminal=True),
        },
        {},
    )
    state = fresh().start(outer)
    assert state.due_at == NOW + timedelta(minutes=10)
    late = replace(state, now=NOW + timedelta(hours=1)).run_out()
    assert (late.workflow, late.step, late.stack) == ("outer", "late", ())


def test_an_unknown_workflow_is_said() -> None:
    """A verb on a state whose workflow is not known here says how to make it known."""
    state = replace(AT_PAYMENT, known=Workflows())
    assert state.step == "payment"
    with pytest.raises(UnknownName, match=r"Memory\.open\(\.\.\., workflows=\[\.\.\.\]\)"):
        state.advance("done")


def test_preferences_are_noted_and_shown() -> None:
    """A preference replaces the one of the same name, however it is written; None ends it."""
    state = fresh().prefer("Diet", "vegetarian").prefer(" diet ", "vegan").prefer("seat", "aisle")
    assert state.preferences == {" diet ": "vegan", "seat": "aisle"}
    assert [one.value for one in state.preferred] == ["vegan", "aisle"]
    assert state.prefer("SEAT", None).preferences == {" diet ": "vegan"}
    with pytest.raises(InvalidValue, match="nan"):
        state.prefer("x", float("nan"))
    with pytest.raises(InvalidValue, match="must not be empty"):
        state.prefer("", 1)


def test_starting_something_else_is_refused() -> None:
    """Only a Workflow can be started."""
    with pytest.raises(InvalidValue, match="takes a Workflow, not str"):
        fresh().start("booking")  # pyright: ignore[reportArgumentType] - callers err


def test_a_shared_slot_that_somebody_waits_on_is_not_cleared() -> None:
    """An inner workflow may change what the one that waits requires, and not clear it: else its
    timer would lead that one where the slot is missing."""
    inner = Workflow(
        "inner",
        {"ask": Step(expires="5m", then="no"), "no": Step(terminal=True)},
        {"ask": "no"},
        slots={"amount": int},
    )
    middle = Workflow(
        "middle",
        {"run": Step(runs=inner, returns={"no": "back"}, shares=["amount"]),
         "back": Step(terminal=True)},
        {},
        slots={"amount": int},
    )  # fmt: skip
    outer = Workflow(
        "outer",
        {
            "begin": Step(),
            "who": Step(
                requires=["amount"], runs=middle, returns={"back": "pay"}, shares=["amount"]
            ),
            "pay": Step(requires=["amount"], terminal=True),
        },
        {"begin": "who"},
        slots={"amount": int},
    )
    state = fresh().start(outer, amount=5).advance("who")
    assert [frame.workflow for frame in state.frames] == ["outer", "middle", "inner"]
    for clearing in (
        lambda: state.fill(amount=None),
        lambda: state.advance("no", slots={"amount": None}),
    ):
        with pytest.raises(MissingSlots, match="that waits for this one requires 'amount'"):
            clearing()
    late = replace(state.fill(amount=6), now=NOW + timedelta(hours=1)).run_out()
    assert (late.workflow, late.step, dict(late.slots)) == ("outer", "pay", {"amount": 6})


@pytest.mark.parametrize("step", [None, 5, [], b"payment", "x" * 100_000])
def test_a_step_of_any_form_is_refused_in_few_words(step: Any) -> None:
    """Whatever is asked for, the error is short and one of ours."""
    with pytest.raises((InvalidValue, IllegalTransition)) as refused:
        fresh().start(BOOKING).advance(step)
    assert len(str(refused.value)) < 300
    with pytest.raises(InvalidValue, match="slots must be a dict"):
        fresh().start(BOOKING).advance("payment", slots=cast("Any", [("date", "2026-12-01")]))
