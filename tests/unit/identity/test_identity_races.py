"""Many tasks at once, interleaved anew at every store call as the seed has it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import pytest
from identity_kit import (
    HOUR_US,
    PHONE,
    TENANT,
    call,
    faults,
    ids,
    interleaved,
    one_id,
    tidy,
    user_ids,
)

from secondcall.abc import Store
from secondcall.errors import InvalidValue, UserErased
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
from secondcall.identity.family import root_of
from secondcall.identity.person import Where, read_person, user_scope

pytestmark = pytest.mark.anyio

SEEDS = [
    *range(12),
    *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(12, 300)),
]


async def at_once(*deeds: Callable[[], Awaitable[Any]]) -> list[Any]:
    """Run all of them at once; what each gave."""
    results: list[Any] = [None] * len(deeds)

    async def run(place: int, deed: Callable[[], Awaitable[Any]]) -> None:
        results[place] = await deed()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            for place, deed in enumerate(deeds):
                group.start_soon(run, place, deed)
    return results


@pytest.mark.parametrize("seed", SEEDS)
async def test_callers_at_once_are_one_user(store: Store, seed: int) -> None:
    """Twelve calls of one number at once get one user, new to exactly one of them."""
    busy = interleaved(store, seed)
    callers = await at_once(*[lambda: call(busy, phone=PHONE, device="handset-1")] * 12)
    assert len({caller.user_id for caller in callers}) == 1
    assert sum(not caller.known for caller in callers) == 1
    assert await user_ids(store) == [callers[0].user_id]
    assert await faults(store) == []


@pytest.mark.parametrize("seed", SEEDS)
async def test_callers_at_once_over_a_stale_claim_are_one_user(store: Store, seed: int) -> None:
    """Calls at once of a number whose user was erased behind its back get one new user."""
    old = await call(store, phone=PHONE)
    await store.erase(user_scope(TENANT, old.user_id))
    busy = interleaved(store, seed)
    callers = await at_once(*[lambda: call(busy, phone=PHONE)] * 12)
    assert len({caller.user_id for caller in callers}) == 1
    assert sum(not caller.known for caller in callers) == 1
    assert await user_ids(store) == [callers[0].user_id]
    assert await faults(store) == []


@pytest.mark.parametrize("seed", SEEDS)
async def test_callers_who_share_some_fields_settle(store: Store, seed: int) -> None:
    """Calls at once with overlapping fields leave a picture without faults, that stays as it is."""
    busy = interleaved(store, seed)
    fields: list[dict[str, Any]] = [
        {"phone": PHONE},
        {"phone": PHONE, "device": "handset-1"},
        {"device": "handset-1"},
        {"subject": "account-1", "phone": PHONE},
        {"subject": "account-1"},
        {"subject": "account-1", "device": "handset-1", "email": "ann@example.com"},
    ]
    await at_once(*[partial(call, busy, **f) for f in fields])
    assert await faults(store) == []
    first = [(await call(store, **f)).user_id for f in fields]
    assert [(await call(store, **f)).user_id for f in fields] == first


@pytest.mark.parametrize("seed", SEEDS)
async def test_one_identity_linked_to_two_users_goes_to_one(store: Store, seed: int) -> None:
    """Of several hosts that link one identity to different users, one wins and the rest hear it."""
    busy = interleaved(store, seed)

    async def linking(user_id: str) -> str | None:
        try:
            await link(busy, TENANT, user_id, one_id(phone=PHONE), now_us=0)
        except InvalidValue:
            return None
        return user_id

    won = await at_once(*[partial(linking, u) for u in ("ann", "bob", "cid")])
    (winner,) = [user_id for user_id in won if user_id]
    assert (await call(store, phone=PHONE)).user_id == winner
    await tidy(store)
    assert await faults(store) == []


@pytest.mark.parametrize("seed", SEEDS)
async def test_overlapping_links_at_once_are_whole_or_nothing(store: Store, seed: int) -> None:
    """Whoever is told that all its identities are linked has all, and a refused one has none."""
    busy = interleaved(store, seed)
    wanted: dict[str, dict[str, Any]] = {
        "ann": {"phone": PHONE, "email": "a@example.com"},
        "bob": {"phone": PHONE, "device": "handset-1"},
        "cid": {"device": "handset-1", "email": "a@example.com", "subject": "account-1"},
    }

    async def linking(user_id: str) -> bool:
        try:
            await link_all(busy, TENANT, user_id, ids(**wanted[user_id]), now_us=0)
        except InvalidValue:
            return False
        return True

    won = await at_once(*[partial(linking, user_id) for user_id in wanted])
    for user_id, all_linked in zip(wanted, won, strict=True):
        held = {identity.name for identity in await identities_of(store, TENANT, user_id)}
        assert held == ({i.name for i in ids(**wanted[user_id])} if all_linked else set())
    assert sum(won) <= 1
    assert await faults(store) == []


@pytest.mark.parametrize("seed", SEEDS)
async def test_link_and_unlink_at_once_agree(store: Store, seed: int) -> None:
    """Links, unlinks and calls of one identity at once leave nothing half-done."""
    busy = interleaved(store, seed)
    identity = one_id(phone=PHONE)
    await link(store, TENANT, "ann", identity, now_us=0)
    await link(store, TENANT, "bob", one_id(device="handset-1"), now_us=0)

    async def relinking(user_id: str) -> None:
        try:
            await link(busy, TENANT, user_id, identity, now_us=0)
        except InvalidValue:
            return

    await at_once(
        lambda: unlink(busy, TENANT, "ann", identity, now_us=0),
        lambda: unlink(busy, TENANT, "ann", identity, now_us=0),
        lambda: relinking("bob"),
        lambda: call(busy, phone=PHONE),
        lambda: call(busy, phone=PHONE),
        lambda: relinking("ann"),
    )
    await tidy(store)
    first = await call(store, HOUR_US, phone=PHONE)
    await tidy(store)
    assert await faults(store) == []
    assert (await call(store, phone=PHONE)).user_id == first.user_id


@pytest.mark.parametrize("seed", SEEDS)
async def test_merges_at_once_make_no_circle(store: Store, seed: int) -> None:
    """A into B, B into C and C into A at once end in a tree, with every user in it once."""
    busy = interleaved(store, seed)
    for name in "abc":
        await link(store, TENANT, name, one_id(subject=f"subject {name}"), now_us=0)

    async def merging(child: str, into: str) -> bool:
        try:
            await merge(busy, TENANT, child, into, now_us=0)
        except InvalidValue:
            return False
        return True

    pairs = [("a", "b"), ("b", "c"), ("c", "a"), ("b", "a")]
    done = await at_once(*[partial(merging, *pair) for pair in pairs])
    assert sum(done) >= 2
    roots = {
        (await root_of(Where(store=store, tenant_id=TENANT), person)).user_id
        for person in [await read_person(Where(store=store, tenant_id=TENANT), n) for n in "abc"]
    }
    (root,) = roots
    whole = await partitions_of(store, TENANT, root)
    assert sorted(whole.user_ids) == ["a", "b", "c"]
    for name in "abc":
        if name != root:
            await merge(store, TENANT, name, root, now_us=1)
    await tidy(store)
    assert await faults(store) == []


@pytest.mark.parametrize("seed", SEEDS)
async def test_merge_and_unmerge_at_once_agree(store: Store, seed: int) -> None:
    """Merging and unmerging at once end in one of the two, the same seen from both sides."""
    busy = interleaved(store, seed)
    for name in "ab":
        await link(store, TENANT, name, one_id(subject=f"subject {name}"), now_us=0)
    await merge(store, TENANT, "b", "a", now_us=0)

    async def apart() -> None:
        try:
            await unmerge(busy, TENANT, "b", now_us=0)
        except LookupError:
            return

    await at_once(apart, lambda: merge(busy, TENANT, "b", "a", now_us=0), apart)
    below = await partitions_of(store, TENANT, "b")
    above = await partitions_of(store, TENANT, "a")
    assert (len(above.user_ids) == 2) == (below.canonical == "a")


@pytest.mark.parametrize("seed", SEEDS)
async def test_erasing_while_the_number_calls_in(store: Store, seed: int) -> None:
    """Calls during an erasure get the old user or a new one that stays; the old one goes."""
    busy = interleaved(store, seed)
    old = await call(store, phone=PHONE, device="handset-1")

    async def forget() -> None:
        erasure = await begin_erasure(busy, TENANT, old.user_id, now_us=0)
        await release_identities(busy, erasure, now_us=0)
        for scope in erasure.users:
            await busy.erase(scope)

    async def link_more() -> None:
        try:
            await link(busy, TENANT, old.user_id, one_id(subject="account-1"), now_us=0)
        except UserErased:
            return

    results = await at_once(
        lambda: call(busy, phone=PHONE),
        forget,
        lambda: call(busy, phone=PHONE),
        link_more,
        lambda: call(busy, phone=PHONE),
        lambda: call(busy, device="handset-1"),
        forget,
    )
    new = {caller.user_id for caller in results[0:5:2] if caller.user_id != old.user_id}
    assert len(new) <= 1
    after = await call(store, HOUR_US, phone=PHONE)
    assert after.user_id != old.user_id
    assert not new or after.user_id in new
    await tidy(store)
    if (subject := await call(store, HOUR_US, subject="account-1")).user_id == old.user_id:
        assert subject.known  # The link came after the erasure: the host made the user anew.
    assert await faults(store) == []


@pytest.mark.parametrize("seed", SEEDS)
async def test_merging_while_erasing(store: Store, seed: int) -> None:
    """A merge into a user that is being erased is either erased with it or did not happen."""
    busy = interleaved(store, seed)
    for name in "ab":
        await link(store, TENANT, name, one_id(subject=f"subject {name}"), now_us=0)

    async def merging() -> None:
        try:
            await merge(busy, TENANT, "b", "a", now_us=0)
        except (UserErased, LookupError):
            return

    async def forget() -> None:
        erasure = await begin_erasure(busy, TENANT, "a", now_us=0)
        await release_identities(busy, erasure, now_us=0)
        for scope in erasure.users:
            await busy.erase(scope)

    await at_once(merging, forget)
    left = await user_ids(store)
    assert "a" not in left
    if "b" in left:
        assert (await partitions_of(store, TENANT, "b")).user_ids == ("b",)
        assert (await call(store, subject="subject b")).user_id == "b"
    await tidy(store)
    where = Where(store=store, tenant_id=TENANT)
    if "b" in left:
        assert not (await read_person(where, "b")).closed
