"""How near each item is to the time that a question names: by its date and by what it speaks of.

Pure. What only the record can say is resolved here, against itself: which call was the last but
one, when the move was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from secondcall.recall.talks import Talk
from secondcall.recall.times import TimeHint

if TYPE_CHECKING:
    from secondcall.recall.query import Query
    from secondcall.recall.rank import Postings, View

__all__ = ["Near", "near_times"]

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

_DAY_US = 86_400_000_000
_GOING_ON_US = 30 * 60 * 1_000_000
"""A session whose last item is so fresh is the one in which the question is asked."""
_EVENT_WORTH = 0.5
_LEAST_OF_EVENT = 0.5
"""Of an event's words, by their rarity, so much must stand in the item that it is found by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """For each row how near it is to the times of a question, 0 to 1, and if it lies inside."""

    near: Floats
    inside: Mask


def near_times(view: View, query: Query, postings: Mapping[int, Postings]) -> Near | None:
    """``None`` when the question names no time, or none that the record knows."""
    hints = [*query.times, *_events(view, query, postings)]
    sessions = None if query.talk is None else _talk(view, query.talk, query.at_us)
    if isinstance(sessions, TimeHint):
        hints.append(sessions)
        sessions = None
    if not hints and sessions is None:
        return None
    near = np.zeros(len(view.live), dtype=np.float32)
    inside = np.zeros(len(view.live), dtype=np.bool_)
    for hint in hints:
        _add(view, hint, near, inside)
    if sessions is not None:
        inside |= sessions
        near[sessions] = 1
    return Near(near=near, inside=inside)


def _add(view: View, hint: TimeHint, near: Floats, inside: Mask) -> None:
    """What one span says: 1 inside, falling to 0 within its own length around it."""
    at_us = view.at_us
    by_date = _fading(hint, at_us, at_us)
    inside |= (at_us >= hint.start_us) & (at_us < hint.end_us)
    np.maximum(near, by_date, out=near)
    if len(view.mention_rows):
        starts = view.mention_starts * _DAY_US
        ends = starts + view.mention_days * _DAY_US
        np.maximum.at(near, view.mention_rows, _fading(hint, starts, ends - 1))
        inside[view.mention_rows[(ends > hint.start_us) & (starts < hint.end_us)]] = True
    if hint.month is not None:
        months = at_us.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64)
        same = months % 12 + 1 == hint.month
        near[same] = np.maximum(near[same], np.float32(0.5))


def _fading(hint: TimeHint, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> Floats:
    early = (hint.start_us - ends) / hint.fade_us
    late = (starts - hint.end_us) / hint.fade_us
    value = np.clip(1 - np.maximum(early, late).clip(0), 0, 1)
    return (np.float32(hint.worth) * value).astype(np.float32)


def _talk(view: View, talk: Talk, at_us: int) -> Mask | TimeHint | None:
    """The rows of the conversation that is meant, or the span since its end."""
    count = len(view.sessions)
    rows = view.live & (view.at_us <= at_us)
    numbers, at = view.session_numbers[rows], view.at_us[rows]
    if not len(numbers):
        return None
    last = np.full(count, -1, np.int64)
    np.maximum.at(last, numbers, at)
    known = np.flatnonzero((last >= 0) & (last < at_us - _GOING_ON_US))
    if len(known) < max(1, talk.back):
        return None
    ordered = known[np.argsort(last[known], kind="stable")]
    if talk.since:
        return TimeHint(int(last[ordered[-1]]) + 1, at_us + 1)
    chosen = ordered[-talk.back] if talk.back else ordered[0]
    return view.session_numbers == chosen


def _events(view: View, query: Query, postings: Mapping[int, Postings]) -> Sequence[TimeHint]:
    """The spans before or after the events that the question measures from."""
    found: list[TimeHint] = []
    for side, hashes in query.anchors:
        row = _event_row(view, [postings[term] for term in hashes if term in postings])
        if row is None:
            continue
        spoken_of = np.flatnonzero(view.mention_rows == row)
        at = int(view.at_us[row])
        if len(spoken_of) == 1:
            at = int(view.mention_starts[spoken_of[0]]) * _DAY_US
        if side == "before":
            found.append(TimeHint(min(0, at - _DAY_US), at, worth=_EVENT_WORTH))
        else:
            found.append(TimeHint(at, max(query.at_us, at) + _DAY_US, worth=_EVENT_WORTH))
    return found


def _event_row(view: View, terms: Sequence[Postings]) -> int | None:
    """The item that tells of an event: the one with most of its words, the earliest of several."""
    value = np.zeros(len(view.live), dtype=np.float32)
    alive = int(np.count_nonzero(view.live))
    whole = 0.0
    for one in terms:
        rows = one.rows[view.live[one.rows]]
        rarity = np.float32(np.log1p((alive + 1) / (len(rows) + 0.5)))
        value[rows] += rarity
        whole += float(rarity)
    best = float(value.max(initial=0))
    if best <= 0 or best < _LEAST_OF_EVENT * whole:
        return None
    rows = np.flatnonzero(value >= best - 1e-6)
    return int(rows[np.argmin(view.at_us[rows])])
