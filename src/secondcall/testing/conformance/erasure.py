"""Epochs and erasure: nothing comes back, and nobody else is touched."""

from __future__ import annotations

import anyio
import pytest

from secondcall.abc import Batch, Header, Scope, Store
from secondcall.errors import UserErased
from secondcall.testing.conformance.material import (
    EPOCH,
    NOW_US,
    SCOPE,
    StoreSuite,
    all_changes,
    document,
    entry,
    key,
    record,
    total,
    write_documents,
)

__all__ = ["ErasureSuite"]

OTHER_EPOCH = b"fedcba9876543210"
NEIGHBOUR = Scope("tenant", "user", "alice2")


async def _fill(store: Store, scope: Scope = SCOPE) -> None:
    await record(
        store,
        *(entry(f"i{n}", f"text {n}", session_id=f"s{n % 3}") for n in range(300)),
        scope=scope,
    )
    await record(store, entry("i0", "corrected", session_id="s0"), scope=scope)
    await store.write(scope, Batch(removals=[key("i1", "s1")]), epoch=EPOCH, now_us=NOW_US)
    await write_documents(store, document("d", announce=True), document("gone"), scope=scope)
    await write_documents(store, document("gone", None, expected=1), scope=scope)
    await store.put_blob(scope, "b", b"segment" * 1_000, epoch=EPOCH)
    assert await store.acquire_lease(scope, "seal", holder="me", now_us=0, seconds=60)


async def _refused(store: Store, epoch: bytes, *, create: bool) -> None:
    """Every kind of write under this epoch is refused and leaves nothing."""
    before = await store.scan(SCOPE)
    for batch in (
        Batch(),
        Batch(entries=[entry("late")]),
        Batch(removals=[key("i0", "s0")]),
        Batch(documents=[document("late")]),
        Batch(documents=[document("late", announce=True, expected=7)]),
        Batch(entries=[entry("late")], documents=[document("late")]),
    ):
        with pytest.raises(UserErased):
            await store.write(SCOPE, batch, epoch=epoch, now_us=NOW_US, create=create)
    with pytest.raises(UserErased):
        await store.put_blob(SCOPE, "late", b"x", epoch=epoch)
    assert await store.scan(SCOPE) == before


class ErasureSuite(StoreSuite):
    """The epoch guards every write; erasing empties every place and only of this partition."""

    async def test_other_epoch_is_refused(self, store: Store) -> None:
        """Under another epoch no entry, removal, document or blob is written."""
        await _fill(store)
        await _refused(store, OTHER_EPOCH, create=False)
        await _refused(store, OTHER_EPOCH, create=True)
        header = await store.header(SCOPE)
        assert header is not None
        assert header.epoch == EPOCH

    async def test_erasure_empties_every_place(self, store: Store) -> None:
        """After erasing nothing is read, scanned or listed, and each place says what went."""
        await _fill(store)
        before = await store.scan(SCOPE)
        assert sum(before.values()) >= 304
        removed = await store.erase(SCOPE)
        assert dict(removed) == dict(before)
        assert set((await store.scan(SCOPE)).values()) == {0}
        assert await store.header(SCOPE) is None
        assert list(await store.changes(SCOPE, after=0, limit=9)) == []
        assert list(await store.read(SCOPE, limit=9)) == []
        assert list(await store.read(SCOPE, session_id="s0", limit=9)) == []
        assert list(await store.entries(SCOPE, [key("i0", "s0")])) == []
        assert list(await store.sessions(SCOPE, limit=9)) == []
        assert await store.document(SCOPE, "fact", "d") is None
        assert list(await store.documents(SCOPE, "fact", limit=9)) == []
        assert await store.blob(SCOPE, "b") is None
        assert dict(await store.blobs(SCOPE)) == {}
        assert list(await store.scopes("tenant", "user", limit=9)) == []

    async def test_erased_epoch_is_refused_for_ever(self, store: Store) -> None:
        """What was queued under the erased epoch cannot come back, not even with ``create``."""
        await _fill(store)
        await store.erase(SCOPE)
        await _refused(store, EPOCH, create=False)
        for batch in (Batch(), Batch(entries=[entry("late")])):
            with pytest.raises(UserErased):
                await store.write(SCOPE, batch, epoch=EPOCH, now_us=NOW_US, create=True)
        assert await total(store) == 0
        await store.write(SCOPE, Batch(), epoch=OTHER_EPOCH, now_us=NOW_US, create=True)
        await _refused(store, EPOCH, create=True)

    async def test_returning_user_begins_anew(self, store: Store) -> None:
        """Under a new epoch numbers, versions, blobs and leases begin as for the first time."""
        await _fill(store)
        await store.erase(SCOPE)
        written = await store.write(
            SCOPE,
            Batch(entries=[entry("i0", "new")], documents=[document("gone")]),
            epoch=OTHER_EPOCH,
            now_us=NOW_US,
            create=True,
        )
        assert (list(written.entry_changes), written.change) == ([1], 1)
        assert await store.header(SCOPE) == Header(epoch=OTHER_EPOCH, change=1)
        found = await store.document(SCOPE, "fact", "gone")
        assert found is not None
        assert found.version == 1
        assert len(await all_changes(store)) == 1
        assert [one.session_id for one in await store.sessions(SCOPE, limit=9)] == ["s"]
        assert dict(await store.blobs(SCOPE)) == {}
        assert await store.acquire_lease(SCOPE, "seal", holder="other", now_us=0, seconds=1)

    async def test_absent_partition_is_erased_with_zeros(self, store: Store) -> None:
        """Erasing what is not there, or twice, gives zeros for the same places as a scan."""
        removed = await store.erase(SCOPE)
        assert set(removed.values()) == {0}
        assert removed.keys() == (await store.scan(SCOPE)).keys()
        await _fill(store)
        await store.erase(SCOPE)
        assert set((await store.erase(SCOPE)).values()) == {0}

    async def test_erasure_leaves_others_alone(self, store: Store) -> None:
        """A neighbour keeps every row, and can write while the other is erased."""
        await _fill(store)
        await _fill(store, NEIGHBOUR)
        before = await store.scan(NEIGHBOUR)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(store.erase, SCOPE)
            for number in range(20):
                await record(store, entry(f"new{number}", session_id="s0"), scope=NEIGHBOUR)
        assert await total(store) == 0
        assert await total(store, NEIGHBOUR) == sum(before.values()) + 20
        assert len(await all_changes(store, NEIGHBOUR)) == 323

    async def test_writes_that_race_with_erasure_do_not_stay(self, store: Store) -> None:
        """Whichever writes were on their way, after the erasure nothing of them is there."""
        await record(store)
        refused: list[int] = []

        async def write(number: int) -> None:
            try:
                await record(store, entry(f"i{number}", f"text {number}"))
                await store.put_blob(SCOPE, f"b{number}", b"x", epoch=EPOCH)
            except UserErased:
                refused.append(number)

        async with anyio.create_task_group() as tasks:
            for number in range(30):
                tasks.start_soon(write, number)
                if number == 15:
                    tasks.start_soon(store.erase, SCOPE)
        assert await store.header(SCOPE) is None
        assert await total(store) == 0

    async def test_erasure_is_finished(self, store: Store) -> None:
        """With nobody else using the store, what was erased is gone from its files and logs."""
        await _fill(store)
        await _fill(store, NEIGHBOUR)
        await store.erase(SCOPE)
        result = await store.finish_erasure()
        assert result.complete, result.detail
        assert len(await all_changes(store, NEIGHBOUR)) == 303
        assert (await store.finish_erasure()).complete
