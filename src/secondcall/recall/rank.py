"""From a question and a record to one score for each item: signals, then a weighted sum. Pure.

Every signal is a vector over all rows, scaled to 0..1 over the rows that may be found, so that the
weights of one profile mean the same for every record. The fusion is a plain weighted sum, which
beats reciprocal ranks by 7 to 18 points here (``docs/decisions/recall-ranking.md``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from secondcall.recall._weights import PROFILES
from secondcall.recall.around import around
from secondcall.recall.confidence import confidence, confidence_then, coverage
from secondcall.recall.products import Halves, largest_whole, products
from secondcall.recall.query import Query
from secondcall.recall.when import near_times

__all__ = [
    "Postings",
    "Scored",
    "View",
    "echo",
    "profile_of",
    "score",
    "signals",
    "vector_of",
    "weighted",
]

Floats = npt.NDArray[np.float32]
Vectors = npt.NDArray[np.int8]
Mask = npt.NDArray[np.bool_]

_K1 = 1.2
_B = 0.75
_LEAST_COSINE = 0.25
_FEW_TERMS = 1
_SAME_ATTITUDE = 0.6
"""How near "adore" is to "what do I like?"."""
_NO_TERM = -1
_MAX_TERMS = 24
_ECHOED = 3
_MOST_ECHOED = 64
_HEARING = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class Postings:
    """The rows of one term, ascending, with how often it stands in each."""

    rows: npt.NDArray[np.int64]
    counts: npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class View:
    """An index as it stood at one moment. All columns have one entry a row; ``live`` masks rows.

    ``before`` and ``after`` are the rows that precede and follow in the session, or -1.
    ``mention_rows`` speak of ``mention_days`` days from ``mention_starts`` on, counted from 1970.
    What is the same for every question is computed with the first.
    """

    live: Mask
    at_us: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.float32]
    role_numbers: npt.NDArray[np.uint16]
    speaker_numbers: npt.NDArray[np.int64]
    session_numbers: npt.NDArray[np.int64]
    before: npt.NDArray[np.int32]
    after: npt.NDArray[np.int32]
    roles: Sequence[str]
    speakers: Sequence[str]
    sessions: Sequence[str]
    blocks: Sequence[tuple[int, Vectors, Floats]]
    mention_rows: npt.NDArray[np.int64]
    mention_starts: npt.NDArray[np.int64]
    mention_days: npt.NDArray[np.int64]

    @cached_property
    def live_rows(self) -> npt.NDArray[np.intp]:
        """The numbers of the live rows, ascending."""
        return np.flatnonzero(self.live)

    @cached_property
    def relative_lengths(self) -> Floats:
        """The length of each row, by that of a live one on average."""
        lengths = np.where(self.live, self.lengths, np.float32(0))
        mean = float(lengths.sum(dtype=np.float64)) / max(1, len(self.live_rows))
        return self.lengths / max(mean, 1e-6)

    @cached_property
    def relative_session_lengths(self) -> tuple[Floats, int]:
        """The length of each session, by that of one on average, and how many have a live row."""
        count = len(self.sessions)
        lengths = np.where(self.live, self.lengths, np.float32(0))
        summed = np.bincount(self.session_numbers, lengths, count)
        alive = np.bincount(self.session_numbers[self.live], minlength=count)
        sessions = int(np.count_nonzero(alive))
        mean = float(summed.sum()) / max(1, sessions)
        return (summed / max(mean, 1e-6)).astype(np.float32), sessions

    @cached_property
    def session_places(self) -> Mapping[str, int]:
        """The number of each session."""
        return {name: place for place, name in enumerate(self.sessions)}

    @cached_property
    def links(self) -> Mapping[str, npt.NDArray[np.intp]]:
        """``before`` and ``after`` as numpy looks rows up with."""
        return {"before": self.before.astype(np.intp), "after": self.after.astype(np.intp)}

    @cached_property
    def profile(self) -> str:
        """The kind of record; see ``profile_of``."""
        messages = self.role_numbers[self.live]
        if "assistant" in self.roles:
            spoken = int(np.count_nonzero(messages == self.roles.index("assistant")))
            if 10 * spoken >= len(messages):
                return "assistant"
        counts = np.bincount(self.speaker_numbers[self.live], minlength=len(self.speakers))
        named = sum(1 for name, count in zip(self.speakers, counts, strict=True) if name and count)
        return "people" if named >= 2 else "assistant"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A score for each row, what it is made of, and which rows answer the question at all."""

    total: Floats
    parts: Mapping[str, Floats]
    found: Mask
    confidence: float


