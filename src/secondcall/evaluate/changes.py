"""Topics in which a fact changes: sessions, the facts told in between, and questions about them.

The format is that of ``bench/sets/changes``, described there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast, get_args

from secondcall.record.formats.fields import Fields
from secondcall.record.formats.source import Source
from secondcall.types import FactKind, JsonValue, Message, Role

__all__ = ["QUESTION_KINDS", "ChangeQuestion", "Told", "Topic", "load"]

QUESTION_KINDS = ("now", "as_of", "believed", "cascade", "history", "past_item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A fact as it is told after a message, or that a value ends (``remove``)."""

    id: str
    predicate: str
    value: JsonValue
    kind: FactKind
    multi: bool
    remove: bool
    valid_from: datetime
    recorded_after: str
    sources: Sequence[str]
    rests_on: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeQuestion:
    """A question with what it must and must not give. Only the words and times go to recall."""

    id: str
    kind: str
    text: str
    at: datetime
    as_of: datetime | None
    predicate: str
    expect: Sequence[JsonValue]
    wrong: Sequence[JsonValue]
    items: frozenset[str]
    stale_items: frozenset[str]
    flagged: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One person's sessions, in order, with the facts and the questions."""

    id: str
    kind: str
    sessions: Mapping[str, Sequence[Message]]
    facts: Sequence[Told]
    questions: Sequence[ChangeQuestion]


def load(source: Source, *, limit: int | None = None) -> list[Topic]:
    """The first ``limit`` topics of a file. Raises: ``InvalidValue``."""
    found: list[Topic] = []
    for place, value in source.values():
        if limit is not None and len(found) == limit:
            break
        found.append(_topic(Fields(value, place)))
    return found


def _topic(line: Fields) -> Topic:
    sessions: dict[str, Sequence[Message]] = {}
    for number, one in enumerate(line.entries("sessions")):
        session = Fields(one, line.place.inside(f"sessions[{number}]"))
        sessions[session.text("session_id")] = [
            _message(Fields(message, session.place.inside(f"messages[{place}]")))
            for place, message in enumerate(session.entries("messages"))
        ]
    return Topic(
        id=line.text("id"),
        kind=line.text("kind"),
        sessions=sessions,
        facts=[
            _told(Fields(one, line.place.inside(f"facts[{number}]")))
            for number, one in enumerate(line.entries("facts"))
        ],
        questions=[
            _question(Fields(one, line.place.inside(f"questions[{number}]")))
            for number, one in enumerate(line.entries("questions"))
        ],
    )


def _message(line: Fields) -> Message:
    role = cast("Role", line.choice("role", get_args(Role)))
    return Message(role, line.text("text"), id=line.text("id"), at=_time(line, "at"))


def _told(line: Fields) -> Told:
    return Told(
        id=line.text("id"),
        predicate=line.text("predicate"),
        value=line.json("value"),
        kind=cast("FactKind", line.choice("kind", get_args(FactKind))),
        multi=line.flag("multi"),
        remove=line.choice("op", ("set", "remove")) == "remove",
        valid_from=_time(line, "valid_from"),
        recorded_after=line.text("recorded_after"),
        sources=_names(line, "sources"),
        rests_on=_names(line, "rests_on"),
    )


def _question(line: Fields) -> ChangeQuestion:
    return ChangeQuestion(
        id=line.text("id"),
        kind=line.choice("kind", QUESTION_KINDS),
        text=line.text("question"),
        at=_time(line, "at"),
        as_of=line.iso_time("as_of"),
        predicate=line.text("predicate"),
        expect=cast("Sequence[JsonValue]", line.entries("expect")),
        wrong=cast("Sequence[JsonValue]", line.entries("not")),
        items=frozenset(_names(line, "items")),
        stale_items=frozenset(_names(line, "stale_items")),
        flagged=frozenset(_names(line, "flagged")),
    )


def _names(line: Fields, name: str) -> list[str]:
    found = line.entries(name)
    if not all(isinstance(one, str) for one in found):
        line.place.refuse(f"{name} must be a list of ids")
    return [str(one) for one in found]


def _time(line: Fields, name: str) -> datetime:
    found = line.iso_time(name)
    return line.place.refuse(f"{name} is missing") if found is None else found
