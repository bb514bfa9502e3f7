from __future__ import annotations

import pytest
from identity_kit import OTHER_PHONE, PHONE, TENANT, call, faults, one_id, relay

from secondcall.abc import Batch, Store
from secondcall.errors import InvalidValue, UnknownName, UserErased
from secondcall.identity import (
    audit,
    begin_erasure,
    link,
    merge,
    partitions_of,
    resolve,
    unmerge,
)
from secondcall.identity.person import user_scope

pytestmark = pytest.mark.anyio


async def people(store: Store, *names: str) -> None:
    """Users with a subject each."""
    for name in names:
        await link(store, TENANT, name, one_id(subject=f"subject of {name}"), now_us=1)


async def where(store: Store, user_id: str) -> tuple[str, set[str]]:
    """The canonical user and all partitions."""
    found = await partitions_of(store, TENANT, user_id)
    assert found.user_ids[0] == found.canonical
    assert len(set(found.user_ids)) == len(found.user_ids)
    return found.canonical, set(found.user_ids)


async def test_a_user_without_merges_is_its_own_partition(store: Store) -> None:
    """Unmerged and unknown users stand alone."""
    await people(store, "ann")
    assert await where(store, "ann") == ("ann", {"ann"})
    assert await where(store, "nobody") == ("nobody", {"nobody"})


async def test_a_merge_is_read_from_both_sides_and_undone(store: Store) -> None:
    """Merged, both ids lead to the canonical user and both partitions; unmerged, to their own."""
    await people(store, "ann", "bob")
    merged = await merge(store, TENANT, "bob", "ann", now_us=2)
    assert (merged.canonical, merged.user_ids) == ("ann", ("ann", "bob"))
    assert await where(store, "bob") == await where(store, "ann") == ("ann", {"ann", "bob"})
    apart = await unmerge(store, TENANT, "bob", now_us=3)
    assert apart.user_ids == ("bob",)
    assert await where(store, "ann") == ("ann", {"ann"})
    assert (await call(store, subject="subject of bob")).user_id == "bob"
    assert await faults(store) == []


async def test_chains_are_followed(store: Store) -> None:
    """A merged into B and B into C are all C's; ending the second merge leaves A with B."""
    await people(store, "a", "b", "c", "d")
    await merge(store, TENANT, "a", "b", now_us=2)
    await merge(store, TENANT, "b", "c", now_us=3)
    await merge(store, TENANT, "d", "a", now_us=4)
    for name in "abcd":
        assert await where(store, name) == ("c", set("abcd"))
    await unmerge(store, TENANT, "b", now_us=5)
    assert await where(store, "a") == ("b", {"a", "b"})
    assert await where(store, "d") == ("c", {"c", "d"})
    assert await faults(store) == []


async def test_circles_are_refused(store: Store) -> None:
    """Nobody can be merged into itself or into whoever is merged into it."""
    await people(store, "a", "b", "c")
    await merge(store, TENANT, "a", "b", now_us=2)
    await merge(store, TENANT, "b", "c", now_us=3)
    for child, into in (("a", "a"), ("c", "a"), ("c", "b"), ("c", "c")):
        with pytest.raises(InvalidValue, match="cannot be merged"):
            await merge(store, TENANT, child, into, now_us=4)
    assert await where(store, "c") == ("c", {"a", "b", "c"})


async def test_a_merged_user_is_not_merged_elsewhere(store: Store) -> None:
    """A second merge of an alias is refused until it is unmerged; the same merge is harmless."""
    await people(store, "a", "b", "c")
    await merge(store, TENANT, "a", "b", now_us=2)
    before = await audit(store, TENANT, "a")
    await merge(store, TENANT, "a", "b", now_us=3)
    assert await audit(store, TENANT, "a") == before
    with pytest.raises(InvalidValue, match="unmerge it first"):
        await merge(store, TENANT, "a", "c", now_us=4)


async def test_a_call_that_was_anonymous_is_merged(store: Store) -> None:
    """A per-call user without a partition becomes an alias, before or after its first write."""
    await people(store, "ann")
    for written in (False, True):
        caller = await resolve(store, TENANT, (), now_us=1)
        scope = user_scope(TENANT, caller.user_id)
        if written:
            await store.write(scope, Batch(), epoch=b"e" * 16, now_us=1, create=True)
        await merge(store, TENANT, caller.user_id, "ann", now_us=2)
        assert (await where(store, caller.user_id))[0] == "ann"
        header = await store.header(scope)
        assert header is not None
        assert (header.epoch == b"e" * 16) == written


async def test_nobody_is_merged_into_a_stranger(store: Store) -> None:
    """An unknown target, and unmerging who is not merged, are refused by name."""
    await people(store, "ann")
    with pytest.raises(UnknownName, match="'nobody'"):
        await merge(store, TENANT, "ann", "nobody", now_us=2)
    with pytest.raises(UnknownName, match="'ann'"):
        await unmerge(store, TENANT, "ann", now_us=2)
    assert await where(store, "ann") == ("ann", {"ann"})


async def test_who_is_being_erased_is_not_merged(store: Store) -> None:
    """Neither side of a merge may be in erasure."""
    await people(store, "ann", "bob")
    await begin_erasure(store, TENANT, "ann", now_us=2)
    for child, into in (("ann", "bob"), ("bob", "ann")):
        with pytest.raises(UserErased):
            await merge(store, TENANT, child, into, now_us=3)
    assert await where(store, "bob") == ("bob", {"bob"})


async def test_an_alias_of_an_erased_user_stands_alone(store: Store) -> None:
    """When the canonical user is gone behind its back, the merged one is itself again."""
    await people(store, "ann", "bob")
    await merge(store, TENANT, "bob", "ann", now_us=2)
    await store.erase(user_scope(TENANT, "ann"))
    await people(store, "ann")
    assert await where(store, "bob") == ("bob", {"bob"})
    assert await where(store, "ann") == ("ann", {"ann"})


async def test_reads_are_bounded(store: Store) -> None:
    """Plain aliases cost one document read, however many there are."""
    await people(store, "ann")
    for number in range(50):
        await merge(store, TENANT, f"call {number}", "ann", now_us=2)
    calls: list[str] = []

    async def step(name: str, done: bool) -> None:
        if not done:
            calls.append(name)

    found = await partitions_of(relay(store, step), TENANT, "ann")
    assert len(found.user_ids) == 51
    assert calls == ["document", "header"]
    calls.clear()
    await partitions_of(relay(store, step), TENANT, "call 7")
    assert calls == ["document", "header"] * 2


async def test_the_trail_tells_both_sides(store: Store) -> None:
    """Merge and unmerge stand in the trail of both users, with who, when and why."""
    await link(store, TENANT, "ann", one_id(phone=PHONE), now_us=1)
    await link(store, TENANT, "bob", one_id(phone=OTHER_PHONE), now_us=1)
    await merge(store, TENANT, "bob", "ann", now_us=2, actor="desk", reason="same person")
    together = [
        (e.user_id, e.action, e.actor, e.reason, e.other_user_id)
        for e in await audit(store, TENANT, "ann")
        if e.action != "linked"
    ]
    assert sorted(together) == [
        ("ann", "absorbed", "desk", "same person", "bob"),
        ("bob", "merged", "desk", "same person", "ann"),
    ]
    await unmerge(store, TENANT, "bob", now_us=3, actor="desk", reason="mistake")
    assert [e.action for e in await audit(store, TENANT, "ann")] == [
        "linked",
        "absorbed",
        "released",
    ]
    assert [e.action for e in await audit(store, TENANT, "bob")] == ["linked", "merged", "unmerged"]
