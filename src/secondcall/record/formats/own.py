"""Our own JSON Lines: one item or fact a line. ``docs/reference/jsonl.md`` is its description."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import cast, get_args

from secondcall.record.formats.fields import Fields
from secondcall.record.formats.source import Source
from secondcall.record.formats.transcript import FactLine, SourceLine, Transcript, derived_id
from secondcall.types import (
    Belief,
    Fact,
    FactKind,
    FactStatus,
    Item,
    ItemKey,
    ItemKind,
    Message,
    RecordedItem,
    Role,
    ToolCall,
)

__all__ = ["VERSION", "fact_line", "header_line", "item_line", "read"]

VERSION = 1
_TYPES = ("message", "tool_call", "fact", "export")
_BATCH = 1_000
_BATCH_BYTES = 32 * 1024 * 1024
"""With so much attached a part ends earlier."""


def read(
    source: Source, default_session: str, *, session_id: str | None = None
) -> Iterator[Transcript]:
    """The sessions of a file, in file order, at most 1,000 items at a time.

    With ``session_id`` a line that names another session is refused. In an export, what a line says
    of another user than the first line becomes a part of that person. Raises: ``InvalidValue``.
    """
    batch = _Batch(_Talk(default_session))
    exported: str | None = None
    for place, value in source.values():
        line = Fields(value, place)
        kind = line.choice("type", _TYPES) if "type" in line else "message"
        if kind == "export":
            _check_version(line)
            exported = line.optional_text("user_id")
            continue
        named = line.optional_text("session_id")
        if named is not None and session_id is not None and named != session_id:
            line.place.refuse(
                f"the line names session {named!r} but {session_id!r} was asked for; "
                "leave --session out for a file that names its sessions"
            )
        talk = _Talk(named or default_session, _person(line, exported))
        if batch.is_full_for(talk, fact=kind == "fact"):
            yield batch.take(talk)
        if kind == "fact":
            batch.facts.append(_fact(line, talk.session_id, exported))
        else:
            batch.add(line, kind)
    if batch.items or batch.facts:
        yield batch.take(_Talk(default_session))


def header_line(user_id: str) -> str:
    """The first line of an export."""
    return _dump({"type": "export", "version": VERSION, "user_id": user_id})


def item_line(recorded: RecordedItem, user_id: str, attached: bytes | None = None) -> str:
    """A recorded item as one line of an export of ``user_id``, with what is attached to it.

    It says whose it is where that is another: two merged users may have used the same ids.
    """
    item, key = recorded.item, recorded.key
    line: dict[str, object] = {"type": key.kind, **_whose(key, user_id)}
    line["session_id"] = key.session_id
    if isinstance(item, Message):
        line |= {"id": recorded.key.id, "role": item.role, "text": item.text}
        line |= {"speaker": item.speaker} if item.speaker is not None else {}
        line |= {"interrupted": True} if item.interrupted else {}
    else:
        line |= {"call_id": recorded.key.id, "name": item.name, "arguments": item.arguments}
        line |= {"output": item.output} if item.output is not None else {}
        line |= {"is_error": True} if item.is_error else {}
    line["at"] = _iso(recorded.at)
    line |= {"metadata": item.metadata} if item.metadata else {}
    line |= {"attached": base64.b64encode(attached).decode()} if attached is not None else {}
    return _dump(line)


def fact_line(fact: Fact, user_id: str) -> str:
    """A fact as one line of an export of ``user_id``; sources say whose they are as items do."""
    line: dict[str, object] = {
        "type": "fact",
        "id": fact.id,
        "kind": fact.kind,
        "subject": fact.subject,
        "predicate": fact.predicate,
        "value": fact.value,
        "status": fact.status,
        "valid_from": _iso(fact.valid_from),
        "recorded_at": _iso(fact.recorded_at),
        "invalid_at": None if fact.invalid_at is None else _iso(fact.invalid_at),
        "superseded_by": fact.superseded_by,
        "due_at": None if fact.due_at is None else _iso(fact.due_at),
        "sensitive": fact.sensitive or None,
        "sources": [
            {**_whose(key, user_id), "session_id": key.session_id, "kind": key.kind, "id": key.id}
            for key in fact.sources
        ],
        "metadata": fact.metadata or None,
        "multi": fact.multi or None,
        "rests_on": list(fact.rests_on) or None,
        "confirmed": list(fact.confirmed) or None,
        "earlier": [_belief_line(one) for one in fact.earlier] or None,
    }
    return _dump({name: value for name, value in line.items() if value is not None})


def _belief_line(belief: Belief) -> dict[str, object]:
    line: dict[str, object] = {
        "until": _iso(belief.until),
        "valid_from": _iso(belief.valid_from),
        "invalid_at": None if belief.invalid_at is None else _iso(belief.invalid_at),
        "superseded_by": belief.superseded_by,
        "rests_on": list(belief.rests_on) or None,
        "confirmed": list(belief.confirmed) or None,
    }
    return {name: value for name, value in line.items() if value is not None}


@dataclass(frozen=True, slots=True)
class _Talk:
    session_id: str
    person: str | None = None


@dataclass
class _Batch:
    talk: _Talk
    items: list[Item] = field(default_factory=list[Item])
    attached: dict[tuple[ItemKind, str], bytes] = field(
        default_factory=dict[tuple[ItemKind, str], bytes]
    )
    facts: list[FactLine] = field(default_factory=list[FactLine])
    counts: dict[_Talk, int] = field(default_factory=dict[_Talk, int])
    times: dict[_Talk, datetime] = field(default_factory=dict[_Talk, datetime])

    def is_full_for(self, talk: _Talk, *, fact: bool) -> bool:
        """Whether what is held must go before the next line; remembers that line's session."""
        held = bool(self.items or self.facts)
        full = held and (
            talk != self.talk
            or len(self.items) + len(self.facts) >= _BATCH
            or sum(map(len, self.attached.values())) >= _BATCH_BYTES
            or (bool(self.facts) and not fact)
        )
        if not full:
            self.talk = talk
        return full

    def take(self, following: _Talk) -> Transcript:
        """What is held, and begin anew."""
        taken = Transcript(
            session_id=self.talk.session_id,
            items=tuple(self.items),
            attached=dict(self.attached),
            facts=tuple(self.facts),
            person=self.talk.person,
        )
        self.talk = following
        self.items.clear()
        self.attached.clear()
        self.facts.clear()
        return taken

    def add(self, line: Fields, kind: str) -> None:
        session_id = self.talk.session_id
        position = self.counts.get(self.talk, 0)
        self.counts[self.talk] = position + 1
        at = line.iso_time("at") or self.times.get(self.talk)
        if at is not None:
            self.times[self.talk] = at
        data = _attached(line)
        if kind == "message":
            message = _message(line, session_id, position, at)
            self.items.append(message)
            name: tuple[ItemKind, str] = ("message", message.id or "")
        else:
            call = _tool_call(line, session_id, position, at)
            self.items.append(call)
            name = ("tool_call", call.call_id)
        if data is not None:
            self.attached[name] = data


