"""What ``forget`` needs of the identities: what to erase, in which order, and the sweep.

First every document of the person is closed, so that no link and no merge can slip in behind; then
the identity partitions go, then the merged users, the canonical one last. Until that is gone the
whole is listed in it, and an erasure that was interrupted is done again from the start.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from secondcall.abc import Epoch, Scope, Store
from secondcall.errors import UserErased
from secondcall.identity.claims import (
    await_release,
    holder_of,
    identity_scope,
    read_claim,
    release_claim,
)
from secondcall.identity.family import is_child, root_of
from secondcall.identity.linking import settle
from secondcall.identity.merge import prune_merges
from secondcall.identity.person import (
    Change,
    Person,
    Random,
    Where,
    Work,
    change_person,
    read_person,
    user_scope,
)

__all__ = ["Erasure", "Swept", "begin_erasure", "release_identities", "sweep"]

_PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedIdentity:
    """An identity partition and the user, under one epoch, that it must point to."""

    scope: Scope
    user_id: str
    epoch: Epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """Everything of one person. ``users`` are erased in this order, ``canonical`` the last."""

    canonical: str
    users: Sequence[Scope]
    owned: Sequence[OwnedIdentity]

    @property
    def identities(self) -> Sequence[Scope]:
        """The identity partitions."""
        return [owned.scope for owned in self.owned]


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What a sweep removed, and what it found that only ``forget`` can finish.

    ``users`` that never came to be, ``identities`` whose user is gone. ``unfinished`` are the ids
    of users whose erasure was interrupted: forget them again.
    """

    users: int
    identities: int
    unfinished: Sequence[str] = ()


async def begin_erasure(
    store: Store, tenant_id: str, user_id: str, *, now_us: int, random: Random = secrets.token_bytes
) -> Erasure:
    """Close the user with everybody merged with it and list their partitions.

    From here on no identity leads to them. A user without a partition is listed alone. Repeating
    it, also after a crash, goes on where it stopped.
    """
    work = Work(store=store, tenant_id=tenant_id, now_us=now_us, random=random)
    person = await read_person(work, user_id)
    root = await root_of(work, person)
    family: list[Person] = []
    waiting = [root]
    while waiting:
        # Who is listed in a closed document is final: a merge writes it before it takes effect.
        closed = await _close(
            work,
            waiting.pop(0),
        )
        family.append(closed)
        for child_id in closed.merged:
            child = await read_person(work, child_id)
            if is_child(child, closed):
                waiting.append(child)
    return Erasure(
        canonical=root.user_id,
        users=[user_scope(tenant_id, member.user_id) for member in reversed(family)],
        owned=[
            OwnedIdentity(
                scope=identity_scope(tenant_id, name), user_id=member.user_id, epoch=member.epoch
            )
            for member in family
            for name in member.links
        ],
    )


async def release_identities(
    store: Store, erasure: Erasure, *, now_us: int, random: Random = secrets.token_bytes
) -> Mapping[str, int]:
    """Erase the identity partitions that still point to the person; rows gone, by place.

    Do it before the users are erased, since they hold the list.
    """
    removed: Counter[str] = Counter()
    for owned in erasure.owned:
        work = Work(store=store, tenant_id=owned.scope.tenant_id, now_us=now_us, random=random)
        removed.update(
            await release_claim(work, owned.scope.name, user_id=owned.user_id, epoch=owned.epoch)
        )
    return removed


async def sweep(
    store: Store,
    tenant_id: str,
    *,
    now_us: int,
    older_than_us: int = 3_600_000_000,
    random: Random = secrets.token_bytes,
) -> Swept:
    """Put right what crashes left behind: steps half done, users and claims that lead nowhere.

    It pages through all partitions of the tenant and removes nothing younger than
    ``older_than_us``.
    """
    work = Work(store=store, tenant_id=tenant_id, now_us=now_us, random=random)
    before_us = now_us - older_than_us
    users = identities = 0
    unfinished: list[str] = []
    after = ""
    while scopes := await store.scopes(tenant_id, "user", after=after, limit=_PAGE):
        after = scopes[-1].name
        for scope in scopes:
            person = await read_person(work, scope.name)
            if person.closed:
                unfinished.append(scope.name)
            elif not person.created or await _owns_a_claim(work, person):
                await _tend(work, person)
            elif all(held.at_us <= before_us for held in person.links.values()):
                await _erase_unborn(work, scope)
                users += 1
    after = ""
    while scopes := await store.scopes(tenant_id, "identity", after=after, limit=_PAGE):
        after = scopes[-1].name
        for scope in scopes:
            identities += await _sweep_claim(work, scope, before_us)
    return Swept(users=users, identities=identities, unfinished=unfinished)


async def _close(work: Work, person: Person) -> Person:
    if not person.exists:
        return person

    def closed(found: Person) -> Change | None:
        return None if found.closed else Change(person=replace(found, closed=True))

    try:
        return await change_person(work, person.user_id, closed)
    except UserErased:
        return person


async def _owns_a_claim(where: Where, person: Person) -> bool:
    for name in person.links:
        claim = await read_claim(where, name)
        if claim is not None and claim.is_of(person.user_id, person.epoch):
            return True
    return False


async def _erase_unborn(work: Work, scope: Scope) -> None:
    erasure = await begin_erasure(
        work.store, scope.tenant_id, scope.name, now_us=work.now_us, random=work.random
    )
    await release_identities(work.store, erasure, now_us=work.now_us, random=work.random)
    await work.store.erase(scope)


async def _tend(work: Work, person: Person) -> None:
    """Complete the links and merges of a living user; who is at work on them is not disturbed."""
    try:
        if any(held.state != "linked" for held in person.links.values()):
            await settle(work, person)
        if any(child.state != "merged" for child in person.merged.values()):
            await prune_merges(work, person)
    except UserErased:
        return  # It was erased meanwhile.


async def _sweep_claim(work: Work, scope: Scope, before_us: int) -> bool:
    claim = await read_claim(work, scope.name)
    if claim is None or claim.updated_us > before_us:
        return False
    if claim.released:
        await await_release(work, scope.name)
        return True
    if await holder_of(work, scope.name, claim) is not None:
        return False
    gone = await release_claim(work, scope.name, user_id=claim.user_id, epoch=claim.epoch)
    return bool(gone)
