"""Terms that mean nearly the same: "dog" for "pet", "film" for "movie".

A table made once from the shipped word vectors by ``scripts/make_related.py``: so a question
reaches other words than its own at the price of a few look-ups, whatever the size of the record.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np
import numpy.typing as npt

__all__ = ["NEAREST", "RELATED", "ROW", "related"]

NEAREST = 4
"""Of a term's nearest so many stand in the table from a cosine of 0.4 on."""
RELATED = 0.5
"""The cosine from which on any other stands in it, at most twelve."""

ROW = np.dtype([("term", "<u8"), ("other", "<u8"), ("hundredths", "u1")])
"""One pair of the table: both terms by their 64-bit names, their cosine in hundredths."""


def related(terms: Sequence[int]) -> dict[int, list[tuple[int, float]]]:
    """For each of the terms that has any, the terms near to it, nearest first, with their cosines
    (0.4 to 1)."""
    names, others, cosines = _table()
    wanted = np.array(terms, np.uint64)
    starts = np.searchsorted(names, wanted, "left").tolist()
    ends = np.searchsorted(names, wanted, "right").tolist()
    return {
        term: list(zip(others[start:end].tolist(), cosines[start:end].tolist(), strict=True))
        for term, start, end in zip(terms, starts, ends, strict=True)
        if end > start
    }


@cache
def _table() -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64], npt.NDArray[np.float32]]:
    path = Path(str(resources.files("secondcall.recall") / "data" / "related.npy"))
    table = np.load(path)
    names, others = np.ascontiguousarray(table["term"]), np.ascontiguousarray(table["other"])
    return names, others, (table["hundredths"] / np.float32(100)).astype(np.float32)
