"""Brings exported facts back as they were: with their ids, times, status and history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from secondcall.facts.chain import Changed, insert, key_of, order
from secondcall.facts.grounds import grounds_of
from secondcall.facts.read import joined
from secondcall.facts.write import Also, change_chain
from secondcall.types import Fact

if TYPE_CHECKING:
    from secondcall.abc import Epoch, Scope, Store

__all__ = ["restore"]


async def restore(
    store: Store, scope: Scope, facts: Sequence[Fact], *, epoch: Epoch, now_us: int
) -> int:
    """Add the facts whose ids are not there yet; how many there were.

    Into an empty chain they go as they are, unless they contradict each other: then what began
    later ends what held before. Into one that has a history they are sorted in by
    ``valid_from``, so that still one fact holds at a time.

    Raises: ``InvalidValue`` when a predicate has one value here and several there, or facts rest on
    each other in a circle; ``VersionConflict`` after thirty seconds of lost races, ``UserErased``,
    store errors.
    """
    chains: dict[str, list[Fact]] = defaultdict(list)
    for fact in facts:
        chains[key_of(fact)].append(replace(fact, to_confirm=None))
    resting = any(fact.rests_on for fact in facts)
    also_of = await grounds_of(store, scope, facts) if resting else None
    added = 0
    for chain in chains.values():
        chain.sort(key=order)
        also = None
        if also_of is not None and any(fact.rests_on for fact in chain):
            also = also_of(chain)
        added += await _restore_chain(store, scope, chain, also, epoch, now_us)
    return added


async def _restore_chain(
    store: Store,
    scope: Scope,
    facts: Sequence[Fact],
    also: Also | None,
    epoch: Epoch,
    now_us: int,
) -> int:
    added = 0

    def step(chain: Sequence[Fact], _multi: bool) -> Changed | Fact:
        nonlocal added
        known = {fact.id: fact for fact in chain}
        fresh = [fact for fact in facts if fact.id not in known]
        added = len(fresh)
        if not fresh:
            return facts[-1]
        if not chain:
            whole = joined(facts)
            return Changed(whole[-1], whole[-1], whole)
        changed: dict[str, Fact] = {}
        for fact in fresh:
            done = insert(known.values(), fact, keep_recorded=True)
            changed |= {one.id: one for one in done.facts}
            known |= changed
        head = max(known.values(), key=order)
        return Changed(head, head, list(changed.values()))

    first = facts[0]
    await change_chain(
        store,
        scope,
        first.subject,
        first.predicate,
        step,
        value=[first.value],
        multi=first.multi,
        also=also,
        epoch=epoch,
        now_us=now_us,
    )
    return added
