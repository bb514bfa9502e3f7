"""Recaps as they are stored, and reading them by key.

A recap is a document of kind *recap* under its session's id, in the partition that holds the
session. It says what it was made of, so that whoever reads it can tell whether that still holds:
the session's outline, the change number of each item it rests on, and the ids of its facts.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from secondcall.abc import ANY_VERSION, DocumentWrite, EntryKey
from secondcall.checks import from_us, to_us
from secondcall.types import ItemKey, ItemKind, Recap, RecapPart, SessionSummary

if TYPE_CHECKING:
    from secondcall.abc import Scope
    from secondcall.memory.shared import Place

__all__ = ["KIND", "PLACEHOLDER", "Kept", "decode", "encode", "forget_recaps", "read_recaps"]

KIND = "recap"
PLACEHOLDER = b'{"v": 1}'
"""Put there before the items are read, so that a removal meanwhile is noticed at writing."""
_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A recap with what it was made of.

    ``changes`` are the change numbers of ``recap.sources`` and of its parts' sources. ``change`` is
    the partition's at the reading, ``digest`` covers all items and facts that were read, and
    ``tried`` is the model that has worded it, or whose words could not stand.
    """

    recap: Recap
    rules: int
    change: int
    digest: str
    changes: Mapping[ItemKey, int]
    tried: str | None = None

    def is_of(self, session: SessionSummary) -> bool:
        """Whether the session has the same items at the same times, as far as its outline says."""
        recap = self.recap
        return (recap.items, recap.first_at, recap.last_at) == (
            session.items,
            session.first_at,
            session.last_at,
        )


def encode(kept: Kept) -> bytes:
    """The stored form: JSON with a format number, times in microseconds."""
    recap = kept.recap
    keys = list(kept.changes)
    place = {key: number for number, key in enumerate(keys)}
    content: dict[str, object] = {
        "v": _FORMAT,
        "rules": kept.rules,
        "change": kept.change,
        "digest": kept.digest,
        "tried": kept.tried,
        "first_us": to_us("first_at", recap.first_at),
        "last_us": to_us("last_at", recap.last_at),
        "items": recap.items,
        "made_us": to_us("made_at", recap.made_at),
        "made_by": recap.made_by,
        "text": recap.text,
        "keys": [[key.kind, key.id, kept.changes[key]] for key in keys],
        "sources": [place[key] for key in recap.sources],
        "facts": list(recap.facts),
        "parts": [
            [part.kind, part.text, [place[key] for key in part.sources], part.fact_id]
            for part in recap.parts
        ],
    }
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def decode(user_id: str, session_id: str, body: bytes) -> Kept | None:
    """The recap of a document; ``None`` for a placeholder and for what cannot be read, since it can
    be made anew."""
    try:
        content = cast("dict[str, Any]", json.loads(body))
        if content["v"] != _FORMAT or "text" not in content:
            return None
        listed = cast("list[tuple[ItemKind, str, int]]", content["keys"])
        keys = [ItemKey(user_id, session_id, kind, id_) for kind, id_, _ in listed]
        return Kept(
            recap=Recap(
                user_id=user_id,
                session_id=session_id,
                first_at=from_us(content["first_us"]),
                last_at=from_us(content["last_us"]),
                items=content["items"],
                text=content["text"],
                made_at=from_us(content["made_us"]),
                made_by=content["made_by"],
                sources=_named(keys, content["sources"]),
                facts=tuple(content["facts"]),
                parts=tuple(
                    RecapPart(
                        kind=kind,
                        text=text,
                        sources=_named(keys, places),
                        fact_id=fact_id,
                    )
                    for kind, text, places, fact_id in content["parts"]
                ),
            ),
            rules=content["rules"],
            change=content["change"],
            digest=content["digest"],
            changes={key: change for key, (_, _, change) in zip(keys, listed, strict=True)},
            tried=content["tried"],
        )
    except (ValueError, KeyError, TypeError, IndexError, OverflowError):
        return None


def _named(keys: Sequence[ItemKey], places: Sequence[int]) -> tuple[ItemKey, ...]:
    return tuple(keys[place] for place in places)


async def read_recaps(
    place: Place, sessions: Sequence[tuple[Scope, SessionSummary]]
) -> list[tuple[Recap, frozenset[ItemKey]]]:
    """The recaps that are of these sessions as they are now, each with those of its sources that
    are as they were. Two reads one after the other, by key, however many sessions."""
    store = place.shared.store
    documents = await asyncio.gather(
        *(store.document(scope, KIND, session.session_id) for scope, session in sessions)
    )
    found: list[tuple[Scope, Kept]] = []
    for (scope, session), document in zip(sessions, documents, strict=True):
        kept = (
            None if document is None else decode(session.user_id, session.session_id, document.body)
        )
        if kept is not None and kept.is_of(session):
            found.append((scope, kept))
    checks = [
        _intact(
            place,
            scope,
            {k: c for at, kept in found if at == scope for k, c in kept.changes.items()},
        )
        for scope in dict.fromkeys(scope for scope, _ in found)
    ]
    intact = frozenset(key for keys in await asyncio.gather(*checks) for key in keys)
    return [(kept.recap, intact.intersection(kept.changes)) for _, kept in found]


def forget_recaps(keys: Collection[EntryKey]) -> list[DocumentWrite]:
    """The deletions that belong into the batch which removes these items."""
    return [
        DocumentWrite(kind=KIND, key=session_id, body=None, expected_version=ANY_VERSION)
        for session_id in dict.fromkeys(key.session_id for key in keys)
    ]


async def _intact(place: Place, scope: Scope, changes: Mapping[ItemKey, int]) -> list[ItemKey]:
    if not changes:
        return []
    policy, now = await place.retention(), place.shared.clock.now()
    wanted = [EntryKey(*key[1:]) for key in changes]
    found: list[ItemKey] = []
    for entry in await place.shared.store.entries(scope, wanted):
        key = ItemKey(scope.name, *entry.key)
        cutoff = policy.cutoff_us(entry.key.kind, now)
        if changes[key] == entry.change and (cutoff is None or entry.at_us >= cutoff):
            found.append(key)
    return found
