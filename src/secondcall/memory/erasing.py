"""Forgetting a user, and sweeping what has run out: from the record and all that hangs on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from secondcall import identity
from secondcall.errors import InvalidValue
from secondcall.facts.sweep import sweep_facts
from secondcall.record.retain import expired_keys, read_policy, remove_items
from secondcall.types import Receipt

if TYPE_CHECKING:
    from secondcall.abc import EntryKey, Scope
    from secondcall.memory.shared import Place

__all__ = ["forget", "sweep"]


async def forget(place: Place) -> Receipt:
    """Erase every partition of the person, merged ones first, and the identities that led there."""
    shared = place.shared
    place.look_again()
    for scope in await place.scopes():
        policy = await read_policy(shared.store, scope, shared.retention)
        if policy.hold:
            raise InvalidValue(
                f"user {place.user_id!r} is under a legal hold; lift it with user.hold(False) first"
            )
    erasure = await identity.begin_erasure(
        shared.store, place.tenant_id, place.user_id, now_us=shared.now_us()
    )
    removed: Counter[str] = Counter()
    removed.update(await identity.release_identities(shared.store, erasure, now_us=shared.now_us()))
    for scope in erasure.users:
        removed.update(await shared.store.erase(scope))
        shared.cache.drop(scope)
    physical = await shared.store.finish_erasure()
    remaining: Counter[str] = Counter()
    for scope in (*erasure.users, *erasure.identities):
        remaining.update(await shared.store.scan(scope))
    left = {name: count for name, count in remaining.items() if count}
    return Receipt(
        user_id=place.user_id,
        removed=dict(removed),
        remaining=left,
        complete=physical.complete and not left,
        detail=physical.detail,
    )


async def sweep(
    place: Place, chosen: Mapping[Scope, Sequence[EntryKey]] | None, *, dry_run: bool
) -> int:
    """Remove the ``chosen`` items, or with ``None`` whatever has run out; how many things went.

    Raises: ``InvalidValue`` when items are chosen and the user is under a legal hold.
    """
    shared = place.shared
    now = shared.clock.now()
    total = 0
    scopes = await place.scopes()
    held = [(await read_policy(shared.store, one, shared.retention)).hold for one in scopes]
    if any(held):
        if chosen is None:
            return 0
        raise InvalidValue(
            f"user {place.user_id!r} is under a legal hold; lift it with user.hold(False) first"
        )
    policy = await place.retention()
    for scope in scopes if chosen is None else chosen:
        if chosen is None:
            keys = await expired_keys(shared.store, scope, policy, now)
        else:
            keys = list(chosen[scope])
        total += await _remove(place, scope, keys, dry_run=dry_run)
        if chosen is None:
            total += await _sweep_facts(place, scope, policy.cutoff_us("fact", now), now, dry_run)
    if total and not dry_run:
        await shared.store.finish_erasure()
    return total


async def _remove(place: Place, scope: Scope, keys: list[EntryKey], *, dry_run: bool) -> int:
    if dry_run or not keys:
        return len(keys)
    shared = place.shared
    header = await shared.store.header(scope)
    if header is None:
        return 0
    removed = await remove_items(
        shared.store, scope, keys, epoch=header.epoch, now_us=shared.now_us()
    )
    await shared.sealer.purge(scope, header.epoch, frozenset(keys))
    return removed


async def _sweep_facts(
    place: Place, scope: Scope, cutoff_us: int | None, now: datetime, dry_run: bool
) -> int:
    header = await place.shared.store.header(scope)
    if cutoff_us is None or header is None:
        return 0
    return await sweep_facts(
        place.shared.store,
        scope,
        cutoff_us=cutoff_us,
        epoch=header.epoch,
        now_us=place.shared.now_us(),
        dry_run=dry_run,
    )
