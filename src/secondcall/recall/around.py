"""How much of a question is said around an item: late interaction over a window of a talk. Pure.

Between people a thing is told over several turns: one asks, the other answers, a third turn names
the place. For each term of the question the best match among an item and the three before and after
it counts, then the terms add up, each by its rarity (what ColBERT calls MaxSim, Khattab and Zaharia
2020, here over the shipped word vectors: a near term counts at its cosine, read from a table).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from secondcall.recall.query import Query
    from secondcall.recall.rank import Postings, View

__all__ = ["around"]

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]

_REACH = 3
"""How many items on either side belong to what is said around one."""
_MOST_TERMS = 24


def around(view: View, query: Query, postings: Mapping[int, Postings]) -> Floats | None:
    """What each row and its neighbours have of the question, not yet scaled; ``None`` when the
    record has no term of it. ``postings`` are of any rows; only live ones count."""
    alive = len(view.live_rows)
    rows = {
        term: one.rows if alive == len(view.live) else one.rows[view.live[one.rows]]
        for term, one in postings.items()
    }
    total = np.zeros(len(view.live), dtype=np.float32)
    known = [term for term in query.hashes if term in rows or query.near.get(term)]
    for term in sorted(known, key=lambda term: len(rows.get(term, ())))[:_MOST_TERMS]:
        value = np.zeros_like(total)
        for other, cosine in sorted(query.near.get(term, ()), key=lambda one: one[1]):
            _spread(view, value, rows.get(other), np.float32(cosine))
        _spread(view, value, rows.get(term), np.float32(1))
        total += _rarity(len(rows.get(term, ())), alive) * value
    return total if total.any() else None


def _spread(view: View, value: Floats, rows: Rows | None, worth: np.float32) -> None:
    """Set the rows and their neighbours to a worth, which is at least all that was set before."""
    if rows is None or not len(rows):
        return
    value[rows] = worth
    for links in view.links.values():
        value[_linked(links, rows)] = worth


def _linked(links: npt.NDArray[np.intp], rows: Rows) -> npt.NDArray[np.intp]:
    """The rows up to three links away."""
    found: list[npt.NDArray[np.intp]] = []
    reached = links[rows]
    for step in range(_REACH):
        if step:
            reached = links[reached]
        reached = reached[reached >= 0]
        found.append(reached)
    return np.concatenate(found)


def _rarity(found: int, total: int) -> np.float32:
    return np.float32(np.log1p((total - found + 0.5) / (found + 0.5)))
