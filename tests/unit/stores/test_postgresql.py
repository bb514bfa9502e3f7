"""What only the PostgreSQL store has: its URL, its errors, its checks of the server, long ids."""

from __future__ import annotations

import asyncio
import importlib
import random
import re
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from services.postgresql import Server

from secondcall.abc_state import StateKey, StoredState
from secondcall.errors import (
    InvalidValue,
    MissingExtra,
    NotOpen,
    SchemaTooNew,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
    UnknownName,
    UserErased,
)
from secondcall.registry import store_from_url
from secondcall.stores.postgresql import PostgresStates
from secondcall.stores.postgresql_link import map_error, parse_url
from secondcall.stores.statements import load_migrations, load_queries
from secondcall.testing.conformance.state_material import EPOCH, NOW_US, OTHER_EPOCH, save, session

pytestmark = [pytest.mark.external_service, pytest.mark.anyio]

driver: Any = importlib.import_module("asyncpg")


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[PostgresStates]:
    """An open store that has let *alice* in."""
    store = PostgresStates(url)
    await store.open()
    try:
        await store.admit("tenant", "alice", epoch=EPOCH, now_us=NOW_US)
        yield store
    finally:
        await store.aclose()


@asynccontextmanager
async def raw(server: Server, database: str = "") -> AsyncGenerator[Any]:
    """A connection of the driver's own."""
    connection = await driver.connect(server.dsn, **({"database": database} if database else {}))
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def database(server: Server, name: str, how: str = "") -> AsyncGenerator[str]:
    """The URL of another database, made in a certain way."""
    if not server.can_stop:
        pytest.skip("makes databases, so it needs a server of its own")
    async with raw(server) as connection:
        await connection.execute(f'CREATE DATABASE "{name}" {how}')
        try:
            yield server.dsn.rpartition("/")[0] + f"/{name}"
        finally:
            await connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def schema_of(url: str) -> str:
    """The quoted schema in a URL."""
    return f'"{parse_url(url).schema}"'


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("schem=x", "'schem'"),
        ("schema=Uper", "schema"),
        ('schema=a"b', "schema"),
        ("schema=", "schema"),
        ("connections=0", "connections"),
        ("connections=many", "connections"),
        ("timeout_seconds=0", "timeout_seconds"),
        ("timeout_seconds=nan", "timeout_seconds"),
        ("pgbouncer=yes", "pgbouncer"),
        ("durable=never", "durable"),
        ("search_path=x", "'search_path'"),
    ],
)
def test_wrong_options_are_named(options: str, named: str) -> None:
    """An option that is unknown or out of form is refused by its name, without the URL."""
    with pytest.raises(InvalidValue, match=named) as caught:
        PostgresStates(f"postgresql://me:hunter2@localhost/x?{options}")
    assert "hunter2" not in str(caught.value)


def test_driver_gets_its_part_of_the_url() -> None:
    """Hosts, password and the driver's options reach it as they were; ours do not, and a standby is
    passed over unless asked for."""
    given = "postgresql://me:p%40ss@one:1,two:2/x?sslmode=require&schema=s&connections=3"
    settings = parse_url(given)
    assert settings.dsn == (
        "postgresql://me:p%40ss@one:1,two:2/x?sslmode=require&target_session_attrs=primary"
    )
    assert (settings.schema, settings.connections, settings.pgbouncer) == ("s", 3, False)
    assert "p%40ss" not in repr(settings)
    chosen = parse_url("postgresql:///x?target_session_attrs=any&host=%2Ftmp")
    assert "target_session_attrs=any" in chosen.dsn
    assert "host=%2Ftmp" in chosen.dsn


def _errors() -> list[Any]:
    names: list[str] = list(driver.exceptions.__all__)
    found = [getattr(driver.exceptions, name) for name in names]
    return [one for one in found if issubclass(one, Exception) and not issubclass(one, Warning)]


