"""A process that dies before or after any write leaves what the next call puts right."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from identity_kit import (
    HOUR_US,
    OTHER_PHONE,
    PHONE,
    TENANT,
    Died,
    call,
    dying,
    faults,
    ids,
    one_id,
    tidy,
    user_ids,
)

from secondcall.abc import Store
from secondcall.identity import (
    begin_erasure,
    identities_of,
    link,
    link_all,
    merge,
    partitions_of,
    release_identities,
    unlink,
    unmerge,
)
from secondcall.identity.person import Where, read_person, user_scope
from secondcall.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio

Deed = Callable[[Store, int], Awaitable[object]]
ALL = {
    "phone": PHONE,
    "device": "handset-1",
    "email": "ann@example.com",
    "subject": "account-1",
}


async def nothing(store: Store, now_us: int) -> None:
    """Nobody called yet."""
    return


async def people(store: Store, now_us: int) -> None:
    """Two users with a number each."""
    await link(store, TENANT, "ann", one_id(phone=PHONE), now_us=now_us)
    await link(store, TENANT, "bob", one_id(phone=OTHER_PHONE), now_us=now_us)


async def merged(store: Store, now_us: int) -> None:
    """Two users merged into one."""
    await people(store, now_us)
    await merge(store, TENANT, "bob", "ann", now_us=now_us)


async def stale(store: Store, now_us: int) -> None:
    """A number whose user was erased behind its back."""
    caller = await call(store, phone=PHONE)
    await store.erase(user_scope(TENANT, caller.user_id))


async def forget(store: Store, now_us: int) -> None:
    """Erase a person as ``forget`` does."""
    erasure = await begin_erasure(store, TENANT, "ann", now_us=now_us)
    await release_identities(store, erasure, now_us=now_us)
    for scope in erasure.users:
        await store.erase(scope)


def resolving(**fields: object) -> Deed:
    """A call with these fields."""
    return lambda store, now_us: call(store, now_us, **fields)


DEEDS: dict[str, tuple[Deed, Deed]] = {
    "one identifier of a new user": (nothing, resolving(phone=PHONE)),
    "four identifiers of a new user": (nothing, resolving(**ALL)),
    "over a stale claim": (stale, resolving(phone=PHONE, device="handset-1")),
    "more for a known user": (resolving(subject="account-1"), resolving(**ALL)),
    "an upgrade": (resolving(phone=PHONE), resolving(phone=PHONE, verified=["phone"])),
    "a link": (
        people,
        lambda store, now_us: link(store, TENANT, "ann", one_id(device="handset-1"), now_us=now_us),
    ),
    "a link of several": (
        people,
        lambda store, now_us: link_all(
            store, TENANT, "ann", ids(device="handset-1", subject="account-1"), now_us=now_us
        ),
    ),
    "an unlink": (
        people,
        lambda store, now_us: unlink(store, TENANT, "ann", one_id(phone=PHONE), now_us=now_us),
    ),
    "a merge": (people, lambda store, now_us: merge(store, TENANT, "bob", "ann", now_us=now_us)),
    "a merge of a new user": (
        people,
        lambda store, now_us: merge(store, TENANT, "a call", "ann", now_us=now_us),
    ),
    "an unmerge": (merged, lambda store, now_us: unmerge(store, TENANT, "bob", now_us=now_us)),
    "an erasure": (merged, forget),
}


async def picture(store: Store) -> object:
    """What can be seen from outside, without ids and times that differ from run to run."""
    seen: list[tuple[object, ...]] = []
    for user_id in await user_ids(store):
        whole = await partitions_of(store, TENANT, user_id)
        identities = await identities_of(store, TENANT, user_id)
        known = user_id if len(user_id) < 10 else "user"
        seen.append((known, len(whole.user_ids), sorted((i.name, i.trust) for i in identities)))
    return sorted(seen, key=repr)


async def fresh() -> Store:
    """A new store."""
    store = MemoryStore()
    await store.open()
    return store


@pytest.mark.parametrize("name", DEEDS)
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
async def test_a_deed_that_died_is_done_by_repeating_it(name: str, done: bool) -> None:
    """Whichever write a process dies at, doing it again gives what an undisturbed one gives."""
    before, deed = DEEDS[name]
    undisturbed = await fresh()
    await before(undisturbed, 0)
    await deed(undisturbed, 0)
    expected = await picture(undisturbed)
    at = 0
    while True:
        store = await fresh()
        await before(store, 0)
        try:
            await deed(dying(store, at=at, done=done), 0)
            died = False
        except Died:
            died = True
        try:
            await deed(store, HOUR_US)
        except LookupError:
            assert name == "an unmerge"  # It was unmerged already.
        await tidy(store)
        assert await faults(store) == [], f"write {at}"
        assert await picture(store) == expected, f"write {at}"
        if not died:
            break
        at += 1
    assert at >= 1


@pytest.mark.parametrize("name", DEEDS)
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
async def test_a_deed_that_died_and_is_not_repeated_hurts_nobody(name: str, done: bool) -> None:
    """Whichever write a process dies at, the next callers get one user each, and stay with it."""
    before, deed = DEEDS[name]
    at = 0
    while True:
        store = await fresh()
        await before(store, 0)
        try:
            await deed(dying(store, at=at, done=done), 0)
            died = False
        except Died:
            died = True
        first = [await call(store, HOUR_US, phone=phone) for phone in (PHONE, OTHER_PHONE)]
        await tidy(store)
        again = [await call(store, HOUR_US, phone=phone) for phone in (PHONE, OTHER_PHONE)]
        assert [c.user_id for c in again] == [c.user_id for c in first], f"write {at}"
        assert all(c.known for c in again)
        if not died:
            break
        at += 1


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
async def test_the_next_call_completes_what_was_begun(done: bool) -> None:
    """A call that died while it linked is completed by the next one, without any sweep."""
    for at in range(6):
        store = await fresh()
        with pytest.raises(Died):
            await call(dying(store, at=at, done=done), **ALL)
        caller = await call(store, HOUR_US, subject="account-1")
        person = await read_person(Where(store=store, tenant_id=TENANT), caller.user_id)
        assert {held.state for held in person.links.values()} == {"linked"}
        if caller.known:
            assert len(person.links) == len(ALL)