def score(
    view: View,
    query: Query,
    postings: Mapping[int, Postings],
    vector: Floats | None,
    allowed: Mask,
) -> Scored | None:
    """Scores of all rows; ``None`` when neither words nor meaning say anything.

    A row is found when it, its neighbours or its session share a word with the question, or when
    its meaning is near enough.
    """
    weights = PROFILES[profile_of(view)]
    found = signals(view, query, postings, vector, weights)
    evidence = found.pop("evidence", None)
    cosines = found.pop("cosine", None)
    then = _asked_time(query, found)
    if then is not None:
        evidence = then if evidence is None else np.maximum(evidence, then)
    if evidence is None:
        return None
    covered = _most(coverage(query, postings, view.live), allowed)
    best = None if cosines is None else _most(cosines, allowed)
    said = [postings[term].rows for term in query.attitude if term in postings]
    sure = float(
        (then is not None and bool((then[allowed] > 0).any()))
        or any(bool(allowed[rows].any()) for rows in said)
    )
    sure = max(sure, _sure_of_then(view, query, postings, found, allowed))
    parts = weighted(found, weights)
    total = _total(parts, len(view.live))
    if "echo" in weights:
        heard = weighted(_echo(view, np.round(total, 6)), weights)
        parts |= heard
        for part in heard.values():
            total += part
    return Scored(
        total=np.round(total, 6),
        parts=parts,
        found=allowed & (evidence > 0),
        confidence=max(sure, confidence(query, covered, best, rows=int(allowed.sum()))),
    )


def _sure_of_then(
    view: View,
    query: Query,
    postings: Mapping[int, Postings],
    found: Mapping[str, Floats],
    allowed: Mask,
) -> float:
    """How sure the best of what was said in the time that the question names makes it."""
    if "time" not in found:
        return 0.0
    inside = allowed & (found["time"] >= np.float32(0.5))
    return confidence_then(_most(coverage(query, postings, view.live, beside_times=True), inside))


def _asked_time(query: Query, found: Mapping[str, Floats]) -> Floats | None:
    """Where a question asks for a time and hardly anything else, what lies in that time: "what did
    we say yesterday?" is answered by whatever was said then."""
    if len(query.beside) > _FEW_TERMS or "time" not in found:
        return None
    return np.where(found["time"] >= np.float32(0.5), found["time"], np.float32(0))


def weighted(found: Mapping[str, Floats], weights: Mapping[str, float]) -> dict[str, Floats]:
    """The signals that have a weight, times that weight."""
    return {
        name: np.float32(weight) * found[name]
        for name, weight in weights.items()
        if weight and name in found
    }


def _total(parts: Mapping[str, Floats], rows: int) -> Floats:
    total = np.zeros(rows, dtype=np.float32)
    for part in parts.values():
        total += part
    return total


def _most(values: Floats, allowed: Mask) -> float:
    """The greatest value of a row that may be found, or 0."""
    inside = values if allowed.all() else values[allowed]
    return float(inside.max(initial=0))


def profile_of(view: View) -> str:
    """The kind of record, by who speaks in it: "people" or "assistant".

    People: at least two named speakers, and fewer than one message in ten by an assistant.
    """
    return view.profile


def signals(
    view: View,
    query: Query,
    postings: Mapping[int, Postings],
    vector: Floats | None,
    wanted: Collection[str] | None = None,
) -> dict[str, Floats]:
    """Every signal (of those ``wanted``) that the question raises; the others are absent.

    Beside them ``evidence``: above 0 where words or meaning speak for a row at all, and ``cosine``
    as it is.
    """
    found: dict[str, Floats] = {}
    words = _keywords(view, query, postings)
    if words is not None:
        found["word"], found["session_word"], found["evidence"] = words
        found |= _around(view, "word", words[0], wanted)
    if wanted is None or "around" in wanted:
        said = around(view, query, postings)
        if said is not None:
            found["around"] = _scaled(said, view.live)
    meaning = None if vector is None else _meaning(view, vector)
    if meaning is not None:
        found["meaning"], near = meaning
        found |= _around(view, "meaning", meaning[0], wanted)
        if wanted is None or "session_meaning" in wanted:
            found["session_meaning"] = _best_of_session(view, meaning[0])
        found["evidence"] = np.maximum(near, found.get("evidence", near))
        found["cosine"] = near + np.float32(_LEAST_COSINE)
    if found and (wanted is None or "length" in wanted):
        found["length"] = _scaled(np.log1p(view.lengths), view.live)
    if query.role in view.roles:
        found["role"] = _equal(view.role_numbers, view.roles.index(query.role))
    if query.speakers:
        named = [place for place, name in enumerate(view.speakers) if name in query.speakers]
        found["speaker"] = np.isin(view.speaker_numbers, named).astype(np.float32)
    near = near_times(view, query, postings)
    if near is not None:
        found["time"] = near.near
    return found


