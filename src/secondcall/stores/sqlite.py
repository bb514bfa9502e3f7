"""The default store: one SQLite file in WAL mode, through ``apsw``, for any number of processes.

All writes of a process go through one thread, which commits together what came together
(``sqlite_threads``); reads go to a few others. ``docs/stores/sqlite.md`` tells options and limits.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

import apsw

from secondcall.abc import (
    Batch,
    Capabilities,
    Change,
    Document,
    EntryKey,
    Epoch,
    ErasureResult,
    Glance,
    Header,
    Partition,
    Scope,
    SessionOutline,
    StoredEntry,
    Written,
)
from secondcall.abc_state import StatefulStore, StateKey, StateStore, StoredState
from secondcall.errors import NotOpen
from secondcall.stores.limits import (
    check_batch,
    check_blob,
    check_limit,
    check_scope,
    check_state_key,
)
from secondcall.stores.sqlite_check import find_problems
from secondcall.stores.sqlite_erase import (
    PLACES,
    clean,
    detach,
    erase_step,
    erased_partitions,
    has_uncleaned,
)
from secondcall.stores.sqlite_file import Row, parse_url, prepare, row_of, rows_of, run
from secondcall.stores.sqlite_state import SqliteStates, load_state
from secondcall.stores.sqlite_threads import Readers, Writer
from secondcall.stores.sqlite_write import find_partition, require_epoch, write_batch
from secondcall.stores.statements import load_queries

if TYPE_CHECKING:
    from secondcall.types import ItemKind

__all__ = ["SqliteStore", "state_store"]

T = TypeVar("T")
_Work = Callable[[apsw.Connection], T]

_SQL = load_queries("sqlite")
_LEAST, _MOST = -(2**63), 2**63 - 1
_CLEAN_SECONDS = 5.0
_CLEAN_PAUSE_SECONDS = 0.05


class SqliteStore(StatefulStore):
    """A file named by ``sqlite:///relative.db`` or ``sqlite:////absolute.db``.

    Options: ``?synchronous=normal`` (survives kill -9, may lose the last commits at a power cut;
    default ``full``) and ``?busy_timeout_seconds=30``. The folder must exist.

    Raises: ``InvalidValue`` naming the part of the URL that is not accepted.
    """

    capabilities = Capabilities(
        durable="commit",
        shared=True,
        max_document_bytes=16 * 1024 * 1024,
        max_blob_bytes=256 * 1024 * 1024,
    )

    def __init__(self, url: str) -> None:
        self._settings = parse_url(url)
        self._threads: tuple[Writer, Readers] | None = None
        self._opening = threading.Lock()

    @property
    def place(self) -> str:
        """See ``Store.place``: the file, by its absolute path."""
        return f"sqlite:{self._settings.at_its_place().path}"

    async def open(self) -> None:
        """See ``Store.open``."""
        if self._threads is not None:
            return
        self._settings = self._settings.at_its_place()
        writer = Writer(self._settings)
        await writer.start(self._make_ready)
        with self._opening:
            if self._threads is None:
                readers = Readers(self._settings)
                readers.start()
                self._threads = writer, readers
                return
        await writer.aclose()

    async def aclose(self) -> None:
        """See ``Store.aclose``."""
        threads, self._threads = self._threads, None
        if threads is not None:
            writer, readers = threads
            await readers.aclose()
            await writer.aclose()

    async def header(self, scope: Scope) -> Header | None:
        """See ``Store.header``."""
        check_scope(scope)
        found = await self._read(lambda connection: find_partition(connection, scope))
        return None if found is None else Header(epoch=found[1], change=found[2])

    async def write(
        self, scope: Scope, batch: Batch, *, epoch: Epoch, now_us: int, create: bool = False
    ) -> Written:
        """See ``Store.write``."""
        check_scope(scope)

        def work(connection: apsw.Connection) -> Written:
            # Here and not before, since a large batch takes longer than a loop may wait.
            check_batch(batch, self.capabilities)
            return write_batch(connection, scope, batch, epoch=epoch, now_us=now_us, create=create)

        return await self._write(work)

    async def changes(self, scope: Scope, *, after: int, limit: int) -> Sequence[Change]:
        """See ``Store.changes``."""
        check_limit(limit)
        rows = await self._rows(scope, "list_changes", after, limit)
        return [_change(row) for row in rows]

    async def entries(self, scope: Scope, keys: Sequence[EntryKey]) -> Sequence[StoredEntry]:
        """See ``Store.entries``."""
        check_scope(scope)

        def work(connection: apsw.Connection) -> list[StoredEntry]:
            found = find_partition(connection, scope)
            if found is None:
                return []
            return _entries(connection, found[0], keys)

        return await self._read(work)

    async def read(
        self,
        scope: Scope,
        *,
        session_id: str | None = None,
        since_us: int | None = None,
        until_us: int | None = None,
        after: tuple[int, int] | None = None,
        newest_first: bool = False,
        limit: int,
    ) -> Sequence[StoredEntry]:
        """See ``Store.read``."""
        check_scope(scope)
        check_limit(limit)
        # Positions begin at 1, so (time, 0) stands before everything of that time.
        low = (_LEAST if since_us is None else since_us, 0)
        high = (_MOST, _MOST) if until_us is None else (until_us, 0)
        if after is not None:
            low, high = (low, min(high, after)) if newest_first else (max(low, after), high)
        backwards = "_backwards" if newest_first else ""

        def work(connection: apsw.Connection) -> list[StoredEntry]:
            found = find_partition(connection, scope)
            if found is None:
                return []
            bounds = (*low, *high, limit)
            if session_id is None:
                query, values = f"read{backwards}", (found[0], *bounds)
            else:
                session = row_of(connection, _SQL["find_session"], (found[0], session_id))
                if session is None:
                    return []
                query, values = f"read_session{backwards}", (session_id, session[0], *bounds)
            return [_entry(row) for row in rows_of(connection, _SQL[query], values)]

        return await self._read(work)

    async def sessions(
        self, scope: Scope, *, limit: int, after: tuple[int, str] | None = None
    ) -> Sequence[SessionOutline]:
        """See ``Store.sessions``."""
        check_limit(limit)
        if after is None:
            rows = await self._rows(scope, "list_newest_sessions", limit)
        else:
            rows = await self._rows(scope, "list_sessions", *after, limit)
        return [
            SessionOutline(session_id=session_id, first_us=first_us, last_us=last_us, items=items)
            for session_id, first_us, last_us, items in cast(
                "list[tuple[str, int, int, int]]", rows
            )
        ]

    async def document(self, scope: Scope, kind: str, key: str) -> Document | None:
        """See ``Store.document``."""
        rows = await self._rows(scope, "find_document", kind, key)
        return _document(rows[0]) if rows else None

    async def documents(
        self, scope: Scope, kind: str, *, prefix: str = "", after: str = "", limit: int
    ) -> Sequence[Document]:
        """See ``Store.documents``."""
        check_limit(limit)
        query, values = _documents(kind, prefix, after, limit)
        return [_document(row) for row in await self._rows(scope, query, *values)]

    async def glance(
        self,
        scope: Scope,
        *,
        documents: Sequence[tuple[str, str]] = (),
        entries: Sequence[EntryKey] = (),
    ) -> Glance:
        """See ``Store.glance``: one view of all."""
        check_scope(scope)

        def work(connection: apsw.Connection) -> Glance:
            found = find_partition(connection, scope)
            if found is None:
                return Glance(header=None, documents=[None] * len(documents), entries=())
            rows = [
                row_of(connection, _SQL["find_document"], (found[0], *one)) for one in documents
            ]
            return Glance(
                header=Header(epoch=found[1], change=found[2]),
                documents=[None if row is None else _document(row) for row in rows],
                entries=_entries(connection, found[0], entries),
            )

        return await self._read(work)

    async def put_blob(self, scope: Scope, name: str, data: bytes, *, epoch: Epoch) -> None:
        """See ``Store.put_blob``."""
        check_scope(scope)
        check_blob(name, data, self.capabilities)

        def work(connection: apsw.Connection) -> None:
            partition_id, _ = require_epoch(connection, scope, epoch)
            now_us = time.time_ns() // 1_000
            run(connection, _SQL["set_blob"], (partition_id, name, now_us, data))

        await self._write(work)

    async def blob(self, scope: Scope, name: str) -> bytes | None:
        """See ``Store.blob``."""
        rows = await self._rows(scope, "find_blob", name)
        return cast("bytes", rows[0][0]) if rows else None

    async def blobs(self, scope: Scope) -> Mapping[str, int]:
        """See ``Store.blobs``."""
        rows = await self._rows(scope, "list_blobs")
        return dict(cast("list[tuple[str, int]]", rows))

    async def delete_blobs(self, scope: Scope, names: Sequence[str]) -> None:
        """See ``Store.delete_blobs``."""
        check_scope(scope)

        def work(connection: apsw.Connection) -> None:
            found = find_partition(connection, scope)
            if found is not None:
                for name in names:
                    run(connection, _SQL["delete_blob"], (found[0], name))

        await self._write(work)

    async def acquire_lease(
        self, scope: Scope, name: str, *, holder: str, now_us: int, seconds: float
    ) -> bool:
        """See ``Store.acquire_lease``."""
        check_scope(scope)
        expires_us = now_us + round(seconds * 1_000_000)

        def work(connection: apsw.Connection) -> bool:
            found = find_partition(connection, scope)
            if found is None:
                return False
            values = (found[0], name, holder, expires_us, now_us)
            return row_of(connection, _SQL["take_lease"], values) is not None

        return await self._write(work)

    async def release_lease(self, scope: Scope, name: str, *, holder: str) -> None:
        """See ``Store.release_lease``."""
        check_scope(scope)

        def work(connection: apsw.Connection) -> None:
            found = find_partition(connection, scope)
            if found is not None:
                run(connection, _SQL["release_lease"], (found[0], name, holder))

        await self._write(work)

    async def scopes(
        self, tenant_id: str, partition: Partition, *, after: str = "", limit: int
    ) -> Sequence[Scope]:
        """See ``Store.scopes``."""
        check_limit(limit)
        values = (tenant_id, partition, after, limit)
        rows = await self._read(lambda connection: rows_of(connection, _SQL["list_scopes"], values))
        return [Scope(tenant_id, partition, cast("str", name)) for (name,) in rows]

    async def erase(self, scope: Scope) -> Mapping[str, int]:
        """See ``Store.erase``."""
        check_scope(scope)
        removed = dict.fromkeys(PLACES, 0)
        for partition_id in await self._write(lambda connection: detach(connection, scope)):
            for place, count in (await self._erase_detached(partition_id)).items():
                removed[place] += count
        return removed

    async def scan(self, scope: Scope) -> Mapping[str, int]:
        """See ``Store.scan``."""
        check_scope(scope)
        row = await self._read(lambda connection: row_of(connection, _SQL["count_left"], scope))
        return dict(zip(PLACES, cast("tuple[int, ...]", row), strict=True))

    async def finish_erasure(self) -> ErasureResult:
        """Erase what is half erased, empty the log and overwrite unused bytes in the file.

        Gives up after 5 s if another process keeps the log in use; the next ``open`` completes it.
        """
        until = time.monotonic() + _CLEAN_SECONDS
        while True:
            for partition_id in await self._read(erased_partitions):
                await self._erase_detached(partition_id)
            detail = await self._running()[0].alone(lambda _: clean(self._settings))
            if not detail or time.monotonic() >= until:
                return ErasureResult(complete=not detail, detail=detail)
            await asyncio.sleep(_CLEAN_PAUSE_SECONDS)

    async def problems(self) -> Sequence[str]:
        """SQLite's own check of the file, then change numbers, entries, outlines and orphans."""
        return await self._read(find_problems)

    def states(self) -> StateStore:
        """See ``StatefulStore.states``."""
        return SqliteStates(self, self._running)

    async def state_and_documents(
        self, key: StateKey, kind: str, *, prefix: str = "", limit: int
    ) -> tuple[StoredState | None, Sequence[Document]]:
        """See ``StatefulStore.state_and_documents``: one view of both."""
        check_state_key(key)
        check_limit(limit)
        query, values = _documents(kind, prefix, "", limit)
        scope = Scope(key.tenant_id, "user", key.user_id)

        def work(connection: apsw.Connection) -> tuple[StoredState | None, list[Row]]:
            found = find_partition(connection, scope)
            if found is None:
                return None, []
            rows = rows_of(connection, _SQL[query], (found[0], *values))
            return load_state(connection, key), rows

        stored, rows = await self._read(work)
        return stored, [_document(row) for row in rows]

    def _make_ready(self, connection: apsw.Connection) -> None:
        prepare(connection, self._settings)
        for partition_id in erased_partitions(connection):
            done = False
            while not done:
                run(connection, "BEGIN IMMEDIATE")
                _, done = erase_step(connection, partition_id)
                run(connection, "COMMIT")
        if has_uncleaned(connection):
            clean(self._settings)

    async def _erase_detached(self, partition_id: int) -> dict[str, int]:
        """Delete all rows of an erased partition, so many at a time that others can write too."""
        removed = dict.fromkeys(PLACES, 0)
        done = False
        while not done:
            step, done = await self._write(lambda connection: erase_step(connection, partition_id))
            for place, count in step.items():
                removed[place] += count
        return removed

    def _running(self) -> tuple[Writer, Readers]:
        if self._threads is None:
            raise NotOpen("the store is not open; call open() first")
        return self._threads

    async def _write(self, work: _Work[T]) -> T:
        return await self._running()[0].write(work)

    async def _read(self, work: _Work[T]) -> T:
        return await self._running()[1].read(work)

    async def _rows(self, scope: Scope, query: str, *values: str | int) -> list[Row]:
        """The rows of a query whose first value is the partition's number."""
        check_scope(scope)

        def work(connection: apsw.Connection) -> list[Row]:
            found = find_partition(connection, scope)
            if found is None:
                return []
            return rows_of(connection, _SQL[query], (found[0], *values))

        return await self._read(work)


