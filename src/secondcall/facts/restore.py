"""Brings exported facts back as they were: with their ids, times, status and history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from secondcall.facts.chain import chain_key, insert, order
from secondcall.facts.supersede import change_chain
from secondcall.types import Fact

if TYPE_CHECKING:
    from secondcall.abc import Epoch, Scope, Store

__all__ = ["restore"]


async def restore(
    store: Store, scope: Scope, facts: Sequence[Fact], *, epoch: Epoch, now_us: int
) -> int:
    """Add the facts whose ids are not there yet; how many there were.

    Into an empty chain they go as they are. Into one that has a history they are sorted in by
    ``valid_from``, so that still one fact holds at a time.

    Raises: ``VersionConflict`` after twenty lost races, ``UserErased``, store errors.
    """
    chains: dict[str, list[Fact]] = defaultdict(list)
    for fact in facts:
        chains[chain_key(fact.subject, fact.predicate)].append(fact)
    added = 0
    for chain in chains.values():
        added += await _restore_chain(store, scope, sorted(chain, key=order), epoch, now_us)
    return added


async def _restore_chain(
    store: Store, scope: Scope, facts: Sequence[Fact], epoch: Epoch, now_us: int
) -> int:
    added = 0

    def step(head: Fact | None, ended: Sequence[Fact]) -> tuple[Fact, Fact, Sequence[Fact]]:
        nonlocal added
        known = {fact.id: fact for fact in (*ended, *([] if head is None else [head]))}
        fresh = [fact for fact in facts if fact.id not in known]
        added = len(fresh)
        if head is None:
            return facts[-1], facts[-1], facts
        changed: dict[str, Fact] = {}
        for fact in fresh:
            head, moved = insert(known.values(), fact, keep_recorded=True)
            changed |= {one.id: one for one in moved}
            known |= changed
        return head, known[head.id], list(changed.values())

    await change_chain(store, scope, facts[0].subject, facts[0].predicate, step, epoch, now_us)
    return added
