"""Forgetting a user, and sweeping what has run out: from the record and all that hangs on it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from secondcall import identity, telemetry
from secondcall.abc import EntryKey
from secondcall.errors import InvalidValue, SecondcallError
from secondcall.facts.sweep import sweep_facts
from secondcall.memory.attached import detached
from secondcall.memory.buffering import drop_summaries
from secondcall.memory.expiring import sweep_states
from secondcall.memory.extracted import REMOVED_MARK
from secondcall.memory.extracting import drop_extracted
from secondcall.memory.keeping import sweep_kept
from secondcall.memory.preferring import sweep_told
from secondcall.memory.recapped import forget_recaps
from secondcall.memory.recapping import recap_again
from secondcall.record.retain import expired_keys, read_policy, remove_items
from secondcall.types import ItemKey, Receipt

if TYPE_CHECKING:
    from secondcall.abc import Scope
    from secondcall.memory.shared import Place, Shared

__all__ = ["entry_key", "forget", "sweep"]

_log = logging.getLogger("secondcall")


async def forget(place: Place) -> Receipt:
    """Erase every partition of the person, merged ones first, and the identities that led there."""
    with telemetry.operation("forget", store=place.shared.scheme) as span:
        receipt = await _forget(place)
        span.set(removed=sum(receipt.removed.values()), complete=receipt.complete)
        return receipt


async def _forget(place: Place) -> Receipt:
    shared = place.shared
    place.standing = None
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
    remaining: Counter[str] = Counter()
    for scope in erasure.identities:
        await _erase_beside(shared, scope, removed, remaining)
    removed.update(await identity.release_identities(shared.store, erasure, now_us=shared.now_us()))
    for scope in erasure.users:
        # States apart go first: only the record still knows the epoch that a late save has.
        removed.update(await _erase_states(shared, scope))
        removed.update(await shared.store.erase(scope))
        shared.cache.drop(scope)
        shared.buffers.erased(scope)
        shared.meter.drop(scope)
        shared.extracting.forget(scope.tenant_id, scope.name)
        await _erase_beside(shared, scope, removed, remaining)
    physical = [await shared.store.finish_erasure()]
    if shared.states is not None and shared.states_apart:
        physical.append(await shared.states.finish_erasure())
    for scope in (*erasure.users, *erasure.identities):
        remaining.update(await shared.store.scan(scope))
    for scope in erasure.users:
        remaining.update(await _scan_states(shared, scope))
    left = {name: count for name, count in remaining.items() if count}
    return Receipt(
        user_id=place.user_id,
        removed=dict(removed),
        remaining=left,
        complete=all(one.complete for one in physical) and not left,
        detail="; ".join(one.detail for one in physical if one.detail),
    )


async def _erase_beside(
    shared: Shared, scope: Scope, removed: Counter[str], remaining: Counter[str]
) -> None:
    """Erase what others keep of the user; one that fails keeps the rest from nothing."""
    for (name, _), erase in list(shared.beside.items()):
        try:
            removed[name] += await erase(scope.tenant_id, scope.name)
        except (OSError, SecondcallError) as error:
            remaining[name] += 1
            _log.warning(
                "what is kept of a user beside the store could not be erased",
                extra={"kept_in": name, "error": type(error).__name__},
            )


async def _erase_states(shared: Shared, scope: Scope) -> Mapping[str, int]:
    if shared.states is None or not shared.states_apart:
        return {}
    header = await shared.store.header(scope)
    epoch = None if header is None else header.epoch
    return _apart(await shared.states.erase(scope.tenant_id, scope.name, epoch=epoch))


async def _scan_states(shared: Shared, scope: Scope) -> Mapping[str, int]:
    if shared.states is None or not shared.states_apart:
        return {}
    return _apart(await shared.states.scan(scope.tenant_id, scope.name))


def _apart(counts: Mapping[str, int]) -> Mapping[str, int]:
    """The places of a state store, told apart from those of the record."""
    return {f"state.{place}": count for place, count in counts.items()}


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
        total += await _remove(place, scope, keys, dry_run=dry_run, chosen=chosen is not None)
        if chosen is None:
            total += await _sweep_facts(place, scope, policy.cutoff_us("fact", now), now, dry_run)
            total += await _sweep_states(place, scope, policy.cutoff_us("state", now), dry_run)
            if not dry_run:
                await sweep_kept(place, scope)
                await sweep_told(place, scope)
                await shared.meter.sweep(scope)
    if total and not dry_run:
        await shared.store.finish_erasure()
        if chosen is None and shared.states is not None and shared.states_apart:
            await shared.states.finish_erasure()
    return total


async def _remove(
    place: Place, scope: Scope, keys: list[EntryKey], *, dry_run: bool, chosen: bool
) -> int:
    """Remove items; of those that were chosen also what a model found in nothing else. What has run
    out leaves such facts to their own retention."""
    if dry_run or not keys:
        return len(keys)
    shared = place.shared
    header = await shared.store.header(scope)
    if header is None:
        return 0
    await drop_summaries(place, scope, keys, removed=False)
    if chosen:
        await drop_extracted(place, scope, keys)
    attached = await detached(shared.store, scope, keys)
    removed = await remove_items(
        shared.store,
        scope,
        keys,
        epoch=header.epoch,
        now_us=shared.now_us(),
        derived=lambda page: [
            *forget_recaps(page),
            REMOVED_MARK,
            *(one for key in page for one in attached.get(key, ())),
        ],
    )
    recap_again(place, scope, keys)
    await drop_summaries(place, scope, keys, removed=True)
    if chosen:
        await drop_extracted(place, scope, keys)
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


async def _sweep_states(place: Place, scope: Scope, cutoff_us: int | None, dry_run: bool) -> int:
    header = await place.shared.store.header(scope)
    if header is None:
        return 0
    return await sweep_states(place, scope, header.epoch, cutoff_us=cutoff_us, dry_run=dry_run)


def entry_key(key: ItemKey) -> EntryKey:
    """An item's key within its partition. Raises: ``InvalidValue`` for anything else."""
    if not isinstance(key, tuple) or len(key) != len(ItemKey._fields):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
        raise InvalidValue("an item is named by its ItemKey: user_id, session_id, kind and id")
    return EntryKey(key.session_id, key.kind, key.id)
