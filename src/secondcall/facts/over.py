"""What has become of facts, listed by the conversation that they come from.

Whoever shows the words of a conversation reads here by its key, in one page, which of its items
state what is settled or has ended by now, and never the facts themselves. A document of kind
``fact_over`` is written in the batch that changes a chain, for each fact that it changes; the first
fact of a chain has none until then. It is an aid: one that cannot be read counts as none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from secondcall.abc import ANY_VERSION, DocumentWrite
from secondcall.checks import from_us, to_us
from secondcall.facts.chain import continued, is_standing, key_of
from secondcall.types import Fact, FactStatus, ItemKey

if TYPE_CHECKING:
    from secondcall.abc import Document, Scope, Store

__all__ = ["OVER", "Stated", "ends_of", "no_longer_listed", "over_writes", "stated_in"]

OVER = "fact_over"
_FORMAT = 1
_MAX_SESSIONS = 16
"""Of a fact that comes from more conversations only those of its newest sources are listed."""
_MAX_STATED = 1_000
_PREDICATE_CHARACTERS = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """A fact as far as it matters to the items of one conversation that state it."""

    fact_id: str
    chain: str
    predicate: str
    status: FactStatus
    valid_from: datetime
    invalid_at: datetime | None
    recorded_at: datetime
    sensitive: bool
    items: Sequence[ItemKey]


def over_writes(
    key: str, before: Collection[Fact], after: Collection[Fact], *, first: bool
) -> list[DocumentWrite]:
    """The documents that belong into the batch which changes the facts ``before`` of the chain
    ``key`` to those ``after``; ``first``: there was none."""
    if first and len(after) == 1 and all(_stands_for_good(fact) for fact in after):
        return []
    known = {fact.id: fact for fact in before}
    by_id = {fact.id: fact for fact in after}
    sources: dict[str, list[ItemKey]] = {fact.id: list(fact.sources) for fact in after}
    for fact in after:
        successor = by_id.get(fact.superseded_by or "")
        if successor is not None and continued(fact, successor):
            sources[successor.id].extend(fact.sources)
    writes: list[DocumentWrite] = []
    for fact in after:
        by_session = _by_session(sources[fact.id])
        old = known.get(fact.id)
        if len(after) == 1 and old is not None and _life(old) == _life(fact):
            fresh = set(fact.sources).difference(old.sources)
            told = {source[:2] for source in fresh}
            by_session = {name: items for name, items in by_session.items() if name in told}
        writes.extend(
            DocumentWrite(
                kind=OVER,
                key=f"{_prefix(*name)}{key}/{fact.id}",
                body=_encode(fact, key, items),
                expected_version=ANY_VERSION,
            )
            for name, items in by_session.items()
        )
    return writes


def no_longer_listed(fact: Fact) -> list[DocumentWrite]:
    """The deletions that belong into the batch which deletes a fact."""
    key = key_of(fact)
    return [
        DocumentWrite(
            kind=OVER,
            key=f"{_prefix(*name)}{key}/{fact.id}",
            body=None,
            expected_version=ANY_VERSION,
        )
        for name in dict.fromkeys(source[:2] for source in fact.sources)
    ]


async def stated_in(store: Store, scope: Scope, user_id: str, session_id: str) -> list[Stated]:
    """The facts of a partition that come from items of a conversation and whose chain has changed
    since they were first told: one read, of at most 1,000."""
    page = await store.documents(
        scope, OVER, prefix=_prefix(user_id, session_id), limit=_MAX_STATED
    )
    found = [_decode(user_id, session_id, document) for document in page]
    return [one for one in found if one is not None]


def ends_of(
    stated: Iterable[Stated], now: datetime, shown: Callable[[Stated], bool] = lambda _: True
) -> Mapping[ItemKey, str]:
    """For each item that states what is settled or has ended by ``now``: what, how and when.

    Of a chain the fact that began last counts, so that what was reopened is not over. What may not
    be ``shown`` is not named.
    """
    last: dict[tuple[ItemKey, str], Stated] = {}
    for one in sorted(stated, key=lambda one: (one.valid_from, one.recorded_at, one.fact_id)):
        if one.valid_from <= now:
            last |= {(item, one.chain): one for item in one.items}
    words: dict[ItemKey, dict[str, None]] = {}
    for (item, _), one in last.items():
        ended = _ended(one, now)
        if ended is not None and shown(one):
            words.setdefault(item, {})[ended] = None
    return {item: "; ".join(several) for item, several in words.items()}


def _ended(one: Stated, now: datetime) -> str | None:
    what = one.predicate.replace("_", " ")
    if len(what) > _PREDICATE_CHARACTERS:
        what = f"{what[:_PREDICATE_CHARACTERS]}…"
    if one.status not in ("current", "promised", "open"):
        return f"{what}: {one.status} {one.valid_from.date().isoformat()}"
    if one.invalid_at is not None and one.invalid_at <= now:
        return f"{what}: ended {one.invalid_at.date().isoformat()}"
    return None


def _stands_for_good(fact: Fact) -> bool:
    return is_standing(fact) and fact.invalid_at is None


def _life(fact: Fact) -> tuple[object, ...]:
    return (fact.status, fact.valid_from, fact.invalid_at, fact.sensitive)


def _by_session(sources: Iterable[ItemKey]) -> dict[tuple[str, str], list[ItemKey]]:
    """By user and session, the newest few."""
    found: dict[tuple[str, str], list[ItemKey]] = {}
    for source in dict.fromkeys(sources):
        found.setdefault((source.user_id, source.session_id), []).append(source)
    return dict(list(found.items())[-_MAX_SESSIONS:])


def _prefix(user_id: str, session_id: str) -> str:
    digest = hashlib.sha256()
    for part in (user_id, session_id):
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(4, "big") + encoded)
    return f"{digest.hexdigest()[:32]}/"


def _encode(fact: Fact, key: str, items: Sequence[ItemKey]) -> bytes:
    content = {
        "v": _FORMAT,
        "id": fact.id,
        "chain": key,
        "predicate": fact.predicate,
        "status": fact.status,
        "from": to_us("valid_from", fact.valid_from),
        "until": None if fact.invalid_at is None else to_us("invalid_at", fact.invalid_at),
        "told": to_us("recorded_at", fact.recorded_at),
        "sensitive": fact.sensitive,
        "items": [[item.kind, item.id] for item in items],
    }
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _decode(user_id: str, session_id: str, document: Document) -> Stated | None:
    try:
        content = cast("dict[str, Any]", json.loads(document.body))
        if content["v"] != _FORMAT:
            return None
        until = content["until"]
        return Stated(
            fact_id=content["id"],
            chain=content["chain"],
            predicate=content["predicate"],
            status=content["status"],
            valid_from=from_us(content["from"]),
            invalid_at=None if until is None else from_us(until),
            recorded_at=from_us(content["told"]),
            sensitive=content["sensitive"],
            items=[ItemKey(user_id, session_id, kind, id_) for kind, id_ in content["items"]],
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None
