"""Open indexes: shared, bounded, repaired, never mixed, and aware of other processes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from secondcall import EmbedderError, Memory, Message
from secondcall.abc import Scope, Store
from secondcall.record.manifest import read_manifest
from secondcall.registry import store_from_url
from secondcall.testing.fakes import WordAxisEmbedder

pytestmark = pytest.mark.anyio

SCOPE = Scope("default", "user", "ann")
LINES = ["dog hound", "car automobile", "tea", "porto"]


class _Remote(WordAxisEmbedder):
    """An embedder that waits, counts its requests, and can fail."""

    local = False

    def __init__(self, vocabulary: Sequence[str]) -> None:
        super().__init__(vocabulary, id="remote")
        self.requests = 0
        self.broken = False

    async def embed_documents(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        await asyncio.sleep(0)
        self.requests += 1
        if self.broken:
            raise EmbedderError("the endpoint answered 503")
        return await super().embed_documents(texts)

    async def embed_query(self, text: str) -> npt.NDArray[np.float32]:
        await asyncio.sleep(0)
        if self.broken:
            raise EmbedderError("the endpoint answered 503")
        return await super().embed_query(text)


async def _fill(memory: Memory, count: int, *, user_id: str = "ann") -> None:
    session = await memory.user(user_id).session("s")
    for start in range(0, count, 200):
        await session.record(
            *(
                Message("user", f"note {n} about subject{n}", id=str(n))
                for n in range(start, min(count, start + 200))
            )
        )
    await memory.flush()


async def _ids(memory: Memory, query: str, limit: int = 1) -> list[str]:
    found = await memory.user("ann").recall(query, limit=limit)
    return [one.key.id for one in found.items]


async def _store(url: str) -> Store:
    store = store_from_url(url)
    await store.open()
    return store


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A SQLite file."""
    return f"sqlite:///{tmp_path / 'm.db'}"


async def test_what_another_process_writes_is_found(url: str) -> None:
    """A memory opened apart sees the other's writes at its next recall, facts included."""
    async with Memory.open(url) as first, Memory.open(url) as second:
        await _fill(first, 10)
        assert await _ids(second, "subject7") == ["7"]
        await _fill(first, 12)
        await first.user("ann").remember("dog", "Rex")
        assert await _ids(second, "subject11") == ["11"]
        found = await second.user("ann").recall("what dog?")
        assert [one.fact.value for one in found.facts] == ["Rex"]


async def test_what_another_process_erases_is_gone(url: str) -> None:
    """An open index of a user that another memory forgot finds nothing more."""
    async with Memory.open(url) as first, Memory.open(url) as second:
        await _fill(first, 10)
        assert await _ids(second, "subject7") == ["7"]
        await first.user("ann").forget()
        assert await _ids(second, "subject7") == []


async def test_a_damaged_segment_is_replaced_by_the_record(url: str) -> None:
    """With a segment's bytes destroyed everything is still found, and the segment is repaired."""
    async with Memory.open(url) as memory:
        await _fill(memory, 1_200)
    store = await _store(url)
    header = await store.header(SCOPE)
    assert header is not None
    listed = (await read_manifest(store, SCOPE)).segments
    assert listed
    await store.put_blob(SCOPE, listed[0].name, b"garbage", epoch=header.epoch)
    async with Memory.open(url) as memory:
        assert await _ids(memory, "subject3") == ["3"]
        await memory.flush()
    repaired = (await read_manifest(store, SCOPE)).segments
    assert await store.blob(SCOPE, repaired[0].name) not in (None, b"garbage")
    await store.aclose()


async def test_a_missing_segment_is_replaced_by_the_record(url: str) -> None:
    """With a segment gone everything is still found."""
    async with Memory.open(url) as memory:
        await _fill(memory, 600)
    store = await _store(url)
    await store.delete_blobs(
        SCOPE, [one.name for one in (await read_manifest(store, SCOPE)).segments]
    )
    await store.aclose()
    async with Memory.open(url) as memory:
        assert await _ids(memory, "subject3") == ["3"]


async def test_opening_never_indexes_more_than_the_tail(url: str) -> None:
    """After many small batches nearly everything is in few segments, in order and without gaps."""
    async with Memory.open(url) as memory:
        session = await memory.user("ann").session("s")
        for start in range(0, 6_000, 50):
            await session.record(
                *(Message("user", f"note {n}", id=str(n)) for n in range(start, start + 50))
            )
        await memory.flush()
    store = await _store(url)
    header = await store.header(SCOPE)
    manifest = await read_manifest(store, SCOPE)
    await store.aclose()
    assert header is not None
    assert header.change - manifest.sealed_through < 1_024
    assert len(manifest.segments) <= 16
    ends = [0, *(one.last_change for one in manifest.segments)]
    assert [one.first_change for one in manifest.segments] == [end + 1 for end in ends[:-1]]


