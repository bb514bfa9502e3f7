"""What the conformance tests are made of: the base class with its fixtures, entries, documents."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from secondcall.abc import (
    Batch,
    Change,
    DocumentWrite,
    EntryKey,
    NewEntry,
    Scope,
    Store,
    Written,
)

__all__ = [
    "EPOCH",
    "NOW_US",
    "SCOPE",
    "YEAR_1_US",
    "YEAR_9999_US",
    "StoreFactory",
    "StoreSuite",
    "all_changes",
    "document",
    "entry",
    "key",
    "record",
    "total",
    "write_documents",
]

StoreFactory = Callable[[], Store]
"""Gives a new store over the same data, not opened yet."""

SCOPE = Scope("tenant", "user", "alice")
EPOCH = b"0123456789abcdef"
NOW_US = 1_767_225_600_000_000
YEAR_1_US = -62_135_596_800_000_000
YEAR_9999_US = 253_402_300_799_999_999


class StoreSuite:
    """The fixtures that every part of the suite uses. Override ``store_factory``."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def anyio_backend(self) -> str:
        """The event loop of the suite."""
        return "asyncio"

    @pytest.fixture
    def store_factory(self) -> StoreFactory:
        """Makes stores over one empty place, a new place for each test."""
        raise NotImplementedError(
            "override the fixture store_factory: it returns a function that makes a store, not "
            "opened yet, over a place that is empty when the test begins"
        )

    @pytest.fixture
    async def store(self, store_factory: StoreFactory) -> AsyncIterator[Store]:
        """An open store; after the test its own check must find nothing wrong."""
        store = store_factory()
        await store.open()
        yield store
        assert list(await store.problems()) == []
        await store.aclose()


def key(item_id: str, session_id: str = "s") -> EntryKey:
    """The key of a message."""
    return EntryKey(session_id, "message", item_id)


def entry(
    item_id: str,
    text: str = "words",
    *,
    session_id: str = "s",
    at_us: int = NOW_US,
    keeps_time: bool = False,
) -> NewEntry:
    """A message whose digest is that of its text."""
    body = text.encode()
    digest = hashlib.blake2b(body, digest_size=16).digest()
    return NewEntry(
        key=key(item_id, session_id), at_us=at_us, body=body, digest=digest, keeps_time=keeps_time
    )


def document(
    name: str,
    body: bytes | None = b"{}",
    *,
    expected: int | None = None,
    kind: str = "fact",
    announce: bool = False,
) -> DocumentWrite:
    """A compare-and-set, by default one that saves if absent."""
    return DocumentWrite(
        kind=kind, key=name, body=body, expected_version=expected, announce=announce
    )


async def record(store: Store, *entries: NewEntry, scope: Scope = SCOPE) -> Written:
    """Append entries, making the partition if need be."""
    return await store.write(scope, Batch(entries=entries), epoch=EPOCH, now_us=NOW_US, create=True)


async def write_documents(store: Store, *documents: DocumentWrite, scope: Scope = SCOPE) -> Written:
    """Write documents, making the partition if need be."""
    return await store.write(
        scope, Batch(documents=documents), epoch=EPOCH, now_us=NOW_US, create=True
    )


async def all_changes(store: Store, scope: Scope = SCOPE) -> Sequence[Change]:
    """The whole change log, after checking that its numbers are 1, 2, 3 and so on."""
    changes = await store.changes(scope, after=0, limit=100_000)
    assert [change.number for change in changes] == list(range(1, len(changes) + 1))
    header = await store.header(scope)
    assert (0 if header is None else header.change) == len(changes)
    return changes


async def total(store: Store, scope: Scope = SCOPE) -> int:
    """How many rows a scan finds, in all places together."""
    return sum((await store.scan(scope)).values())
