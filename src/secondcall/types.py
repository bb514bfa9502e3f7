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
    "Belief",
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
    "Recap",
    "RecapKind",
    "RecapPart",
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
RecapKind = Literal["who", "asked", "noted", "decided", "promised", "open"]


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
    the first entry and keeps its place. Of the newest 1,000 calls that a session's handle recorded,
    or loaded for its buffer or context, it knows the ids: another call (by name or arguments) with
    the id of one that has its output is recorded under that id with ``#2`` behind it.
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
class Belief:
    """What was held of a fact before something was learnt: as it stood until then.

    ``until`` is when that was recorded (not included).
    """

    until: datetime
    valid_from: datetime
    invalid_at: datetime | None = None
    superseded_by: str | None = None
    rests_on: Sequence[str] = ()
    confirmed: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A statement about the user that can change.

    ``valid_from`` and ``invalid_at`` say when it was true (half open), ``recorded_at`` when it was
    learnt; ``earlier`` is what was held of it before, oldest first. ``superseded_by`` is the id of
    the fact that ended it. ``sources`` are the items that it comes from, ``rests_on`` the ids of
    the facts that it relies on: when one of them ends, ``to_confirm`` says which, when and what
    replaced it; ``confirmed`` are those whose end it was told anew after. A *multi* fact is one of
    several values of its predicate. A *sensitive* fact, and every item it comes from, is withheld
    from a caller whose identity is only claimed.
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
    multi: bool = False
    rests_on: Sequence[str] = ()
    confirmed: Sequence[str] = ()
    earlier: Sequence[Belief] = ()
    to_confirm: str | None = field(default=None, compare=False)


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
    """An item found for a question, with its score and what gave it (feature name -> share).

    ``stale`` says what became of the facts that it states, where they have ended, ``to_confirm``
    that a fact which it states rests on one that has. ``before`` and ``after`` are its neighbours
    in the conversation, as context, if asked for; ``matched`` the question's terms that stand in
    it, with ``explain``.
    """

    key: ItemKey
    item: Item
    at: datetime
    score: float
    features: Mapping[str, float] = field(default_factory=dict[str, float])
    stale: str | None = None
    to_confirm: str | None = None
    before: Sequence[RecordedItem] = ()
    after: Sequence[RecordedItem] = ()
    matched: Sequence[str] = ()


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
    of other processes could be read. ``text`` is the rendered, fenced form. ``confidence`` says how
    likely the record answers the question at all, 0 to 1 (docs/retrieval.md). ``warnings`` name
    what could not be done, such as a ``screen`` that failed. ``explanation`` is how the question
    was read, with ``explain``.
    """

    items: Sequence[RecalledItem]
    facts: Sequence[RecalledFact]
    text: str
    reason: str | None = None
    withheld: int = 0
    stale: bool = False
    elapsed_seconds: float = 0.0
    confidence: float = 0.0
    warnings: Sequence[str] = ()
    explanation: Mapping[str, JsonValue] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecapPart:
    """One clause of a recap: what was done and, in quotation marks, the words it was done in.

    ``sources`` are the items that hold the words. ``fact_id`` is the fact that says what they came
    to, or whose words they are when no item holds them.
    """

    kind: RecapKind
    text: str
    sources: Sequence[ItemKey] = ()
    fact_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recap:
    """What one conversation came to: who, what was asked, decided, promised and left open.

    ``text`` is one line, quoted and unable to open or close a fence; it rests on ``sources`` and on
    the facts with the ids ``facts``. ``parts`` are its clauses, in order; a text that a model
    worded (``made_by`` is then its id) has the clauses that would stand without one. ``items`` and
    ``last_at`` say up to where the session was when it was made.
    """

    user_id: str
    session_id: str
    first_at: datetime
    last_at: datetime
    items: int
    text: str
    made_at: datetime
    made_by: str = "rules"
    sources: Sequence[ItemKey] = ()
    facts: Sequence[str] = ()
    parts: Sequence[RecapPart] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """What a new session starts with, rendered as fenced data and as its parts.

    ``recaps`` are those of the ``sessions`` that have one which still holds, ``last_words`` what
    the user said last in the others. ``missing`` names the parts that the deadline cut off,
    ``left_out`` counts what the token budget cut. ``text`` is empty when nothing is known.
    """

    text: str
    tokens: int
    facts: Sequence[Fact]
    promises: Sequence[Fact]
    issues: Sequence[Fact]
    sessions: Sequence[SessionSummary]
    last_words: Sequence[RecordedItem] = ()
    recaps: Sequence[Recap] = ()
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
