"""The history of one predicate, and how a new fact finds its place in it. Pure.

A chain is the facts of one (subject, predicate) in order of ``valid_from``, each ending where the
next begins. A late correction, with an older ``valid_from``, is sorted in and ends at its
successor's start. Nothing is overwritten: what ends keeps its value and says what ended it.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, cast

from secondcall.checks import from_us, to_us
from secondcall.errors import StoreCorrupt
from secondcall.types import Fact, ItemKey

__all__ = [
    "chain_key",
    "decode_fact",
    "encode_fact",
    "holds_at",
    "insert",
    "is_standing",
    "normalise",
    "order",
    "stands",
]

_TICK = timedelta(microseconds=1)
_STANDING = frozenset({"current", "promised", "open"})


def normalise(name: str) -> str:
    """How predicates and subjects are compared: NFKC, case-folded, white space collapsed."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def chain_key(subject: str, predicate: str) -> str:
    """The fixed-length key of a chain: a hash of length-prefixed parts, so none can collide."""
    digest = hashlib.sha256()
    for part in (normalise(subject), normalise(predicate)):
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(4, "big") + encoded)
    return digest.hexdigest()[:40]


def holds_at(fact: Fact, moment: datetime) -> bool:
    """Whether the fact was true at ``moment`` (half open: not at ``invalid_at`` itself)."""
    return fact.valid_from <= moment and (fact.invalid_at is None or moment < fact.invalid_at)


def is_standing(fact: Fact) -> bool:
    """Whether the fact's status is one that is still to be reckoned with while it is true."""
    return fact.status in _STANDING


def stands(fact: Fact) -> bool:
    """Whether the fact is still to be reckoned with: not ended, settled or resolved."""
    return fact.invalid_at is None and is_standing(fact)


def order(fact: Fact) -> tuple[datetime, datetime, str]:
    """The order of a chain: by beginning, then by when it was recorded."""
    return (fact.valid_from, fact.recorded_at, fact.id)


def insert(
    chain: Iterable[Fact], fact: Fact, *, keep_recorded: bool = False
) -> tuple[Fact, Sequence[Fact]]:
    """Put ``fact`` into ``chain``: the head afterwards, and every fact that is new or changed.

    Of two with the same ``valid_from`` the one recorded later follows; so ``recorded_at`` is moved
    on by a microsecond where the clock has not, unless it is to be kept.
    """
    chain = list(chain)
    latest = max((each.recorded_at for each in chain), default=None)
    if latest is not None and fact.recorded_at <= latest and not keep_recorded:
        fact = replace(fact, recorded_at=latest + _TICK)
    ordered = sorted(chain, key=lambda each: (each.valid_from, each.recorded_at))
    place = (fact.valid_from, fact.recorded_at)
    before = [each for each in ordered if (each.valid_from, each.recorded_at) <= place]
    after = ordered[len(before) :]
    if after:
        ends = min(after[0].valid_from, fact.invalid_at or after[0].valid_from)
        fact = replace(fact, invalid_at=ends, superseded_by=after[0].id)
    changed = [fact]
    if before and (before[-1].invalid_at is None or before[-1].invalid_at > fact.valid_from):
        changed.append(replace(before[-1], invalid_at=fact.valid_from, superseded_by=fact.id))
    head = after[-1] if after else fact
    return head, changed


def encode_fact(fact: Fact) -> bytes:
    """The stored form of a fact: JSON with a format number, times in microseconds."""
    content: dict[str, object] = {
        "v": 1,
        "id": fact.id,
        "kind": fact.kind,
        "subject": fact.subject,
        "predicate": fact.predicate,
        "value": fact.value,
        "status": fact.status,
        "valid_from": to_us("valid_from", fact.valid_from),
        "recorded_at": to_us("recorded_at", fact.recorded_at),
        "invalid_at": None if fact.invalid_at is None else to_us("invalid_at", fact.invalid_at),
        "superseded_by": fact.superseded_by,
        "due_at": None if fact.due_at is None else to_us("due_at", fact.due_at),
        "sensitive": fact.sensitive,
        "sources": [list(source) for source in fact.sources],
        "metadata": fact.metadata,
    }
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def decode_fact(body: bytes) -> Fact:
    """The fact of a stored document. Raises: ``StoreCorrupt``."""
    try:
        content = cast("dict[str, Any]", json.loads(body))
        return Fact(
            id=content["id"],
            kind=content["kind"],
            subject=content["subject"],
            predicate=content["predicate"],
            value=content["value"],
            status=content["status"],
            valid_from=from_us(content["valid_from"]),
            recorded_at=from_us(content["recorded_at"]),
            invalid_at=_time(content["invalid_at"]),
            superseded_by=content["superseded_by"],
            due_at=_time(content["due_at"]),
            sensitive=content["sensitive"],
            sources=tuple(ItemKey(*source) for source in content["sources"]),
            metadata=content["metadata"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise StoreCorrupt(
            f"a stored fact cannot be read ({type(error).__name__}); run 'secondcall doctor'"
        ) from None


def _time(value: int | None) -> datetime | None:
    return None if value is None else from_us(value)
