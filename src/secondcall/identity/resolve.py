"""Who is calling: from several identifiers to one user.

The rules, which ``docs/identity.md`` explains:

1. The first identifier in order of trust that points to a user decides; where a verified one is
   given, only verified ones do. The caller is verified only if what decided is verified, and so is
   its link to the user. A claimed link counts as verified for a caller who proves the identifier
   if nobody else holds the user by another verified identity.
2. What points to somebody else is a conflict: reported, never merged, never moved.
3. What is unknown is linked to a verified caller: verified identifiers always, claimed ones, as
   claimed, unless there is a conflict. A claimed caller who is known gets nothing linked. A new
   user gets all identifiers that it came with, under the same rule on conflicts.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from secondcall.abc import Store
from secondcall.errors import UserErased
from secondcall.identity.claims import Claim, await_release, holder_of, read_claim, take_claim
from secondcall.identity.family import family_of, root_of
from secondcall.identity.identifiers import Identifier, in_order_of_trust
from secondcall.identity.linking import Wanted, acquire, intent, settle, take_all, verify
from secondcall.identity.person import (
    ATTEMPTS,
    Change,
    Person,
    Random,
    Where,
    Work,
    busy,
    pause,
    user_scope,
    write_person,
)
from secondcall.types import Caller, Trust

__all__ = ["resolve"]

_NOTE = ("secondcall", "resolved")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What one identifier points to: its claim, the user listing it, that user's canonical one.

    ``proved``: the caller proved it, and its link may be relied on as verified.
    """

    identifier: Identifier
    claim: Claim | None = None
    holder: Person | None = None
    root: Person | None = None
    proved: bool = False


async def resolve(
    store: Store,
    tenant_id: str,
    identifiers: Sequence[Identifier],
    *,
    now_us: int,
    random: Random = secrets.token_bytes,
) -> Caller:
    """The user that the identifiers point to, made now if there is none.

    Without identifiers the caller is anonymous, with a ``user_id`` for this call that is not
    stored. Called at once from many processes with the same identifiers, all get one user, and
    for exactly one of them ``known`` is false. ``conflicts`` are masked.

    Raises: ``StoreBusy`` when other writers won every time, or an identity is just being erased.
    """
    work = Work(store=store, tenant_id=tenant_id, now_us=now_us, random=random)
    ordered = in_order_of_trust(identifiers)
    if not ordered:
        user_id = f"anonymous_{_random_name(random)}"
        return Caller(user_id=user_id, trust="claimed", known=False, anonymous=True)
    for attempt in range(ATTEMPTS):
        try:
            found = await _look_up(work, ordered)
            decider = _decider(found)
            if decider.root is not None:
                return await _known(work, decider, decider.root, found)
            caller = await _new(work, decider, found)
        except UserErased:
            caller = None
        if caller is not None:
            return caller
        await pause(attempt, random)
    raise busy()


async def _look_up(work: Work, ordered: Sequence[Identifier]) -> list[_Found]:
    proved_names = frozenset(i.name for i in ordered if i.trust == "verified")
    found: list[_Found] = []
    for identifier in ordered:
        name = identifier.name
        claim = await read_claim(work, name)
        if claim is not None and claim.released:
            await await_release(work, name)
            claim = await read_claim(work, name)
        holder = await holder_of(work, name, claim)
        root = await root_of(work, holder) if holder else None
        if holder is None or root is None or not root.alive:
            found.append(_Found(identifier=identifier, claim=claim))
            continue
        proved = identifier.trust == "verified" and (
            holder.links[name].trust == "verified"
            or not await _held_by_others(work, root, proved_names)
        )
        found.append(
            _Found(identifier=identifier, claim=claim, holder=holder, root=root, proved=proved)
        )
    return found


async def _held_by_others(where: Where, root: Person, proved_names: frozenset[str]) -> bool:
    """Whether somebody may hold this user by a verified identity that was not proved now."""
    family = await family_of(where, root.user_id)
    return any(
        held.trust == "verified" and held.state != "leaving" and name not in proved_names
        for person in family
        for name, held in person.links.items()
    )


