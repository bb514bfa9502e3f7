"""What a store declares about durability and sharing, proved with a second store."""

from __future__ import annotations

import anyio
import pytest

from secondcall.abc import Batch, Store
from secondcall.errors import UserErased, VersionConflict
from secondcall.testing.conformance.material import (
    EPOCH,
    NOW_US,
    SCOPE,
    StoreFactory,
    StoreSuite,
    all_changes,
    document,
    entry,
    key,
    record,
    write_documents,
)

__all__ = ["ReopeningSuite"]


async def _everything(store: Store) -> list[object]:
    return [
        await store.header(SCOPE),
        list(await store.changes(SCOPE, after=0, limit=99)),
        list(await store.read(SCOPE, limit=99)),
        list(await store.sessions(SCOPE, limit=99)),
        list(await store.documents(SCOPE, "fact", limit=99)),
        dict(await store.blobs(SCOPE)),
        await store.blob(SCOPE, "b"),
        dict(await store.scan(SCOPE)),
    ]


async def _fill(store: Store) -> None:
    await record(store, entry("a", "one"), entry("b", "two", session_id="t"))
    await record(store, entry("a", "corrected", at_us=NOW_US + 1), entry("c"))
    await store.write(SCOPE, Batch(removals=[key("c")]), epoch=EPOCH, now_us=NOW_US)
    await write_documents(store, document("d", announce=True), document("e"))
    await write_documents(store, document("e", None, expected=1))
    await store.put_blob(SCOPE, "b", b"segment", epoch=EPOCH)
    await store.acquire_lease(SCOPE, "l", holder="one", now_us=0, seconds=10)


def _needs_sharing(store: Store) -> None:
    if not store.capabilities.shared:
        pytest.skip("this store declares shared=False")


class ReopeningSuite(StoreSuite):
    """A second store over the same data sees what was acknowledged, as far as it is declared."""

    async def test_store_is_reopened(self, store_factory: StoreFactory) -> None:
        """After closing, a new store over a durable place shows the same; else it is empty."""
        first = store_factory()
        await first.open()
        await _fill(first)
        before = await _everything(first)
        await first.aclose()
        second = store_factory()
        await second.open()
        if second.capabilities.durable == "never":
            assert await second.header(SCOPE) is None
        else:
            assert await _everything(second) == before
            assert not await second.acquire_lease(SCOPE, "l", holder="two", now_us=1, seconds=1)
            written = await record(second, entry("c", "again"))
            assert (written.first_change, written.change) == (7, 7)
            await write_documents(second, document("e"))
            found = await second.document(SCOPE, "fact", "e")
            assert found is not None
            assert found.version == 2
            assert list(await second.problems()) == []
        await second.aclose()

    async def test_erasure_outlives_the_store(self, store_factory: StoreFactory) -> None:
        """A new store refuses the epoch that an earlier one erased."""
        first = store_factory()
        await first.open()
        await _fill(first)
        await first.erase(SCOPE)
        await first.aclose()
        second = store_factory()
        await second.open()
        if second.capabilities.durable != "never":
            assert sum((await second.scan(SCOPE)).values()) == 0
            with pytest.raises(UserErased):
                await record(second, entry("late"))
        await second.aclose()

    async def test_acknowledged_writes_are_there_without_closing(
        self, store: Store, store_factory: StoreFactory
    ) -> None:
        """Another store opened beside the first sees each write as soon as it returned."""
        _needs_sharing(store)
        second = store_factory()
        await second.open()
        for number in range(1, 21):
            writer, reader = (store, second) if number % 2 else (second, store)
            assert (await record(writer, entry(f"i{number}"))).change == number
            assert len(await all_changes(reader)) == number
        await _fill(store)
        assert await _everything(second) == await _everything(store)
        await second.aclose()

    async def test_two_stores_share_one_log(
        self, store: Store, store_factory: StoreFactory
    ) -> None:
        """Two stores that write at once give numbers without gaps and one winner each time."""
        _needs_sharing(store)
        second = store_factory()
        await second.open()
        won: list[int] = []

        async def write(one: Store, name: int) -> None:
            for number in range(15):
                await record(one, entry(f"{name}-{number}"))
                try:
                    await write_documents(one, document(f"d{number}", b"%d" % name))
                except VersionConflict:
                    continue
                won.append(number)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write, store, 1)
            tasks.start_soon(write, second, 2)
        assert len(await all_changes(store)) == 30
        assert sorted(won) == list(range(15))
        await second.aclose()

    async def test_two_stores_make_one_partition(
        self, store: Store, store_factory: StoreFactory
    ) -> None:
        """The epoch that one store gave is seen by the other, and so is its erasure."""
        _needs_sharing(store)
        second = store_factory()
        await second.open()
        await record(store, entry("a"))
        with pytest.raises(UserErased):
            await second.write(SCOPE, Batch(), epoch=b"other", now_us=NOW_US, create=True)
        await store.erase(SCOPE)
        with pytest.raises(UserErased):
            await record(second, entry("b"))
        assert await second.header(SCOPE) is None
        await second.aclose()

    async def test_two_stores_may_open_at_once(self, store_factory: StoreFactory) -> None:
        """Several stores that open an empty place at the same time all work."""
        stores = [store_factory() for _ in range(4)]
        async with anyio.create_task_group() as tasks:
            for one in stores:
                tasks.start_soon(one.open)
        for number, one in enumerate(stores):
            await record(one, entry(f"i{number}"))
        if stores[0].capabilities.shared:
            assert len(await all_changes(stores[0])) == 4
        for one in stores:
            await one.aclose()