async def test_another_embedder_s_vectors_are_never_used(url: str) -> None:
    """With another embedder the words still find it; reindexing brings the meaning back."""
    first = WordAxisEmbedder(LINES, id="first")
    async with Memory.open(url, embedder=first) as memory:
        session = await memory.user("ann").session("s")
        await session.record(*(Message("user", f"filler{n}", id=f"f{n}") for n in range(600)))
        await session.record(Message("user", "my hound sleeps", id="hound"))
        await memory.user("ann").reindex()
    second = WordAxisEmbedder([*LINES, "bus"], id="second")
    async with Memory.open(url, embedder=second) as memory:
        assert await _ids(memory, "hound") == ["hound"]
        await memory.user("ann").reindex()
        assert await _ids(memory, "dog") == ["hound"]


async def test_a_remote_model_is_asked_in_batches_and_once_for_the_same_words(url: str) -> None:
    """600 messages of 30 different texts take a handful of requests, each text sent once."""
    remote = _Remote(LINES)
    async with Memory.open(url, embedder=remote) as memory:
        session = await memory.user("ann").session("s")
        await session.record(
            *(Message("user", f"text {n % 30} dog", id=str(n)) for n in range(600))
        )
        await memory.flush()
    assert remote.requests <= 2
    assert len(remote.seen) == len(set(remote.seen)) == 30


async def test_recording_does_not_wait_for_the_model(url: str) -> None:
    """With the model down, recording, the words and the brief go on."""
    remote = _Remote(LINES)
    remote.broken = True
    async with Memory.open(url, embedder=remote) as memory:
        await _fill(memory, 600)
        assert await _ids(memory, "subject7") == ["7"]
        assert (await memory.user("ann").brief(deadline_seconds=None)).known
        remote.broken = False
        await memory.user("ann").reindex()
        assert await _ids(memory, "subject7") == ["7"]


async def test_a_remote_model_gives_meaning_to_the_newest_items(url: str) -> None:
    """Items not yet in a segment get their vectors in the background."""
    remote = _Remote(LINES)
    async with Memory.open(url, embedder=remote) as memory:
        session = await memory.user("ann").session("s")
        await session.record(Message("user", "my hound sleeps", id="hound"))
        await session.record(Message("user", "I drink tea", id="tea"))
        await memory.user("ann").recall("anything")
        await memory.flush()
        assert await _ids(memory, "dog") == ["hound"]


async def test_open_indexes_are_bounded(url: str) -> None:
    """Of many users only as many indexes stay open as the limit allows, and all answer."""
    async with Memory.open(url, index_bytes=200_000) as memory:
        for number in range(10):
            await _fill(memory, 200, user_id=f"user{number}")
        for number in range(10):
            assert (await memory.user(f"user{number}").recall("subject7", limit=1)).items
        cache = memory._shared.cache  # pyright: ignore[reportPrivateUsage] - seen from inside
        opened = [
            number
            for number in range(10)
            if cache.peek((Scope("default", "user", f"user{number}"),)) is not None
        ]
        assert 1 <= len(opened) < 10


async def test_many_questions_at_once_share_one_load(url: str) -> None:
    """Fifty recalls of a cold user at once all answer alike."""
    async with Memory.open(url) as memory:
        await _fill(memory, 1_000)
    async with Memory.open(url) as memory:
        found = await asyncio.gather(*(_ids(memory, "subject77") for _ in range(50)))
    assert found == [["77"]] * 50


async def test_a_call_that_begins_has_its_newest_words_embedded() -> None:
    """The brief sees to the vectors of what no segment holds, so that the first question finds it
    by meaning."""
    embedder = _Remote(LINES)
    async with Memory.open("memory://", embedder=embedder) as memory:
        user = memory.user("ann")
        session = await user.session("s")
        hound = Message("user", "a hound", id="hound")
        await session.record(hound, Message("user", "some tea"))
        await user.brief()
        await memory.flush()
        assert embedder.requests == 1
        found = await user.recall("dog", limit=1)
        assert [one.key.id for one in found.items] == [hound.id]