def _attached(line: Fields) -> bytes | None:
    text = line.optional_text("attached")
    if text is None:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        line.refuse("attached", "bytes in base64")


def _message(line: Fields, session_id: str, position: int, at: datetime | None) -> Message:
    role = cast("Role", line.choice("role", get_args(Role)))
    text = line.text("text")
    return Message(
        role,
        text,
        id=line.optional_text("id") or derived_id(session_id, position, "message", role, text),
        speaker=line.optional_text("speaker") or None,
        at=at,
        interrupted=line.flag("interrupted"),
        metadata=line.metadata("metadata"),
    )


def _tool_call(line: Fields, session_id: str, position: int, at: datetime | None) -> ToolCall:
    name = line.text("name")
    call_id = line.optional_text("call_id") or line.optional_text("id")
    return ToolCall(
        name,
        line.json("arguments"),
        call_id=call_id or derived_id(session_id, position, "tool_call", name),
        output=line.optional_text("output"),
        is_error=line.flag("is_error"),
        at=at,
        metadata=line.metadata("metadata"),
    )


def _fact(line: Fields, session_id: str, exported: str | None) -> FactLine:
    kind = line.choice("kind", get_args(FactKind)) if "kind" in line else "attribute"
    status = line.choice("status", get_args(FactStatus)) if "status" in line else None
    return FactLine(
        place=line.place,
        predicate=line.text("predicate"),
        value=line.json("value"),
        kind=cast("FactKind", kind),
        subject=line.optional_text("subject") or "user",
        id=line.optional_text("id"),
        status=cast("FactStatus | None", status),
        valid_from=line.iso_time("valid_from"),
        recorded_at=line.iso_time("recorded_at"),
        invalid_at=line.iso_time("invalid_at"),
        superseded_by=line.optional_text("superseded_by"),
        due_at=line.iso_time("due_at"),
        sensitive=line.flag("sensitive"),
        sources=_sources(line, session_id, exported),
        metadata=line.metadata("metadata"),
        multi=line.flag("multi") if "multi" in line else None,
        rests_on=_ids(line, "rests_on") if "rests_on" in line else None,
        confirmed=_ids(line, "confirmed") if "confirmed" in line else (),
        earlier=_earlier(line),
    )


