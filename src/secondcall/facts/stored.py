"""The stored form of facts: JSON with a format number, times in microseconds. Pure.

Format 1, of the first release, has no ``multi``, ``rests_on``, ``confirmed`` and ``earlier``;
``decode_fact`` reads both.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, cast

from secondcall.checks import from_us, to_us
from secondcall.errors import StoreCorrupt
from secondcall.types import Belief, Fact, ItemKey

__all__ = ["MULTI", "decode_fact", "encode_fact", "is_fact"]

MULTI = b'{"v":2,"multi":true}'
"""The document in the place of a single fact that says: this predicate has several values."""


def is_fact(body: bytes) -> bool:
    """Whether a document of kind ``fact`` holds one, and is not the mark of several values."""
    return body != MULTI


def encode_fact(fact: Fact) -> bytes:
    """The stored form of a fact; ``to_confirm`` is no part of it, it follows from the others."""
    content: dict[str, object] = {
        "v": 2,
        "id": fact.id,
        "kind": fact.kind,
        "subject": fact.subject,
        "predicate": fact.predicate,
        "value": fact.value,
        "status": fact.status,
        "valid_from": to_us("valid_from", fact.valid_from),
        "recorded_at": to_us("recorded_at", fact.recorded_at),
        "invalid_at": _us(fact.invalid_at),
        "superseded_by": fact.superseded_by,
        "due_at": _us(fact.due_at),
        "sensitive": fact.sensitive,
        "sources": [list(source) for source in fact.sources],
        "metadata": fact.metadata,
    }
    if fact.multi:
        content["multi"] = True
    if fact.rests_on:
        content["rests_on"] = list(fact.rests_on)
    if fact.confirmed:
        content["confirmed"] = list(fact.confirmed)
    if fact.earlier:
        content["earlier"] = [_encode_belief(one) for one in fact.earlier]
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def decode_fact(body: bytes) -> Fact:
    """The fact of a stored document. Raises: ``StoreCorrupt``."""
    try:
        content = cast("dict[str, Any]", json.loads(body))
        valid_from, invalid_at = from_us(content["valid_from"]), _time(content["invalid_at"])
        ended_by = content["superseded_by"]
        earlier = tuple(_decode_belief(one) for one in content.get("earlier", ()))
        if content["v"] == 1 and invalid_at is not None and ended_by is None:
            # Format 1 ended a fact with nothing in its place at the moment of being told so.
            earlier = (Belief(until=invalid_at, valid_from=valid_from),)
        return Fact(
            id=content["id"],
            kind=content["kind"],
            subject=content["subject"],
            predicate=content["predicate"],
            value=content["value"],
            status=content["status"],
            valid_from=valid_from,
            recorded_at=from_us(content["recorded_at"]),
            invalid_at=invalid_at,
            superseded_by=ended_by,
            due_at=_time(content["due_at"]),
            sensitive=content["sensitive"],
            sources=tuple(ItemKey(*source) for source in content["sources"]),
            metadata=content["metadata"],
            multi=content.get("multi", False),
            rests_on=tuple(content.get("rests_on", ())),
            confirmed=tuple(content.get("confirmed", ())),
            earlier=earlier,
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise StoreCorrupt(
            f"a stored fact cannot be read ({type(error).__name__}); run 'secondcall doctor'"
        ) from None


def _encode_belief(belief: Belief) -> list[object]:
    return [
        to_us("until", belief.until),
        to_us("valid_from", belief.valid_from),
        _us(belief.invalid_at),
        belief.superseded_by,
        list(belief.rests_on),
        list(belief.confirmed),
    ]


def _decode_belief(stored: list[Any]) -> Belief:
    until, valid_from, invalid_at, superseded_by, rests_on, confirmed = stored
    return Belief(
        until=from_us(until),
        valid_from=from_us(valid_from),
        invalid_at=_time(invalid_at),
        superseded_by=superseded_by,
        rests_on=tuple(rests_on),
        confirmed=tuple(confirmed),
    )


def _us(value: datetime | None) -> int | None:
    return None if value is None else to_us("time", value)


def _time(value: int | None) -> datetime | None:
    return None if value is None else from_us(value)
