"""The SQLite store beyond the contract: its URL, schema, errors, threads and self-check."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import apsw
import pytest

from secondcall.abc import Batch, DocumentWrite, EntryKey, NewEntry, Scope
from secondcall.errors import (
    InvalidValue,
    SchemaTooNew,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
    TooLarge,
    VersionConflict,
)
from secondcall.registry import store_from_url
from secondcall.stores import sqlite_file, sqlite_threads
from secondcall.stores.sqlite import SqliteStore
from secondcall.stores.sqlite_file import APPLICATION_ID, map_error, parse_url, pragma, run
from secondcall.stores.statements import Migration, load_migrations, load_queries
from secondcall.testing.conformance.material import (
    EPOCH,
    NOW_US,
    SCOPE,
    all_changes,
    document,
    entry,
    record,
)

pytestmark = pytest.mark.anyio

NEWEST = load_migrations("sqlite")[-1].number


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The database file."""
    return tmp_path / "memory.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    """An open store."""
    store = SqliteStore(f"sqlite:///{path}")
    await store.open()
    yield store
    await store.aclose()


def _run(path: Path, *statements: str) -> None:
    connection = apsw.Connection(str(path))
    for statement in statements:
        run(connection, statement)
    connection.close()


def _make_garbage(path: Path) -> None:
    path.write_bytes(b"not a database " * 100)


def _make_other_tables(path: Path) -> None:
    _run(path, "CREATE TABLE other (a)")


def _make_other_application(path: Path) -> None:
    _run(path, "PRAGMA application_id = 5")


def _damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for page in range(20, len(data) // 4096, 3):
        data[page * 4096 : page * 4096 + 200] = b"\xa5" * 200
    path.write_bytes(bytes(data))


def _threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("secondcall-sqlite")]


# -- URL -------------------------------------------------------------------------------------------


def test_url_names_a_file_and_options() -> None:
    """Three slashes are relative, four absolute, and the defaults are full and 30 s."""
    assert parse_url("sqlite:///memory.db").path == "memory.db"
    assert parse_url("sqlite:///a/b%20c%3F.db").path == "a/b c?.db"
    assert parse_url("sqlite:////var/memory.db").path == "/var/memory.db"
    defaults = parse_url("sqlite:///m.db")
    assert (defaults.synchronous, defaults.busy_timeout_seconds) == ("full", 30.0)
    given = parse_url("sqlite:///m.db?synchronous=normal&busy_timeout_seconds=0.5")
    assert (given.synchronous, given.busy_timeout_seconds) == ("normal", 0.5)


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("sqlite:///m.db?cache=shared", "'cache'"),
        ("sqlite:///m.db?synchronous=off", "'off'"),
        ("sqlite:///m.db?busy_timeout_seconds=soon", "'soon'"),
        ("sqlite:///m.db?busy_timeout_seconds=-1", "'-1'"),
        ("sqlite:///m.db?busy_timeout_seconds=nan", "'nan'"),
        ("sqlite://m.db", "sqlite:///relative.db"),
        ("sqlite:///m.db#part", "%23"),
        ("sqlite://", "memory://"),
        ("sqlite:///", "memory://"),
        ("sqlite:///:memory:", "memory://"),
        ("sqlite:///a%00b", "names no file"),
    ],
)
def test_wrong_url_is_named(url: str, named: str) -> None:
    """An option or part that is not accepted is an error that names it or what to write."""
    with pytest.raises(InvalidValue) as caught:
        SqliteStore(url)
    assert named in str(caught.value)


def test_registry_knows_the_scheme() -> None:
    """``sqlite://`` URLs give this store, and making one touches no file."""
    assert isinstance(store_from_url("sqlite:///nowhere/at/all.db"), SqliteStore)