def test_every_error_of_the_driver_is_mapped() -> None:
    """Each class of the driver becomes one of ours, and only those that cannot hold a value keep
    the server's words."""
    kinds = _errors()
    assert len(kinds) > 200
    for kind in kinds:
        mapped = map_error(kind("a remembered secret"))
        assert type(mapped) in (StoreBusy, StoreUnavailable, StoreCorrupt), kind
        state = str(getattr(kind, "sqlstate", ""))
        if state[:2] not in ("28", "3D", "3F", "42", "53", "57", "25"):
            assert "secret" not in str(mapped), kind


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("DeadlockDetectedError", StoreBusy),
        ("SerializationError", StoreBusy),
        ("LockNotAvailableError", StoreBusy),
        ("QueryCanceledError", StoreBusy),
        ("DataCorruptedError", StoreCorrupt),
        ("IndexCorruptedError", StoreCorrupt),
        ("CannotConnectNowError", StoreUnavailable),
        ("DiskFullError", StoreUnavailable),
        ("TooManyConnectionsError", StoreUnavailable),
        ("ReadOnlySQLTransactionError", StoreUnavailable),
        ("InvalidPasswordError", StoreUnavailable),
        ("UniqueViolationError", StoreUnavailable),
        ("InterfaceError", StoreUnavailable),
    ],
)
def test_errors_keep_their_meaning(name: str, expected: type[StoreError]) -> None:
    """What may be repeated, what cannot be reached and what is damaged are told apart."""
    assert type(map_error(getattr(driver.exceptions, name)("x"))) is expected


async def test_unreachable_server_shows_no_password() -> None:
    """Where nothing listens, ``open`` says so without the password."""
    store = PostgresStates("postgresql://me:hunter2@127.0.0.1:1/x")
    with pytest.raises(StoreUnavailable) as caught:
        await store.open()
    assert "hunter2" not in str(caught.value)
    await store.aclose()


