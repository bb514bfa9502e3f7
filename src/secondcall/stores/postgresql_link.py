"""The way to a PostgreSQL server: the URL, connections for each event loop, the schema, its errors
in our words.

Connections belong to the event loop that made them. Each loop has a few of its own; they are closed
with the store, or when the loop shuts down, whichever comes first.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import threading
from collections.abc import AsyncGenerator, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

from secondcall.errors import (
    InvalidValue,
    MissingExtra,
    NotOpen,
    SchemaTooNew,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
)
from secondcall.stores.statements import load_migrations, load_queries

try:
    import asyncpg as _asyncpg
except ImportError:
    raise MissingExtra(
        "postgresql:// needs asyncpg; pip install 'secondcall[postgresql]'"
    ) from None

__all__ = ["Link", "PostgresSettings", "map_error", "parse_url", "touched"]

T = TypeVar("T")

_driver = cast("Any", _asyncpg)  # it has no types
_OLDEST = 160_000
_MOST_CONNECT_SECONDS = 10.0
_CLOSE_SECONDS = 5.0
_NOT_OPEN = "the state store is not open; use it between open() and aclose()"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,50}")
_PASSED_ON = frozenset(
    {
        "host", "port", "user", "password", "dbname", "database", "passfile", "service",
        "sslmode", "sslcert", "sslkey", "sslrootcert", "sslcrl", "sslpassword", "sslnegotiation",
        "ssl_min_protocol_version", "ssl_max_protocol_version", "target_session_attrs",
        "krbsrvname", "gsslib",
    }
)  # fmt: skip
_OWN = ("connections", "durable", "pgbouncer", "schema", "timeout_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSettings:
    """What the URL says; ``dsn`` is the part of it that the driver reads, and may hold a password.

    ``connections``: at most so many for each event loop.
    """

    dsn: str = field(repr=False)
    schema: str = "secondcall"
    connections: int = 16
    timeout_seconds: float = 30.0
    pgbouncer: bool = False
    durable: Literal["commit", "best_effort"] = "commit"


def parse_url(url: str) -> PostgresSettings:
    """The settings in ``postgresql://user@host/database?schema=memory``.

    Raises: ``InvalidValue`` naming the option that is not accepted; the URL itself is not shown,
    since it may hold a password.
    """
    parts = urlsplit(url)
    if parts.scheme != "postgresql" or parts.fragment:
        raise InvalidValue(
            "the URL is not of the form postgresql://user:password@host:5432/database; write '%23' "
            "for '#'"
        )
    own: dict[str, str] = {}
    passed_on: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in _OWN:
            own[name] = value
        elif name in _PASSED_ON:
            passed_on[name] = value
        else:
            raise InvalidValue(
                f"postgresql:// has no option {name!r}; known are {', '.join(_OWN)}, and the "
                f"driver's {', '.join(sorted(_PASSED_ON))}"
            )
    # A standby would give what was true some time ago.
    passed_on.setdefault("target_session_attrs", "primary")
    return PostgresSettings(
        dsn=parts._replace(query=urlencode(passed_on)).geturl(),
        schema=_matching("schema", own.get("schema", "secondcall"), _SCHEMA),
        connections=int(_matching("connections", own.get("connections", "16"), _COUNT)),
        timeout_seconds=_parse_seconds(own.get("timeout_seconds", "30")),
        pgbouncer=_matching("pgbouncer", own.get("pgbouncer", "0"), _SWITCH) == "1",
        durable=cast(
            "Literal['commit', 'best_effort']",
            _matching("durable", own.get("durable", "commit"), _DURABLE),
        ),
    )


_COUNT = re.compile(r"[1-9][0-9]{0,2}")
_SWITCH = re.compile(r"[01]")
_DURABLE = re.compile(r"commit|best_effort")
_EXPECTED = {
    _SCHEMA: "small letters, digits and '_', at most 51",
    _COUNT: "a number from 1 to 999",
    _SWITCH: "1 or 0",
    _DURABLE: "'commit' or 'best_effort'",
}


def _matching(name: str, value: str, form: re.Pattern[str]) -> str:
    if not form.fullmatch(value):
        raise InvalidValue(f"{name} is {value!r}, expected {_EXPECTED[form]}")
    return value


def _parse_seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0.1 <= seconds <= 86_400:
        raise InvalidValue(f"timeout_seconds is {value!r}, expected a number from 0.1 to 86400")
    return seconds


def map_error(error: Exception) -> StoreError:
    """The driver's error as one of ours. The server's own words are left out where they could hold
    a value that was to be written."""
    if isinstance(error, StoreError):
        return error
    name, state = type(error).__name__, str(getattr(error, "sqlstate", None) or "")
    what = f"{name}, SQLSTATE {state}" if state else name
    if state in _BUSY:
        return StoreBusy(f"PostgreSQL could not do it in time ({what}); nothing was written")
    if state.startswith("XX0") and state != "XX000":
        return StoreCorrupt(f"PostgreSQL says that its data is damaged ({what})")
    if state in _WORDS or state[:2] in _WORDS:
        return StoreUnavailable(f"PostgreSQL refuses ({what}): {error}")
    if isinstance(error, TimeoutError):
        return StoreUnavailable(
            "PostgreSQL did not answer in time; whether it was written is not known"
        )
    return StoreUnavailable(
        f"PostgreSQL cannot be used now ({what}); what was under way may have been written or not"
    )


_BUSY = frozenset({"40001", "40P01", "55P03", "57014"})
# Sign-in, database, privileges, tables, number of connections, being started or stopped: their
# texts name roles and tables only.
_WORDS = frozenset(
    {"28", "3D", "3F", "42501", "42P01", "53300", "57P01", "57P02", "57P03", "25006"}
)


_ERRORS = (
    _driver.PostgresError,
    _driver.InterfaceError,
    _driver.InternalClientError,
    asyncio.IncompleteReadError,
    OSError,
)


class _Connections:
    """Those of one event loop: idle ones, the last used on top, and how many may be out."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self._free = asyncio.Semaphore(settings.connections)
        self._idle: list[Any] = []
        self._closed = False
        self.guard: AsyncGenerator[None] | None = None

    async def take(self) -> Any:
        """A connection that nobody else uses until it is given back.

        Raises: ``NotOpen``, ``StoreBusy``, driver errors.
        """
        if self._free.locked():
            await self._wait()
        else:
            await self._free.acquire()  # which does not wait
        try:
            if self._closed:
                raise NotOpen(_NOT_OPEN)
            while self._idle:
                connection = self._idle.pop()
                if not connection.is_closed():
                    return connection
            return await connect(self._settings)
        except BaseException:  # cancelled too: the place is given back; raised on
            self._free.release()
            raise

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(self._settings.timeout_seconds):
                await self._free.acquire()
        except TimeoutError:
            raise StoreBusy(
                f"all {self._settings.connections} connections were in use for "
                f"{self._settings.timeout_seconds} s; nothing was written"
            ) from None

    def give(self, connection: Any) -> None:
        """Give a connection back, in whatever state it is."""
        if self._closed or connection.is_closed() or connection.is_in_transaction():
            connection.terminate()
        else:
            self._idle.append(connection)
        self._free.release()

    async def aclose(self) -> None:
        """Wait for those that are out, and close all."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                for _ in range(self._settings.connections):
                    await self._free.acquire()
        self._closed = True
        for connection in self._idle:
            try:
                await connection.close(timeout=_CLOSE_SECONDS)
            except Exception:  # whatever the server says, it is over
                connection.terminate()
        self._idle.clear()
        for _ in range(self._settings.connections):
            self._free.release()  # for those that wait, to be told that it is closed


async def connect(settings: PostgresSettings) -> Any:
    """A connection of the driver. Raises: driver errors, ``StoreUnavailable``."""
    session: dict[str, str] = {"application_name": "secondcall"}
    if not settings.pgbouncer:
        # pgbouncer refuses settings that it does not know; ``_check`` looks at the first one.
        session["default_transaction_isolation"] = "read committed"
        session["lock_timeout"] = str(round(settings.timeout_seconds * 900))
        session["idle_in_transaction_session_timeout"] = str(
            round(settings.timeout_seconds * 10_000)
        )
    try:
        return await _driver.connect(
            settings.dsn,
            timeout=min(_MOST_CONNECT_SECONDS, settings.timeout_seconds),
            command_timeout=settings.timeout_seconds,
            statement_cache_size=0 if settings.pgbouncer else 100,
            server_settings=session,
        )
    except (_driver.ClientConfigurationError, ValueError) as error:
        # A port that is no number, a certificate that is no file: text of the URL's options.
        raise StoreUnavailable(f"the URL cannot be used ({type(error).__name__})") from None
    except TimeoutError:
        raise StoreUnavailable("PostgreSQL did not take the connection in time") from None


class Link:
    """The connections of a store, for every event loop it is used from.

    ``queries`` are the statements, with the schema in its place.
    """

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self._loops: dict[asyncio.AbstractEventLoop, _Connections] = {}
        self._changing = threading.Lock()
        self._is_open = False
        self.queries: Mapping[str, str] = {
            name: sql.replace("{schema}", f'"{settings.schema}"')
            for name, sql in load_queries("postgresql").items()
        }

    async def open(self) -> None:
        """Look at the server and make the schema ready. Raises: as ``StateStore.open``."""
        if self._is_open:
            return
        try:
            connection = await connect(self._settings)
            try:
                await self._check(connection)
                await self._migrate(connection)
                await connection.close(timeout=_CLOSE_SECONDS)
            finally:
                connection.terminate()
        except _ERRORS as error:
            raise map_error(cast("Exception", error)) from None
        self._is_open = True

    async def aclose(self) -> None:
        """Close the connections of all loops, once what they do is done."""
        with self._changing:
            self._is_open = False
            loops, self._loops = self._loops, {}
        here = asyncio.get_running_loop()
        for loop, connections in loops.items():
            if loop is here:
                await _end(connections)
            elif loop.is_running():
                with contextlib.suppress(TimeoutError, RuntimeError):
                    await asyncio.wait_for(_run_in(loop, _end(connections)), 2 * _CLOSE_SECONDS)

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncGenerator[Any]:
        """A connection of the running loop; errors of the driver inside are raised as ours.

        Raises: ``NotOpen``, ``StoreBusy``, ``StoreUnavailable``.
        """
        connections = await self._of_this_loop()
        try:
            one = await connections.take()
            try:
                yield one
            finally:
                connections.give(one)
        except _ERRORS as error:
            raise map_error(cast("Exception", error)) from None

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Any]:
        """As ``connection``, in a transaction that an error inside undoes."""
        async with self.connection() as one:
            async with one.transaction():
                yield one

    async def row(self, query: str, *values: object) -> tuple[Any, ...] | None:
        """The first row of a named query. Raises: as ``connection``."""
        # Not through ``connection``: a save takes this way, and it is measurably shorter.
        connections = await self._of_this_loop()
        try:
            one = await connections.take()
            try:
                return await one.fetchrow(self.queries[query], *values)
            finally:
                connections.give(one)
        except _ERRORS as error:
            raise map_error(cast("Exception", error)) from None

    async def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """All rows of a named query. Raises: as ``connection``."""
        async with self.connection() as one:
            return [tuple(row) for row in await one.fetch(self.queries[query], *values)]

    async def run(self, query: str, *values: object) -> int:
        """How many rows a named query touched. Raises: as ``connection``."""
        async with self.connection() as one:
            return touched(await one.execute(self.queries[query], *values))

    def check_open(self) -> None:
        """Raises: ``NotOpen``."""
        if not self._is_open:
            raise NotOpen(_NOT_OPEN)

    async def _of_this_loop(self) -> _Connections:
        """Raises: ``NotOpen``."""
        self.check_open()
        loop = asyncio.get_running_loop()
        known = self._loops.get(loop)
        return await self._begin(loop) if known is None else known

    async def _begin(self, loop: asyncio.AbstractEventLoop) -> _Connections:
        with self._changing:
            self.check_open()
            known = self._loops.get(loop)
            if known is not None:
                return known
            connections = self._loops[loop] = _Connections(self._settings)
        # A loop that ends closes the generators that were begun in it, and with this one the
        # connections, which nobody could close afterwards.
        connections.guard = self._until_the_loop_ends(loop, connections)
        await anext(connections.guard)
        return connections

    async def _until_the_loop_ends(
        self, loop: asyncio.AbstractEventLoop, connections: _Connections
    ) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            with self._changing:
                self._loops.pop(loop, None)
            await connections.aclose()

    async def _check(self, connection: Any) -> None:
        """Raises: ``StoreUnavailable`` for a server that the contract cannot be kept on."""
        (
            version,
            encoding,
            standby,
            isolation,
            fsync,
            full_pages,
            commit,
        ) = await connection.fetchrow(self.queries["about_server"])
        if version < _OLDEST:
            raise StoreUnavailable(
                f"the server is PostgreSQL {version // 10_000}; 16 or newer is needed"
            )
        if encoding != "UTF8":
            raise StoreUnavailable(
                f"the database has the encoding {encoding}; make one with encoding UTF8"
            )
        if standby:
            raise StoreUnavailable("the server is a standby; name the primary")
        if isolation != "read committed":
            raise StoreUnavailable(
                f"default_transaction_isolation is {isolation!r} for this role or database; set it "
                "to 'read committed'"
            )
        off = {"fsync": fsync, "full_page_writes": full_pages, "synchronous_commit": commit}
        unsafe = [name for name, value in off.items() if value == "off"]
        if unsafe and self._settings.durable == "commit":
            raise StoreUnavailable(
                f"{unsafe[0]} is off on this server: what was acknowledged could be lost in a "
                "crash; turn it on, or accept that with ?durable=best_effort"
            )

    async def _migrate(self, connection: Any) -> None:
        """Lead the schema to its newest version. Raises: ``SchemaTooNew``, driver errors."""
        migrations = load_migrations("postgresql")
        newest = migrations[-1].number
        if await self._version(connection) == newest:
            return
        name = f"secondcall {self._settings.schema}".encode()
        lock = int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big", signed=True)
        async with connection.transaction():
            await connection.execute(self.queries["lock_schema"], lock)
            version = await self._version(connection)
            if version is None:
                if not (await self._found(connection))[0]:
                    await connection.execute(self.queries["create_schema"])
                await connection.execute(self.queries["create_schema_version"])
            for migration in migrations:
                if migration.number > (version or 0):
                    await self._run_all(connection, migration.sql)
            await connection.execute(self.queries["set_schema_version"], newest)

    async def _run_all(self, connection: Any, sql: str) -> None:
        """One statement for each call, as sharded databases ask for."""
        for statement in sql.replace("{schema}", f'"{self._settings.schema}"').split(";\n"):
            if statement.strip():
                await connection.execute(statement)

    async def _version(self, connection: Any) -> int | None:
        """The version of the schema; ``None``: there is none. Raises: ``SchemaTooNew``."""
        if not (await self._found(connection))[1]:
            return None
        version = cast("int", await connection.fetchval(self.queries["find_schema_version"]))
        newest = load_migrations("postgresql")[-1].number
        if version > newest:
            raise SchemaTooNew(
                f"the schema {self._settings.schema!r} has version {version}, this release knows "
                f"up to {newest}; upgrade secondcall"
            )
        return version

    async def _found(self, connection: Any) -> tuple[bool, bool]:
        """Whether the schema is there, and whether it holds a version."""
        schema = self._settings.schema
        table = f'"{schema}".schema_version'
        return tuple(await connection.fetchrow(self.queries["find_schema"], schema, table))


def touched(status: str) -> int:
    """The number of rows in a status such as ``DELETE 5``."""
    return int(status.rpartition(" ")[2])


async def _end(connections: _Connections) -> None:
    if connections.guard is not None:
        await connections.guard.aclose()


async def _run_in(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))
