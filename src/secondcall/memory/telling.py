"""Facts of one user, told and changed: in the right partition, with what is sensitive marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from secondcall.errors import InvalidValue, UnknownName
from secondcall.facts import read
from secondcall.facts.supersede import mark_sensitive, retract, settle, supersede
from secondcall.types import Fact, FactStatus

if TYPE_CHECKING:
    from secondcall.abc import Epoch, Scope
    from secondcall.memory.shared import Place

__all__ = ["end", "move_on", "shown", "tell"]


async def tell(place: Place, fact: Fact) -> Fact:
    """Make the fact true from its beginning on; see ``UserMemory.remember``."""
    shared = place.shared
    place.look_again()
    await _mark_sources(place, fact)
    remembered = await supersede(
        shared.store,
        await place.home(),
        fact,
        epoch=await place.epoch(),
        now_us=shared.now_us(),
    )
    return _visible(place, remembered)


async def move_on(place: Place, predicate: str, status: FactStatus, subject: str) -> Fact:
    """Give the promise or issue that stands its next status; see ``UserMemory.settle``."""
    shared = place.shared
    scope, epoch = await _chain_place(place, predicate, subject)
    settled = await settle(
        shared.store,
        scope,
        predicate,
        status,
        subject=subject,
        at=shared.clock.now(),
        epoch=epoch,
        now_us=shared.now_us(),
    )
    return _visible(place, settled)


async def end(place: Place, predicate: str, subject: str) -> Fact:
    """End the fact that holds; see ``UserMemory.retract``."""
    shared = place.shared
    scope, epoch = await _chain_place(place, predicate, subject)
    retracted = await retract(
        shared.store,
        scope,
        predicate,
        subject=subject,
        at=shared.clock.now(),
        epoch=epoch,
        now_us=shared.now_us(),
    )
    return _visible(place, retracted)


async def shown(place: Place, facts: Sequence[Fact]) -> list[Fact]:
    """The facts that this caller may see and that have not run out."""
    oldest = await place.oldest_fact()
    return [
        fact
        for fact in facts
        if (place.trust == "verified" or not fact.sensitive)
        and (oldest is None or fact.recorded_at >= oldest)
    ]


async def _chain_place(place: Place, predicate: str, subject: str) -> tuple[Scope, Epoch]:
    """The partition where the fact stands, which after a merge may be any of them."""
    place.look_again()
    store = place.shared.store
    for scope in await place.scopes():
        header = await store.header(scope)
        if header is not None and await read.holds_now(store, scope, predicate, subject=subject):
            return scope, header.epoch
    raise UnknownName(f"no fact, promise or issue with predicate {predicate!r} stands")


async def _mark_sources(place: Place, fact: Fact) -> None:
    """Refuse sources of other users; list sensitive ones in each partition that holds some."""
    scopes = {scope.name: scope for scope in await place.scopes()}
    for index, source in enumerate(fact.sources):
        if source.user_id not in scopes:
            raise InvalidValue(f"sources[{index}] is an item of another user")
    if not fact.sensitive:
        return
    home, shared = await place.home(), place.shared
    for name in {source.user_id for source in fact.sources} - {home.name}:
        header = await shared.store.header(scopes[name])
        if header is not None:
            await mark_sensitive(
                shared.store, scopes[name], fact, epoch=header.epoch, now_us=shared.now_us()
            )


def _visible(place: Place, fact: Fact) -> Fact:
    """The fact without what a merely claimed caller may not see of it."""
    if place.trust == "verified" or not fact.sensitive:
        return fact
    return replace(fact, value=None, sources=(), metadata={})