def _earlier(line: Fields) -> Sequence[Belief]:
    if "earlier" not in line:
        return ()
    found: list[Belief] = []
    for index, value in enumerate(line.entries("earlier")):
        one = Fields(value, line.place.inside(f"earlier[{index}]"))
        until, valid_from = one.iso_time("until"), one.iso_time("valid_from")
        if until is None or valid_from is None:
            one.refuse("until" if until is None else "valid_from", "an ISO 8601 time")
        found.append(
            Belief(
                until=until,
                valid_from=valid_from,
                invalid_at=one.iso_time("invalid_at"),
                superseded_by=one.optional_text("superseded_by"),
                rests_on=_ids(one, "rests_on") if "rests_on" in one else (),
                confirmed=_ids(one, "confirmed") if "confirmed" in one else (),
            )
        )
    return tuple(found)


def _ids(line: Fields, name: str) -> Sequence[str]:
    found = line.entries(name)
    for index, one in enumerate(found):
        if not isinstance(one, str):
            line.place.inside(f"{name}[{index}]").refuse("expected the id of a fact")
    return tuple(cast("Sequence[str]", found))


def _sources(line: Fields, session_id: str, exported: str | None) -> Sequence[SourceLine]:
    if "sources" not in line:
        return ()
    found: list[SourceLine] = []
    for index, value in enumerate(line.entries("sources")):
        if isinstance(value, str):
            found.append(SourceLine(session_id=session_id, kind="message", id=value))
            continue
        place = line.place.inside(f"sources[{index}]")
        source = Fields(value, place, what="an item id or an object")
        found.append(_source(source, session_id, exported))
    return tuple(found)


def _source(source: Fields, session_id: str, exported: str | None) -> SourceLine:
    kind = source.choice("kind", get_args(ItemKind)) if "kind" in source else "message"
    return SourceLine(
        session_id=source.optional_text("session_id") or session_id,
        kind=cast("ItemKind", kind),
        id=source.text("id"),
        person=_person(source, exported),
    )


def _person(line: Fields, exported: str | None) -> str | None:
    """Whose a line of an export is, if not the exported user's; nobody's in any other file."""
    named = None if exported is None else line.optional_text("user_id")
    return None if named == exported else named


def _whose(key: ItemKey, user_id: str) -> dict[str, object]:
    return {} if key.user_id == user_id else {"user_id": key.user_id}


def _check_version(line: Fields) -> None:
    version = line.raw("version")
    if version != VERSION:
        line.place.refuse(
            f"the file is an export of version {version!r}, this release reads {VERSION}; "
            "upgrade secondcall"
        )


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _dump(value: dict[str, object]) -> str:
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text
