"""Blobs and leases."""

from __future__ import annotations

import time

from secondcall.abc import Store
from secondcall.testing.conformance.material import EPOCH, SCOPE, StoreSuite, record

__all__ = ["BlobsSuite"]

SECOND_US = 1_000_000


class BlobsSuite(StoreSuite):
    """Blobs come back byte by byte; leases run out by the time that is passed in."""

    async def test_blobs_come_back(self, store: Store) -> None:
        """A blob of any bytes, empty or of some megabytes, is there as soon as it was put."""
        await record(store)
        blobs = {"empty": b"", "bytes": bytes(range(256)), "large": b"\x00segment\xff" * 400_000}
        for name, data in blobs.items():
            assert await store.blob(SCOPE, name) is None
            await store.put_blob(SCOPE, name, data, epoch=EPOCH)
            assert await store.blob(SCOPE, name) == data
        assert set(await store.blobs(SCOPE)) == set(blobs)
        for name, data in blobs.items():
            assert await store.blob(SCOPE, name) == data

    async def test_blob_is_replaced(self, store: Store) -> None:
        """The same name holds the newest bytes, also when they are fewer, at a later time."""
        await record(store)
        await store.put_blob(SCOPE, "b", b"x" * 3_000_000, epoch=EPOCH)
        first = (await store.blobs(SCOPE))["b"]
        await store.put_blob(SCOPE, "b", b"short", epoch=EPOCH)
        assert await store.blob(SCOPE, "b") == b"short"
        assert (await store.blobs(SCOPE))["b"] >= first

    async def test_blob_times_are_the_machines(self, store: Store) -> None:
        """The time of a blob is when it was put, within a minute."""
        await record(store)
        await store.put_blob(SCOPE, "b", b"x", epoch=EPOCH)
        put_us = (await store.blobs(SCOPE))["b"]
        assert abs(put_us - time.time_ns() // 1_000) < 60 * SECOND_US

    async def test_blobs_are_deleted(self, store: Store) -> None:
        """Deleting takes the named blobs, and absent ones are fine, also without a partition."""
        await store.delete_blobs(SCOPE, ["a"])
        await record(store)
        for name in ("a", "b", "c"):
            await store.put_blob(SCOPE, name, b"x", epoch=EPOCH)
        await store.delete_blobs(SCOPE, ["a", "x", "c", "a"])
        assert list(await store.blobs(SCOPE)) == ["b"]
        assert await store.blob(SCOPE, "a") is None
        assert await store.blob(SCOPE, "b") == b"x"

    async def test_blobs_take_no_number(self, store: Store) -> None:
        """Putting and deleting blobs does not move the header."""
        await record(store)
        await store.put_blob(SCOPE, "b", b"x", epoch=EPOCH)
        await store.delete_blobs(SCOPE, ["b"])
        header = await store.header(SCOPE)
        assert header is not None
        assert header.change == 0

    async def test_lease_has_one_holder(self, store: Store) -> None:
        """A lease is refused to others until it ran out, and renewed by its holder."""
        await record(store)

        async def take(holder: str, at_seconds: float) -> bool:
            return await store.acquire_lease(
                SCOPE, "l", holder=holder, now_us=round(at_seconds * SECOND_US), seconds=10
            )

        assert await take("one", 0)
        assert not await take("two", 9.999999)
        assert await take("one", 5)
        assert not await take("two", 14.9)
        assert await take("two", 15)
        assert not await take("one", 15)
        assert await take("one", 1_000)

    async def test_lease_is_given_back(self, store: Store) -> None:
        """Only its holder gives a lease back; it is free at once."""
        await record(store)
        assert await store.acquire_lease(SCOPE, "l", holder="one", now_us=0, seconds=10)
        await store.release_lease(SCOPE, "l", holder="two")
        assert not await store.acquire_lease(SCOPE, "l", holder="two", now_us=1, seconds=10)
        await store.release_lease(SCOPE, "l", holder="one")
        await store.release_lease(SCOPE, "l", holder="one")
        assert await store.acquire_lease(SCOPE, "l", holder="two", now_us=1, seconds=10)

    async def test_absent_partition_has_no_leases(self, store: Store) -> None:
        """Without a partition no lease is given, and asking leaves nothing behind."""
        assert not await store.acquire_lease(SCOPE, "l", holder="one", now_us=0, seconds=10)
        await store.release_lease(SCOPE, "l", holder="one")
        assert sum((await store.scan(SCOPE)).values()) == 0
