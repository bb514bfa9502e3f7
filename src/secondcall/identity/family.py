"""Following merges: from a user up to the canonical one, and down to everybody merged into it."""

from __future__ import annotations

from dataclasses import dataclass

from secondcall.abc import Store
from secondcall.errors import StoreCorrupt
from secondcall.identity.person import Person, Where, read_person

__all__ = ["Partitions", "family_of", "partitions_of", "root_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitions:
    """The canonical user, who is written to, and all users whose partitions are read, it first."""

    canonical: str
    user_ids: tuple[str, ...]


async def partitions_of(
    store: Store, tenant_id: str, user_id: str, *, person: Person | None = None
) -> Partitions:
    """Where the memory of this user stands. ``person`` is the user's document, if just read.

    One document for a user without merges; another for each step up, and for each merged user that
    has merged users of its own.
    """
    where = Where(store=store, tenant_id=tenant_id)
    root = await root_of(where, person or await read_person(where, user_id))
    user_ids = [root.user_id]
    waiting = [root]
    while waiting:
        parent = waiting.pop(0)
        for child_id, child in parent.merged.items():
            if child_id in user_ids:
                continue
            if child.state == "merged" and child.leaf:
                user_ids.append(child_id)
                continue
            person = await read_person(where, child_id)
            if is_child(person, parent):
                user_ids.append(child_id)
                waiting.append(person)
    return Partitions(canonical=root.user_id, user_ids=tuple(user_ids))


async def root_of(where: Where, person: Person) -> Person:
    """The canonical user of a person; the person itself if it is not merged.

    Raises: ``StoreCorrupt`` for merges that run in a circle.
    """
    seen = {person.user_id}
    while person.into is not None:
        parent = await read_person(where, person.into.user_id)
        if not is_child(person, parent):
            return person  # The one it was merged into was erased.
        if parent.user_id in seen:
            raise StoreCorrupt(f"the merges of user {person.user_id!r} run in a circle")
        seen.add(parent.user_id)
        person = parent
    return person


async def family_of(where: Where, user_id: str) -> list[Person]:
    """Every person of the same canonical user, that one first, as their own documents say."""
    waiting = [await root_of(where, await read_person(where, user_id))]
    family: list[Person] = []
    while waiting:
        parent = waiting.pop(0)
        family.append(parent)
        for child_id in parent.merged:
            person = await read_person(where, child_id)
            if is_child(person, parent):
                waiting.append(person)
    return family


def is_child(person: Person, parent: Person) -> bool:
    """Whether ``person`` is merged directly into ``parent``, as it is now."""
    into = person.into
    return (
        into is not None
        and parent.exists
        and into.user_id == parent.user_id
        and into.epoch == parent.epoch
    )