def _keywords(
    view: View, query: Query, postings: Mapping[int, Postings]
) -> tuple[Floats, Floats, Floats] | None:
    """BM25 by item and by session, over live rows only; ``None`` when the record has no term.

    An item's value of a term is that of the term itself or of a near one, times how near it is,
    whichever is more. Sessions go by the question's own terms. The third is above 0 where an item
    or its session has a term at all.
    """
    alive = len(view.live_rows)
    if alive < len(view.live):
        postings = {term: _alive(one, view.live) for term, one in postings.items()}
    postings = {term: one for term, one in postings.items() if len(one.rows)}
    if not postings:
        return None
    relative = view.relative_lengths
    items = np.zeros(len(view.live), dtype=np.float32)
    for term in sorted(query.hashes, key=lambda term: _rarity(postings.get(term)))[:_MAX_TERMS]:
        _add_term(items, term, query.related.get(term, ()), postings, relative, alive)
    if query.attitude:
        liked = [(term, _SAME_ATTITUDE) for term in query.attitude]
        _add_term(items, _NO_TERM, liked, postings, relative, alive)
    own = sorted((postings[term] for term in query.hashes if term in postings), key=_rarity)
    spread = _sessions(view, own[:_MAX_TERMS])[view.session_numbers]
    return _scaled(items, view.live), _scaled(spread, view.live), np.maximum(spread, items)


def _rarity(one: Postings | None) -> int:
    return 0 if one is None else len(one.rows)


def _add_term(
    items: Floats,
    term: int,
    near: Sequence[tuple[int, float]],
    postings: Mapping[int, Postings],
    relative: Floats,
    alive: int,
) -> None:
    """Add to each item what one term of the question is worth there."""
    own = postings.get(term)
    weight = _idf(_rarity(own), alive)
    known = [(other, cosine) for other, cosine in near if other in postings]
    if not known:
        if own is not None:
            items[own.rows] += weight * _saturated(own.counts, relative[own.rows])
        return
    best = np.zeros_like(items)
    if own is not None:
        best[own.rows] = weight * _saturated(own.counts, relative[own.rows])
    for other, cosine in known:
        one = postings[other]
        value = np.float32(cosine) * min(weight, _idf(len(one.rows), alive))
        worth = value * _saturated(one.counts, relative[one.rows])
        best[one.rows] = np.maximum(best[one.rows], worth)
    items += best


def _sessions(view: View, kept: Sequence[Postings]) -> Floats:
    """BM25 of each session as one text."""
    count = len(view.sessions)
    relative, sessions = view.relative_session_lengths
    found = np.zeros(count, dtype=np.float32)
    for one in kept:
        counts = np.bincount(view.session_numbers[one.rows], one.counts, count).astype(np.float32)
        weight = _idf(int(np.count_nonzero(counts)), sessions)
        found += weight * _saturated(counts, relative)
    return found


def _alive(one: Postings, live: Mask) -> Postings:
    mask = live[one.rows]
    return Postings(rows=one.rows[mask], counts=one.counts[mask])


def _idf(found: int, total: int) -> np.float32:
    return np.float32(np.log1p((total - found + 0.5) / (found + 0.5)))


def _saturated(counts: Floats, relative_lengths: Floats) -> Floats:
    """BM25's term frequency part (Robertson and Zaragoza 2009, equation 3.15)."""
    damping = np.float32(_K1) * (np.float32(1 - _B) + np.float32(_B) * relative_lengths)
    return (counts * np.float32(_K1 + 1) / (counts + damping)).astype(np.float32, copy=False)


def _meaning(view: View, vector: Floats) -> tuple[Floats, Floats] | None:
    """Cosine of each row with the question: scaled, and how far above the least that counts."""
    scores = _cosines(view, vector)
    if scores is None:
        return None
    values, known = scores
    near = np.where(known, values, np.float32(0)) - np.float32(_LEAST_COSINE)
    return _scaled(values, known), near


