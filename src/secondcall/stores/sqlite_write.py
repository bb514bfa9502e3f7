"""One ``Store.write`` in a SQLite transaction: entries, removals, documents and outlines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import apsw

from secondcall.abc import (
    ANY_VERSION,
    Batch,
    DocumentWrite,
    EntryKey,
    Epoch,
    NewEntry,
    Outcome,
    Scope,
    Written,
)
from secondcall.errors import UserErased, VersionConflict
from secondcall.stores.erased import erasure_mark
from secondcall.stores.sqlite_file import row_of, run
from secondcall.stores.statements import load_queries

__all__ = ["find_partition", "require_epoch", "write_batch"]

_SQL = load_queries("sqlite")


@dataclass(slots=True)
class _Outline:
    """A session while a batch changes it. ``moved``: its times must be looked up again."""

    number: int
    first_us: int
    last_us: int
    items: int
    moved: bool = False
    changed: bool = False

    def add(self, at_us: int) -> None:
        """Count one more item."""
        self.first_us = at_us if self.items == 0 else min(self.first_us, at_us)
        self.last_us = at_us if self.items == 0 else max(self.last_us, at_us)
        self.items += 1
        self.changed = True


def find_partition(connection: apsw.Connection, scope: Scope) -> tuple[int, Epoch, int] | None:
    """The number, epoch and newest change of a living partition."""
    row = row_of(connection, _SQL["find_partition"], scope)
    return cast("tuple[int, bytes, int] | None", row)


def require_epoch(connection: apsw.Connection, scope: Scope, epoch: Epoch) -> tuple[int, int]:
    """The number and newest change of the partition. Raises: ``UserErased``."""
    found = find_partition(connection, scope)
    if found is None or found[1] != epoch:
        raise UserErased(scope.name)
    return found[0], found[2]


def write_batch(
    connection: apsw.Connection,
    scope: Scope,
    batch: Batch,
    *,
    epoch: Epoch,
    now_us: int,
    create: bool,
) -> Written:
    """Apply a batch. Raises: ``UserErased``, ``VersionConflict``, apsw errors."""
    if create and find_partition(connection, scope) is None:
        run(connection, _SQL["add_partition"], (*scope, epoch, erasure_mark(scope, epoch)))
    partition_id, change = require_epoch(connection, scope, epoch)
    pen = _Pen(connection, partition_id, change, now_us)
    outcomes: list[Outcome] = []
    entry_changes: list[int] = []
    for entry in batch.entries:
        outcome, entry_change = pen.append(entry)
        outcomes.append(outcome)
        entry_changes.append(entry_change)
    removed = sum([pen.remove(key) for key in batch.removals])
    for document in batch.documents:
        pen.set_document(document)
    pen.finish(before=change)
    return Written(
        outcomes=outcomes,
        entry_changes=entry_changes,
        removed=removed,
        first_change=change + 1,
        change=pen.change,
    )


class _Pen:
    """Writes into one partition and counts its change numbers."""

    def __init__(
        self, connection: apsw.Connection, partition_id: int, change: int, now_us: int
    ) -> None:
        self._connection = connection
        self._partition_id = partition_id
        self.change = change
        self._now_us = now_us
        self._outlines: dict[str, _Outline] = {}

    def append(self, entry: NewEntry) -> tuple[Outcome, int]:
        """Append an entry unless it is there already."""
        outline = self._outline(entry.key.session_id) or self._add_outline(entry.key.session_id)
        kind, item_id = entry.key.kind, entry.key.id
        found = self._newest(outline.number, kind, item_id)
        if found is None:
            self.change += 1
            self._add_entry(outline, entry, entry.at_us, self.change, None)
            outline.add(entry.at_us)
            return "added", self.change
        previous, position, old_at_us, digest = found
        if digest == entry.digest:
            return "unchanged", previous
        self.change += 1
        run(self._connection, _SQL["outdate_entry"], (self._partition_id, previous))
        at_us = old_at_us if entry.keeps_time else entry.at_us
        self._add_entry(outline, entry, at_us, position, previous)
        if at_us != old_at_us:
            outline.moved = outline.changed = True
        return "corrected", self.change

    def remove(self, key: EntryKey) -> bool:
        """Blank all entries of an item; whether it was there."""
        outline = self._outline(key.session_id)
        found = None if outline is None else self._newest(outline.number, key.kind, key.id)
        if outline is None or found is None:
            return False
        change: int | None = found[0]
        while change is not None:
            row = row_of(self._connection, _SQL["blank_entry"], (self._partition_id, change))
            change = cast("int | None", row[0]) if row else None
        self.change += 1
        run(
            self._connection,
            _SQL["add_removal"],
            (self._partition_id, self.change, outline.number, key.kind, key.id, self._now_us),
        )
        outline.items -= 1
        outline.moved = outline.changed = True
        return True

    def set_document(self, write: DocumentWrite) -> None:
        """Compare and set. Raises: ``VersionConflict``."""
        name = (self._partition_id, write.kind, write.key)
        row = cast(
            "tuple[int, int] | None", row_of(self._connection, _SQL["document_version"], name)
        )
        newest, deleted = row or (0, 1)
        found = None if deleted else newest
        if write.expected_version not in (ANY_VERSION, found):
            raise VersionConflict(
                f"document {write.kind!r} {write.key!r}",
                expected=write.expected_version,
                found=found,
            )
        if write.body is None:
            if found is None:
                return
            values = (newest, self._now_us, None, None)
        else:
            values = (newest + 1, self._now_us, write.expires_us, write.body)
        run(self._connection, _SQL["set_document"], (*name, *values))
        if write.announce:
            self.change += 1
            run(
                self._connection,
                _SQL["add_announcement"],
                (self._partition_id, self.change, write.kind, write.key, self._now_us),
            )

    def finish(self, *, before: int) -> None:
        """Write the partition's newest change and the outlines that changed."""
        if self.change != before:
            run(self._connection, _SQL["set_change"], (self.change, self._partition_id))
        for outline in self._outlines.values():
            if not outline.changed:
                continue
            if outline.moved and outline.items:
                row = row_of(self._connection, _SQL["session_times"], (outline.number,))
                outline.first_us, outline.last_us = cast("tuple[int, int]", row)
            run(
                self._connection,
                _SQL["set_session"],
                (outline.first_us, outline.last_us, outline.items, outline.number),
            )

    def _add_entry(
        self, outline: _Outline, entry: NewEntry, at_us: int, position: int, previous: int | None
    ) -> None:
        run(
            self._connection,
            _SQL["add_entry"],
            (
                self._partition_id,
                self.change,
                outline.number,
                entry.key.kind,
                entry.key.id,
                at_us,
                position,
                previous,
                self._now_us,
                entry.digest,
                entry.body,
            ),
        )

    def _newest(self, number: int, kind: str, item_id: str) -> tuple[int, int, int, bytes] | None:
        row = row_of(self._connection, _SQL["find_newest"], (number, kind, item_id))
        return cast("tuple[int, int, int, bytes] | None", row)

    def _outline(self, session_id: str) -> _Outline | None:
        outline = self._outlines.get(session_id)
        if outline is None:
            values = (self._partition_id, session_id)
            row = row_of(self._connection, _SQL["find_session"], values)
            if row is not None:
                outline = _Outline(*cast("tuple[int, int, int, int]", row))
                self._outlines[session_id] = outline
        return outline

    def _add_outline(self, session_id: str) -> _Outline:
        row = row_of(self._connection, _SQL["add_session"], (self._partition_id, session_id))
        outline = _Outline(cast("tuple[int]", row)[0], 0, 0, 0)
        self._outlines[session_id] = outline
        return outline