async def test_relative_path_is_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative URL means the folder of ``open``, also when the process goes elsewhere later."""
    monkeypatch.chdir(tmp_path)
    store = SqliteStore("sqlite:///my memory.db")
    await store.open()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    await record(store, entry("a"))
    assert len(await all_changes(store)) == 1
    assert (await store.finish_erasure()).complete
    await store.aclose()
    assert sorted(os.listdir(tmp_path)) == ["elsewhere", "my memory.db"]
    assert os.listdir(tmp_path / "elsewhere") == []


# -- Settings of the file --------------------------------------------------------------------------


@pytest.mark.parametrize(("option", "level"), [("full", 2), ("normal", 1)])
async def test_connection_is_set_as_promised(path: Path, option: str, level: int) -> None:
    """WAL, synchronous as asked, secure_delete, foreign keys, no temporary files, our own id."""
    store = SqliteStore(f"sqlite:///{path}?synchronous={option}")
    await store.open()
    writer, _ = store._running()  # pyright: ignore[reportPrivateUsage] - looks at the connection
    names = ["synchronous", "secure_delete", "foreign_keys", "temp_store", "application_id"]
    values = await writer.alone(lambda one: [pragma(one, name) for name in names])
    assert values == [level, 1, 1, 2, APPLICATION_ID]
    assert await writer.alone(lambda one: pragma(one, "journal_mode")) == "wal"
    assert await writer.alone(lambda one: pragma(one, "user_version")) == NEWEST
    await store.aclose()


async def test_readers_cannot_write(store: SqliteStore) -> None:
    """A reading connection refuses to write, whatever the code around it does."""
    with pytest.raises(StoreUnavailable):
        await store._read(lambda one: run(one, "DELETE FROM partitions"))  # pyright: ignore[reportPrivateUsage] - on purpose


async def test_a_glance_is_one_view(store: SqliteStore) -> None:
    """What others commit while it is read is seen in none of its parts or in all."""
    scope = Scope("t", "user", "ann")
    key = EntryKey("s", "message", "m")

    def batch(number: int, version: int | None) -> Batch:
        body = str(number).encode()
        entry = NewEntry(key=key, at_us=1, body=body, digest=body)
        write = DocumentWrite(kind="k", key="d", body=body, expected_version=version)
        return Batch(entries=[entry], documents=[write])

    await store.write(scope, batch(1, None), epoch=EPOCH, now_us=1, create=True)

    async def rival() -> None:
        for number in range(2, 60):
            await store.write(scope, batch(number, number - 1), epoch=EPOCH, now_us=1)

    writing = asyncio.create_task(rival())
    seen: set[int] = set()
    while not writing.done():
        found = await store.glance(scope, documents=[("k", "d")], entries=[key])
        (document,), (entry,) = found.documents, found.entries
        assert found.header is not None
        assert document is not None
        assert document.body == entry.body == str(found.header.change).encode()
        seen.add(found.header.change)
    await writing
    assert seen


async def test_the_last_free_reader_reads_again(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads one after the other go to one connection, which has the pages at hand."""
    threads: list[int] = []
    in_view = sqlite_threads._in_view  # pyright: ignore[reportPrivateUsage] - to see who reads

    def seen(connection: apsw.Connection, work: Callable[[apsw.Connection], object]) -> object:
        threads.append(threading.get_ident())
        return in_view(connection, work)

    monkeypatch.setattr(sqlite_threads, "_in_view", seen)
    for _ in range(20):
        await store.header(Scope("t", "user", "ann"))
    assert len(set(threads[4:])) == 1