def _decider(found: Sequence[_Found]) -> _Found:
    """The identifier that decides, in the order of the rules; its ``root`` is ``None`` for a new
    user."""
    for one in found:
        if one.proved:
            return one
    # A proved identity that nobody holds is somebody new, whatever number the call came from.
    for one in found:
        if one.identifier.trust == "verified" and one.root is None:
            return one
    for one in found:
        if one.root is not None:
            return one
    return found[0]


async def _known(work: Work, decider: _Found, root: Person, found: Sequence[_Found]) -> Caller:
    trust: Trust = "verified" if decider.proved else "claimed"
    for person in {
        p.user_id: p for f in found if f.root and f.holder for p in (root, f.holder)
    }.values():
        if any(held.state != "linked" for held in person.links.values()):
            await settle(work, person)
    conflicts = _conflicts(found, root)
    if trust == "verified":
        await _upgrade(work, root, found)
        wanted = [
            Wanted(identifier=one.identifier, stale=one.claim)
            for one in found
            if one.root is None and (one.identifier.trust == "verified" or not conflicts)
        ]
        if wanted:
            won = await acquire(work, root.user_id, wanted, _NOTE)
            conflicts += await _lost(work, root, wanted, won)
    return Caller(user_id=root.user_id, trust=trust, known=True, conflicts=tuple(conflicts))


async def _new(work: Work, decider: _Found, found: Sequence[_Found]) -> Caller | None:
    """A new user who owns the identifiers; ``None`` if somebody was faster."""
    conflicts = _conflicts(found, None)
    wanted = [
        Wanted(identifier=one.identifier, stale=one.claim)
        for one in found
        if one.root is None
        and (one is decider or one.identifier.trust == "verified" or not conflicts)
    ]
    user_id = f"user_{_random_name(work.random)}"
    person = Person(
        user_id=user_id,
        epoch=work.random(16),
        exists=True,
        created=True,
        links={want.identifier.name: intent(want.identifier, work.now_us) for want in wanted},
    )
    person = await write_person(work, Change(person=person), create=True)
    name = decider.identifier.name
    if not await take_claim(work, name, person, replaces=decider.claim):
        # Nobody else ever saw this user: nothing points to it.
        await work.store.erase(user_scope(work.tenant_id, user_id))
        return None
    won = await take_all(
        work,
        person,
        wanted,
        _NOTE,
        taken=frozenset({name}),
    )
    conflicts += await _lost(work, person, wanted, won)
    return Caller(
        user_id=user_id, trust=decider.identifier.trust, known=False, conflicts=tuple(conflicts)
    )


async def _upgrade(work: Work, root: Person, found: Sequence[_Found]) -> None:
    """A proved identifier's claimed link becomes verified, with its user or beside a proved one."""
    for one in found:
        name = one.identifier.name
        if (
            one.identifier.trust == "verified"
            and one.holder is not None
            and one.root is not None
            and one.root.user_id == root.user_id
            and one.holder.links[name].trust == "claimed"
        ):
            await verify(work, one.holder.user_id, [name], _NOTE)


async def _lost(work: Work, root: Person, wanted: Sequence[Wanted], won: set[str]) -> list[str]:
    """Identifiers that somebody else took in the moment between looking and taking."""
    lost: list[str] = []
    for want in wanted:
        name = want.identifier.name
        if name in won:
            continue
        claim = await read_claim(work, name)
        holder = await holder_of(work, name, claim)
        owner = await root_of(work, holder) if holder else None
        if owner is not None and owner.user_id != root.user_id:
            lost.append(want.identifier.masked)
    return lost


def _conflicts(found: Sequence[_Found], root: Person | None) -> list[str]:
    return [
        one.identifier.masked
        for one in found
        if one.root is not None and (root is None or one.root.user_id != root.user_id)
    ]


def _random_name(random: Random) -> str:
    """130 random bits in 26 characters."""
    return base64.b32encode(random(17)).decode()[:26].lower()
