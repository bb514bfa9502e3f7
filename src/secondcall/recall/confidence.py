"""Whether the record answers a question at all: how much of it the best items cover. Pure.

The numbers are fitted on LongMemEval dev: its questions asked of their own record and of three
others (``secondcall eval abstention``; figures in ``docs/retrieval.md``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from secondcall.recall.query import Query
    from secondcall.recall.rank import Postings

__all__ = ["DEFAULT_CONFIDENCE", "confidence", "confidence_then", "coverage"]

DEFAULT_CONFIDENCE = 0.08
"""Below it nothing is found. Chosen so that few questions of their own record are lost, also where
they use other words than it: the curve is in ``docs/retrieval.md``."""
_LEAST_ROWS = 200
"""How rare a word is cannot be read from fewer items: they count as so many."""
_WHOLE = 0.9
_BY_SIZE, _FITTED_ROWS = 0.7, 500
"""Of many items the best is nearer by chance: a record of e times as many is so much less sure,
within bounds."""
_ROWS = (5, 1_000)
_BLURRED_CHARACTERS = 400
_LONG = 10
"""Of a question of more terms no item has all; so many count as the whole of it."""
_MEANING, _WORDS, _START = 10.8, 5.1, -7.32
_WORDS_ALONE, _START_ALONE = 7.7, -4.66
_OF_THEN, _SURE_OF_THEN = 0.3, 0.3
"""What was said in a time that the question names, and has so much of its other words, answers it
as likely at least as this."""


def coverage(
    query: Query,
    postings: Mapping[int, Postings],
    live: npt.NDArray[np.bool_],
    *,
    beside_times: bool = False,
) -> npt.NDArray[np.float32]:
    """For each row the share of the question's own terms that stand in it, weighted by rarity; with
    ``beside_times`` of those that name no time."""
    terms = [one for one in query.hashes if not beside_times or one in query.beside]
    alive = max(_LEAST_ROWS, int(np.count_nonzero(live)))
    value = np.zeros(len(live), dtype=np.float32)
    whole = 0.0
    for term in terms:
        rows = postings[term].rows if term in postings else np.empty(0, np.int64)
        found = int(np.count_nonzero(live[rows]))
        rarity = math.log1p((alive - found + 0.5) / (found + 0.5))
        whole += rarity
        value[rows] += np.float32(rarity)
    whole *= min(1.0, _LONG / max(1, len(terms)))
    return np.minimum(value / np.float32(max(whole, 1e-6)), np.float32(1))


def confidence_then(covered: float) -> float:
    """How likely an item from the time that a question names answers it, from the share of the
    other terms that stand in it; 0 when too few do."""
    return _SURE_OF_THEN if covered >= _OF_THEN else 0.0


def confidence(query: Query, covered: float, cosine: float | None, *, rows: int) -> float:
    """How likely the record answers a question, 0 to 1, from the best coverage and the best cosine
    (``None`` without vectors) among ``rows`` items.

    Words alone count where there is no better: without vectors, for a long text, whose meaning is
    blurred, and where an item has every word of the question.
    """
    chance = _BY_SIZE * math.log(min(max(rows, _ROWS[0]), _ROWS[1]) / _FITTED_ROWS)
    value = _WORDS_ALONE * covered + _START_ALONE
    if cosine is not None:
        both = _MEANING * cosine + _WORDS * covered + _START
        alone = covered >= _WHOLE or len(query.text) > _BLURRED_CHARACTERS
        value = max(value, both) if alone else both
    return round(1 / (1 + math.exp(chance - value)), 4)