async def test_log_is_kept_short(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While readers keep coming the log stays under a bound and does not grow with each write."""
    monkeypatch.setattr(sqlite_threads, "_MAX_LOG_BYTES", 2_000_000)
    monkeypatch.setattr(sqlite_threads, "_LOG_CHECK_SECONDS", 0.05)
    store = SqliteStore(f"sqlite:///{path}?synchronous=normal")
    await store.open()
    done = False

    async def read() -> None:
        while not done:
            await store.read(SCOPE, limit=20)

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(read)
        for number in range(50):
            await record(store, *(entry(f"{number}-{n}", "x" * 20_000) for n in range(25)))
        done = True
    log_bytes = os.stat(f"{path}-wal").st_size
    await store.aclose()
    assert log_bytes < 20_000_000


async def test_closing_leaves_one_file(path: Path) -> None:
    """After the last store is closed the log is merged and gone, so the file alone is a backup."""
    store = SqliteStore(f"sqlite:///{path}")
    await store.open()
    await record(store, entry("a"))
    await store.aclose()
    assert [one.name for one in path.parent.iterdir()] == [path.name]


async def test_no_thread_is_left(path: Path) -> None:
    """Closing ends every thread that opening started."""
    before = _threads()
    store = SqliteStore(f"sqlite:///{path}")
    await store.open()
    await store.header(SCOPE)
    await store.aclose()
    assert _threads() == before


async def test_failed_opening_leaves_no_thread(tmp_path: Path) -> None:
    """A store that could not be opened has no thread and can be tried again."""
    before = _threads()
    store = SqliteStore(f"sqlite:///{tmp_path}/later/memory.db")
    with pytest.raises(StoreUnavailable):
        await store.open()
    (tmp_path / "later").mkdir()
    await store.open()
    await store.aclose()
    await anyio.sleep(0.05)
    assert _threads() == before


# -- Schema ----------------------------------------------------------------------------------------


def test_migrations_are_numbered_from_1() -> None:
    """Migrations have the numbers 1, 2, 3 and so on."""
    numbers = [migration.number for migration in load_migrations("sqlite")]
    assert numbers == list(range(1, len(numbers) + 1))


def test_every_query_is_valid_and_used() -> None:
    """Each named query can be prepared on the schema, and some code names it."""
    connection = apsw.Connection(":memory:")
    for migration in load_migrations("sqlite"):
        run(connection, migration.sql)
    folder = Path(sqlite_file.__file__).parent
    code = "".join(one.read_text("utf-8") for one in folder.glob("sqlite*.py"))
    for name, sql in load_queries("sqlite").items():
        numbered = [int(one) for one in re.findall(r"\?(\d)", sql)]
        values = [None] * (max(numbered) if numbered else sql.count("?"))
        run(connection, f"EXPLAIN {sql}", values)
        family = any(name.startswith(one) for one in ("erase_some_", "read"))
        assert f'"{name}"' in code or family, name


async def test_newer_schema_is_refused(path: Path, store: SqliteStore) -> None:
    """A file of a newer release is left alone, with an error that names both versions."""
    await store.aclose()
    _run(path, "PRAGMA user_version = 99")
    with pytest.raises(SchemaTooNew, match=rf"memory\.db.* schema 99.* up to {NEWEST}"):
        await store.open()


async def test_migration_keeps_what_is_there(
    path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next migration runs once on an older file, in one transaction with its version."""
    await record(store, entry("a"))
    await store.aclose()
    second = Migration(NEWEST + 1, "next_test", "CREATE TABLE extra (a INTEGER) STRICT; SELECT 1;")
    migrations = [*load_migrations("sqlite"), second]
    monkeypatch.setattr(sqlite_file, "load_migrations", lambda _database="": migrations)
    others = [SqliteStore(f"sqlite:///{path}") for _ in range(3)]
    async with anyio.create_task_group() as tasks:
        for one in others:
            tasks.start_soon(one.open)
    for one in others:
        assert len(await all_changes(one)) == 1
        await one.aclose()
    broken = Migration(
        NEWEST + 2, "last_test", "CREATE TABLE more (a INTEGER) STRICT; SELECT nonsense;"
    )
    migrations.append(broken)
    with pytest.raises(StoreError):
        await store.open()
    migrations.pop()
    await store.open()
    assert len(await all_changes(store)) == 1
    await store.aclose()


# -- Errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (_make_garbage, StoreCorrupt, "not a SQLite"),
        (Path.mkdir, StoreUnavailable, "is a folder"),
        (_make_other_tables, StoreUnavailable, "another application"),
        (_make_other_application, StoreUnavailable, "another application"),
    ],
    ids=["garbage", "folder", "other tables", "other application"],
)
async def test_file_that_is_not_ours_is_refused(
    path: Path, make: Callable[[Path], object], error: type[StoreError], said: str
) -> None:
    """A file that is no database, a folder or another program's database gets one clear line."""
    make(path)
    store = SqliteStore(f"sqlite:///{path}")
    with pytest.raises(error) as caught:
        await store.open()
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_missing_folder_is_named(tmp_path: Path) -> None:
    """A folder that does not exist is not made but named."""
    store = SqliteStore(f"sqlite:///{tmp_path}/no/memory.db")
    with pytest.raises(StoreUnavailable, match="folder does not exist"):
        await store.open()
    assert not (tmp_path / "no").exists()