def test_missing_driver_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without asyncpg the import says which extra to install."""
    monkeypatch.delitem(sys.modules, "secondcall.stores.postgresql_link")
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(MissingExtra, match=r"secondcall\[postgresql\]"):
        importlib.import_module("secondcall.stores.postgresql_link")


async def test_it_keeps_states_only() -> None:
    """Opened as the whole memory, it says where its URL belongs."""
    with pytest.raises(UnknownName, match="state="):
        store_from_url("postgresql://localhost/x")


def _statements() -> dict[str, str]:
    across = {"list_due_states", "wrong_states", "lost_state_changes"}
    return {
        name: sql
        for name, sql in load_queries("postgresql").items()
        if re.search(r"\{schema\}\.(users|states|state_history)", sql) and name not in across
        and not name.startswith("vacuum")
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(_statements()))
def test_statements_name_the_scope(name: str) -> None:
    """Every statement on a table of users is confined to one tenant and user, wherever it reads,
    so that it can be sharded; it is one statement."""
    sql = _statements()[name]
    reads = len(re.findall(r"(?:FROM|UPDATE) \{schema\}", sql))
    assert len(re.findall(r"tenant_id = \$1\s+AND (?:s\.)?user_id = \$2", sql)) == reads
    assert ";" not in sql


def test_keys_begin_with_the_scope() -> None:
    """The primary key of every table of users begins with tenant and user."""
    sql = "".join(one.sql for one in load_migrations("postgresql"))
    keys = re.findall(r"PRIMARY KEY \(([^)]*)\)", sql)
    assert len(keys) == 3
    assert all(one.startswith("tenant_id, user_id") for one in keys)


async def test_ids_of_any_length_and_kind(postgresql_18: Server) -> None:
    """Ids of 1,024 characters that nothing can compress are told apart, listed by code points and
    come back whole from lists and claims."""
    dice = random.Random(5)
    head = "".join(chr(dice.randrange(0x4E00, 0x9FFF)) for _ in range(1_000))
    long = [head + "".join(dice.choices("abc", k=24)) for _ in range(6)]
    tenant_id, user_id = head + "t", head + "u"
    names = sorted({*long, head, head[:160], head[:160] + "z", "a" * 200, "a" * 201, "a" * 160})
    async with opened(postgresql_18.url()) as store:
        for user in (user_id, head + "v"):
            await store.admit(tenant_id, user, epoch=EPOCH, now_us=NOW_US)
            for number, name in enumerate(reversed(names)):
                key = StateKey(tenant_id, user, name)
                await save(store, b"%d" % number, key=key, due_us=NOW_US - number)
        keys = [StateKey(tenant_id, user_id, name) for name in names]
        seen = [*await store.list(tenant_id, user_id, limit=5)]
        while page := await store.list(tenant_id, user_id, after=seen[-1], limit=5):
            seen += page
        assert seen == keys
        due = await store.claim_due(tenant_id, now_us=NOW_US, limit=99, holder="h", seconds=1)
        assert [one for one in due if one.user_id == user_id] == keys
        for number, key in enumerate(reversed(keys)):
            found = await store.load(key)
            assert found is not None
            assert (found.key, found.body) == (key, b"%d" % number)
        await store.erase(tenant_id, user_id)
        assert sum((await store.scan(tenant_id, user_id)).values()) == 0
        assert len(await store.list(tenant_id, head + "v", limit=99)) == len(names)


async def test_servers_that_may_lose_commits_are_refused(postgresql_18: Server) -> None:
    """Where commits do not wait for the disk, ``open`` refuses, unless that was asked for: then it
    is declared."""
    async with database(postgresql_18, "careless") as url:
        async with raw(postgresql_18) as connection:
            await connection.execute("ALTER DATABASE careless SET synchronous_commit = off")
        store = PostgresStates(url)
        with pytest.raises(StoreUnavailable, match="synchronous_commit is off"):
            await store.open()
        async with opened(f"{url}?durable=best_effort") as store:
            assert store.capabilities.durable == "best_effort"


async def test_other_encodings_are_refused(postgresql_18: Server) -> None:
    """A database that cannot hold all characters is refused before anything is made in it."""
    how = "ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    async with database(postgresql_18, "latin", how) as url:
        with pytest.raises(StoreUnavailable, match="LATIN1"):
            await PostgresStates(url).open()


async def test_isolation_is_as_needed(postgresql_18: Server) -> None:
    """A database whose default would break the comparison is overruled, or, behind a pooler,
    refused."""
    async with database(postgresql_18, "strict") as url:
        async with raw(postgresql_18) as connection:
            await connection.execute(
                "ALTER DATABASE strict SET default_transaction_isolation = 'repeatable read'"
            )
        async with opened(url) as store:
            assert (await save(store)).version == 1
        with pytest.raises(StoreUnavailable, match="default_transaction_isolation"):
            await PostgresStates(f"{url}?pgbouncer=1").open()


async def test_collation_of_the_database_does_not_matter(postgresql_18: Server) -> None:
    """Lists are in the order of code points in a database that sorts in another way."""
    how = "LOCALE_PROVIDER builtin BUILTIN_LOCALE 'PG_UNICODE_FAST' TEMPLATE template0"
    async with database(postgresql_18, "sorted", how) as url, opened(url) as store:
        names = ["a", "B", "ä", "Z", "\uffff", "🙂"]
        for name in names:
            await save(store, key=session(name))
        found = await store.list("tenant", "alice", limit=9)
        assert [one.session_id for one in found] == sorted(names)


async def test_newer_schema_is_refused(postgresql_18: Server) -> None:
    """A schema of a newer release is left alone."""
    url = postgresql_18.url()
    async with opened(url):
        pass
    async with raw(postgresql_18) as connection:
        await connection.execute(f"UPDATE {schema_of(url)}.schema_version SET version = 999")
    with pytest.raises(SchemaTooNew, match="999"):
        await PostgresStates(url).open()


async def test_schema_of_somebody_elses(postgresql_18: Server) -> None:
    """A role that may make no schema works in one that was made for it."""
    url = postgresql_18.url()
    if not postgresql_18.can_stop:
        pytest.skip("makes roles, so it needs a server of its own")
    async with raw(postgresql_18) as connection:
        await connection.execute("CREATE ROLE modest LOGIN")
        modest = url.replace("postgres@", "modest@")
        with pytest.raises(StoreUnavailable, match="permission denied"):
            await PostgresStates(modest).open()
        await connection.execute(f"CREATE SCHEMA {schema_of(url)} AUTHORIZATION modest")
    async with opened(modest) as store:
        assert (await save(store)).version == 1
        await store.erase("tenant", "alice")
        assert (await store.finish_erasure()).complete


async def _connections(server: Server) -> int:
    async with raw(server) as connection:
        return await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'secondcall'"
        )


async def test_loop_that_ends_leaves_no_connection(postgresql_18: Server) -> None:
    """The connections of a thread's own event loop are closed when that loop ends, and those of a
    loop that runs on with the store."""
    before = await _connections(postgresql_18)
    async with opened(postgresql_18.url()) as store:

        def work() -> None:
            asyncio.run(_use(store))

        await asyncio.to_thread(work)
        assert await _connections(postgresql_18) == before + 1
        ready, done = threading.Event(), threading.Event()

        async def stay() -> None:
            await _use(store)
            ready.set()
            await asyncio.to_thread(done.wait)

        thread = threading.Thread(target=lambda: asyncio.run(stay()))
        thread.start()
        await asyncio.to_thread(ready.wait)
        assert await _connections(postgresql_18) == before + 2
    assert await _connections(postgresql_18) == before
    done.set()
    await asyncio.to_thread(thread.join)


async def _use(store: PostgresStates) -> None:
    assert await store.load(session("nothing")) is None


async def test_locked_row_is_waited_for_and_given_up(postgresql_18: Server) -> None:
    """Who waits too long for another's lock is told that nothing was written."""
    url = postgresql_18.url("&timeout_seconds=0.5")
    async with opened(url) as store, raw(postgresql_18) as other:
        await save(store, b"1")
        async with other.transaction():
            await other.fetch(f"SELECT * FROM {schema_of(url)}.states FOR UPDATE")
            with pytest.raises(StoreBusy):
                await save(store, b"2", expected=1)
        found = await store.load(session("s"))
        assert found is not None
        assert (found.body, found.version) == (b"1", 1)
        assert (await save(store, b"2", expected=1)).version == 2