def _cosines(
    view: View, vector: Floats, among: npt.NDArray[np.intp] | None = None
) -> tuple[Floats, Mask] | None:
    """The cosine of each row (or of rows ``among``, ascending) with a vector, and which have one.

    The vector is rounded to whole numbers so small that every sum of products is exact in float32:
    then it does not matter in what order, or in which block, they are added up.
    """
    largest = float(np.abs(vector).max(initial=0.0))
    if not np.isfinite(largest) or largest <= 0 or not view.blocks:
        return None
    step = np.float32(largest / largest_whole(len(vector)))
    whole = Halves(np.rint(vector / step).astype(np.float32))
    count = len(view.live) if among is None else len(among)
    scores = np.zeros(count, dtype=np.float32)
    known = np.zeros(count, dtype=np.bool_)
    for base, vectors, scales in view.blocks:
        begin, end = base, base + len(vectors)
        if among is not None:
            begin, end = np.searchsorted(among, (begin, end))
            rows = among[begin:end] - base
            vectors, scales = vectors.take(rows, axis=0), scales[rows]
        scores[begin:end] = products(vectors, whole) * (scales * step)
        known[begin:end] = scales > 0
    known &= view.live if among is None else view.live[among]
    return (scores, known) if known.any() else None


def echo(view: View, parts: Mapping[str, Floats]) -> dict[str, Floats]:
    """How near in meaning each row is to what ranks first: so one conversation about a thing leads
    to the others about it, whatever words they use.

    ``parts`` are the weighted signals so far. The first three rows, and up to 61 that tie with the
    third, count by their scores (what Rocchio 1971 calls feedback, here blind). Of a long record
    the 1,024 best rows hear it, and those that tie with the last of them.
    """
    return _echo(view, np.round(_total(parts, len(view.live)), 6))


def _echo(view: View, total: Floats) -> dict[str, Floats]:
    """The same from the scores so far."""
    hearing = view.live_rows
    if len(hearing) < len(total):
        total = np.where(view.live, total, np.float32(-1))
    if len(hearing) > _HEARING:
        hearing = np.flatnonzero(total >= np.partition(total, -_HEARING)[-_HEARING])
    if not len(hearing):
        return {}
    first = hearing
    if len(first) > _MOST_ECHOED:
        values = total[hearing]
        first = hearing[values >= np.partition(values, -_MOST_ECHOED)[-_MOST_ECHOED]]
    order = first[np.lexsort((first, -view.at_us[first], -total[first]))]
    third = max(total[order[:_ECHOED][-1]], np.float32(1e-6))
    best = order[:_MOST_ECHOED][total[order[:_MOST_ECHOED]] >= third]
    vector = sum((total[row] * vector_of(view, int(row)) for row in best), np.zeros(1, np.float32))
    found = _cosines(view, vector, hearing) if len(vector) > 1 else None
    if found is None:
        return {}
    heard = np.zeros(len(total), dtype=np.float32)
    heard[hearing] = _scaled(*found)
    return {"echo": heard}


def vector_of(view: View, row: int) -> Floats:
    """A row's vector, or a single zero where it has none."""
    for base, vectors, scales in view.blocks:
        if base <= row < base + len(vectors):
            return vectors[row - base].astype(np.float32) * scales[row - base]
    return np.zeros(1, np.float32)


def _scaled(values: Floats, mask: Mask) -> Floats:
    """Values of the masked rows, moved to 0..1 by their least and greatest; 0 elsewhere."""
    whole = bool(mask.all())
    inside = values if whole else values[mask]
    if not len(inside):
        return np.zeros_like(values)
    low, high = inside.min(), inside.max()
    if high <= low:
        return (mask & (values > 0)).astype(np.float32)
    scaled = (values - low) / (high - low)
    return scaled if whole else np.where(mask, scaled, np.float32(0))


def _around(
    view: View, name: str, values: Floats, wanted: Collection[str] | None
) -> dict[str, Floats]:
    """The signals of the rows one and two places away, 0 where there are none."""
    found: dict[str, Floats] = {}
    for side, links in view.links.items():
        near, far = f"{name}_{side}", f"{name}_{side}2"
        if wanted is None or near in wanted or far in wanted:
            found[near] = _shifted(values, links)
        if wanted is None or far in wanted:
            found[far] = _shifted(found[near], links)
    return found


def _shifted(values: Floats, links: npt.NDArray[np.intp]) -> Floats:
    """Each row's linked value; a link of -1 reaches the zero at the end."""
    return np.append(values, np.float32(0))[links]


def _best_of_session(view: View, values: Floats) -> Floats:
    best = np.zeros(len(view.sessions), dtype=np.float32)
    np.maximum.at(best, view.session_numbers, values)
    return best[view.session_numbers]


def _equal(numbers: npt.NDArray[Any], wanted: int) -> Floats:
    return (numbers == wanted).astype(np.float32)
