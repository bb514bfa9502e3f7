"""An index as it stood when a search began: its columns, what may be found, and the best of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

import numpy as np
import numpy.typing as npt

from secondcall.abc import EntryKey
from secondcall.recall._columns import Columns
from secondcall.recall._parts import Part
from secondcall.recall.rank import Postings, Scored, View
from secondcall.recall.screen import unrepeated
from secondcall.types import ItemKind, Metadata

__all__ = ["Filter", "Grouping", "Hit", "Neighbours", "SearchResult", "Snapshot"]

Grouping = Literal["message", "turn", "session"]
Neighbours = int | Literal["turn"]
"""How many on either side come along; with "turn" what completes it: the reply to a user's words,
the question before a reply, both for a tool call."""
Mask = npt.NDArray[np.bool_]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_TURN_STEPS = 256
_KINDS: tuple[ItemKind, ...] = ("message", "tool_call")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A row that was found. ``features`` says what its score is made of; they sum up to it.
    ``before`` and ``after`` are its neighbours in the session, in reading order, if asked for."""

    key: EntryKey
    score: float
    at_us: int
    change: int
    position: int
    features: Mapping[str, float] = field(default_factory=dict[str, float])
    before: Sequence[EntryKey] = ()
    after: Sequence[EntryKey] = ()

    @property
    def session_id(self) -> str:
        """The session that the item belongs to."""
        return self.key.session_id

    @property
    def at(self) -> datetime:
        """When it was said, aware, UTC."""
        return _EPOCH + timedelta(microseconds=self.at_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """Hits, best first; without any, ``reason_if_empty`` says why. ``also`` has the scores of the
    rows that were asked for, found or not, by the hash of their key."""

    hits: Sequence[Hit]
    reason_if_empty: str | None = None
    also: Mapping[int, float] = field(default_factory=dict[int, float])
    confidence: float = 0.0
    """How likely the record answers at all, 0 to 1."""
    unsure: Sequence[Hit] = ()
    """What would have been found, had less confidence been asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What may be found; ``None`` lets everything pass."""

    roles: Collection[str] | None = None
    sessions: Collection[str] | None = None
    kinds: Collection[ItemKind] | None = None
    where: Metadata | None = None
    since: datetime | None = None
    until: datetime | None = None
    apart_from: tuple[Collection[str], datetime] | None = None
    """Sessions of which nothing from a time on may be found, or come along."""
    told: Sequence[int] = ()
    """Rows that may neither be found nor come along."""
    oldest_us: Mapping[ItemKind, int] = field(default_factory=dict[ItemKind, int])
    """By kind, the time before which items have run out."""
    small_talk: bool = False


class Snapshot:
    """Made under the index's lock, used outside it. ``hidden`` rows are as if never said."""

    def __init__(self, columns: Columns, parts: Sequence[Part], hidden: Sequence[int]) -> None:
        live = columns.live.view
        if hidden:
            live = live.copy()
            live[list(hidden)] = False
        self._columns = columns
        self._parts = parts
        self._rows = len(live)
        self._kinds = columns.kinds.view
        self._small_talk = columns.small_talk.view
        self._changes = columns.changes.view
        self._positions = columns.positions.view
        self._text_hashes = columns.text_hashes.view
        self.view = View(
            live=live,
            at_us=columns.at_us.view,
            lengths=columns.lengths.view,
            role_numbers=columns.role_numbers.view,
            speaker_numbers=columns.speaker_numbers.view,
            session_numbers=columns.session_numbers.view,
            before=_within(columns.before.view, len(live)),
            after=_within(columns.after.view, len(live)),
            roles=tuple(columns.roles.names),
            speakers=tuple(columns.speakers.names),
            sessions=tuple(columns.sessions.names),
            blocks=tuple(
                (part.base, *found)
                for part in parts
                if (found := part.vectors(len(live))) is not None
            ),
            mention_rows=columns.mention_rows.view,
            mention_starts=columns.mention_starts.view,
            mention_days=columns.mention_days.view,
        )

    def postings(self, hashes: Sequence[int]) -> dict[int, Postings]:
        """The rows of each term, over all parts; terms that the record lacks are left out."""
        if not hashes:
            return {}
        wanted = np.array(hashes, np.uint64)
        by_part = [part.postings(wanted, self._rows) for part in self._parts]
        bases = [np.int64(part.base) for part in self._parts]
        joined: dict[int, Postings] = {}
        for term, *several in zip(hashes, *by_part, strict=True):
            known = [(base, *one) for base, one in zip(bases, several, strict=True) if one]
            if known:
                rows = [base + rows for base, rows, _ in known]
                counts = np.concatenate([counts for *_, counts in known], dtype=np.float32)
                owners = rows[0] if len(rows) == 1 else np.concatenate(rows)
                joined[term] = Postings(rows=owners, counts=counts)
        return joined

    def tokens(self, rows: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int8] | None]:
        """The token vectors of rows, which ascend; ``None`` where there are none."""
        found: list[npt.NDArray[np.int8] | None] = []
        ends = [*(part.base for part in self._parts[1:]), self._rows]
        for part, end in zip(self._parts, ends, strict=True):
            found += part.tokens(rows[len(found) : np.searchsorted(rows, end)])
        return found

    def allowed(self, wanted: Filter) -> Mask:
        """The live rows that pass the filters."""
        view = self.view
        mask = view.live.copy()
        if not wanted.small_talk:
            mask &= ~self._small_talk
        if wanted.roles is not None:
            mask &= _among(view.role_numbers, view.roles, wanted.roles)
        if wanted.sessions is not None:
            mask &= _among(view.session_numbers, view.sessions, wanted.sessions)
        if wanted.kinds is not None:
            mask &= _among(self._kinds, _KINDS, wanted.kinds)
        if wanted.since is not None:
            mask &= view.at_us >= _to_us(wanted.since)
        if wanted.until is not None:
            mask &= view.at_us < _to_us(wanted.until)
        mask[self.told(wanted)] = False
        for kind, oldest_us in wanted.oldest_us.items():
            mask &= (self._kinds != _KINDS.index(kind)) | (view.at_us >= oldest_us)
        if wanted.where:
            mask &= self._where(wanted.where)
        return mask

    def told(self, wanted: Filter) -> npt.NDArray[np.intp]:
        """The rows that whoever asks has before them."""
        told = np.array(wanted.told, np.intp)
        if wanted.apart_from is None:
            return told
        return np.concatenate((told, self._theirs(*wanted.apart_from)))

    def _theirs(self, sessions: Collection[str], since: datetime) -> npt.NDArray[np.intp]:
        """The rows of some sessions from a time on, which is mostly a recent one."""
        view = self.view
        theirs = np.zeros(len(view.sessions), np.bool_)
        theirs[[view.session_places[one] for one in sessions if one in view.session_places]] = True
        late = np.flatnonzero(view.at_us >= _to_us(since))
        return late[theirs[view.session_numbers[late]]]

    def choose(self, scored: Scored, *, by: Grouping, limit: int) -> list[int]:
        """The best rows: one of each turn or session, and of each text, at most ``limit``."""
        chosen: list[int] = []
        seen: set[int] = set()
        for row in unrepeated(self._best_first(scored, limit), self._text_hashes):
            group = self._group(row, by)
            if group not in seen:
                seen.add(group)
                chosen.append(row)
                if len(chosen) == limit:
                    break
        return chosen

    def hits(
        self,
        rows: Sequence[int],
        scored: Scored,
        neighbours: Neighbours = 0,
        *,
        but: Collection[int] = (),
    ) -> list[Hit]:
        """Rows as they are handed out, with their neighbours, but without rows ``but``."""
        if not rows:
            return []
        places = np.array(rows, np.intp)
        shares = np.stack([part[places] for part in scored.parts.values()], axis=1).tolist()
        totals = scored.total[places].tolist()
        columns = (self.view.at_us, self._changes, self._positions)
        numbers = zip(*(column[places].tolist() for column in columns), strict=True)
        return [
            Hit(
                key=self._key(row),
                score=round(total, 6),
                at_us=at_us,
                change=change,
                position=position,
                features={
                    name: round(share, 6)
                    for name, share in zip(scored.parts, several, strict=True)
                    if share
                },
                before=self._around(row, self.view.before, before, but)[::-1],
                after=self._around(row, self.view.after, after, but),
            )
            for row, total, several, (at_us, change, position) in zip(
                rows, totals, shares, numbers, strict=True
            )
            for before, after in (self._sides(row, neighbours),)
        ]

    def _sides(self, row: int, neighbours: Neighbours) -> tuple[int, int]:
        """How many items before a row and after it come along."""
        if neighbours != "turn":
            return neighbours, neighbours
        if _KINDS[int(self._kinds[row])] != "message":
            return 1, 1
        return (0, 1) if self._is_user(row) else (1, 0)

    def _around(
        self, row: int, links: npt.NDArray[np.int32], count: int, but: Collection[int]
    ) -> list[EntryKey]:
        found: list[EntryKey] = []
        for _ in range(count):
            row = int(links[row])
            if row < 0:
                break
            if self.view.live[row] and row not in but:
                found.append(self._key(row))
        return found

    def _key(self, row: int) -> EntryKey:
        part = next(part for part in reversed(self._parts) if part.base <= row)
        return part.key(row)

    def _where(self, where: Metadata) -> Mask:
        known: dict[int, Metadata] = {}
        for part in self._parts:
            known |= part.metadata()
        mask = np.full(self._rows, all(value is None for value in where.values()), dtype=np.bool_)
        for row, metadata in known.items():
            if row < self._rows:
                mask[row] = all(_same(metadata.get(name), value) for name, value in where.items())
        return mask

    def _best_first(self, scored: Scored, limit: int) -> Iterator[int]:
        """Candidates by score, later time, item id; sorted as far as they are asked for."""
        rows = np.flatnonzero(scored.found)
        size = max(64, 8 * limit)
        while True:
            if size >= len(rows):
                yield from self._sorted(rows, scored.total)
                return
            totals = scored.total[rows]
            least = np.partition(totals, len(rows) - size)[len(rows) - size]
            yield from self._sorted(rows[totals >= least], scored.total)
            rows = rows[totals < least]
            size *= 8

    def _sorted(self, rows: npt.NDArray[np.intp], total: npt.NDArray[np.float32]) -> list[int]:
        at_us = self.view.at_us
        order = rows[np.lexsort((-at_us[rows], -total[rows]))]
        places = list(zip(total[order].tolist(), at_us[order].tolist(), strict=True))
        result = order.tolist()
        start = 0
        for end in range(1, len(result) + 1):
            if end == len(result) or places[end] != places[start]:
                if end - start > 1:
                    result[start:end] = sorted(result[start:end], key=self._tie)
                start = end
        return result

    def _tie(self, row: int) -> tuple[str, str, str]:
        key = self._key(row)
        return key.id, key.session_id, key.kind

    def _group(self, row: int, by: Grouping) -> int:
        if by == "message":
            return row
        if by == "session":
            return int(self.view.session_numbers[row])
        return self._turn(row)

    def _turn(self, row: int) -> int:
        """The first row of a row's turn: a user's words with everything up to the next ones."""
        view = self.view
        for _ in range(_MAX_TURN_STEPS):
            before = int(view.before[row])
            if before < 0 or (self._is_user(row) and not self._same_mouth(before, row)):
                return row
            row = before
        return row

    def _is_user(self, row: int) -> bool:
        return self.view.roles[int(self.view.role_numbers[row])] == "user"

    def _same_mouth(self, one: int, other: int) -> bool:
        speakers = self.view.speaker_numbers
        return self._is_user(one) and bool(speakers[one] == speakers[other])


def _within(links: npt.NDArray[np.int32], rows: int) -> npt.NDArray[np.int32]:
    """Links as they are now; what is added later is not followed."""
    return np.where(links < rows, links, np.int32(-1))


def _among(numbers: npt.NDArray[np.integer], names: Sequence[str], wanted: Collection[str]) -> Mask:
    known = [number for number, name in enumerate(names) if name in wanted]
    return np.isin(numbers, known)


def _same(one: object, other: object) -> bool:
    """Equality as JSON has it: true is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _to_us(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)
