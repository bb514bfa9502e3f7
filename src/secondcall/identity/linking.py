"""Giving identities to a user and taking them back.

Order of a link: the user's intent to own it, the claim by save-if-absent, the confirmation. A crash
between two steps leaves an intent, which is harmless and which the next resolve completes.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from secondcall.abc import Store
from secondcall.checks import check_id, from_us
from secondcall.errors import InvalidValue, TooLarge, UserErased
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
from secondcall.identity.identifiers import Identifier, IdentityKind
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
    "settle",
    "take_all",
    "unlink",
    "verify",
]

MAX_LINKS = 256


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
    note = checked_note(actor, reason)
    work = Work(store=store, tenant_id=tenant_id, now_us=now_us, random=random)
    user_id = check_id("user_id", user_id)
    name = identifier.name
    for attempt in range(ATTEMPTS):
        person = await read_person(work, user_id)
        root = await root_of(work, person)
        if root.closed:
            raise UserErased(user_id)
        claim = await read_claim(work, name)
        if claim is not None and claim.released:
            await await_release(work, name)
            continue
        holder = await holder_of(work, name, claim)
        if holder is not None:
            owner = await root_of(work, holder)
            if owner.user_id != root.user_id:
                raise InvalidValue(
                    f"{identifier.masked} points to another user; unlink it there, or merge the two"
                )
            await settle(work, holder)
            if identifier.trust == "verified":
                await verify(work, holder.user_id, [name], note)
            return await _linked(work, holder.user_id, name)
        if len(root.links) >= MAX_LINKS and name not in root.links:
            raise TooLarge(
                f"user {user_id!r} has {len(root.links)} identities, at most {MAX_LINKS}"
            )
        won = await acquire(
            work,
            root.user_id,
            [Wanted(identifier=identifier, stale=claim)],
            note,
            create=not root.exists,
        )
        if name in won:
            return await _linked(work, root.user_id, name)
        await pause(attempt, random)
    raise busy()


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
    actor, reason = checked_note(actor, reason)
    work = Work(store=store, tenant_id=tenant_id, now_us=now_us, random=random)
    name = identity.name
    for person in await family_of(work, user_id):
        if name not in person.links:
            continue
        event = Event(
            action="unlinked",
            actor=actor,
            reason=reason,
            identity=person.links[name].masked,
            trust=person.links[name].trust,
        )

        def leaving(found: Person, event: Event = event) -> Change | None:
            held = found.links.get(name)
            if held is None or held.state == "leaving":
                return None
            left = found.with_link(name, replace(held, state="leaving"))
            return Change(person=left, events=(event,))

        changed = await change_person(work, person.user_id, leaving)
        await settle(work, changed)
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

    def intend(person: Person) -> Change | None:
        if person.closed:
            raise UserErased(user_id)
        intended = person
        for want in wanted:
            name = want.identifier.name
            if name not in intended.links and len(intended.links) < MAX_LINKS:
                intended = intended.with_link(name, intent(want.identifier, work.now_us))
        return Change(person=intended) if intended != person else None

    person = await change_person(work, user_id, intend, create=create)
    if any(
        person.links[want.identifier.name].state == "leaving"
        for want in wanted
        if want.identifier.name in person.links
    ):
        await settle(work, person)
    ready = [want for want in wanted if person.holds(want.identifier.name, person.epoch)]
    return await take_all(work, person, ready, note)


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