async def test_damaged_file_is_reported(path: Path, store: SqliteStore) -> None:
    """A page overwritten with noise gives ``StoreCorrupt`` or a line in ``problems``."""
    await record(store, *(entry(f"i{n}", "x" * 300) for n in range(500)))
    await store.aclose()
    _damage(path)
    found: list[str] = []
    try:
        await store.open()
        found += await store.problems()
    except StoreCorrupt as error:
        found.append(str(error))
    await store.aclose()
    assert any("SQLite" in line for line in found)


async def test_full_disk_is_told_and_nothing_is_written(store: SqliteStore) -> None:
    """When the file cannot grow, the write fails as a whole and later ones work again."""
    await record(store, entry("a"))
    writer, _ = store._running()  # pyright: ignore[reportPrivateUsage] - limits the file's size
    pages = await writer.alone(lambda one: pragma(one, "page_count"))
    assert isinstance(pages, int)
    await writer.alone(lambda one: pragma(one, "max_page_count", pages + 5))
    with pytest.raises(StoreUnavailable, match="disk is full"):
        await record(store, *(entry(f"i{n}", "x" * 1_000) for n in range(500)))
    assert len(await all_changes(store)) == 1
    await writer.alone(lambda one: pragma(one, "max_page_count", 100_000))
    await record(store, entry("b"))
    assert len(await all_changes(store)) == 2


async def test_full_disk_acknowledges_nothing_of_a_group(store: SqliteStore) -> None:
    """Of writes that come together while the disk fills exactly the acknowledged are there."""
    await record(store, entry("a"))
    writer, _ = store._running()  # pyright: ignore[reportPrivateUsage] - limits the file's size
    pages = await writer.alone(lambda one: pragma(one, "page_count"))
    assert isinstance(pages, int)
    await writer.alone(lambda one: pragma(one, "max_page_count", pages + 12))
    acknowledged = {"a"}

    async def write(number: int) -> None:
        try:
            await record(store, entry(f"i{number}", "x" * 3_000))
        except StoreUnavailable:
            return
        acknowledged.add(f"i{number}")

    async with anyio.create_task_group() as tasks:
        for number in range(60):
            tasks.start_soon(write, number)
    found = {one.key.id for one in await store.read(SCOPE, limit=100)}
    assert found == acknowledged
    assert len(await all_changes(store)) == len(found)
    assert len(found) < 61


async def test_locked_file_is_busy_after_the_timeout(path: Path) -> None:
    """A lock that is held too long is ``StoreBusy``; nothing is written, and later it works."""
    store = SqliteStore(f"sqlite:///{path}?busy_timeout_seconds=0.3")
    await store.open()
    await record(store, entry("a"))
    other = apsw.Connection(str(path))
    run(other, "BEGIN IMMEDIATE")
    errors: list[str] = []

    async def write(number: int) -> None:
        with pytest.raises(StoreBusy) as caught:
            await record(store, entry(f"i{number}"))
        errors.append(str(caught.value))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(write, number)
    assert "was locked by another process for 0.3 s" in errors[0]
    assert str(path) in errors[0]
    assert len(await store.read(SCOPE, limit=9)) == 1
    run(other, "ROLLBACK")
    other.close()
    assert (await record(store, entry("b"))).change == 2
    await store.aclose()


_AS_NOBODY = """
import asyncio, os, sys
import secondcall.stores.sqlite as sqlite, secondcall.testing.conformance.material as material
import encodings.idna, importlib.resources
from secondcall.errors import StoreUnavailable
sqlite_file = sqlite.prepare.__globals__["load_migrations"]("sqlite")
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
async def main():
    store = sqlite.SqliteStore("sqlite:///" + sys.argv[1])
    try:
        await store.open()
        await material.record(store, material.entry("a"))
    except StoreUnavailable as error:
        print(error)
asyncio.run(main())
"""


