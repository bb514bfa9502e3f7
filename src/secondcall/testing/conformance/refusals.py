"""What every store refuses, before anything is written."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable

import pytest

from secondcall.abc import ANY_VERSION, Batch, EntryKey, Scope, Store
from secondcall.errors import InvalidValue, NotOpen, TooLarge
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
    total,
    write_documents,
)

__all__ = ["RefusalsSuite"]

SURROGATE = "a\ud800"


def _calls(store: Store) -> list[Callable[[], Awaitable[object]]]:
    """One call of each method that needs an open store."""
    return [
        lambda: store.header(SCOPE),
        lambda: record(store, entry("a")),
        lambda: store.changes(SCOPE, after=0, limit=1),
        lambda: store.entries(SCOPE, [key("a")]),
        lambda: store.read(SCOPE, limit=1),
        lambda: store.sessions(SCOPE, limit=1),
        lambda: store.document(SCOPE, "fact", "d"),
        lambda: store.documents(SCOPE, "fact", limit=1),
        lambda: store.put_blob(SCOPE, "b", b"", epoch=EPOCH),
        lambda: store.blob(SCOPE, "b"),
        lambda: store.blobs(SCOPE),
        lambda: store.delete_blobs(SCOPE, ["b"]),
        lambda: store.acquire_lease(SCOPE, "l", holder="h", now_us=0, seconds=1),
        lambda: store.release_lease(SCOPE, "l", holder="h"),
        lambda: store.scopes("tenant", "user", limit=1),
        lambda: store.erase(SCOPE),
        lambda: store.scan(SCOPE),
        lambda: store.finish_erasure(),
    ]


class RefusalsSuite(StoreSuite):
    """Closed stores, limits, sizes and names that are not accepted, each with one clear error."""

    async def test_closed_store_refuses_everything(self, store_factory: StoreFactory) -> None:
        """Before ``open`` and after ``aclose`` each method raises ``NotOpen``."""
        store = store_factory()
        for call in _calls(store):
            with pytest.raises(NotOpen):
                await call()
        await store.open()
        await record(store, entry("a"))
        await store.aclose()
        for call in _calls(store):
            with pytest.raises(NotOpen):
                await call()

    async def test_opening_and_closing_twice_is_harmless(self, store_factory: StoreFactory) -> None:
        """A second ``open`` or ``aclose`` changes nothing, and a closed store opens again."""
        store = store_factory()
        await store.aclose()
        await store.open()
        await store.open()
        await record(store, entry("a"))
        await store.aclose()
        await store.aclose()
        await store.open()
        await record(store, entry("b"))
        await store.aclose()

    async def test_limits_below_1_are_refused(self, store: Store) -> None:
        """A limit of 0 or less is an error in every listing, not everything and not nothing."""
        await record(store, entry("a"))
        for limit in (0, -1, -100):
            for call in (
                store.changes(SCOPE, after=0, limit=limit),
                store.read(SCOPE, limit=limit),
                store.sessions(SCOPE, limit=limit),
                store.documents(SCOPE, "fact", limit=limit),
                store.scopes("tenant", "user", limit=limit),
            ):
                with pytest.raises(InvalidValue, match="limit"):
                    await call

    async def test_bodies_over_the_declared_size_are_refused(self, store: Store) -> None:
        """One byte too much in an entry, document or blob is ``TooLarge`` and writes nothing."""
        await record(store)
        most = store.capabilities.max_document_bytes
        large = dataclasses.replace(entry("large"), body=bytes(most + 1))
        before = await store.scan(SCOPE)
        with pytest.raises(TooLarge, match=r"entries\[1\]"):
            await record(store, entry("a"), large)
        with pytest.raises(TooLarge, match=r"documents\[0\]"):
            await write_documents(store, document("d", bytes(most + 1)))
        blob = bytes(store.capabilities.max_blob_bytes + 1)
        with pytest.raises(TooLarge, match="blob"):
            await store.put_blob(SCOPE, "b", blob, epoch=EPOCH)
        assert await store.scan(SCOPE) == before
        await record(store, dataclasses.replace(large, body=bytes(most)))
        (found,) = await store.entries(SCOPE, [key("large")])
        assert found.body == bytes(most)
        await write_documents(store, document("d", bytes(most)))
        assert len(await all_changes(store)) == 1

    async def test_empty_names_are_refused(self, store: Store) -> None:
        """Names that pages begin after, and so could not show when empty, must not be empty."""
        await record(store)
        with pytest.raises(InvalidValue):
            await record(store, scope=Scope("tenant", "user", ""))
        with pytest.raises(InvalidValue):
            await write_documents(store, document(""))
        with pytest.raises(InvalidValue):
            await store.put_blob(SCOPE, "", b"x", epoch=EPOCH)

    async def test_lone_surrogates_are_refused(self, store: Store) -> None:
        """Text that is not Unicode is refused wherever it stands, and nothing is written."""
        await record(store)
        before = await store.scan(SCOPE)
        for batch in (
            Batch(entries=[entry("a"), entry(SURROGATE)]),
            Batch(entries=[entry("a", session_id=SURROGATE)]),
            Batch(entries=[entry("a")], removals=[EntryKey(SURROGATE, "message", "a")]),
            Batch(documents=[document("d"), document(SURROGATE)]),
            Batch(documents=[document("d", kind=SURROGATE)]),
        ):
            with pytest.raises(InvalidValue, match="surrogate"):
                await store.write(SCOPE, batch, epoch=EPOCH, now_us=NOW_US)
        with pytest.raises(InvalidValue, match="surrogate"):
            await record(store, scope=Scope(SURROGATE, "user", "alice"))
        with pytest.raises(InvalidValue, match="surrogate"):
            await store.put_blob(SCOPE, SURROGATE, b"x", epoch=EPOCH)
        assert await store.scan(SCOPE) == before

    async def test_numbers_over_64_bits_are_refused(self, store: Store) -> None:
        """A time that does not fit into 64 bits is refused, and nothing is written."""
        for at_us in (2**63, -(2**63) - 1):
            with pytest.raises(InvalidValue):
                await record(store, entry("a"), entry("b", at_us=at_us))
            late = dataclasses.replace(document("d", expected=ANY_VERSION), expires_us=at_us)
            with pytest.raises(InvalidValue):
                await write_documents(store, late)
        assert await total(store) == 0
        await record(store, entry("a", at_us=2**63 - 1), entry("b", at_us=-(2**63)))
        assert [one.key.id for one in await store.read(SCOPE, limit=9)] == ["b", "a"]

    async def test_errors_do_not_show_what_is_remembered(self, store: Store) -> None:
        """No refusal repeats a body, so that errors can be logged."""
        most = store.capabilities.max_document_bytes
        with pytest.raises(TooLarge) as caught:
            await write_documents(store, document("d", b"secret" + bytes(most)))
        assert "secret" not in str(caught.value)
