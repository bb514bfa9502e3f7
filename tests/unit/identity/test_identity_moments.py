"""Single moments that a race seldom hits, brought about on purpose."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from identity_kit import HOUR_US, PHONE, TENANT, Died, call, dying, faults, one_id, relay, tidy

from secondcall.abc import Store
from secondcall.errors import StoreBusy, UserErased
from secondcall.identity import (
    begin_erasure,
    link,
    merge,
    partitions_of,
    release_identities,
    unmerge,
)
from secondcall.identity.claims import read_claim, take_claim
from secondcall.identity.person import Work, read_person

pytestmark = pytest.mark.anyio


def meanwhile(
    store: Store, method: str, number: int, deed: Callable[[], Awaitable[object]], *, done: bool
) -> Store:
    """The same store, where ``deed`` happens before or after call ``number`` of ``method``."""
    count = 0

    async def step(name: str, after: bool) -> None:
        nonlocal count
        if name == method and after == done:
            count += 1
            if count == number + 1:
                await deed()

    return relay(store, step)


async def forget(store: Store, user_id: str) -> None:
    """Erase a person as ``memory.forget`` does."""
    erasure = await begin_erasure(store, TENANT, user_id, now_us=10)
    await release_identities(store, erasure, now_us=10)
    for scope in erasure.users:
        await store.erase(scope)


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
async def test_an_erasure_in_the_middle_of_a_link_leaves_no_hash(
    store: Store, number: int, done: bool
) -> None:
    """Forgotten around any write of a link, the user is gone and so is the identity's partition."""
    await link(store, TENANT, "ann", one_id(device="handset-1"), now_us=1)
    busy = meanwhile(store, "write", number, lambda: forget(store, "ann"), done=done)
    with pytest.raises(UserErased):
        await link(busy, TENANT, "ann", one_id(phone=PHONE), now_us=2)
    assert await store.scopes(TENANT, "identity", limit=10) == []
    assert await store.scopes(TENANT, "user", limit=10) == []


async def test_two_removers_do_not_erase_beside_each_other(store: Store) -> None:
    """While one erases an identity, another gives up: it might erase what is claimed in between."""
    caller = await call(store, phone=PHONE)
    erasure = await begin_erasure(store, TENANT, caller.user_id, now_us=1)
    refused: list[StoreBusy] = []

    async def other() -> None:
        try:
            await release_identities(store, erasure, now_us=2)
        except StoreBusy as error:
            refused.append(error)

    await release_identities(meanwhile(store, "erase", 0, other, done=False), erasure, now_us=1)
    assert len(refused) == 1
    assert await store.scopes(TENANT, "identity", limit=10) == []


async def test_a_remover_that_died_is_finished_by_the_next_call(store: Store) -> None:
    """A number whose removal died half-way is a new user's at once, when the lease has run out."""
    caller = await call(store, phone=PHONE)
    erasure = await begin_erasure(store, TENANT, caller.user_id, now_us=1)
    with pytest.raises(Died):
        await release_identities(dying(store, at=2, done=False), erasure, now_us=1)
    with pytest.raises(StoreBusy):
        await call(store, 2, phone=PHONE)
    after = await call(store, HOUR_US, phone=PHONE)
    assert after.user_id != caller.user_id
    assert not after.known


async def test_a_claim_in_removal_is_not_taken_over(store: Store) -> None:
    """Nobody claims over a removal mark, even having seen it: the remover would erase the claim."""
    caller = await call(store, phone=PHONE)
    erasure = await begin_erasure(store, TENANT, caller.user_id, now_us=1)
    with pytest.raises(Died):
        await release_identities(dying(store, at=2, done=False), erasure, now_us=1)
    await link(store, TENANT, "bob", one_id(device="handset-1"), now_us=2)
    work = Work(store=store, tenant_id=TENANT, now_us=2, random=lambda size: bytes(size))
    name = one_id(phone=PHONE).name
    marked = await read_claim(work, name)
    assert marked is not None
    assert marked.released
    bob = await read_person(work, "bob")
    assert not await take_claim(work, name, bob, replaces=marked)


async def test_the_trace_of_a_merge_that_lost_does_not_outlive_the_one_that_won(
    store: Store,
) -> None:
    """A second merge that died over the first one's entry leaves nothing for unmerge to miss."""
    for name in ("ann", "bob"):
        await link(store, TENANT, name, one_id(subject=f"subject of {name}"), now_us=1)

    async def first() -> None:
        await merge(store, TENANT, "bob", "ann", now_us=2)

    second = meanwhile(dying(store, at=1, done=False), "header", 0, first, done=True)
    with pytest.raises(Died):
        await merge(second, TENANT, "bob", "ann", now_us=3)
    assert (await partitions_of(store, TENANT, "ann")).user_ids == ("ann", "bob")
    await merge(store, TENANT, "bob", "ann", now_us=4)
    await unmerge(store, TENANT, "bob", now_us=5)
    assert (await partitions_of(store, TENANT, "ann")).user_ids == ("ann",)
    await tidy(store)
    assert await faults(store) == []
