"""What every reader gives: one session's items at a time, as they will be recorded."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from secondcall.record.formats.fields import Place
from secondcall.types import Belief, FactKind, FactStatus, Item, ItemKind, JsonValue, Metadata

__all__ = ["FactLine", "SourceLine", "Transcript", "derived_id"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    """An item that a fact of a file rests on; ``person`` as in ``Transcript``."""

    session_id: str
    kind: ItemKind
    id: str
    person: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FactLine:
    """A fact as a file states it, and where; ``None`` where it does not say."""

    place: Place = field(compare=False)
    predicate: str
    value: JsonValue
    kind: FactKind = "attribute"
    subject: str = "user"
    id: str | None = None
    status: FactStatus | None = None
    valid_from: datetime | None = None
    recorded_at: datetime | None = None
    invalid_at: datetime | None = None
    superseded_by: str | None = None
    due_at: datetime | None = None
    sensitive: bool = False
    sources: Sequence[SourceLine] = ()
    metadata: Metadata = field(default_factory=dict[str, JsonValue])
    multi: bool | None = None
    rests_on: Sequence[str] | None = None
    confirmed: Sequence[str] = ()
    earlier: Sequence[Belief] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """A part of one session: its items are recorded as one batch, then its facts. ``attached`` is
    what goes with the items, by kind and id.

    ``person`` is set where the file itself holds the conversations of several people, as an export
    of a merged user does. ``left_out`` counts what the file holds and memory does not take, such as
    instructions.
    """

    session_id: str
    items: Sequence[Item]
    attached: Mapping[tuple[ItemKind, str], bytes] = field(
        default_factory=dict[tuple[ItemKind, str], bytes]
    )
    facts: Sequence[FactLine] = ()
    person: str | None = None
    left_out: int = 0


def derived_id(session_id: str, position: int, *content: str) -> str:
    """The id of an item whose file gives it none.

    The same place and content always get the same id, so importing again changes nothing.
    """
    digest = hashlib.blake2b(digest_size=12)
    for part in (session_id, str(position), *content):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()
