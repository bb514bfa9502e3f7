"""The file of a ``SqliteStore``: its URL, its connections, its schema, its errors in our words."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar, cast
from urllib.parse import parse_qsl, unquote, urlsplit

import apsw

from secondcall.errors import (
    InvalidValue,
    SchemaTooNew,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
    TooLarge,
)
from secondcall.stores.statements import load_migrations

__all__ = [
    "APPLICATION_ID",
    "Row",
    "SqliteSettings",
    "Value",
    "connect_reader",
    "connect_writer",
    "map_error",
    "parse_url",
    "pragma",
    "prepare",
    "row_of",
    "rows_of",
    "run",
]

APPLICATION_ID = 0x2CA11001
_WRITER_CACHE_KIB = 32_768
_READER_CACHE_KIB = 8_192
_JOURNAL_BYTES = 64 * 1024 * 1024
_PAUSE_SECONDS = 0.001

T = TypeVar("T")
Value = None | int | float | str | bytes
Row = tuple[Value, ...]
Synchronous = Literal["full", "normal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteSettings:
    """What the URL says. ``path`` is the file, as given: relative to the working directory."""

    path: str
    synchronous: Synchronous = "full"
    busy_timeout_seconds: float = 30.0

    def at_its_place(self) -> SqliteSettings:
        """The same with an absolute path, for connections made after a change of folder."""
        return replace(self, path=os.path.abspath(self.path))


def parse_url(url: str) -> SqliteSettings:
    """The settings in ``sqlite:///relative.db?synchronous=normal``.

    Raises: ``InvalidValue`` naming the part or option that is not accepted.
    """
    parts = urlsplit(url)
    if parts.scheme != "sqlite" or parts.netloc or parts.fragment:
        raise InvalidValue(
            f"{url!r} is not of the form sqlite:///relative.db or sqlite:////absolute.db; write "
            "'%23' for '#' and '%3F' for '?' in a file name"
        )
    path = unquote(parts.path.removeprefix("/"))
    if not path or path == ":memory:" or "\x00" in path:
        raise InvalidValue(
            f"{url!r} names no file; expected sqlite:///file.db (without a file use memory://)"
        )
    synchronous, busy_timeout_seconds = _parse_options(parts.query)
    return SqliteSettings(
        path=path, synchronous=synchronous, busy_timeout_seconds=busy_timeout_seconds
    )


def _parse_options(query: str) -> tuple[Synchronous, float]:
    synchronous: Synchronous = "full"
    busy_timeout_seconds = 30.0
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name == "synchronous":
            if value not in ("full", "normal"):
                raise InvalidValue(f"synchronous is {value!r}, expected 'full' or 'normal'")
            synchronous = value
        elif name == "busy_timeout_seconds":
            busy_timeout_seconds = _parse_seconds(value)
        else:
            raise InvalidValue(
                f"sqlite:// has no option {name!r}; known are busy_timeout_seconds, synchronous"
            )
    return synchronous, busy_timeout_seconds


def _parse_seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86_400:
        raise InvalidValue(f"busy_timeout_seconds is {value!r}, expected a number from 0 to 86400")
    return seconds


def connect_writer(
    settings: SqliteSettings, *, keep_waiting: Callable[[int], bool], vfs: str | None = None
) -> apsw.Connection:
    """A connection that writes and asks ``keep_waiting`` while others hold a lock.

    Raises: apsw errors.
    """
    connection = apsw.Connection(settings.path, vfs=vfs)
    connection.set_busy_handler(keep_waiting)
    pragma(connection, "secure_delete", True)
    pragma(connection, "foreign_keys", True)
    pragma(connection, "trusted_schema", False)
    pragma(connection, "synchronous", settings.synchronous)
    pragma(connection, "cache_size", -_WRITER_CACHE_KIB)
    # Temporary files would be copies that no erasure reaches.
    pragma(connection, "temp_store", "memory")
    pragma(connection, "journal_size_limit", _JOURNAL_BYTES)
    return connection


def connect_reader(settings: SqliteSettings) -> apsw.Connection:
    """A connection that only reads. Raises: apsw errors."""
    connection = apsw.Connection(settings.path, flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(round(settings.busy_timeout_seconds * 1000))
    pragma(connection, "query_only", True)
    pragma(connection, "trusted_schema", False)
    pragma(connection, "cache_size", -_READER_CACHE_KIB)
    pragma(connection, "temp_store", "memory")
    return connection


def prepare(connection: apsw.Connection, settings: SqliteSettings) -> None:
    """Check whose file it is, switch it to WAL and bring its schema up to date.

    Two processes may do this at once: each migration is one transaction, and who comes second finds
    it done. Raises: ``SchemaTooNew``, ``StoreUnavailable``, ``StoreCorrupt``, apsw errors.
    """
    deadline = time.monotonic() + settings.busy_timeout_seconds
    _patiently(lambda: _check_at_once(connection, settings), deadline)
    mode = _patiently(lambda: cast("str", pragma(connection, "journal_mode", "wal")), deadline)
    if mode != "wal":
        raise StoreUnavailable(
            f"SQLite file {settings.path!r} cannot be switched to WAL mode (it says {mode!r}); "
            "put it on a local disk"
        )
    for migration in load_migrations("sqlite"):
        _patiently(lambda: run(connection, "BEGIN IMMEDIATE"), deadline)
        try:
            if _check_owner(connection, settings) < migration.number:
                run(connection, migration.sql)
                pragma(connection, "application_id", APPLICATION_ID)
                pragma(connection, "user_version", migration.number)
            run(connection, "COMMIT")
        except BaseException:  # interrupted too: the step is taken back; raised on
            if connection.in_transaction:
                run(connection, "ROLLBACK")
            raise


def _check_at_once(connection: apsw.Connection, settings: SqliteSettings) -> None:
    """The same on one view of the file: another opener may make its schema just now."""
    run(connection, "BEGIN")
    try:
        _check_owner(connection, settings)
    finally:
        if connection.in_transaction:
            run(connection, "ROLLBACK")


def _check_owner(connection: apsw.Connection, settings: SqliteSettings) -> int:
    """The schema version; 0 for an empty file."""
    tables = row_of(connection, "SELECT count(*) FROM sqlite_schema") != (0,)
    application = cast("int", pragma(connection, "application_id"))
    version = cast("int", pragma(connection, "user_version"))
    newest = load_migrations("sqlite")[-1].number
    if application != APPLICATION_ID and (application or version or tables):
        raise StoreUnavailable(
            f"SQLite file {settings.path!r} belongs to another application (application_id "
            f"{application}); choose another path"
        )
    if version > newest:
        raise SchemaTooNew(
            f"SQLite file {settings.path!r} has schema {version}, this release knows up to "
            f"{newest}; upgrade secondcall"
        )
    return version


def _patiently(step: Callable[[], T], deadline: float) -> T:
    """Repeat a step that SQLite refuses at once, without its busy handler, while others open."""
    while True:
        try:
            return step()
        except (apsw.BusyError, apsw.LockedError):
            if time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE_SECONDS)


def map_error(error: Exception, settings: SqliteSettings) -> Exception:
    """What a driver's error means here, in one line that names the file and what to do.

    Errors that no driver makes are given back as they are.
    """
    mapped = _translate(error, settings)
    if isinstance(error, apsw.Error):
        mapped.__cause__ = error
    return mapped


def _translate(error: Exception, settings: SqliteSettings) -> Exception:
    file = f"SQLite file {settings.path!r}"
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return StoreBusy(
                f"{file} was locked by another process for {settings.busy_timeout_seconds:g} s; "
                "nothing was written. Try again, or raise busy_timeout_seconds"
            )
        case apsw.FullError():
            return StoreUnavailable(
                f"{file} cannot grow: the disk is full; nothing was written. Free space and retry"
            )
        case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.AuthError():
            return StoreUnavailable(
                f"{file} is read-only for this process; nothing was written. Make the file and "
                "its folder writable"
            )
        case apsw.CantOpenError():
            return StoreUnavailable(_why_not_opened(file, settings))
        case apsw.NotADBError():
            return StoreCorrupt(f"{file} is not a SQLite database; choose another path")
        case apsw.CorruptError() | apsw.FormatError():
            return StoreCorrupt(
                f"{file} is damaged; restore a backup, or save what is left with "
                "'sqlite3 FILE .recover'"
            )
        case _:
            return _translate_rest(error, file)


def _translate_rest(error: Exception, file: str) -> Exception:
    match error:
        case apsw.IOError():
            code = cast("int", getattr(error, "extendedresult", 0))
            result = apsw.mapping_extended_result_codes.get(code, "SQLITE_IOERR")
            return StoreUnavailable(
                f"{file} cannot be read or written ({result}); check the disk and its free space"
            )
        case apsw.TooBigError():
            return TooLarge(f"{file} cannot hold a value of that size")
        case UnicodeError():
            return InvalidValue("an id holds a lone surrogate; send UTF-8 text")
        case OverflowError():
            return InvalidValue("a number or time does not fit into 64 bits")
        case apsw.NoMemError() | MemoryError():
            return StoreUnavailable(f"{file} cannot be used: out of memory")
        case apsw.Error():
            return StoreError(f"{file} answered with {type(error).__name__}")
        case _:
            return error


def _why_not_opened(file: str, settings: SqliteSettings) -> str:
    path = Path(settings.path)
    if path.is_dir():
        return f"{file} is a folder; name a file"
    if not path.parent.exists():
        return f"{file} cannot be opened: its folder does not exist; make it first"
    return f"{file} cannot be opened; make the file and its folder readable and writable"


def run(connection: apsw.Connection, sql: str, values: Sequence[Value] = ()) -> int:
    """Run a statement to its end; how many rows it inserted, changed or deleted."""
    connection.execute(sql, values).fetchall()  # pyright: ignore[reportUnknownMemberType] - stubs
    return connection.changes()


def rows_of(connection: apsw.Connection, sql: str, values: Sequence[Value] = ()) -> list[Row]:
    """All rows of a query."""
    cursor = connection.execute(sql, values)  # pyright: ignore[reportUnknownMemberType] - stubs
    rows = cursor.fetchall()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - untyped in apsw
    return cast("list[Row]", rows)


def row_of(connection: apsw.Connection, sql: str, values: Sequence[Value] = ()) -> Row | None:
    """The first row, or ``None``; the statement is run to its end."""
    rows = rows_of(connection, sql, values)
    return rows[0] if rows else None


def pragma(connection: apsw.Connection, name: str, value: Value = None) -> Value:
    """Set a pragma, or get it with ``None``; what it says."""
    sql = f"PRAGMA {name}" if value is None else f"PRAGMA {name} = {value}"
    row = row_of(connection, sql)
    return None if row is None else row[0]