async def test_all_connections_in_use(postgresql_18: Server) -> None:
    """Who finds no free connection in time is told so."""
    url = postgresql_18.url("&timeout_seconds=1&connections=1")
    async with opened(url) as store, raw(postgresql_18) as other:
        await save(store, b"1")
        async with other.transaction():
            await other.fetch(f"SELECT * FROM {schema_of(url)}.states FOR UPDATE")
            results = await asyncio.gather(
                *(save(store, expected=1) for _ in range(3)), return_exceptions=True
            )
        assert {type(one) for one in results} == {StoreBusy}


async def test_closing_finishes_what_is_under_way(postgresql_18: Server) -> None:
    """Whoever holds a connection when the store is closed is waited for; whoever waits for one is
    done too, or told that the store is closed."""
    async with opened(postgresql_18.url("&connections=1")) as store:
        saving = [
            asyncio.create_task(save(store, key=session(f"s{number}"))) for number in range(5)
        ]
        await asyncio.sleep(0)
        await store.aclose()
        results = await asyncio.gather(*saving, return_exceptions=True)
        assert {type(one) for one in results} <= {StoredState, NotOpen}
        await store.open()
        done = len([one for one in results if isinstance(one, StoredState)])
        assert len(await store.list("tenant", "alice", limit=9)) == done


