"""Giving identities to a user and taking them back.

Order of a link: the user's intent to own it, the claim by save-if-absent, the confirmation. A crash
between two steps leaves an intent, which is harmless and which the next resolve completes. Several
identities are intended in one write; those that were won are taken back if one is lost.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from secondcall.abc import Store
from secondcall.checks import check_id, from_us
from secondcall.errors import InvalidValue, StoreBusy, TooLarge, UserErased
from secondcall.identity.audit import Event, checked_note
from secondcall.identity.claims import (
    Claim,
    await_release,
    holder_of,
    read_claim,
    release_claim,
    take_claim,
)
from secondcall.identity.family import family_of, root_of
from secondcall.identity.identifiers import Identifier, IdentityKind, in_order_of_trust
from secondcall.identity.person import (
    ATTEMPTS,
    Change,
    Link,
    Person,
    Random,
    Where,
    Work,
    busy,
    change_person,
    pause,
    read_person,
)
from secondcall.types import Trust

__all__ = [
    "LinkedIdentity",
    "Wanted",
    "acquire",
    "identities_of",
    "intent",
    "link",
    "link_all",
    "settle",
    "take_all",
    "unlink",
    "verify",
]

MAX_LINKS = 256
_UNDONE = ("secondcall", "not all identities of one call could be linked")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedIdentity:
    """An identity that points to a user. ``masked`` holds its kind and what may be shown of it."""

    user_id: str
    kind: IdentityKind
    masked: str
    trust: Trust
    name: str
    linked_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """An identifier to be linked, and the claim found in its place that does not count."""

    identifier: Identifier
    stale: Claim | None = None


async def link(
    store: Store,
    tenant_id: str,
    user_id: str,
    identifier: Identifier,
    *,
    now_us: int,
    actor: str = "host",
    reason: str = "",
    random: Random = secrets.token_bytes,
) -> LinkedIdentity:
    """Make an identity point to a user, on the host's word; durable when it returns.

    It goes to the canonical user. Repeating it changes nothing; with a verified identifier it makes
    the link verified. A user who has no partition yet gets one.

    Raises: ``InvalidValue`` when it points to another user; ``TooLarge`` over 256 identities;
    ``UserErased`` while the user is being erased; ``StoreBusy``.
    """
    (linked,) = await link_all(
        store,
        tenant_id,
        user_id,
        [identifier],
        now_us=now_us,
        actor=actor,
        reason=reason,
        random=random,
    )
    return linked


async def link_all(
    store: Store,
    tenant_id: str,
    user_id: str,
    identifiers: Collection[Identifier],
    *,
    now_us: int,
    actor: str = "host",
    reason: str = "",
    random: Random = secrets.token_bytes,
) -> list[LinkedIdentity]:
    """Make all of these identities point to a user as ``link`` does, or none; in order of trust.

    All are checked before anything is written, so a refusal writes nothing and makes no user. If
    one is taken meanwhile, those that this call linked are unlinked, with entries in the trail;
    the user's partition, if the call made it, stays. A call that dies half-way is completed by the
    next resolve, or by repeating it.

    Raises: ``InvalidValue`` when one points to another user; ``TooLarge`` over 256 identities;
    ``UserErased`` while the user is being erased; ``StoreBusy``.
    """
    note = checked_note(actor, reason)
    work = Work(store=store, tenant_id=tenant_id, now_us=now_us, random=random)
    user_id = check_id("user_id", user_id)
    ordered = in_order_of_trust(identifiers)
    added: dict[str, set[str]] = {}
    try:
        for attempt in range(ATTEMPTS):
            found = await _standing(work, user_id, ordered)
            root = found.root
            if not found.free:
                return [await _settled(work, found.holders[i.name], i, note) for i in ordered]
            person, intended = await _intend(work, root.user_id, found.free, create=not root.exists)
            mine = added.setdefault(root.user_id, set())
            mine |= intended
            won = await _take_intended(work, person, found.free, note)
            mine -= intended - won
            if len(won) < len(found.free):
                await pause(attempt, random)
        raise busy()
    except (InvalidValue, StoreBusy):
        await _undo(work, added)
        raise


async def unlink(
    store: Store,
    tenant_id: str,
    user_id: str,
    identity: Identifier | LinkedIdentity,
    *,
    now_us: int,
    actor: str = "host",
    reason: str = "",
    random: Random = secrets.token_bytes,
) -> bool:
    """Take an identity from a user and erase its partition; ``False`` if it was not the user's.

    What was remembered stays with the user. Whoever comes with the identity next is a new user.
    """
    note = checked_note(actor, reason)
    work = Work(store=store, tenant_id=tenant_id, now_us=now_us, random=random)
    name = identity.name
    for person in await family_of(work, user_id):
        if name not in person.links:
            continue
        await _leave(work, person.user_id, name, note)
        return True
    return False


async def identities_of(store: Store, tenant_id: str, user_id: str) -> Sequence[LinkedIdentity]:
    """The identities that point to a user or to anybody merged with it, oldest first."""
    where = Where(store=store, tenant_id=tenant_id)
    found = [
        _shown(person.user_id, name, held)
        for person in await family_of(where, user_id)
        for name, held in person.links.items()
        if held.state != "leaving"
    ]
    return sorted(found, key=lambda identity: (identity.linked_at, identity.name))


def intent(identifier: Identifier, now_us: int) -> Link:
    """The entry of an identity that is about to be claimed."""
    return Link(
        kind=identifier.kind,
        masked=identifier.masked,
        trust=identifier.trust,
        state="intended",
        at_us=now_us,
    )


async def acquire(
    work: Work,
    user_id: str,
    wanted: Sequence[Wanted],
    note: tuple[str, str],
    *,
    create: bool = False,
) -> set[str]:
    """Link what is still free, as far as there is room; the partition names that were won.

    Raises: ``UserErased``, ``StoreBusy``.
    """
    person, _ = await _intend(work, user_id, wanted, create=create)
    return await _take_intended(work, person, wanted, note)


async def take_all(
    work: Work,
    person: Person,
    wanted: Sequence[Wanted],
    note: tuple[str, str],
    *,
    taken: frozenset[str] = frozenset(),
) -> set[str]:
    """Claim what the person intends to own, then confirm it; the partition names that were won.

    ``taken`` are names claimed already. Raises: ``UserErased`` when the person went meanwhile.
    """
    won = set(taken)
    for want in wanted:
        name = want.identifier.name
        if name not in won and await take_claim(work, name, person, replaces=want.stale):
            won.add(name)
    entries = {want.identifier.name: intent(want.identifier, work.now_us) for want in wanted}
    try:
        await _confirm(work, person, entries, won, note)
    except UserErased:
        for name in won:
            await release_claim(work, name, user_id=person.user_id, epoch=person.epoch)
        raise
    return won


async def settle(work: Work, person: Person) -> None:
    """Complete what a crash, or a writer still at work, left between two steps."""
    open_links = {name: held for name, held in person.links.items() if held.state != "linked"}
    won: set[str] = set()
    for name, held in open_links.items():
        if held.state == "leaving":
            await release_claim(work, name, user_id=person.user_id, epoch=person.epoch)
        elif await _complete(work, person, name):
            won.add(name)
    if open_links:
        await _confirm(
            work,
            person,
            open_links,
            won,
            ("secondcall", ""),
        )


async def verify(work: Work, user_id: str, names: Sequence[str], note: tuple[str, str]) -> None:
    """Make claimed links of a user verified."""
    actor, reason = note

    def verified(person: Person) -> Change | None:
        events: list[Event] = []
        for name in names:
            held = person.links.get(name)
            if held is None or held.trust == "verified" or held.state == "leaving":
                continue
            person = person.with_link(name, replace(held, trust="verified"))
            events.append(
                Event(
                    action="verified",
                    actor=actor,
                    reason=reason,
                    identity=held.masked,
                    trust="verified",
                )
            )
        return Change(person=person, events=tuple(events)) if events else None

    await change_person(work, user_id, verified)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Standing:
    """The canonical user, who of its family holds which name, and what nobody holds."""

    root: Person
    holders: Mapping[str, Person]
    free: Sequence[Wanted]


async def _standing(work: Work, user_id: str, identifiers: Sequence[Identifier]) -> _Standing:
    """What has to be done to link them, if it may be done."""
    root = await root_of(work, await read_person(work, user_id))
    if root.closed:
        raise UserErased(user_id)
    holders: dict[str, Person] = {}
    free: list[Wanted] = []
    taken: list[str] = []
    for identifier in identifiers:
        name = identifier.name
        claim = await read_claim(work, name)
        if claim is not None and claim.released:
            await await_release(work, name)
            claim = await read_claim(work, name)
        holder = await holder_of(work, name, claim)
        if holder is None:
            free.append(Wanted(identifier=identifier, stale=claim))
        elif (await root_of(work, holder)).user_id != root.user_id:
            taken.append(identifier.masked)
        else:
            holders[name] = holder
    if taken:
        point = "points" if len(taken) == 1 else "point"
        raise InvalidValue(
            f"{' and '.join(taken)} {point} to another user; unlink it there, or merge the two"
        )
    more = sum(want.identifier.name not in root.links for want in free)
    if more and len(root.links) + more > MAX_LINKS:
        raise TooLarge(
            f"user {user_id!r} has {len(root.links)} identities and would get {more} more, "
            f"at most {MAX_LINKS}"
        )
    return _Standing(root=root, holders=holders, free=free)


async def _settled(
    work: Work, holder: Person, identifier: Identifier, note: tuple[str, str]
) -> LinkedIdentity:
    """A link that is held already, confirmed and as verified as the identifier."""
    await settle(work, holder)
    if identifier.trust == "verified":
        await verify(work, holder.user_id, [identifier.name], note)
    return await _linked(work, holder.user_id, identifier.name)


async def _intend(
    work: Work, user_id: str, wanted: Sequence[Wanted], *, create: bool
) -> tuple[Person, frozenset[str]]:
    """Write down what the user is about to own, as far as there is room, in one step.

    The document as it now stands, and the names that were not in there before.
    """
    added: frozenset[str] = frozenset()

    def intend(person: Person) -> Change | None:
        nonlocal added
        if person.closed:
            raise UserErased(user_id)
        intended = person
        for want in wanted:
            name = want.identifier.name
            if name not in intended.links and len(intended.links) < MAX_LINKS:
                intended = intended.with_link(name, intent(want.identifier, work.now_us))
        added = frozenset(intended.links.keys() - person.links.keys())
        return Change(person=intended) if intended != person else None

    return await change_person(work, user_id, intend, create=create), added


async def _take_intended(
    work: Work, person: Person, wanted: Sequence[Wanted], note: tuple[str, str]
) -> set[str]:
    if any(
        person.links[want.identifier.name].state == "leaving"
        for want in wanted
        if want.identifier.name in person.links
    ):
        await settle(work, person)
    ready = [want for want in wanted if person.holds(want.identifier.name, person.epoch)]
    return await take_all(work, person, ready, note)


async def _undo(work: Work, added: Mapping[str, Collection[str]]) -> None:
    for user_id, names in added.items():
        with suppress(UserErased):
            for name in sorted(names):
                await _leave(work, user_id, name, _UNDONE)


async def _leave(work: Work, user_id: str, name: str, note: tuple[str, str]) -> None:
    """Take a link out of a user's own document, then its claim away."""
    actor, reason = note

    def leaving(found: Person) -> Change | None:
        held = found.links.get(name)
        if held is None or held.state == "leaving":
            return None
        event = Event(
            action="unlinked",
            actor=actor,
            reason=reason,
            identity=held.masked,
            trust=held.trust,
        )
        left = found.with_link(name, replace(held, state="leaving"))
        return Change(person=left, events=(event,))

    await settle(work, await change_person(work, user_id, leaving))


