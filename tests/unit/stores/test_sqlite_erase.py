"""Erasure in a SQLite file: the bytes of what was forgotten are gone from the file and its log."""

from __future__ import annotations

import random
import secrets
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import anyio
import apsw
import pytest

from secondcall.abc import ANY_VERSION, Batch, EntryKey, NewEntry, Scope
from secondcall.stores import sqlite, sqlite_erase
from secondcall.stores.sqlite import SqliteStore
from secondcall.testing.conformance.material import EPOCH, NOW_US, document, entry, record, total

pytestmark = pytest.mark.anyio

USERS = [Scope("tenant", "user", f"user{number}") for number in range(4)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The database file."""
    return tmp_path / "memory.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    """An open store; its own check finds nothing wrong at the end."""
    store = SqliteStore(f"sqlite:///{path}")
    await store.open()
    yield store
    assert list(await store.problems()) == []
    await store.aclose()


def _overwrite_nothing(*_: object) -> None:
    return


def _bytes_of(path: Path) -> bytes:
    return b"".join(one.read_bytes() for one in sorted(path.parent.glob(f"{path.name}*")))


async def _fill(store: SqliteStore, words: Mapping[Scope, str], turns: int, seed: int) -> None:
    """Users who write in turn, rows of very different sizes, corrections and removals.

    The user's word stands in texts, item ids, session ids, document keys and blob bytes.
    """
    chance = random.Random(seed)
    for turn in range(turns):
        scope = chance.choice(list(words))
        word = words[scope]
        entries = [
            NewEntry(
                key=EntryKey(
                    f"{word}-session{chance.randrange(6)}",
                    "message",
                    f"{word}-{chance.randrange(2_000)}" + "x" * chance.randrange(60),
                ),
                at_us=NOW_US + chance.randrange(10**9),
                body=f"{word} {'y' * chance.choice([10, 90, 300, 700, 1_500, 6_000])}".encode(),
                digest=secrets.token_bytes(8),
            )
            for _ in range(chance.randrange(1, 25))
        ]
        await store.write(
            scope,
            Batch(
                entries=entries,
                removals=[entries[0].key] if turn % 5 == 0 else [],
                documents=[
                    document(
                        f"{word}-{turn}-{n}",
                        f"{word}{'z' * chance.randrange(900)}".encode(),
                        expected=ANY_VERSION,
                    )
                    for n in range(chance.randrange(4))
                ],
            ),
            epoch=EPOCH + scope.name.encode(),
            now_us=NOW_US,
            create=True,
        )
        if turn % 10 == 0:
            data = word.encode() * chance.randrange(1, 3_000)
            await store.put_blob(scope, f"{word}{turn}", data, epoch=EPOCH + scope.name.encode())


@pytest.mark.parametrize("seed", range(3))
async def test_no_byte_of_a_forgotten_user_is_left(
    store: SqliteStore, path: Path, seed: int
) -> None:
    """After forgetting three of four users none of their words is in the file or its log."""
    words = {scope: f"w{secrets.token_hex(6)}" for scope in USERS}
    await _fill(store, words, turns=150, seed=seed)
    for scope in USERS[:3]:
        word = words.pop(scope).encode()
        assert word in _bytes_of(path)
        await store.erase(scope)
        result = await store.finish_erasure()
        assert result.complete, result.detail
        assert word not in _bytes_of(path)
        await _fill(store, words, turns=20, seed=seed + 10)
        assert word not in _bytes_of(path)
    assert words[USERS[3]].encode() in _bytes_of(path)


async def test_deleting_alone_would_leave_copies(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without overwriting the unused bytes of pages some words stay, so the test above can fail."""
    monkeypatch.setattr(sqlite_erase, "_overwrite_unused", _overwrite_nothing)
    tenants = [f"tenant{number}" for number in range(12)]
    for seed, tenant_id in enumerate(tenants):
        users = [Scope(tenant_id, "user", f"user{number}") for number in range(4)]
        words = {scope: f"w{secrets.token_hex(6)}" for scope in users}
        await _fill(store, words, turns=60, seed=seed)
        await store.erase(users[0])
        assert (await store.finish_erasure()).complete
        if words[users[0]].encode() in _bytes_of(path):
            return
    pytest.fail("SQLite leaves no copies any more: overwriting unused bytes may not be needed")


async def test_cached_pages_do_not_bring_bytes_back(store: SqliteStore, path: Path) -> None:
    """Another store that had read and then writes the same pages brings nothing back."""
    words = {scope: f"w{secrets.token_hex(6)}" for scope in USERS}
    await _fill(store, words, turns=120, seed=7)
    other = SqliteStore(f"sqlite:///{path}")
    await other.open()
    for scope in USERS:
        await other.read(scope, limit=10_000)
    await _fill(other, words, turns=20, seed=8)
    await store.erase(USERS[0])
    assert (await store.finish_erasure()).complete
    for number in range(60):
        await _record_short(other, USERS[1 + number % 3], f"new{number}")
    await other.aclose()
    assert words[USERS[0]].encode() not in _bytes_of(path)


async def _record_short(store: SqliteStore, scope: Scope, item_id: str) -> None:
    await store.write(
        scope,
        Batch(entries=[entry(item_id, "short")]),
        epoch=EPOCH + scope.name.encode(),
        now_us=NOW_US,
    )


async def test_pinned_log_is_told_and_cleaned_at_the_next_open(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While another process reads, the result is not complete and says why; opening ends it."""
    monkeypatch.setattr(sqlite, "_CLEAN_SECONDS", 0.5)
    word = secrets.token_hex(8)
    await record(store, entry("a", word))
    reader = apsw.Connection(str(path))
    reader.execute("BEGIN; SELECT count(*) FROM changes").fetchall()  # pyright: ignore[reportUnknownMemberType] - untyped in apsw
    await record(store, entry("b", word))
    await store.erase(Scope("tenant", "user", "alice"))
    result = await store.finish_erasure()
    assert not result.complete
    assert str(path) in result.detail
    assert "another process" in result.detail
    await store.aclose()
    assert word.encode() in _bytes_of(path)
    reader.close()
    again = SqliteStore(f"sqlite:///{path}")
    await again.open()
    assert word.encode() not in _bytes_of(path)
    await again.aclose()
    await store.open()


async def test_busy_file_is_cleaned_too(store: SqliteStore, path: Path) -> None:
    """While another store writes all the time the erasure is completed and nobody loses a write."""
    word = secrets.token_hex(8)
    await record(store, *(entry(f"{word}{n}", word) for n in range(300)))
    other = SqliteStore(f"sqlite:///{path}")
    await other.open()
    written = 0
    done = False

    async def write() -> None:
        nonlocal written
        while not done:
            await record(other, entry(f"i{written}"), scope=USERS[0])
            written += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        await store.erase(Scope("tenant", "user", "alice"))
        result = await store.finish_erasure()
        done = True
        assert result.complete, result.detail
    assert word.encode() not in _bytes_of(path)
    assert len(await other.read(USERS[0], limit=100_000)) == written
    await other.aclose()


async def test_interrupted_erasure_is_completed_at_the_next_open(
    store: SqliteStore, path: Path
) -> None:
    """A process that ends after taking the epoch away leaves the rest to whoever opens next."""
    word = secrets.token_hex(8)
    scope = Scope("tenant", "user", "alice")
    await record(store, *(entry(f"{word}{n}", word) for n in range(500)))
    await store._write(lambda connection: sqlite_erase.detach(connection, scope))  # pyright: ignore[reportPrivateUsage] - stops half way
    assert await store.header(scope) is None
    assert await total(store, scope) == 502
    await store.aclose()
    await store.open()
    assert await total(store, scope) == 0
    assert word.encode() not in _bytes_of(path)


async def test_interrupted_erasure_leaves_a_returning_user_alone(store: SqliteStore) -> None:
    """Who returns while the old rows are still there keeps what is new, also when erased again."""
    scope = Scope("tenant", "user", "alice")
    await record(store, *(entry(f"old{n}") for n in range(500)))
    await store._write(lambda connection: sqlite_erase.detach(connection, scope))  # pyright: ignore[reportPrivateUsage] - stops half way
    await store.write(
        scope, Batch(entries=[entry("new")]), epoch=b"second", now_us=NOW_US, create=True
    )
    assert [one.key.id for one in await store.read(scope, limit=9)] == ["new"]
    assert (await store.finish_erasure()).complete
    assert await total(store, scope) == 3
    removed = await store.erase(scope)
    assert (removed["changes"], removed["partitions"]) == (1, 1)


async def test_erasing_does_not_block_others_for_long(store: SqliteStore) -> None:
    """While 20,000 items are erased, writes by another user come through before the end."""
    big = Scope("tenant", "user", "big")
    for start in range(0, 20_000, 2_000):
        await record(store, *(entry(f"i{n}") for n in range(start, start + 2_000)), scope=big)
    written_in_between = 0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store.erase, big)
        while True:
            await record(store, entry(f"i{written_in_between}"))
            if not await total(store, big):
                break
            written_in_between += 1
    assert written_in_between >= 1
