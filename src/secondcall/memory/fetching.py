"""The items of the hits, as the record has them now, with their neighbours where asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from secondcall.abc import EntryKey
from secondcall.record.append import decode_entry
from secondcall.record.index import item_key
from secondcall.types import ItemKey, RecalledItem, RecordedItem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from secondcall.abc import Scope, StoredEntry
    from secondcall.memory.shared import Place
    from secondcall.recall.index import Hit
    from secondcall.record.retain import Retention

__all__ = ["ReadEntries", "fetch", "with_neighbours"]

ReadEntries: TypeAlias = "Callable[[Scope, Sequence[EntryKey]], Awaitable[Sequence[StoredEntry]]]"
"""As ``Store.entries``."""


async def fetch(
    place: Place,
    scopes: Sequence[Scope],
    policy: Retention,
    hits: Sequence[Hit],
    *,
    read: ReadEntries | None = None,
    alone: bool = False,
) -> list[RecalledItem]:
    """The items of the hits, as ``read`` or the store has them, without what is gone or has run
    out; with their neighbours, unless they are wanted ``alone``."""
    keys = [item_key(scopes, hit.key) for hit in hits]
    beside = [] if alone else _beside(scopes, hits)
    read = place.shared.store.entries if read is None else read
    stored = await _read(place, scopes, policy, list(dict.fromkeys((*keys, *beside))), read)
    found = [
        RecalledItem(key=key, item=item.item, at=item.at, score=hit.score, features=hit.features)
        for key, hit in zip(keys, hits, strict=True)
        if (item := stored.get(key)) is not None
    ]
    return _surrounded(scopes, found, hits, stored) if beside else found


async def with_neighbours(
    place: Place,
    scopes: Sequence[Scope],
    policy: Retention,
    items: Sequence[RecalledItem],
    hits: Sequence[Hit],
) -> list[RecalledItem]:
    """The items that were chosen of the hits, with their neighbours."""
    chosen = {one.key for one in items}
    beside = _beside(scopes, [hit for hit in hits if item_key(scopes, hit.key) in chosen])
    if not beside:
        return list(items)
    stored = await _read(place, scopes, policy, beside, place.shared.store.entries)
    return _surrounded(scopes, items, hits, stored)


def _beside(scopes: Sequence[Scope], hits: Sequence[Hit]) -> list[ItemKey]:
    beside = (item_key(scopes, one) for hit in hits for one in (*hit.before, *hit.after))
    return list(dict.fromkeys(beside))


def _surrounded(
    scopes: Sequence[Scope],
    items: Sequence[RecalledItem],
    hits: Sequence[Hit],
    stored: Mapping[ItemKey, RecordedItem],
) -> list[RecalledItem]:
    """The items with their neighbours. A neighbour that is found itself, or stands beside an
    earlier one, is not repeated."""
    by_key = {item_key(scopes, hit.key): hit for hit in hits}
    shown = {one.key for one in items}
    found: list[RecalledItem] = []
    for one in items:
        hit = by_key[one.key]
        before = _fresh([item_key(scopes, key) for key in hit.before], stored, shown)
        after = _fresh([item_key(scopes, key) for key in hit.after], stored, shown)
        found.append(replace(one, before=before, after=after))
    return found


def _fresh(
    keys: Sequence[ItemKey], stored: Mapping[ItemKey, RecordedItem], shown: set[ItemKey]
) -> list[RecordedItem]:
    found = [stored[key] for key in keys if key in stored and key not in shown]
    shown.update(keys)
    return found


async def _read(
    place: Place,
    scopes: Sequence[Scope],
    policy: Retention,
    keys: Sequence[ItemKey],
    read: ReadEntries,
) -> dict[ItemKey, RecordedItem]:
    stored: dict[ItemKey, RecordedItem] = {}
    now = place.shared.clock.now()
    for scope in scopes:
        wanted = [EntryKey(*key[1:]) for key in keys if key.user_id == scope.name]
        if wanted:
            for entry in await read(scope, wanted):
                cutoff = policy.cutoff_us(entry.key.kind, now)
                if cutoff is None or entry.at_us >= cutoff:
                    stored[ItemKey(scope.name, *entry.key)] = decode_entry(scope.name, entry)
    return stored
