"""Facts of one user, told and changed: in the right partition, with what is sensitive marked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from secondcall import telemetry
from secondcall.checks import from_us, to_us
from secondcall.errors import InvalidValue, UnknownName
from secondcall.facts import read
from secondcall.facts.chain import at_or_next, predicate_key, same_value
from secondcall.facts.grounds import check_grounds, listed, lock_of
from secondcall.facts.moved import is_moved, is_withheld
from secondcall.facts.rests import causes_of, marked
from secondcall.facts.supersede import confirm, mark_sensitive, retract, settle, supersede
from secondcall.types import Fact, FactKind, FactStatus, ItemKey, JsonValue

if TYPE_CHECKING:
    from secondcall.abc import DocumentWrite, Scope
    from secondcall.facts.write import Also
    from secondcall.memory.shared import Place

__all__ = ["end", "held", "ids_of", "may_see", "move_on", "past", "shown", "tell"]


def ids_of(facts: Sequence[Fact | str] | None) -> tuple[str, ...]:
    """The ids of facts that are given as facts or by id. Raises: ``InvalidValue``."""
    if facts is None:
        return ()
    if isinstance(facts, str | Fact) or not isinstance(facts, Collection):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
        raise InvalidValue("rests_on must be a list of facts or of their ids")
    names = [one.id if isinstance(one, Fact) else one for one in facts]
    return tuple(dict.fromkeys(names))


async def tell(
    place: Place,
    fact: Fact,
    *,
    multi: bool | None = None,
    keeps_rests_on: bool = True,
    also: Also | None = None,
) -> Fact:
    """Make the fact true from its beginning on; see ``UserMemory.remember``. ``also`` is checked
    and written with it, if it rests on no other and does not stand already."""
    shared = place.shared
    with telemetry.operation("remember", store=shared.scheme) as span:
        span.set(kind=fact.kind)
        place.look_again()
        await _mark_sources(place, fact)
        home = await place.home()
        elsewhere = await _elsewhere(place, fact)
        if multi is None and any(one.multi for one in elsewhere):
            multi = await _multi_elsewhere(place, fact)
        remembered = await supersede(
            shared.store,
            home,
            fact,
            multi=multi,
            keeps_rests_on=keeps_rests_on,
            elsewhere=elsewhere,
            also=partial(_grounds, place, fact, multi) if fact.rests_on else also,
            epoch=await place.epoch(),
            now_us=shared.now_us(),
        )
        if remembered.rests_on:
            remembered = await _confirmed(place, remembered, fact, keeps_rests_on=keeps_rests_on)
    if remembered.sensitive:
        await shared.buffers.facts_changed(await place.scopes())
    return await _visible(place, remembered)


async def move_on(
    place: Place,
    predicate: str,
    status: FactStatus,
    subject: str,
    *,
    value: JsonValue = None,
    at: datetime | None = None,
) -> Fact:
    """Give the promise or issue that stands its next status; see ``UserMemory.settle``."""
    meant = _meant(place, predicate, subject, value, at)
    change = partial(settle, place.shared.store, status=status, now_us=place.shared.now_us())
    return await _visible(place, await _where_it_stands(place, meant, change))


async def end(
    place: Place,
    predicate: str,
    subject: str,
    *,
    value: JsonValue = None,
    at: datetime | None = None,
) -> Fact:
    """End the fact that holds; see ``UserMemory.retract``."""
    meant = _meant(place, predicate, subject, value, at)
    change = partial(retract, place.shared.store, now_us=place.shared.now_us())
    return await _visible(place, await _where_it_stands(place, meant, change))


async def held(
    place: Place,
    *,
    as_of: datetime | None,
    believed_at: datetime | None,
    kinds: Collection[FactKind] | None,
) -> list[Fact]:
    """What is or was true; see ``UserMemory.facts``."""
    shared = place.shared
    place.look_again()
    believed = None if believed_at is None else from_us(to_us("believed_at", believed_at))
    moment = believed if as_of is None else from_us(to_us("as_of", as_of))
    visible = await may_see(place)
    found = await read.facts_at(
        shared.store,
        await place.scopes(),
        shared.clock.now() if moment is None else moment,
        believed_at=believed,
        kinds=kinds,
        shown=visible,
    )
    return [fact for fact in found if visible(fact)]


async def past(place: Place, predicate: str | None, subject: str) -> list[Fact]:
    """Every fact of one predicate, or of all; see ``UserMemory.history``."""
    place.look_again()
    store, scopes = place.shared.store, await place.scopes()
    if predicate is None:
        found = pool = await read.all_facts(store, scopes)
    else:
        found = await read.history(store, scopes, predicate, subject=subject)
        pool = await read.with_grounds(store, scopes, found)
    if len(scopes) > 1:
        found = read.joined(found)
    visible = await may_see(place)
    causes = causes_of(pool, place.shared.clock.now())
    return [fact for fact in marked(found, causes, visible) if visible(fact)]


async def shown(place: Place, facts: Sequence[Fact]) -> list[Fact]:
    """The facts that this caller may see and that have not run out."""
    visible = await may_see(place)
    return [fact for fact in facts if visible(fact)]


async def may_see(place: Place) -> Callable[[Fact], bool]:
    """Whether this caller may see a fact, and whether it has not run out."""
    oldest = await place.oldest_fact()
    verified = place.trust == "verified"
    hidden = frozenset[ItemKey]() if verified else await place.sensitive_items()

    def visible(fact: Fact) -> bool:
        shown = verified or not is_withheld(fact, hidden)
        return shown and (oldest is None or fact.recorded_at >= oldest)

    return visible


@dataclass(frozen=True, slots=True, kw_only=True)
class _Meant:
    """The fact that is to be changed: of several values the one in ``value``, ``at`` a time."""

    predicate: str
    subject: str
    value: Sequence[JsonValue]
    at: datetime
    recorded: datetime


def _meant(
    place: Place, predicate: str, subject: str, value: JsonValue, at: datetime | None
) -> _Meant:
    now = place.shared.clock.now()
    return _Meant(
        predicate=predicate,
        subject=subject,
        value=() if value is None else (value,),
        at=now if at is None else from_us(to_us("at", at)),
        recorded=now,
    )


async def _where_it_stands(
    place: Place, meant: _Meant, change: Callable[..., Coroutine[Any, Any, Fact]]
) -> Fact:
    """Make the change in the partition where the fact stands, which after a merge may be any."""
    place.look_again()
    store = place.shared.store
    for scope in await _nearest_first(place, meant):
        header = await store.header(scope)
        if header is None:
            continue
        try:
            return await change(
                scope,
                predicate=meant.predicate,
                subject=meant.subject,
                value=meant.value,
                at=meant.at,
                recorded=meant.recorded,
                epoch=header.epoch,
            )
        except UnknownName:
            continue
    raise UnknownName(f"no fact, promise or issue with predicate {meant.predicate!r} stands")


async def _nearest_first(place: Place, meant: _Meant) -> list[Scope]:
    """The partitions, that first whose fact holds when all are read as one."""
    scopes = await place.scopes()
    if len(scopes) == 1:
        return [*scopes]
    by_id: dict[str, Scope] = {}
    found: list[Fact] = []
    for scope in scopes:
        told = await read.history(
            place.shared.store, [scope], meant.predicate, subject=meant.subject
        )
        if meant.value:
            told = [one for one in told if same_value(one, replace(one, value=meant.value[0]))]
        by_id |= {one.id: scope for one in told}
        found.extend(told)
    standing = at_or_next(read.joined(found), meant.at)
    first = [] if standing is None else [by_id[standing.id]]
    return [*first, *(scope for scope in scopes if scope not in first)]


async def _elsewhere(place: Place, fact: Fact) -> list[Fact]:
    """What the partitions that were merged into this one say of the fact's predicate."""
    others = (await place.scopes())[1:]
    if not others:
        return []
    return await read.history(place.shared.store, others, fact.predicate, subject=fact.subject)