def state_store(url: str) -> StateStore:
    """States alone, in a file of their own, for records kept elsewhere. Takes the same URLs."""
    store = SqliteStore(url)
    return SqliteStates(store, store._running, owner=True)  # pyright: ignore[reportPrivateUsage] - its companion


def _entries(
    connection: apsw.Connection, partition_id: int, keys: Sequence[EntryKey]
) -> list[StoredEntry]:
    if not keys:
        return []
    values = (json.dumps(keys), partition_id)
    return [_entry(row) for row in rows_of(connection, _SQL["find_entries"], values)]


def _entry(row: Row) -> StoredEntry:
    session_id, kind, item_id, at_us, body, change, position, recorded_us = row
    return StoredEntry(
        key=EntryKey(cast("str", session_id), cast("ItemKind", kind), cast("str", item_id)),
        at_us=cast("int", at_us),
        body=cast("bytes", body),
        change=cast("int", change),
        position=cast("int", position),
        recorded_us=cast("int", recorded_us),
    )


def _change(row: Row) -> Change:
    number, kind, session_id, item_kind, item_id, document_kind, document_key, *rest = row
    at_us, position, recorded_us, body = rest
    number = cast("int", number)
    if kind == "document":
        document = (cast("str", document_kind), cast("str", document_key))
        return Change(number=number, kind="document", document=document)
    key = EntryKey(cast("str", session_id), cast("ItemKind", item_kind), cast("str", item_id))
    if kind == "removal":
        return Change(number=number, kind="removal", key=key)
    if body is None:
        return Change(number=number, kind="entry", key=key)
    entry = _entry((*key, at_us, body, number, position, recorded_us))
    return Change(number=number, kind="entry", key=key, entry=entry)


def _document(row: Row) -> Document:
    kind, key, version, body, updated_us, expires_us = row
    return Document(
        kind=cast("str", kind),
        key=cast("str", key),
        version=cast("int", version),
        body=cast("bytes", body),
        updated_us=cast("int", updated_us),
        expires_us=cast("int | None", expires_us),
    )


def _documents(kind: str, prefix: str, after: str, limit: int) -> tuple[str, tuple[str | int, ...]]:
    """The query that lists documents, and its values behind the partition's number."""
    above = _above_prefix(prefix)
    if above is None:
        return "list_documents", (kind, after, prefix, limit)
    return "list_documents_below", (kind, after, prefix, above, limit)


def _above_prefix(prefix: str) -> str | None:
    """The least text above all that begin with ``prefix``; ``None`` if nothing is above."""
    for end in range(len(prefix), 0, -1):
        last = ord(prefix[end - 1])
        if last < sys.maxunicode:
            # The code points of surrogates are no characters.
            return prefix[: end - 1] + chr(0xE000 if last == 0xD7FF else last + 1)
    return None
