"""Declaring workflows: what is refused, and what others read of them."""

from __future__ import annotations

import json
from datetime import date, timedelta
from typing import Any

import pytest
from state_kit import BOOKING, CHECK

from secondcall import InvalidValue, TooLarge
from secondcall.state import Slot, Step, To, Workflow

END = Step(terminal=True)


async def _slow(state: object) -> bool:
    return True


def _same_place(step: str, slots: dict[str, object]) -> tuple[str, dict[str, object]]:
    return step, slots


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("no steps", {"steps": {}, "transitions": {}}, "it has no steps"),
    ("doubled step", {"steps": ["a", "a"], "transitions": {}}, "'a' is declared more than once"),
    (
        "steps that look alike",
        {"steps": {"a b": Step(), "A  b": END}, "transitions": {"a b": ["A  b"]}},
        "differ only in case or white space",
    ),
    (
        "doubled transition",
        {"steps": {"a": Step(), "b": END}, "transitions": {"a": ["b", To("b")]}},
        "from 'a' to 'b' is declared more than once",
    ),
    (
        "transition to nowhere",
        {"steps": {"a": Step(), "b": END}, "transitions": {"a": ["b", "c"]}},
        "from 'a' leads to 'c', which is no step",
    ),
    (
        "transition from nowhere",
        {"steps": {"a": Step(), "b": END}, "transitions": {"a": ["b"], "c": ["b"]}},
        "leaves 'c', which is no step",
    ),
    (
        "leaving the end",
        {"steps": {"a": Step(), "b": END}, "transitions": {"a": ["b"], "b": ["a"]}},
        "leaves 'b', which is terminal",
    ),
    (
        "unreachable",
        {"steps": {"a": Step(), "b": END, "c": END}, "transitions": {"a": ["b"]}},
        "'c' is unreachable from 'a'",
    ),
    (
        "dead end",
        {"steps": {"a": Step(), "b": Step()}, "transitions": {"a": ["b"]}},
        "'b' is a dead end",
    ),
    (
        "timer to nowhere",
        {"steps": {"a": Step(expires="1m", then="z"), "b": END}, "transitions": {"a": ["b"]}},
        "timer of step 'a' leads to 'z', which is no step",
    ),
    (
        "timer without target",
        {"steps": {"a": Step(expires="1m"), "b": END}, "transitions": {"a": ["b"]}},
        "the timer of step 'a' leads nowhere",
    ),
    (
        "target without timer",
        {"steps": {"a": Step(then="b"), "b": END}, "transitions": {"a": ["b"]}},
        "not when it expires",
    ),
    (
        "timer of no time",
        {
            "steps": {"a": Step(expires=timedelta(0), then="b"), "b": END},
            "transitions": {"a": ["b"]},
        },
        "must be longer than nothing",
    ),
    (
        "timers in a circle",
        {
            "steps": {
                "a": Step(expires="1m", then="b"),
                "b": Step(expires="1m", then="a"),
                "c": END,
            },
            "transitions": {"a": ["c"]},
        },
        "'a' comes back to itself by timers alone",
    ),
    (
        "timer into missing slots",
        {
            "steps": {"a": Step(expires="1m", then="b"), "b": Step(terminal=True, requires=["x"])},
            "transitions": {"a": ["b"]},
            "slots": {"x": str},
        },
        "requires 'x': not sure to be filled then",
    ),
    (
        "unknown slot",
        {"steps": {"a": Step(requires=["x"]), "b": END}, "transitions": {"a": ["b"]}},
        "'a' requires the slot 'x', which is not declared",
    ),
    (
        "unknown guard",
        {"steps": {"a": Step(), "b": END}, "transitions": {"a": [To("b", guards=["g"])]}},
        "has the guard 'g', which is not given",
    ),
    (
        "guard that waits",
        {
            "steps": {"a": Step(), "b": END},
            "transitions": {"a": [To("b", guards=["g"])]},
            "guards": {"g": _slow},
        },
        "guard 'g' must be a plain function",
    ),
    (
        "start at the end",
        {"steps": {"a": Step(), "b": END}, "transitions": {"a": ["b"]}, "start": "b"},
        "starts at 'b', which is terminal",
    ),
    (
        "unknown start",
        {"steps": {"a": Step(), "b": END}, "transitions": {"a": ["b"]}, "start": "z"},
        "starts at 'z', which is no step",
    ),
    (
        "cancel that goes on",
        {
            "steps": {"a": Step(), "b": Step(), "c": END},
            "transitions": {"a": ["b"], "b": ["c"]},
            "cancel": "b",
        },
        "cancel leads to 'b', which is not terminal",
    ),
    (
        "id as a slot",
        {"steps": {"a": Step(), "b": END}, "transitions": {"a": ["b"]}, "slots": {"user_id": str}},
        "no slot can be called 'user_id'",
    ),
    (
        "slot of no type",
        {"steps": {"a": Step(), "b": END}, "transitions": {"a": ["b"]}, "slots": {"x": complex}},
        "slot 'x': complex is not a type",
    ),
    (
        "slot with a dash",
        {"steps": {"a": Step(), "b": END}, "transitions": {"a": ["b"]}, "slots": {"x-y": str}},
        "slot 'x-y' must be named by letters",
    ),
    (
        "return that is not told",
        {
            "steps": {"a": Step(runs=CHECK, returns={"passed": "b"}), "b": END},
            "transitions": {},
        },
        "does not say where 'identity check' returns to from 'failed'",
    ),
    (
        "return to nowhere",
        {
            "steps": {"a": Step(runs=CHECK, returns={"passed": "b", "failed": "z"}), "b": END},
            "transitions": {},
        },
        "returns to 'z', which is no step",
    ),
    (
        "shared slot of another type",
        {
            "steps": {
                "a": Step(runs=CHECK, returns={"passed": "b", "failed": "b"}, shares=["code"]),
                "b": END,
            },
            "transitions": {},
            "slots": {"code": int},
        },
        "shares the slot 'code', which 'identity check' does not have so",
    ),
    (
        "migration from the future",
        {
            "steps": {"a": Step(), "b": END},
            "transitions": {"a": ["b"]},
            "migrations": {3: _same_place},
        },
        "from version 3, which is no older one",
    ),
]


