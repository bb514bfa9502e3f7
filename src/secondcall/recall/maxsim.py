"""The best rows ranked once more by token vectors: IDF-weighted MaxSim. Pure.

For each word of the question the nearest token vector of a row counts, then the words add up, each
by its rarity (late interaction, Khattab and Zaharia 2020). The three items before and after a row
answer with it, as in ``recall/around.py``: one asks, the other answers. Of records of people only.
Vectors are whole numbers of one byte, so that every product is exact in float32, in any order, up
to 1,040 dimensions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from secondcall.recall.analyze import term_hash, terms

if TYPE_CHECKING:
    from secondcall.recall.query import Query
    from secondcall.recall.rank import Postings, Scored, View

__all__ = ["DEPTH", "WEIGHT", "QueryTokens", "reranked", "whole_tokens"]

Floats = npt.NDArray[np.float32]
Tokens = npt.NDArray[np.int8]
TokensOf = Callable[[npt.NDArray[np.int64]], Sequence[Tokens | None]]

DEPTH = 100
"""How many of the best rows are ranked once more, and those that tie with the last of them."""
WEIGHT = 1.0
"""What the best of them gains, in the units of ``recall/_weights.py``."""
_PROFILES = frozenset({"people"})
"""With an assistant no weight found more."""
_REACH = 3
"""How many items on either side answer with a row."""
_WHOLE = 127
_MOST_ROWS = 256
_MOST_WORDS = 24
_BLOCK = 262_144
"""Up to so many products at once OpenBLAS stays on the thread that it is called on: waking another
costs more than it saves, on a machine that has other work even tens of milliseconds."""
_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTokens:
    """A question's token vectors ``(count, dimensions)``, unit length, and the characters (begin,
    end) of ``text`` that each stands for."""

    text: str
    vectors: Floats
    spans: Sequence[tuple[int, int]]


def whole_tokens(vectors: Floats) -> Tokens:
    """Unit vectors as whole numbers, 127 for 1; a vector that is not finite is left out."""
    clean = vectors[np.isfinite(vectors).all(axis=1)]
    return np.rint(np.clip(clean, -1, 1) * np.float32(_WHOLE)).astype(np.int8)


def reranked(
    view: View,
    query: Query,
    postings: Mapping[int, Postings],
    tokens: QueryTokens | None,
    tokens_of: TokensOf,
    scored: Scored,
) -> Scored:
    """The scores with what the token vectors add to the best rows, as the part "maxsim".

    Scaled to 0..``WEIGHT`` over these rows. A row that has no token vectors, nor a neighbour that
    counts, gets what the others get on average. Without ``tokens`` nothing
    changes, nor with an assistant.
    """
    if tokens is None or view.profile not in _PROFILES:
        return scored
    weights = _weights(view, query, postings, tokens)
    rows = _best(scored)
    if not weights.any() or len(rows) < 2:
        return scored
    asked = whole_tokens(tokens.vectors[weights > 0])
    values, known = _values(view, rows, asked, weights[weights > 0], tokens_of)
    if not known.any():
        return scored
    low, high = values[known].min(), values[known].max()
    if high <= low:
        return scored
    scaled = (values - low) / (high - low)
    scaled[~known] = scaled[known].mean(dtype=np.float64)
    added = np.zeros(len(scored.total), np.float32)
    added[rows] = np.float32(WEIGHT) * np.round(scaled, 6)
    return replace(
        scored,
        total=np.round(scored.total + added, 6),
        parts={**scored.parts, "maxsim": added},
    )


def _best(scored: Scored) -> npt.NDArray[np.intp]:
    """The rows to rank once more, ascending; of very many that tie, none."""
    rows = np.flatnonzero(scored.found)
    if len(rows) <= DEPTH:
        return rows
    totals = scored.total[rows]
    least = np.partition(totals, len(rows) - DEPTH)[len(rows) - DEPTH]
    best = rows[totals >= least]
    return best if len(best) <= _MOST_ROWS else rows[totals > least]


def _weights(
    view: View,
    query: Query,
    postings: Mapping[int, Postings],
    tokens: QueryTokens,
) -> Floats:
    """What each token of the question counts: its word's rarity, shared among the word's tokens. 0
    for words that are no search words, and for all but the rarest 24."""
    weights = np.zeros(len(tokens.spans), np.float32)
    searched = frozenset(query.hashes)
    alive = len(view.live_rows)
    words: list[tuple[float, Sequence[int]]] = []
    for word in _WORD.finditer(tokens.text):
        known = searched.intersection(map(term_hash, terms(word.group())))
        places = [
            place
            for place, (begin, end) in enumerate(tokens.spans)
            if begin < word.end() and word.start() < end
        ]
        if known and places:
            found = max(_live(view, postings.get(term)) for term in known)
            words.append((float(np.log1p((alive - found + 0.5) / (found + 0.5))), places))
    words.sort(key=lambda one: -one[0])
    for rarity, places in words[:_MOST_WORDS]:
        weights[places] = np.float32(rarity / len(places))
    return weights


def _live(view: View, one: Postings | None) -> int:
    return 0 if one is None else int(np.count_nonzero(view.live[one.rows]))


def _values(
    view: View,
    rows: npt.NDArray[np.intp],
    asked: Tokens,
    weights: Floats,
    tokens_of: TokensOf,
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """MaxSim of each row, and which rows have any token vectors to say it."""
    around = _windows(view, rows)
    everyone, places = np.unique(around, return_inverse=True)
    best = _nearest(everyone, asked, tokens_of)
    windows = best[places.reshape(around.shape)]
    known = (windows.max(axis=2) >= 0).any(axis=0)
    nearest = np.maximum(windows.max(axis=0), 0)
    return (nearest * weights).sum(axis=1, dtype=np.float64).astype(np.float32), known


def _windows(view: View, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
    """The rows, and below them those that answer with them, -1 where there is none."""
    found = [rows.astype(np.int64)]
    for links in (view.before, view.after):
        reached = found[0]
        for _ in range(_REACH):
            reached = np.where(reached >= 0, links[reached], -1).astype(np.int64)
            found.append(reached)
    return np.stack(found)


def _nearest(rows: npt.NDArray[np.int64], asked: Tokens, tokens_of: TokensOf) -> Floats:
    """For each row and token of the question the cosine of the row's nearest, 0 at least;
    below 0 for a row without token vectors."""
    nearest = np.full((len(rows), len(asked)), -1, np.float32)
    none = int(np.count_nonzero(rows < 0))
    several = [*[None] * none, *tokens_of(rows[none:])]
    known = [
        place
        for place, one in enumerate(several)
        if one is not None and len(one) and one.shape[1] == asked.shape[1]
    ]
    if not known:
        return nearest
    arrays = [cast("Tokens", several[place]) for place in known]
    starts = np.cumsum([0, *map(len, arrays[:-1])])
    products = _products(np.concatenate(arrays), asked)
    best = np.maximum.reduceat(products, starts, axis=0)
    nearest[known] = np.maximum(best, 0) / np.float32(_WHOLE * _WHOLE)
    return nearest


def _products(tokens: Tokens, asked: Tokens) -> Floats:
    """The product of each row's token vector with each of the question's."""
    turned = np.ascontiguousarray(asked.T, dtype=np.float32)
    products = np.empty((len(tokens), len(asked)), np.float32)
    step = max(1, _BLOCK // asked.size)
    for start in range(0, len(tokens), step):
        block = tokens[start : start + step].astype(np.float32)
        np.matmul(block, turned, out=products[start : start + step])
    return products
