"""The user index: everything one user has recorded, searchable, in this process.

Built from decoded segments, then extended item by item. Every search scores every live row, so the
ranking does not depend on where segments are cut: statistics are over the live rows of the whole
index, sums are exact or made in one fixed order, scores are rounded to 1e-6, and ties go by later
time, then item id.

One writer at a time and any number of readers, on any threads: a search works on a snapshot.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal

import numpy as np
import numpy.typing as npt

from secondcall.abc import EntryKey
from secondcall.errors import InvalidValue
from secondcall.recall._columns import Columns
from secondcall.recall._parts import Part, SealedPart, TailPart
from secondcall.recall._snapshot import (
    Filter,
    Grouping,
    Hit,
    Neighbours,
    SearchResult,
    Snapshot,
)
from secondcall.recall.analyze import ANALYZER_ID, Analyzer
from secondcall.recall.by_session import for_sessions
from secondcall.recall.explain import reading
from secondcall.recall.maxsim import QueryTokens, reranked
from secondcall.recall.newest import DEPTH, newest_first
from secondcall.recall.query import Query, parse
from secondcall.recall.rank import Postings, View, echo, score, signals, weighted
from secondcall.recall.segment import IndexRow, Removal, Segment, key_hash, quantize
from secondcall.recall.when import near_times
from secondcall.types import ItemKind, JsonValue, Metadata

__all__ = ["Hit", "Neighbours", "SearchResult", "UserIndex"]

_ANALYZER = Analyzer()
_NOTHING = "nothing in the record answers this"
_NOT_THEN = "nothing recorded lies in the time that the question names"


class UserIndex:
    """One user's index. About 250 bytes a row beside the vectors; adding costs about 50 µs."""

    def __init__(self, *, embedder_id: str | None) -> None:
        self.embedder_id = embedder_id
        self._lock = threading.Lock()
        self._columns = Columns()
        self._parts: list[Part] = []
        self._rows_by_key: dict[int, int] = {}
        self._removed: dict[int, int] = {}
        self._dimensions = 0
        self._live_count = 0
        self._whole: Snapshot | None = None

    def __len__(self) -> int:
        """How many items can be found: entries that were corrected or removed do not count."""
        return self._live_count

    @property
    def nbytes(self) -> int:
        """About how much memory the index takes."""
        columns = 110 * len(self._columns) + 100 * len(self._rows_by_key)
        return columns + sum(part.nbytes for part in self._parts)

    def add_segment(self, segment: Segment) -> None:
        """Add a decoded segment, in any order; entries that others supersede are masked.

        Raises: ``InvalidValue`` for a segment of another analyzer or embedder.
        """
        if segment.analyzer_id != ANALYZER_ID:
            raise InvalidValue(
                f"a segment of analyzer {segment.analyzer_id!r} cannot join an index of "
                f"{ANALYZER_ID!r}; reindex"
            )
        width = segment.vectors.shape[1] if len(segment) else 0
        if width and segment.embedder_id != self.embedder_id:
            raise InvalidValue(
                f"a segment of embedder {segment.embedder_id!r} cannot join an index of "
                f"{self.embedder_id!r}; reindex"
            )
        with self._lock:
            self._whole = None
            self._expect_width(width)
            base = len(self._columns)
            self._columns.append_segment(segment, np.ones(len(segment), np.bool_))
            self._parts.append(SealedPart(base, segment))
            self._live_count += len(segment)
            self._register(base, segment)
            for removal in segment.removals:
                self._remove(key_hash(removal.key), removal.change)

    def add(
        self,
        rows: Sequence[IndexRow],
        vectors: npt.NDArray[np.float32] | None = None,
        tokens: Sequence[npt.NDArray[np.int8]] | None = None,
    ) -> None:
        """Add rows, with or without vectors ``(len(rows), dimensions)`` and each row's token
        vectors.

        A row whose key is known with a lower change number corrects that entry; with the same
        number it only brings the vector. Older ones change nothing.

        Raises: ``InvalidValue`` when rows and vectors do not fit each other or the index.
        """
        if vectors is not None and (vectors.ndim != 2 or len(vectors) != len(rows)):
            raise InvalidValue(f"{len(rows)} rows came with vectors of shape {vectors.shape}")
        prepared = [(row, key_hash(row.key), _ANALYZER.hashes(row.text)) for row in rows]
        quantized = None if vectors is None else quantize(vectors)
        with self._lock:
            self._whole = None
            if vectors is not None and len(rows):
                self._expect_width(vectors.shape[1])
            for place, (row, name, hashes) in enumerate(prepared):
                number = self._add_row(row, name, hashes)
                if number is None or self._columns.small_talk.view[number]:
                    continue
                if quantized is not None and quantized[1][place] > 0:
                    self._set_vector(number, quantized[0][place], float(quantized[1][place]))
                if tokens is not None and len(tokens[place]):
                    self._set_tokens(number, tokens[place])

    def remove(self, entries: Iterable[EntryKey | Removal]) -> None:
        """Mask items. A ``Removal`` spares entries with a higher change number than its own."""
        with self._lock:
            self._whole = None
            for entry in entries:
                if isinstance(entry, Removal):
                    self._remove(key_hash(entry.key), entry.change)
                else:
                    self._remove(key_hash(entry), None)

    def search(
        self,
        query_text: str,
        query_vector: npt.NDArray[np.float32] | None,
        *,
        at: datetime,
        limit: int,
        by: Grouping = "message",
        roles: Collection[str] | None = None,
        sessions: Collection[str] | None = None,
        kinds: Collection[ItemKind] | None = None,
        where: Metadata | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        apart_from: tuple[Collection[str], datetime] | None = None,
        told: Collection[EntryKey] = (),
        oldest_us: Mapping[ItemKind, int] | None = None,
        exclude_keys: Collection[EntryKey] = (),
        also: Collection[int] = (),
        small_talk: bool = False,
        time: Literal["soft", "hard"] = "soft",
        neighbours: Neighbours = 0,
        query_tokens: QueryTokens | None = None,
        least_confidence: float = 0.0,
    ) -> SearchResult:
        """The items that answer a question best, as asked at ``at``.

        Filters (``since`` <= time < ``until``; ``where`` by equality, ``None`` meaning absent;
        ``oldest_us`` by kind; not what these sessions hold from a time on, with ``apart_from``; not
        what was ``told``) say what may be found; what surrounds a row still counts for it.
        ``exclude_keys`` are left out altogether, as if they had never been said. Items with the
        same words from the same mouth are found once. By "turn" or "session", the best item of
        each; where named people talk, a session's further items count for it. Ties go by later
        time, then item id. Of a question with more than 24 known words the rarest count. With
        ``time`` "hard" only what lies in a time that the question names passes. Below
        ``least_confidence`` nothing is found. With ``query_tokens`` the best rows are ranked once
        more by the token vectors that they have. ``also`` has the ``key_hash`` of rows whose
        scores are wanted too, found or not.
        """
        if limit < 1:
            return SearchResult(hits=(), reason_if_empty="the limit is below 1")
        if not self._live_count:
            return SearchResult(hits=(), reason_if_empty="nothing is recorded")
        snapshot = self._snapshot(exclude_keys)
        wanted = Filter(
            roles=roles,
            sessions=sessions,
            kinds=kinds,
            where=where,
            since=since,
            until=until,
            apart_from=apart_from,
            told=self._rows_of(told, len(snapshot.view.live)),
            oldest_us=oldest_us or {},
            small_talk=small_talk,
        )
        allowed = snapshot.allowed(wanted)
        if not allowed.any():
            return SearchResult(hits=(), reason_if_empty="nothing recorded passes the filters")
        view = snapshot.view
        query = parse(query_text, at=at, speakers=view.speakers, analyzer=_ANALYZER)
        if query_vector is not None and len(query_vector) != self._dimensions:
            query_vector = None
        postings = snapshot.postings(query.all_hashes)
        if time == "hard":
            allowed = _within_time(view, query, postings, allowed)
            if not allowed.any():
                return SearchResult(hits=(), reason_if_empty=_NOT_THEN)
        scored = score(view, query, postings, query_vector, allowed)
        if scored is None:
            return SearchResult(hits=(), reason_if_empty=_why(query.hashes, query_text))
        scored = reranked(view, query, postings, query_tokens, snapshot.tokens, scored)
        if by == "session":
            scored = for_sessions(view, scored)
        scores = self._scores_of(also, scored.total, allowed)
        rows = snapshot.choose(scored, by=by, limit=max(limit, DEPTH))
        if query.about_now:
            scored, rows = newest_first(view, scored, rows)
        but = frozenset(snapshot.told(wanted).tolist()) if neighbours else frozenset[int]()
        hits = snapshot.hits(rows[:limit], scored, neighbours, but=but)
        sure = scored.confidence >= least_confidence
        reason = None if sure else _unsure(scored.confidence, least_confidence)
        return SearchResult(
            hits=hits if sure else (),
            reason_if_empty=reason if hits else _NOTHING,
            also=scores,
            confidence=scored.confidence,
            unsure=() if sure else hits,
        )

    def explain(self, query_text: str, *, at: datetime) -> dict[str, JsonValue]:
        """How a question is read, as asked at ``at``; see ``recall/explain.py``."""
        snapshot = self._snapshot(())
        query = parse(query_text, at=at, speakers=snapshot.view.speakers, analyzer=_ANALYZER)
        return reading(query, snapshot.postings(query.hashes))

    def signals(
        self,
        query_text: str,
        query_vector: npt.NDArray[np.float32] | None,
        *,
        at: datetime,
        weights: Mapping[str, float] | None = None,
    ) -> dict[str, npt.NDArray[np.float32]]:
        """Every signal of a question, one value a row in the order of adding: to fit weights on.

        With ``weights`` also ``echo``, which rests on what they rank first.
        """
        snapshot = self._snapshot(())
        query = parse(query_text, at=at, speakers=snapshot.view.speakers, analyzer=_ANALYZER)
        found = signals(snapshot.view, query, snapshot.postings(query.all_hashes), query_vector)
        if weights is not None:
            found |= echo(snapshot.view, weighted(found, weights))
        return found

    def _rows_of(self, keys: Collection[EntryKey], count: int) -> list[int]:
        """Of the first ``count`` rows those of the keys that are known."""
        rows = (self._rows_by_key.get(key_hash(key), count) for key in keys)
        return [row for row in rows if row < count]

    def _scores_of(
        self,
        hashes: Collection[int],
        total: npt.NDArray[np.float32],
        allowed: npt.NDArray[np.bool_],
    ) -> dict[int, float]:
        rows = {name: self._rows_by_key.get(name, -1) for name in hashes}
        return {
            name: float(total[row])
            for name, row in rows.items()
            if 0 <= row < len(total) and allowed[row]
        }

    def _expect_width(self, width: int) -> None:
        if width and self._dimensions and width != self._dimensions:
            raise InvalidValue(
                f"vectors of {width} dimensions cannot join an index of {self._dimensions}; reindex"
            )
        self._dimensions = self._dimensions or width

    def _add_row(self, row: IndexRow, name: int, hashes: Sequence[int]) -> int | None:
        known = self._rows_by_key.get(name)
        if known is not None:
            change = int(self._columns.changes.view[known])
            if row.change <= change:
                return known if row.change == change else None
            self._mask(known)
        if row.change < self._removed.get(name, -1):
            return None
        number = self._columns.append(row, len(hashes))
        if not self._parts or isinstance(self._parts[-1], SealedPart):
            self._parts.append(TailPart(number))
        tail = self._parts[-1]
        assert isinstance(tail, TailPart)
        tail.append(row.key, row.metadata, hashes)
        self._rows_by_key[name] = number
        self._live_count += 1
        return number

    def _set_vector(self, row: int, vector: npt.NDArray[np.int8], scale: float) -> None:
        part = next(part for part in reversed(self._parts) if part.base <= row)
        if isinstance(part, TailPart):
            part.set_vector(row, vector, scale)

    def _set_tokens(self, row: int, tokens: npt.NDArray[np.int8]) -> None:
        part = next(part for part in reversed(self._parts) if part.base <= row)
        if isinstance(part, TailPart):
            part.set_tokens(row, tokens)

    def _register(self, base: int, segment: Segment) -> None:
        names = segment.key_hashes.tolist()
        fresh = dict(zip(names, range(base, base + len(names)), strict=True))
        known = self._rows_by_key
        if len(fresh) == len(names) and not fresh.keys() & known.keys() and not self._removed:
            known.update(fresh)
            return
        changes = self._columns.changes.view
        for row, name in enumerate(names, start=base):
            other = known.get(name)
            if other is not None and changes[other] > changes[row]:
                self._mask(row)
                continue
            if other is not None:
                self._mask(other)
            known[name] = row
            if changes[row] < self._removed.get(name, -1):
                self._mask(row)

    def _remove(self, name: int, change: int | None) -> None:
        if change is not None:
            self._removed[name] = max(change, self._removed.get(name, -1))
        row = self._rows_by_key.get(name)
        if row is not None and (change is None or self._columns.changes.view[row] < change):
            self._mask(row)

    def _mask(self, row: int) -> None:
        if self._columns.live.view[row]:
            self._columns.mask(row)
            self._live_count -= 1

    def _snapshot(self, exclude_keys: Collection[EntryKey]) -> Snapshot:
        """The index as it stands; as long as nothing is added, the same for each question that
        hides nothing, with what was computed of it."""
        hidden = [key_hash(key) for key in exclude_keys]
        with self._lock:
            rows = [row for name in hidden if (row := self._rows_by_key.get(name)) is not None]
            if self._whole is not None and not rows:
                return self._whole
            self._columns.link()
            snapshot = Snapshot(self._columns, tuple(self._parts), rows)
            if not rows:
                self._whole = snapshot
            return snapshot


def _within_time(
    view: View,
    query: Query,
    postings: Mapping[int, Postings],
    allowed: npt.NDArray[np.bool_],
) -> npt.NDArray[np.bool_]:
    near = near_times(view, query, postings)
    return allowed if near is None else allowed & near.inside


def _unsure(found: float, least: float) -> str:
    return (
        f"nothing in the record is near enough to the question (confidence {found:.2f}, at least "
        f"{least:.2f} is asked for)"
    )


def _why(hashes: Sequence[int], text: str) -> str:
    if not text.strip():
        return "the question is empty"
    return _NOTHING if hashes else "the question has no words to search for"
