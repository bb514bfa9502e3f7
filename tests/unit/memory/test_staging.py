"""Writes that are kept until they are committed together."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from secondcall import VersionConflict
from secondcall.abc import ANY_VERSION, Batch, DocumentWrite, Scope
from secondcall.memory.staging import StagedStore
from secondcall.stores.memory import MemoryStore

SCOPE = Scope("t", "user", "ann")
EPOCH = b"e" * 16


def _batch(key: str, body: bytes | None, version: int | None) -> Batch:
    write = DocumentWrite(kind="k", key=key, body=body, expected_version=version)
    return Batch(documents=[write])


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    """A store with a document ``b`` of version 1."""
    opened = MemoryStore()
    await opened.open()
    await opened.write(SCOPE, _batch("b", b"1", None), epoch=EPOCH, now_us=1, create=True)
    yield opened
    await opened.aclose()


async def _keys(store: MemoryStore | StagedStore, limit: int = 10) -> list[tuple[str, bytes]]:
    return [(one.key, one.body) for one in await store.documents(SCOPE, "k", limit=limit)]


async def test_reads_see_what_is_staged_and_nobody_else_does(store: MemoryStore) -> None:
    """New, changed and deleted documents are seen through the staged store only, until it is
    committed; pages keep their order and length."""
    staged = StagedStore(store, SCOPE)
    for batch in (_batch("c", b"3", None), _batch("a", b"0", None), _batch("b", b"2", 1)):
        await staged.write(SCOPE, batch, epoch=EPOCH, now_us=2)
    await staged.write(SCOPE, _batch("c", None, 1), epoch=EPOCH, now_us=2)
    assert await _keys(staged) == [("a", b"0"), ("b", b"2")]
    assert await _keys(staged, limit=1) == [("a", b"0")]
    assert await _keys(store) == [("b", b"1")]
    changed = await staged.document(SCOPE, "k", "b")
    assert changed is not None
    assert changed.version == 2
    await staged.commit(epoch=EPOCH, now_us=3)
    assert await _keys(store) == [("a", b"0"), ("b", b"2")]


async def test_a_wrong_version_is_a_conflict_at_once(store: MemoryStore) -> None:
    """What the store would refuse is refused when it is staged, and nothing of it is kept."""
    staged = StagedStore(store, SCOPE)
    with pytest.raises(VersionConflict):
        await staged.write(SCOPE, _batch("b", b"2", None), epoch=EPOCH, now_us=2)
    await staged.commit(epoch=EPOCH, now_us=3)
    assert await _keys(store) == [("b", b"1")]


async def test_a_change_meanwhile_refuses_all_of_it(store: MemoryStore) -> None:
    """When somebody changed a document after it was first seen, nothing is written."""
    staged = StagedStore(store, SCOPE)
    await staged.write(SCOPE, _batch("a", b"0", None), epoch=EPOCH, now_us=2)
    await staged.write(SCOPE, _batch("b", b"2", 1), epoch=EPOCH, now_us=2)
    await store.write(SCOPE, _batch("b", b"9", 1), epoch=EPOCH, now_us=2)
    with pytest.raises(VersionConflict):
        await staged.commit(epoch=EPOCH, now_us=3)
    assert await _keys(store) == [("b", b"9")]


async def test_whatever_is_there_stays_so(store: MemoryStore) -> None:
    """A write over any version is one in the end, too."""
    staged = StagedStore(store, SCOPE)
    await staged.write(SCOPE, _batch("b", b"2", ANY_VERSION), epoch=EPOCH, now_us=2)
    await store.write(SCOPE, _batch("b", b"9", 1), epoch=EPOCH, now_us=2)
    await staged.commit(epoch=EPOCH, now_us=3)
    assert await _keys(store) == [("b", b"2")]