@pytest.mark.parametrize("what", ["file", "folder"])
def test_read_only_place_is_named(what: str) -> None:
    """A file or folder that this process may not write to is told in one line with the path."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "memory.db")
        os.chmod(folder, 0o777)
        if what == "file":
            _run(path, f"PRAGMA application_id = {APPLICATION_ID}")
            os.chmod(path, 0o444)
        os.chmod(folder, 0o555)
        done = subprocess.run(
            [sys.executable, "-c", _AS_NOBODY, str(path)],
            capture_output=True,
            text=True,
            check=True,
        )
        os.chmod(folder, 0o777)
    assert str(path) in done.stdout
    assert "writable" in done.stdout
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (apsw.BusyError(), StoreBusy),
        (apsw.LockedError(), StoreBusy),
        (apsw.FullError(), StoreUnavailable),
        (apsw.ReadOnlyError(), StoreUnavailable),
        (apsw.PermissionsError(), StoreUnavailable),
        (apsw.AuthError(), StoreUnavailable),
        (apsw.CantOpenError(), StoreUnavailable),
        (apsw.IOError(), StoreUnavailable),
        (apsw.NoMemError(), StoreUnavailable),
        (MemoryError(), StoreUnavailable),
        (apsw.NotADBError(), StoreCorrupt),
        (apsw.CorruptError(), StoreCorrupt),
        (apsw.FormatError(), StoreCorrupt),
        (apsw.TooBigError(), TooLarge),
        (OverflowError(), InvalidValue),
        (UnicodeEncodeError("utf-8", "secret\ud800", 6, 7, "surrogates"), InvalidValue),
        (apsw.ConstraintError("secret"), StoreError),
        (apsw.ProtocolError(), StoreError),
    ],
    ids=lambda one: one.__name__ if isinstance(one, type) else type(one).__name__,
)
def test_driver_errors_are_mapped(error: Exception, expected: type[Exception]) -> None:
    """Each error of the driver has its place in our tree, in one line without values."""
    mapped = map_error(error, parse_url("sqlite:///file.db"))
    assert type(mapped) is expected
    assert "secret" not in str(mapped)
    assert "\n" not in str(mapped)


def test_every_driver_error_is_ours_afterwards() -> None:
    """No error class of the driver, also of a later version, passes the store unmapped."""
    classes = [
        one for one in vars(apsw).values() if isinstance(one, type) and issubclass(one, apsw.Error)
    ]
    assert len(classes) > 30
    for one in classes:
        assert isinstance(map_error(one(), parse_url("sqlite:///file.db")), (StoreError, TooLarge))


# -- Threads ---------------------------------------------------------------------------------------


async def test_writes_that_come_together_share_a_commit(path: Path) -> None:
    """A hundred writes at once need far fewer than a hundred transactions."""
    store = SqliteStore(f"sqlite:///{path}")
    await store.open()
    await record(store)
    writer, _ = store._running()  # pyright: ignore[reportPrivateUsage] - counts commits
    commits = 0

    def count() -> bool:
        nonlocal commits
        commits += 1
        return False

    await writer.alone(lambda one: one.set_commit_hook(count))
    async with anyio.create_task_group() as tasks:
        for number in range(100):
            tasks.start_soon(record, store, entry(f"i{number}"))
    await writer.alone(lambda one: one.set_commit_hook(None))
    assert len(await all_changes(store)) == 100
    assert 1 <= commits <= 20
    await store.aclose()


async def test_a_job_that_fails_takes_no_other_with_it(store: SqliteStore) -> None:
    """Of writes that come together those that lose a comparison fail, first or last, whatever they
    had written by then; the others are there."""
    await record(store, entry("first"))

    def job(name: str, *, expected: int | None = None) -> Batch:
        write = DocumentWrite(kind="k", key=name, body=b"", expected_version=expected)
        return Batch(entries=[entry(f"of {name}")], documents=[write])

    for order in ([7, None, 7, None], [None, 7, None, 7]):
        names = [f"{order[0]} {number}" for number in range(4)]
        done = await asyncio.gather(
            *(
                store.write(SCOPE, job(name, expected=one), epoch=EPOCH, now_us=NOW_US)
                for name, one in zip(names, order, strict=True)
            ),
            return_exceptions=True,
        )
        assert [isinstance(one, VersionConflict) for one in done] == [one == 7 for one in order]
        kept = [await store.document(SCOPE, "k", name) is not None for name in names]
        assert kept == [one is None for one in order]
    changes = await all_changes(store)
    assert [one.number for one in changes] == list(range(1, len(changes) + 1))
    assert len(changes) == 5


async def test_failed_commit_acknowledges_nothing(store: SqliteStore) -> None:
    """If the commit itself fails, every write of the group fails and none is there."""
    await record(store, entry("a"))
    writer, _ = store._running()  # pyright: ignore[reportPrivateUsage] - makes the commit fail
    await writer.alone(lambda one: one.set_commit_hook(lambda: True))
    failed: list[Exception] = []

    async def write(number: int) -> None:
        with pytest.raises(StoreError) as caught:
            await record(store, entry(f"i{number}"))
        failed.append(caught.value)

    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(write, number)
    await writer.alone(lambda one: one.set_commit_hook(None))
    assert len({id(one) for one in failed}) == 5
    assert len(await all_changes(store)) == 1
    assert (await record(store, entry("b"))).change == 2


async def test_closing_finishes_what_waits(path: Path) -> None:
    """Writes that were under way when the store is closed are finished first."""
    store = SqliteStore(f"sqlite:///{path}")
    await store.open()
    await record(store)
    writes = [asyncio.ensure_future(record(store, entry(f"i{n}"))) for n in range(50)]
    await asyncio.sleep(0)
    await store.aclose()
    assert sorted(written.change for written in await asyncio.gather(*writes)) == list(range(1, 51))


async def test_closed_loop_does_not_stop_the_writer(path: Path) -> None:
    """A loop that ends while its write is under way leaves the store usable for others."""
    store = SqliteStore(f"sqlite:///{path}")
    await store.open()
    await record(store)

    def begin_and_leave() -> None:
        loop = asyncio.new_event_loop()
        task = loop.create_task(record(store, entry("left")))
        loop.run_until_complete(asyncio.sleep(0))
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        loop.close()

    for _ in range(10):
        await anyio.to_thread.run_sync(begin_and_leave)
    await record(store, entry("b"))
    assert len(await all_changes(store)) in (1, 2)
    await store.aclose()


async def test_large_import_lets_others_in(store: SqliteStore) -> None:
    """While batches of 500 are imported from several tasks, single writes are done in between."""
    other = Scope("tenant", "user", "other")
    loading = True
    between = 0

    async def load(task: int) -> None:
        for turn in range(4):
            await record(store, *(entry(f"{task}-{turn}-{n}", "x" * 200) for n in range(500)))

    async def talk() -> None:
        nonlocal between
        while loading:
            await record(store, entry(f"t{between}"), scope=other)
            between += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(talk)
        async with anyio.create_task_group() as imports:
            for task in range(6):
                imports.start_soon(load, task)
        loading = False
    assert between > 3
    assert len(await all_changes(store)) == 12_000


# -- Self-check ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("DELETE FROM changes WHERE change = 2", "newest change is 4, but 3 are stored"),
        ("UPDATE partitions SET change = 9", "newest change is 9"),
        ("UPDATE sessions SET items = 7", "outline of session"),
        ("UPDATE sessions SET last_us = last_us + 1", "outline of session"),
        ("UPDATE changes SET body = NULL WHERE change = 2", "change 2 is not whole"),
        ("UPDATE changes SET position = 3 WHERE change = 4", "change 4 is not whole"),
        ("DELETE FROM partitions", "rows belong to no partition"),
    ],
)
async def test_problems_are_found(path: Path, store: SqliteStore, damage: str, said: str) -> None:
    """The self-check names gaps, wrong outlines, broken entries and orphans."""
    await record(store, entry("a"), entry("b"), entry("c"))
    await store.write(SCOPE, Batch(documents=[document("d")]), epoch=EPOCH, now_us=NOW_US)
    await record(store, entry("a", "corrected"))
    assert list(await store.problems()) == []
    _run(path, damage)
    assert any(said in line for line in await store.problems())