async def _multi_elsewhere(place: Place, fact: Fact) -> bool | None:
    """That a predicate has several values, as in a partition merged into it, if it is new here."""
    key = predicate_key(fact.subject, fact.predicate)
    here = await place.shared.store.document(await place.home(), "fact", key)
    return True if here is None else None


async def _grounds(place: Place, fact: Fact, multi: bool | None) -> Sequence[DocumentWrite]:
    """Check what the fact rests on against all facts as they are now; what is written with it."""
    store, scopes = place.shared.store, await place.scopes()
    lock = await lock_of(store, scopes[0])
    facts = await read.all_facts(store, scopes)
    if multi is None:
        key = predicate_key(fact.subject, fact.predicate)
        multi = any(one.multi and predicate_key(one.subject, one.predicate) == key for one in facts)
    check_grounds(facts, replace(fact, multi=multi))
    return [lock, *listed({one.id: one for one in facts}, fact.rests_on)]


async def _confirmed(place: Place, remembered: Fact, told: Fact, *, keeps_rests_on: bool) -> Fact:
    """The fact with why it is to be confirmed; told anew without saying what it rests on, it is."""
    store, scopes = place.shared.store, await place.scopes()
    now = place.shared.clock.now()
    pool = await read.with_grounds(store, scopes, [remembered])
    causes = causes_of(pool, now)
    if remembered.id not in causes:
        return remembered
    if remembered.id == told.id or not keeps_rests_on:
        return marked([remembered], causes, await may_see(place))[0]
    return await confirm(
        store,
        scopes[0],
        remembered,
        [cause.name for cause in causes[remembered.id]],
        at=now,
        epoch=await place.epoch(),
        now_us=place.shared.now_us(),
    )


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


async def _visible(place: Place, fact: Fact) -> Fact:
    """The fact without what a merely claimed caller may not see of it."""
    if place.trust == "verified":
        return fact
    hidden = await place.sensitive_items() if is_moved(fact) else frozenset[ItemKey]()
    if not is_withheld(fact, hidden):
        return fact
    return replace(fact, value=None, sources=(), metadata={}, earlier=(), to_confirm=None)
