"""Erasing a partition of a SQLite file in small steps, and cleaning the file of what was deleted.

``secure_delete`` overwrites a row where it was deleted, but not the copies that stay in the unused
middle of a b-tree page when SQLite moves rows to another page. (Measured with SQLite 3.54: after
deleting one of four users, 1 to 30 of some thousand rows could still be read in the file.) So the
cleaning also overwrites that unused middle of every page, in the main file, while it holds the
write lock and the log is empty. The bytes there mean nothing to SQLite, whatever reads meanwhile or
wherever a crash stops it. File format: https://sqlite.org/fileformat2.html#b_tree_pages
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import cast

import apsw

from secondcall.abc import Scope
from secondcall.stores.erased import erasure_mark
from secondcall.stores.sqlite_file import (
    Row,
    SqliteSettings,
    connect_writer,
    pragma,
    row_of,
    rows_of,
    run,
)
from secondcall.stores.sqlite_write import find_partition
from secondcall.stores.statements import load_queries

__all__ = ["PLACES", "clean", "detach", "erase_step", "erased_partitions", "has_uncleaned"]

PLACES: tuple[str, ...] = (
    "changes",
    "sessions",
    "documents",
    "blobs",
    "states",
    "state_history",
    "leases",
    "partitions",
)
_STEPS = ("changes", "sessions", "documents", "blobs", "state_history", "states")
_SQL = load_queries("sqlite")
_STEP_SECONDS = 0.02
_LOCK_SECONDS = 0.25
_PAUSE_SECONDS = 0.002
_READ_BYTES = 1024 * 1024
_MOST_PAGES = 1 << 25
_TREE_PAGES = frozenset((2, 5, 10, 13))


def detach(connection: apsw.Connection, scope: Scope) -> list[int]:
    """Take the epoch away and say which erased partitions of the scope hold rows."""
    found = find_partition(connection, scope)
    if found is not None:
        run(connection, _SQL["add_erased"], (erasure_mark(scope, found[1]),))
        run(connection, _SQL["detach_partition"], scope)
        run(connection, _SQL["mark_uncleaned"])
    return _numbers(rows_of(connection, _SQL["erased_partitions_of_scope"], scope))


def erased_partitions(connection: apsw.Connection) -> list[int]:
    """Every partition whose erasure was not finished."""
    return _numbers(rows_of(connection, _SQL["erased_partitions"]))


def erase_step(connection: apsw.Connection, partition_id: int) -> tuple[dict[str, int], bool]:
    """Delete for about 20 ms; how many rows went, by place, and whether nothing is left."""
    until = time.monotonic() + _STEP_SECONDS
    removed = dict.fromkeys(PLACES, 0)
    for place in _STEPS:
        while True:
            gone = run(connection, _SQL[f"erase_some_{place}"], (partition_id,))
            if not gone:
                break
            removed[place] += gone
            if time.monotonic() >= until:
                return removed, False
    removed["leases"] = run(connection, _SQL["erase_leases"], (partition_id,))
    removed["partitions"] = run(connection, _SQL["erase_partition"], (partition_id,))
    return removed, True


def has_uncleaned(connection: apsw.Connection) -> bool:
    """Whether the file was not cleaned since an erasure."""
    return row_of(connection, _SQL["last_uncleaned"]) != (None,)


def clean(settings: SqliteSettings) -> str:
    """Empty the log and overwrite unused bytes; why it could not be done, or ``""``.

    Waits at most some 250 ms for others; holds the write lock for seconds per gigabyte.
    Raises: apsw errors.
    """
    vfs = _TrackingVfs()
    until = time.monotonic() + _LOCK_SECONDS
    connection = connect_writer(
        settings, keep_waiting=lambda _: _pause(time.monotonic() < until), vfs=vfs.name
    )
    try:
        try:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            run(connection, "BEGIN IMMEDIATE")
        except (apsw.BusyError, apsw.LockedError):
            return _held_by_others(settings)
        if _log_bytes(settings) or erased_partitions(connection):
            run(connection, "ROLLBACK")
            return _held_by_others(settings)
        page_bytes = cast("int", pragma(connection, "page_size"))
        pages = cast("int", pragma(connection, "page_count"))
        if pages >= _MOST_PAGES:
            run(connection, "ROLLBACK")
            return f"SQLite file {settings.path!r} has too many pages to clean; run VACUUM on it"
        _overwrite_unused(vfs.main_file(), page_bytes, pages)
        # This commit also makes every connection drop its cached pages, which still hold the
        # unused bytes as they were and would bring them back.
        run(connection, _SQL["mark_uncleaned"])
        run(connection, _SQL["forget_uncleaned"], (connection.last_insert_rowid(),))
        run(connection, "COMMIT")
        return ""
    finally:
        connection.close()
        vfs.unregister()


def _pause(again: bool) -> bool:
    if again:
        time.sleep(_PAUSE_SECONDS)
    return again


def _numbers(rows: Sequence[Row]) -> list[int]:
    return [cast("int", row[0]) for row in rows]


def _log_bytes(settings: SqliteSettings) -> int:
    try:
        return os.stat(f"{settings.path}-wal").st_size
    except FileNotFoundError:
        return 0


def _held_by_others(settings: SqliteSettings) -> str:
    return (
        f"another process is using SQLite file {settings.path!r}, so its log could not be emptied; "
        "deleted rows may be readable in it until the next open or forget"
    )


def _overwrite_unused(file: apsw.VFSFile, page_bytes: int, pages: int) -> None:
    """Zero the bytes between the cell pointers and the cells of every b-tree page."""
    pages_read = max(1, _READ_BYTES // page_bytes)
    wrote = False
    for start in range(0, pages, pages_read):
        count = min(pages_read, pages - start)
        data = file.xRead(count * page_bytes, start * page_bytes)
        for low, high in _unused_ranges(data, page_bytes, first=start == 0):
            empty = bytes(high - low)
            file.xWrite(empty, start * page_bytes + low)  # pyright: ignore[reportUnknownMemberType] - untyped in apsw
            wrote = True
    if wrote:
        file.xSync(apsw.SQLITE_SYNC_FULL)


def _unused_ranges(data: bytes, page_bytes: int, *, first: bool) -> Sequence[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for base in range(0, len(data), page_bytes):
        head = base + (100 if first and base == 0 else 0)
        kind = data[head]
        if kind not in _TREE_PAGES:
            continue
        cells = int.from_bytes(data[head + 3 : head + 5], "big")
        low = head + (8 if kind >= 10 else 12) + 2 * cells
        high = base + (int.from_bytes(data[head + 5 : head + 7], "big") or 65_536)
        if low < high <= base + page_bytes and data.count(0, low, high) != high - low:
            found.append((low, high))
    return found


class _TrackingVfs(apsw.VFS):
    """SQLite's own way to files, which also hands out the main file that it opened.

    Opening the file once more ourselves would, at its closing, drop all of this process's locks.
    """

    def __init__(self) -> None:
        self.name = f"secondcall-{id(self):x}"
        self._files: list[apsw.VFSFile] = []
        super().__init__(self.name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        """Open a file, remembering it if it is the database."""
        file = apsw.VFSFile("", name, flags)
        if flags[0] & apsw.SQLITE_OPEN_MAIN_DB:
            self._files.append(file)
        return file

    def main_file(self) -> apsw.VFSFile:
        """The database file."""
        return self._files[0]
