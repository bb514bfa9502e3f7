from __future__ import annotations

import pytest
from identity_kit import HOUR_US, OTHER_PHONE, PHONE, TENANT, call, faults, one_id, tidy, user_ids

from secondcall.abc import Store
from secondcall.errors import UserErased
from secondcall.identity import (
    begin_erasure,
    identities_of,
    link,
    merge,
    partitions_of,
    release_identities,
    sweep,
)
from secondcall.identity.claims import identity_scope
from secondcall.identity.linking import intent
from secondcall.identity.person import Change, Person, Work, write_person

pytestmark = pytest.mark.anyio


async def forget(store: Store, user_id: str) -> None:
    """Erase a person as ``memory.forget`` does, and look that nothing is left."""
    erasure = await begin_erasure(store, TENANT, user_id, now_us=10)
    await release_identities(store, erasure, now_us=10)
    for scope in erasure.users:
        await store.erase(scope)
    for scope in (*erasure.users, *erasure.identities):
        assert not any((await store.scan(scope)).values())


async def test_nothing_of_an_erased_person_is_left(store: Store) -> None:
    """Erasing gives back every identity of every partition, and no hash stays."""
    first = await call(store, phone=PHONE, device="handset-1")
    second = await call(store, subject="account-1", email="ann@example.com")
    await merge(store, TENANT, first.user_id, second.user_id, now_us=1)
    stranger = await call(store, phone=OTHER_PHONE)
    await forget(store, first.user_id)
    assert await user_ids(store) == [stranger.user_id]
    (left,) = await store.scopes(TENANT, "identity", limit=10)
    assert left == identity_scope(TENANT, one_id(phone=OTHER_PHONE).name)
    again = await call(store, phone=PHONE)
    assert not again.known
    assert again.user_id not in (first.user_id, second.user_id)


async def test_the_canonical_user_is_erased_last(store: Store) -> None:
    """Merged users are listed before whom they are merged into, from whichever side it begins."""
    for name in "abc":
        await link(store, TENANT, name, one_id(subject=f"subject {name}"), now_us=1)
    await merge(store, TENANT, "a", "b", now_us=2)
    await merge(store, TENANT, "b", "c", now_us=2)
    erasure = await begin_erasure(store, TENANT, "a", now_us=3)
    assert erasure.canonical == "c"
    assert [scope.name for scope in erasure.users] == ["a", "b", "c"]
    assert len(erasure.identities) == 3


async def test_an_erasure_that_was_interrupted_goes_on(store: Store) -> None:
    """Begun again after any part of it is gone, it lists what is left."""
    for name in "abc":
        await link(store, TENANT, name, one_id(subject=f"subject {name}"), now_us=1)
    await merge(store, TENANT, "a", "c", now_us=2)
    await merge(store, TENANT, "b", "c", now_us=2)
    erasure = await begin_erasure(store, TENANT, "c", now_us=3)
    await store.erase(erasure.users[0])
    again = await begin_erasure(store, TENANT, "c", now_us=4)
    assert {scope.name for scope in again.users} == {"a", "b", "c"} - {erasure.users[0].name}
    await forget(store, "c")
    await tidy(store)
    assert await user_ids(store) == []
    assert await store.scopes(TENANT, "identity", limit=10) == []


async def test_no_identity_leads_to_who_is_being_erased(store: Store) -> None:
    """From the first step on the number is a new user's, and the erasure leaves that one alone."""
    first = await call(store, phone=PHONE)
    erasure = await begin_erasure(store, TENANT, first.user_id, now_us=2)
    second = await call(store, phone=PHONE)
    assert second.user_id != first.user_id
    with pytest.raises(UserErased):
        await link(store, TENANT, first.user_id, one_id(device="handset-1"), now_us=3)
    assert await release_identities(store, erasure, now_us=4) == {}
    for scope in erasure.users:
        await store.erase(scope)
    assert (await call(store, phone=PHONE)).user_id == second.user_id
    assert await faults(store) == []


async def test_a_user_without_identities_is_erased_too(store: Store) -> None:
    """Users whom nothing points to, and unknown ones, are listed alone."""
    erasure = await begin_erasure(store, TENANT, "nobody", now_us=1)
    assert [scope.name for scope in erasure.users] == ["nobody"]
    assert erasure.identities == []
    assert await release_identities(store, erasure, now_us=1) == {}


async def test_the_sweep_takes_what_crashes_left(store: Store) -> None:
    """A user that never came to be and a claim of a gone user are removed, once old enough."""
    kept = await call(store, phone=PHONE)
    lost = Person(
        user_id="lost",
        epoch=b"l" * 16,
        exists=True,
        created=True,
        links={one_id(phone=PHONE).name: intent(one_id(phone=PHONE), 0)},
    )
    work = Work(store=store, tenant_id=TENANT, now_us=0, random=lambda size: bytes(size))
    await write_person(work, Change(person=lost), create=True)
    gone = await call(store, phone=OTHER_PHONE)
    (scope,) = [s for s in await store.scopes(TENANT, "user", limit=9) if s.name == gone.user_id]
    await store.erase(scope)
    early = await sweep(store, TENANT, now_us=HOUR_US // 2)
    assert (early.users, early.identities) == (0, 0)
    late = await sweep(store, TENANT, now_us=2 * HOUR_US)
    assert (late.users, late.identities) == (1, 1)
    assert await user_ids(store) == [kept.user_id]
    assert await faults(store) == []
    assert (await call(store, phone=PHONE)).user_id == kept.user_id


async def test_the_sweep_leaves_living_users_alone(store: Store) -> None:
    """Users with identities, without, merged or made by a host survive any sweep."""
    await call(store, phone=PHONE)
    await link(store, TENANT, "ann", one_id(device="handset-1"), now_us=0)
    await merge(store, TENANT, "a call", "ann", now_us=0)
    before = await user_ids(store)
    for _ in range(2):
        swept = await sweep(store, TENANT, now_us=1000 * HOUR_US)
        assert (swept.users, swept.identities) == (0, 0)
    assert await user_ids(store) == before
    assert len((await partitions_of(store, TENANT, "ann")).user_ids) == 2
    assert len(await identities_of(store, TENANT, "ann")) == 1
