"""States in the SQLite file beyond the contract: migration, self-check, erasure, the companion."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from secondcall.abc import Batch, DocumentWrite, Scope
from secondcall.abc_state import StatefulStore, StateStore
from secondcall.errors import NotOpen, StoreBusy, UserErased
from secondcall.stores import sqlite_erase, sqlite_file
from secondcall.stores.sqlite import SqliteStore, state_store
from secondcall.stores.sqlite_file import run
from secondcall.stores.statements import load_migrations
from secondcall.testing.conformance.material import SCOPE, entry, record
from secondcall.testing.conformance.state_material import EPOCH, KEY, NOW_US, save, session, total

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The database file."""
    return tmp_path / "memory.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    """An open store of records, with *alice* in it."""
    store = SqliteStore(f"sqlite:///{path}")
    await store.open()
    await record(store, entry("a"))
    yield store
    await store.aclose()


def _run(path: Path, *statements: str) -> None:
    connection = apsw.Connection(str(path))
    for statement in statements:
        run(connection, statement)
    connection.close()


async def test_companion_shares_the_epoch_and_the_erasure(store: SqliteStore) -> None:
    """The record's partition is all the admission that is needed; either erasure takes both."""
    states = store.states()
    await save(states)
    with pytest.raises(UserErased):
        await states.admit("tenant", "alice", epoch=b"other", now_us=NOW_US)
    removed = await store.erase(SCOPE)
    assert (removed["states"], removed["state_history"], removed["changes"]) == (1, 1, 1)
    back = Batch(entries=[entry("b")])
    await store.write(SCOPE, back, epoch=b"new", now_us=NOW_US, create=True)
    removed = await states.erase("tenant", "alice")
    assert (removed["changes"], removed["partitions"], removed["states"]) == (1, 1, 0)
    assert await store.header(SCOPE) is None


async def test_companion_lives_as_long_as_its_store(store: SqliteStore) -> None:
    """Its own opening and closing do nothing; when the store is closed it is, too."""
    states: StateStore = store.states()
    await states.aclose()
    await states.open()
    await save(states)
    await store.aclose()
    with pytest.raises(NotOpen):
        await states.load(KEY)
    await store.open()
    assert await states.load(KEY) is not None


async def test_identity_partitions_hold_no_states(store: SqliteStore) -> None:
    """A hashed identity of the same name as a user is not that user."""
    await store.write(
        Scope("tenant", "identity", "bob"), Batch(), epoch=EPOCH, now_us=NOW_US, create=True
    )
    with pytest.raises(UserErased):
        await save(store.states(), key=session("s", "bob"))


async def test_older_file_gets_the_tables(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of the release before states is brought up to date, with what was in it."""
    all_of_them = load_migrations("sqlite")
    monkeypatch.setattr(sqlite_file, "load_migrations", lambda _="": all_of_them[:1])
    old = SqliteStore(f"sqlite:///{path}")
    await old.open()
    await record(old, entry("a"))
    await old.aclose()
    monkeypatch.setattr(sqlite_file, "load_migrations", lambda _="": all_of_them)
    store = SqliteStore(f"sqlite:///{path}")
    await store.open()
    assert [one.key.id for one in await store.read(SCOPE, limit=9)] == ["a"]
    await save(store.states())
    assert list(await store.problems()) == []
    await store.aclose()


async def test_interrupted_erasure_is_completed_at_the_next_open(
    store: SqliteStore, path: Path
) -> None:
    """A process that ends after taking the epoch away leaves the states to whoever opens next."""
    states, word = store.states(), secrets.token_hex(8)
    for number in range(150):
        await save(states, word.encode() * 20, key=session(f"s{number}"), due_us=NOW_US)
    await store._write(lambda connection: sqlite_erase.detach(connection, SCOPE))  # pyright: ignore[reportPrivateUsage] - stops half way
    assert await states.load(session("s1")) is None
    assert await states.claim_due("tenant", now_us=NOW_US, limit=9, holder="h", seconds=1) == []
    assert await total(states) == 303
    await store.aclose()
    await store.open()
    assert await total(states) == 0
    assert not any(word.encode() in one.read_bytes() for one in path.parent.iterdir())


async def test_lock_held_by_others_is_busy(path: Path) -> None:
    """While another process holds the lock too long a save is ``StoreBusy``, and a load answers."""
    states = state_store(f"sqlite:///{path}?busy_timeout_seconds=0.05")
    await states.open()
    await states.admit("tenant", "alice", epoch=EPOCH, now_us=NOW_US)
    saved = await save(states)
    blocker = apsw.Connection(str(path))
    run(blocker, "BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy, match="nothing was written"):
        await save(states, expected=1)
    assert await states.load(KEY) == saved
    blocker.close()
    assert (await save(states, expected=1)).version == 2
    await states.aclose()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("UPDATE states SET version = 1", "state 1 is not as its history says"),
        ("UPDATE states SET body = x'00'", "state 1 is not as its history says"),
        ("UPDATE states SET tenant_id = 'other'", "state 1 is not as its history says"),
        ("DELETE FROM states", "rows belong to no partition"),
        ("UPDATE states SET partition_id = 99", "rows belong to no partition"),
    ],
)
async def test_problems_are_found(path: Path, store: SqliteStore, damage: str, said: str) -> None:
    """The self-check names states that are not as their history says, and orphans."""
    states = store.states()
    await save(states, b"1")
    await save(states, b"2", expected=1)
    assert list(await states.problems()) == []
    _run(path, damage)
    assert any(said in line for line in await states.problems())


async def test_waiting_for_timers_takes_no_lock(path: Path, store: SqliteStore) -> None:
    """Whoever asks for timers and finds none does not wait for a writer."""
    blocker = apsw.Connection(str(path))
    run(blocker, "BEGIN IMMEDIATE")
    found = await store.states().claim_due("tenant", now_us=NOW_US, limit=9, holder="h", seconds=1)
    assert list(found) == []
    blocker.close()


async def test_a_state_and_documents_are_read_together(store: SqliteStore) -> None:
    """One read gives what two would, and for nobody nothing."""
    documents = [
        DocumentWrite(kind="k", key=key, body=b"1", expected_version=None)
        for key in ("a/1", "a/2", "b/1")
    ]
    await store.write(SCOPE, Batch(documents=documents), epoch=EPOCH, now_us=NOW_US)
    await save(store.states(), b"1")
    both = await store.state_and_documents(KEY, "k", prefix="a/", limit=9)
    assert both == (
        await store.states().load(KEY), await store.documents(SCOPE, "k", prefix="a/", limit=9)
    )  # fmt: skip
    assert both == await StatefulStore.state_and_documents(store, KEY, "k", prefix="a/", limit=9)
    assert (both[0] is not None, [one.key for one in both[1]]) == (True, ["a/1", "a/2"])
    nobody = KEY._replace(user_id="nobody")
    assert await store.state_and_documents(nobody, "k", limit=9) == (None, [])
