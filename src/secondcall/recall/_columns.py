"""The columns of an index: one entry a row, names numbered, neighbours linked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from secondcall.recall._parts import Growing
from secondcall.recall.mentions import mentions
from secondcall.recall.segment import IndexRow, Segment, text_hash
from secondcall.recall.smalltalk import is_small_talk

__all__ = ["Columns"]

_KINDS = ("message", "tool_call")
_MAX_STEPS = 64


class _Names:
    """Names numbered in the order of their first use."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        number = self._numbers.setdefault(name, len(self.names))
        if number == len(self.names):
            self.names.append(name)
        return number

    def renumbered(
        self, names: Sequence[str], numbers: npt.NDArray[np.unsignedinteger]
    ) -> npt.NDArray[np.int64]:
        """A segment's own numbers as ours."""
        ours = np.array([self.number(name) for name in names] or [0], np.int64)
        return ours[numbers]


class Columns:
    """All rows of an index, dead ones included. Rows are only added; ``live`` masks them.

    ``before`` and ``after`` link each live row to its neighbours in the session, by time, then
    position, and hold -1 at the ends.
    """

    def __init__(self) -> None:
        self.roles = _Names()
        self.speakers = _Names()
        self.sessions = _Names()
        self.live = Growing(np.bool_)
        self.at_us = Growing(np.int64)
        self.changes = Growing(np.int64)
        self.positions = Growing(np.int64)
        self.text_hashes = Growing(np.uint64)
        self.lengths = Growing(np.float32)
        self.kinds = Growing(np.uint8)
        self.small_talk = Growing(np.bool_)
        self.role_numbers = Growing(np.uint16)
        self.speaker_numbers = Growing(np.int64)
        self.session_numbers = Growing(np.int64)
        self.mention_rows = Growing(np.int64)
        self.mention_starts = Growing(np.int64)
        self.mention_days = Growing(np.int64)
        self.before = Growing(np.int32)
        self.after = Growing(np.int32)
        self._last: dict[int, int] = {}
        self._linked = True

    def __len__(self) -> int:
        return len(self.live)

    def append(self, row: IndexRow, terms: int) -> int:
        """Add a live row and link it; its number."""
        number = len(self)
        self.at_us.append(row.at_us)
        self.changes.append(row.change)
        self.positions.append(row.position)
        self.text_hashes.append(text_hash(row.role, row.speaker, row.text))
        self.lengths.append(terms)
        self.kinds.append(_KINDS.index(row.key.kind))
        self.small_talk.append(is_small_talk(row.text))
        for one in mentions(row.text, row.at_us):
            self.mention_rows.append(number)
            self.mention_starts.append(one.day)
            self.mention_days.append(one.days)
        self.role_numbers.append(self.roles.number(row.role))
        self.speaker_numbers.append(self.speakers.number(row.speaker or ""))
        self.session_numbers.append(self.sessions.number(row.key.session_id))
        self.before.append(-1)
        self.after.append(-1)
        self.live.append(True)
        if self._linked:
            self._link(number)
        return number

    def append_segment(self, segment: Segment, live: npt.NDArray[np.bool_]) -> None:
        """Add a segment's rows; their links are made when they are next asked for."""
        count = len(segment)
        self.small_talk.extend(segment.small_talk > 0)
        self.mention_rows.extend(segment.mention_rows.astype(np.int64) + len(self))
        self.mention_starts.extend(segment.mention_starts)
        self.mention_days.extend(segment.mention_days)
        self.at_us.extend(segment.at_us)
        self.changes.extend(segment.changes)
        self.positions.extend(segment.positions)
        self.text_hashes.extend(segment.text_hashes)
        self.lengths.extend(segment.lengths)
        self.kinds.extend(segment.kinds)
        self.role_numbers.extend(self.roles.renumbered(segment.roles, segment.role_numbers))
        self.speaker_numbers.extend(
            self.speakers.renumbered(segment.speakers, segment.speaker_numbers)
        )
        self.session_numbers.extend(
            self.sessions.renumbered(segment.sessions, segment.session_numbers)
        )
        unlinked = np.full(count, -1, np.int32)
        self.before.extend(unlinked)
        self.after.extend(unlinked)
        self.live.extend(live)
        self._linked = self._linked and not count

    def mask(self, row: int) -> None:
        """Take a row out: it is no longer live, and its neighbours are linked to each other."""
        self.live.view[row] = False
        if not self._linked:
            return
        before, after = int(self.before.view[row]), int(self.after.view[row])
        if before >= 0:
            self.after.view[before] = after
        if after >= 0:
            self.before.view[after] = before
        else:
            session = int(self.session_numbers.view[row])
            if before >= 0:
                self._last[session] = before
            else:
                self._last.pop(session, None)
        self.before.view[row] = self.after.view[row] = -1

    def link(self) -> None:
        """Make the links, if rows came in bulk."""
        if self._linked:
            return
        live = np.flatnonzero(self.live.view)
        sessions = self.session_numbers.view[live]
        order = np.lexsort((self.positions.view[live], self.at_us.view[live], sessions))
        rows, sessions = live[order].astype(np.int32), sessions[order]
        same = sessions[1:] == sessions[:-1]
        # New arrays: a search that runs meanwhile keeps the links it began with.
        before, after = (np.full(len(self), -1, np.int32) for _ in range(2))
        before[rows[1:][same]] = rows[:-1][same]
        after[rows[:-1][same]] = rows[1:][same]
        self.before, self.after = Growing(np.int32), Growing(np.int32)
        self.before.extend(before)
        self.after.extend(after)
        ends = np.append(~same, True) if len(rows) else np.empty(0, np.bool_)
        self._last = dict(zip(sessions[ends].tolist(), rows[ends].tolist(), strict=True))
        self._linked = True

    def _link(self, row: int) -> None:
        """Put a new row into its place in the session, looking back from its end."""
        session = int(self.session_numbers.view[row])
        before, after = self._last.get(session, -1), -1
        for _ in range(_MAX_STEPS):
            if before < 0 or self._reading_place(before) <= self._reading_place(row):
                break
            before, after = int(self.before.view[before]), before
        else:
            self._linked = False
            return
        self.before.view[row], self.after.view[row] = before, after
        if before >= 0:
            self.after.view[before] = row
        if after >= 0:
            self.before.view[after] = row
        else:
            self._last[session] = row

    def _reading_place(self, row: int) -> tuple[int, int]:
        return int(self.at_us.view[row]), int(self.positions.view[row])
