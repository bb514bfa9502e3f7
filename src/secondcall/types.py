"""Frozen records that every room shares. Standard library only.

Words are those of the glossary in ``docs/concepts.md``. Every ``datetime`` is aware and in UTC;
``None`` means absent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

__all__ = [
    "Brief",
    "Caller",
    "Fact",
    "FactKind",
    "FactStatus",
    "Item",
    "ItemKey",
    "ItemKind",
    "JsonValue",
    "Message",
    "Metadata",
    "Recalled",
    "RecalledFact",
    "RecalledItem",
    "Receipt",
    "Recorded",
    "RecordedItem",
    "Role",
    "SessionSummary",
    "ToolCall",
    "Trust",
]

JsonValue: TypeAlias = (
    "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
)
Metadata: TypeAlias = Mapping[str, JsonValue]

Role = Literal["user", "assistant", "system"]
ItemKind = Literal["message", "tool_call"]
Trust = Literal["claimed", "verified"]
FactKind = Literal["preference", "decision", "promise", "issue", "attribute"]
FactStatus = Literal["current", "promised", "kept", "broken", "withdrawn", "open", "resolved"]


@dataclass(frozen=True, slots=True)
class Message:
    """Something that was said or typed, word for word.

    ``text`` is what was really spoken: for an interrupted reply only the part that was heard.
    ``id`` is the host's own id, kept; without one a random id is given, so recording the same words
    twice makes two items. ``at`` defaults to the clock's now.
    """

    role: Role
    text: str
    id: str | None = field(default=None, kw_only=True)
    speaker: str | None = field(default=None, kw_only=True)
    at: datetime | None = field(default=None, kw_only=True)
    interrupted: bool = field(default=False, kw_only=True)
    metadata: Metadata = field(default_factory=dict[str, JsonValue], kw_only=True)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that was called, with its arguments and, once known, its output.

    ``call_id`` is its id: record it when the call starts and again with the output, which corrects
    the first entry and keeps its place.
    """

    name: str
    arguments: JsonValue
    call_id: str = field(kw_only=True)
    output: str | None = field(default=None, kw_only=True)
    is_error: bool = field(default=False, kw_only=True)
    at: datetime | None = field(default=None, kw_only=True)
    metadata: Metadata = field(default_factory=dict[str, JsonValue], kw_only=True)


Item: TypeAlias = Message | ToolCall


class ItemKey(NamedTuple):
    """The full name of a recorded item: the user whose partition holds it, session, kind and id."""

    user_id: str
    session_id: str
    kind: ItemKind
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedItem:
    """An item as it stands in the record.

    ``change`` is the change number of its newest entry, ``position`` that of its first: reading
    order is (time, position), and a correction keeps both its place and its ``position``.
    ``item`` has ``id`` and ``at`` filled in.
    """

    key: ItemKey
    item: Item
    at: datetime
    change: int
    position: int
    recorded_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What one ``record`` did; when it returns, everything in it is durable."""

    keys: Sequence[ItemKey]
    added: int
    corrected: int
    unchanged: int
    change: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """The outline of one session: when it was and how many items it has."""

    user_id: str
    session_id: str
    first_at: datetime
    last_at: datetime
    items: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A statement about the user that can change.

    ``valid_from`` and ``invalid_at`` say when it was true (half open), ``recorded_at`` when it was
    learnt. ``superseded_by`` is the id of the fact that ended it. ``sources`` are the items that it
    rests on. A *sensitive* fact, and every item it rests on, is withheld from a caller whose
    identity is only claimed.
    """

    id: str
    kind: FactKind
    subject: str
    predicate: str
    value: JsonValue
    status: FactStatus
    valid_from: datetime
    recorded_at: datetime
    invalid_at: datetime | None = None
    superseded_by: str | None = None
    due_at: datetime | None = None
    sensitive: bool = False
    sources: Sequence[ItemKey] = ()
    metadata: Metadata = field(default_factory=dict[str, JsonValue])


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who is calling, as far as it is known.

    ``anonymous`` callers (withheld, empty or malformed identities) have a ``user_id`` of their own
    for this one call. ``conflicts`` names the identities that pointed to somebody else.
    """

    user_id: str
    trust: Trust
    known: bool
    anonymous: bool = False
    conflicts: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecalledItem:
    """An item found for a question, with its score and what gave it (feature name -> share)."""

    key: ItemKey
    item: Item
    at: datetime
    score: float
    features: Mapping[str, float] = field(default_factory=dict[str, float])
    stale: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecalledFact:
    """A fact found for a question, with its score."""

    fact: Fact
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """The answer of ``recall``: items and facts apart, best first.

    ``reason`` says why nothing was found, and is ``None`` when something was. ``withheld`` counts
    what a merely claimed caller may not see. ``stale`` is true when the deadline came before writes
    of other processes could be read. ``text`` is the rendered, fenced form.
    """

    items: Sequence[RecalledItem]
    facts: Sequence[RecalledFact]
    text: str
    reason: str | None = None
    withheld: int = 0
    stale: bool = False
    elapsed_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """What a new session starts with, rendered as fenced data and as its parts.

    ``missing`` names the parts that the deadline cut off, ``left_out`` counts what the token budget
    cut. ``text`` is empty when nothing is known.
    """

    text: str
    tokens: int
    facts: Sequence[Fact]
    promises: Sequence[Fact]
    issues: Sequence[Fact]
    sessions: Sequence[SessionSummary]
    last_words: Sequence[RecordedItem] = ()
    known: bool = False
    withheld: int = 0
    missing: Sequence[str] = ()
    left_out: int = 0
    elapsed_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What ``forget`` removed, place by place, and what a scan found afterwards.

    ``complete`` is false when something is physically still there, which ``detail`` explains.
    """

    user_id: str
    removed: Mapping[str, int]
    remaining: Mapping[str, int]
    complete: bool
    detail: str = ""