@pytest.mark.parametrize(
    ("declared", "words"), [one[1:] for one in WRONG], ids=[one[0] for one in WRONG]
)
def test_what_is_declared_wrongly_is_refused(declared: dict[str, Any], words: str) -> None:
    """Each fault of a declaration is refused when the workflow is made, and named."""
    with pytest.raises(InvalidValue) as refused:
        Workflow("w", **declared)
    assert words in str(refused.value)


def test_all_faults_are_said_at_once() -> None:
    """One error lists every fault of a declaration."""
    with pytest.raises(InvalidValue, match=r"\(1\).*\(2\).*\(3\)") as refused:
        Workflow(
            "w",
            steps={"a": Step(requires=["x"]), "b": Step(), "c": Step(expires="1m")},
            transitions={"a": ["z"]},
        )
    for words in ("'x'", "'z'", "'b' is a dead end", "the timer of step 'c' leads nowhere"):
        assert words in str(refused.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {"steps": {"a", "b"}, "transitions": {}},
        {"steps": {"a": "terminal"}, "transitions": {}},
        {"steps": ["a"], "transitions": [("a", "b")]},
        {"steps": ["a"], "transitions": {"a": [7]}},
        {"steps": ["a"], "transitions": {}, "version": 0},
        {"steps": ["a"], "transitions": {}, "version": True},
        {"steps": {"a": Step(runs="check")}, "transitions": {}},  # pyright: ignore[reportArgumentType] - callers err
    ],
)
def test_what_is_no_declaration_is_refused(arguments: dict[str, Any]) -> None:
    """Sets, texts and numbers in the place of a declaration are refused."""
    with pytest.raises(InvalidValue):
        Workflow("w", **arguments)


