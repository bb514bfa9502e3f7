"""Two users who are one person: an alias that can be undone, not a move.

The merged user's own document says where its memory continues: that one write is the merge. The
canonical user's document lists who may be merged into it, written before and settled after, so that
a crash leaves at most an entry that the merged user does not confirm. Every attempt writes the
canonical document first, and the merged one over the version read before that: two merges that
would make a circle cannot both succeed. Each merge has a token, so that the late steps of one do
not touch another.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace

from secondcall.abc import Store
from secondcall.checks import check_id
from secondcall.errors import InvalidValue, TooLarge, UnknownName, UserErased, VersionConflict
from secondcall.identity.audit import Event, checked_note
from secondcall.identity.family import Partitions, is_child, partitions_of, root_of
from secondcall.identity.person import (
    ATTEMPTS,
    Alias,
    Change,
    Child,
    Person,
    Random,
    Where,
    Work,
    busy,
    change_person,
    pause,
    read_person,
    write_person,
)

__all__ = ["merge", "prune_merges", "settle_merge", "unmerge"]

MAX_MERGED = 1000


async def merge(
    store: Store,
    tenant_id: str,
    from_user: str,
    into_user: str,
    *,
    now_us: int,
    actor: str = "host",
    reason: str = "",
    random: Random = secrets.token_bytes,
) -> Partitions:
    """Make ``from_user`` an alias of ``into_user``'s canonical user; its partitions afterwards.

    What is written from now on goes to the canonical user, what is read covers both. ``from_user``
    may have no partition yet (a call that was anonymous at first). Repeating it changes nothing.

    Raises: ``InvalidValue`` when both are one person the other way round, or ``from_user`` is
    merged into somebody else; ``UnknownName`` when ``into_user`` has no partition; ``TooLarge``
    over 1,000 users merged into one; ``UserErased`` while one of them is being erased;
    ``StoreBusy``.
    """
    note = checked_note(actor, reason)
    work = Work(store=store, tenant_id=tenant_id, now_us=now_us, random=random)
    from_user, into_user = check_id("from_user", from_user), check_id("into_user", into_user)
    for attempt in range(ATTEMPTS):
        child = await read_person(work, from_user)
        root = await _target(work, into_user)
        current = await root_of(work, child)
        _refuse_circle(child, current, root, into_user)
        if current is child:
            try:
                await _commit(work, child, root, note)
            except (VersionConflict, UserErased):
                await pause(attempt, random)
                continue
        await settle_merge(work, from_user, note)
        return await partitions_of(store, tenant_id, from_user)
    raise busy()


async def unmerge(
    store: Store,
    tenant_id: str,
    from_user: str,
    *,
    now_us: int,
    actor: str = "host",
    reason: str = "",
    random: Random = secrets.token_bytes,
) -> Partitions:
    """End the alias of ``from_user``; its own partitions afterwards.

    What it held before the merge is its own again, with the identities that point to it and the
    users that were merged into it. What was written meanwhile stays with the canonical user.

    Raises: ``UnknownName`` when ``from_user`` is not merged into anybody; ``StoreBusy``.
    """
    actor, reason = checked_note(actor, reason)
    work = Work(store=store, tenant_id=tenant_id, now_us=now_us, random=random)
    child = await read_person(work, from_user)
    if child.into is None:
        raise UnknownName(f"user {from_user!r} is not merged into another user")
    alias = child.into
    note = (actor, reason)
    steps: list[tuple[str, Callable[[Person], Change | None]]] = [
        (alias.user_id, lambda parent: _leaving(parent, from_user, alias)),
        (from_user, lambda person: _ended(person, alias, note)),
        (alias.user_id, lambda parent: _removed(parent, from_user, alias, note)),
    ]
    for user_id, change in steps:
        try:
            await change_person(work, user_id, change)
        except UserErased:
            if user_id == from_user:
                raise
    return await partitions_of(store, tenant_id, from_user)


async def settle_merge(work: Work, child_id: str, note: tuple[str, str]) -> None:
    """List a merged user as such in the document of whom it was merged into.

    Raises: ``UserErased`` when that one went meanwhile; the merge is then undone. ``StoreBusy``.
    """
    for attempt in range(ATTEMPTS):
        alias = (await read_person(work, child_id)).into
        if alias is None:
            return
        parent = await read_person(work, alias.user_id)
        # Read again, after the entry: an unmerge marks the entry before it ends the alias.
        child = await read_person(work, child_id)
        if child.into != alias:
            continue
        if parent.closed or not is_child(child, parent):
            await change_person(work, child_id, lambda person, a=alias: _undone(person, a))
            raise UserErased(alias.user_id)
        change = _settled(parent, child, alias, note)
        if change is None:
            return
        try:
            await write_person(work, change, create=False)
        except (VersionConflict, UserErased):
            await pause(attempt, work.random)
    raise busy()


async def prune_merges(work: Work, parent: Person) -> None:
    """Settle or take out the entries that a crash left between two steps of a merge or unmerge."""
    for child_id, entry in parent.merged.items():
        if entry.state == "merged":
            continue
        child = await read_person(work, child_id)
        if is_child(child, parent):
            await settle_merge(work, child_id, ("secondcall", ""))
            continue

        def without(found: Person, child_id: str = child_id, entry: Child = entry) -> Change | None:
            if found.merged.get(child_id) != entry:
                return None
            return Change(person=found.with_child(child_id, None))

        await change_person(work, parent.user_id, without)


def _settled(parent: Person, child: Person, alias: Alias, note: tuple[str, str]) -> Change | None:
    entry = parent.merged.get(child.user_id)
    if entry is None or entry.token != alias.token:
        intended = Child(state="intended", leaf=not child.merged, token=alias.token)
        return Change(person=parent.with_child(child.user_id, intended))
    if entry.state != "intended":
        return None
    actor, reason = note
    event = Event(action="absorbed", actor=actor, reason=reason, other_user_id=child.user_id)
    merged = replace(entry, state="merged")
    return Change(person=parent.with_child(child.user_id, merged), events=(event,))


def _undone(person: Person, alias: Alias) -> Change | None:
    if person.closed:
        return None
    return _ended(person, alias, ("secondcall", "the user it was merged into was erased"))


def _leaving(parent: Person, child_id: str, alias: Alias) -> Change | None:
    entry = parent.merged.get(child_id)
    if entry is None or entry.token != alias.token or entry.state == "leaving":
        return None
    return Change(person=parent.with_child(child_id, replace(entry, state="leaving")))


def _ended(person: Person, alias: Alias, note: tuple[str, str]) -> Change | None:
    if person.into != alias:
        return None
    actor, reason = note
    event = Event(action="unmerged", actor=actor, reason=reason, other_user_id=alias.user_id)
    return Change(person=replace(person, into=None), events=(event,))


def _removed(parent: Person, child_id: str, alias: Alias, note: tuple[str, str]) -> Change | None:
    entry = parent.merged.get(child_id)
    if entry is None or entry.token != alias.token:
        return None
    actor, reason = note
    event = Event(action="released", actor=actor, reason=reason, other_user_id=child_id)
    return Change(person=parent.with_child(child_id, None), events=(event,))


async def _target(where: Where, into_user: str) -> Person:
    person = await read_person(where, into_user)
    if not person.exists:
        raise UnknownName(f"user {into_user!r} is not known, so nobody can be merged into it")
    root = await root_of(where, person)
    if root.closed:
        raise UserErased(root.user_id)
    return root


def _refuse_circle(child: Person, current: Person, root: Person, into_user: str) -> None:
    if child.closed:
        raise UserErased(child.user_id)
    if child.user_id in (root.user_id, into_user):
        raise InvalidValue(
            f"user {child.user_id!r} cannot be merged into itself or into a user merged into it"
        )
    if current is not child and current.user_id != root.user_id:
        raise InvalidValue(
            f"user {child.user_id!r} is merged into {current.user_id!r} already; unmerge it first"
        )


async def _commit(work: Work, child: Person, root: Person, note: tuple[str, str]) -> None:
    if len(root.merged) >= MAX_MERGED and child.user_id not in root.merged:
        raise TooLarge(
            f"{len(root.merged)} users are merged into {root.user_id!r}, at most {MAX_MERGED}"
        )
    token = work.random(8).hex()
    entry = Child(state="intended", leaf=not child.merged, token=token)
    intended = Change(person=root.with_child(child.user_id, entry))
    await write_person(work, intended, create=False)
    actor, reason = note
    merged = replace(
        child,
        epoch=child.epoch if child.exists else work.random(16),
        exists=True,
        created=False,
        into=Alias(user_id=root.user_id, epoch=root.epoch, token=token),
    )
    event = Event(action="merged", actor=actor, reason=reason, other_user_id=root.user_id)
    change = Change(person=merged, events=(event,))
    await write_person(work, change, create=not child.exists)