async def _complete(work: Work, person: Person, name: str) -> bool:
    claim = await read_claim(work, name)
    if claim is not None and claim.released:
        return False
    holder = await holder_of(work, name, claim)
    if holder is not None:
        return holder.user_id == person.user_id
    return await take_claim(work, name, person, replaces=claim)


async def _confirm(
    work: Work, person: Person, entries: dict[str, Link], won: set[str], note: tuple[str, str]
) -> None:
    """Mark what was won as linked, take out what was lost or has left."""
    actor, reason = note

    def confirmed(found: Person) -> Change | None:
        if found.closed or found.epoch != person.epoch:
            raise UserErased(person.user_id)
        changed = replace(found, created=False)
        events: list[Event] = []
        for name, entry in entries.items():
            held = found.links.get(name)
            if name not in won:
                if held is not None and held.state == entry.state:
                    changed = changed.with_link(name, None)
                continue
            if held is not None and held.state != "intended":
                continue
            linked = replace(held or entry, state="linked")
            changed = changed.with_link(name, linked)
            events.append(
                Event(
                    action="linked",
                    actor=actor,
                    reason=reason,
                    identity=linked.masked,
                    trust=linked.trust,
                )
            )
        return Change(person=changed, events=tuple(events)) if changed != found else None

    await change_person(work, person.user_id, confirmed)


async def _linked(where: Where, user_id: str, name: str) -> LinkedIdentity:
    person = await read_person(where, user_id)
    held = person.links.get(name)
    if held is None:
        raise UserErased(user_id)
    return _shown(user_id, name, held)


def _shown(user_id: str, name: str, held: Link) -> LinkedIdentity:
    return LinkedIdentity(
        user_id=user_id,
        kind=held.kind,
        masked=held.masked,
        trust=held.trust,
        name=name,
        linked_at=from_us(held.at_us),
    )