@pytest.mark.parametrize("name", ["", " a", "a\nb", "a\x00", "\ud800"])
def test_names_are_one_line(name: str) -> None:
    """A name that is empty, padded, of two lines or no Unicode is refused."""
    with pytest.raises(InvalidValue):
        Workflow(name, {"a": Step(), "b": END}, {"a": ["b"]})
    with pytest.raises(InvalidValue):
        Workflow("w", {name: Step(), "b": END}, {name: ["b"]}, start=name)


@pytest.mark.parametrize("name", ["a/b", "..", "a b", "😀", "é", '"; drop', "x" * 128])
def test_names_of_any_other_characters_work(name: str) -> None:
    """Separators, dots, emoji and 128 characters make a workflow that can be drawn."""
    workflow = Workflow(name, {name: Step(), "end": END}, {name: ["end"]})
    assert workflow.mermaid().count("\n") == 6
    assert name in json.dumps(workflow.json_schema(), ensure_ascii=False).replace('\\"', '"')


def test_a_name_over_the_limit_is_refused() -> None:
    """A name of 129 characters is refused with the limit."""
    with pytest.raises(TooLarge, match="at most 128"):
        Workflow("x" * 129, {"a": Step(), "b": END}, {"a": ["b"]})


def test_a_star_leaves_every_step_that_goes_on() -> None:
    """Transitions from "*" are those of each step that is not terminal, but to itself."""
    assert [one.step for one in BOOKING.transitions["payment"]] == ["done", "details", "cancelled"]
    assert "done" not in BOOKING.transitions or not BOOKING.transitions["done"]
    again = Workflow("w", {"a": Step(), "b": Step(), "c": END}, {"*": ["a", "b", "c"]})
    assert [one.step for one in again.transitions["a"]] == ["b", "c"]


def test_the_diagram_shows_what_is_declared() -> None:
    """The Mermaid diagram holds each step, transition, timer, return and end."""
    lines = [line.strip() for line in BOOKING.mermaid().splitlines()]
    assert lines == [
        "stateDiagram-v2",
        "[*] --> s0",
        'state "details" as s0',
        'state "check (runs identity check)" as s1',
        'state "payment" as s2',
        'state "done" as s3',
        'state "abandoned" as s4',
        'state "cancelled" as s5',
        "s0 --> s2 : needs date",
        "s0 --> s1 : needs date",
        "s0 --> s5",
        "s1 --> s5",
        "s1 --> s2 : when passed",
        "s1 --> s0 : when failed",
        "s2 --> s3 : needs amount, if paid, confirmed",
        "s2 --> s0",
        "s2 --> s5",
        "s2 --> s4 : after 15 min",
        "s3 --> [*]",
        "s4 --> [*]",
        "s5 --> [*]",
    ]


def test_the_schema_shows_what_is_declared() -> None:
    """The JSON Schema holds the steps one can stay in, the slots and what each step requires."""
    schema = BOOKING.json_schema()
    assert schema["properties"]["step"]["enum"] == [
        "details", "payment", "done", "abandoned", "cancelled"
    ]  # fmt: skip
    assert schema["properties"]["slots"]["properties"]["date"] == {
        "type": "string", "format": "date", "description": "the first night"
    }  # fmt: skip
    assert schema["properties"]["slots"]["properties"]["size"] == {"enum": ["s", "l"]}
    assert schema["allOf"][0]["then"]["properties"]["slots"]["required"] == ["date"]
    assert schema["x-transitions"]["payment"][0] == {
        "step": "done", "guards": ["paid"], "needs_confirmation": True, "needs_verified": False
    }  # fmt: skip
    json.dumps(schema)


def test_a_check_that_waits_is_refused() -> None:
    """A slot's check must be a plain function."""
    with pytest.raises(InvalidValue, match="check of slot 'x' must be a plain function"):
        Workflow("w", {"a": Step(), "b": END}, {"a": ["b"]}, slots={"x": Slot(date, check=_slow)})