async def test_erasure_waits_for_saves_under_way(postgresql_18: Server) -> None:
    """A first save that passed the epoch's check before the erasure began is erased with the rest,
    although the erasure could not see its row when it began."""
    url = postgresql_18.url()
    async with opened(url) as store, raw(postgresql_18) as other:
        holding = other.transaction()
        await holding.start()
        await other.execute(
            f"INSERT INTO {schema_of(url)}.states (tenant_id, user_id, in_session, session_id, "
            "version, schema, updated_us, updated_by, body) "
            "VALUES ('tenant', 'alice', 1, 's', 1, 1, 0, 'other', '')"
        )
        saving = asyncio.create_task(save(store, b"1"))
        await asyncio.sleep(0.2)
        erasing = asyncio.create_task(store.erase("tenant", "alice"))
        await asyncio.sleep(0.2)
        assert not saving.done()
        assert not erasing.done()
        await holding.rollback()
        assert (await saving).version == 1
        assert dict(await erasing) == {"states": 1, "state_history": 1, "users": 1}
        assert sum((await store.scan("tenant", "alice")).values()) == 0


async def test_nobody_is_let_in_while_erased(postgresql_18: Server) -> None:
    """Who was never here and asks to be let in while the same epoch is erased is refused."""
    url = postgresql_18.url()
    async with opened(url) as store, raw(postgresql_18) as other:
        async with other.transaction():
            await other.execute(f"LOCK TABLE {schema_of(url)}.erased IN EXCLUSIVE MODE")
            erasing = asyncio.create_task(store.erase("tenant", "bob", epoch=OTHER_EPOCH))
            await asyncio.sleep(0.1)
            asking = asyncio.create_task(
                store.admit("tenant", "bob", epoch=OTHER_EPOCH, now_us=NOW_US)
            )
            await asyncio.sleep(0.1)
            assert not asking.done()
        assert set((await erasing).values()) == {0}
        with pytest.raises(UserErased):
            await asking
        assert sum((await store.scan("tenant", "bob")).values()) == 0


async def test_old_readers_keep_erased_rows(postgresql_18: Server) -> None:
    """While a transaction from before the erasure can still read the rows, it is not complete."""
    url = postgresql_18.url()
    async with opened(url) as store, raw(postgresql_18) as other:
        await save(store)
        async with other.transaction(isolation="repeatable_read"):
            assert await other.fetchval(f"SELECT count(*) FROM {schema_of(url)}.states") == 1
            await store.erase("tenant", "alice")
            result = await store.finish_erasure()
            assert not result.complete
            assert "1 transactions" in result.detail
        assert (await store.finish_erasure()).complete


async def test_loser_takes_its_turn_and_lets_go(postgresql_18: Server) -> None:
    """Who lost many times in a row reads behind the lock of whoever is writing, and holds nothing
    afterwards."""
    url = postgresql_18.url()
    async with opened(url) as store, raw(postgresql_18) as other:
        await save(store, b"1")
        for _ in range(20):
            with pytest.raises(Exception, match="expected none") as caught:
                await save(store, b"lost")
            assert getattr(caught.value, "current").body == b"1"  # noqa: B009 - of a subclass
        async with other.transaction():
            await other.fetch(f"SELECT * FROM {schema_of(url)}.states FOR UPDATE NOWAIT")
            losing = asyncio.create_task(save(store, b"lost"))
            await asyncio.sleep(0.1)
            assert not losing.done()
        with pytest.raises(Exception, match="expected none"):
            await losing


async def test_problems_are_found(postgresql_18: Server) -> None:
    """A state that differs from its history, and rows that belong to nothing, are named."""
    url = postgresql_18.url()
    async with opened(url) as store, raw(postgresql_18) as other:
        await save(store)
        await save(store, key=session("two"))
        assert list(await store.problems()) == []
        await other.execute(f"UPDATE {schema_of(url)}.states SET body = 'x' WHERE session_id = 's'")
        await other.execute(f"DELETE FROM {schema_of(url)}.states WHERE session_id = 'two'")
        assert len(await store.problems()) == 2
