"""Products of a question's vector with the rows of an index, exact to the last bit.

Rows are whole numbers of one byte, and so are the two halves that the question's whole numbers are
cut into: every sum is a whole number below 2**24, the same in whatever order it is added up, on
every machine, with the vector instructions that the processor has (SimSIMD).
"""

from __future__ import annotations

from typing import Protocol, cast

import numpy as np
import numpy.typing as npt
import simsimd

__all__ = ["Halves", "largest_whole", "products"]

_LARGEST_SUM = 2**24 - 1
"""Up to here float32 has every whole number."""
_CHUNK_ROWS = 8_192
"""Between chunks other threads have their turn: a million rows take 25 ms."""
_MOST = 127
_LARGEST_STEP = 128


class _Cdist(Protocol):
    def __call__(self, rows: object, others: object, *, metric: str) -> object: ...


_cdist = cast("_Cdist", simsimd.cdist)


def largest_whole(dimensions: int) -> int:
    """How large the whole numbers of a question may be, so that every sum of products is exact."""
    return max(1, min(_LARGEST_SUM // (_MOST * dimensions), _MOST * _LARGEST_STEP))


class Halves:
    """A vector of whole numbers, none above ``largest_whole``, cut in two for ``products``."""

    def __init__(self, whole: npt.NDArray[np.float32]) -> None:
        largest = float(np.abs(whole).max(initial=0))
        step = 1
        while largest > _MOST * step:
            step *= 2
        high = np.rint(whole / np.float32(step))
        parts = [high] if step == 1 else [high, whole - high * np.float32(step)]
        self.parts = np.array(parts, dtype=np.int8)
        self.steps = np.array([step, 1][: len(parts)], dtype=np.float64)


def products(vectors: npt.NDArray[np.int8], whole: Halves) -> npt.NDArray[np.float32]:
    """Each row's product with the vector."""
    found = np.empty(len(vectors), dtype=np.float32)
    for start in range(0, len(vectors), _CHUNK_ROWS):
        part = np.ascontiguousarray(vectors[start : start + _CHUNK_ROWS])
        sums = np.asarray(_cdist(part, whole.parts, metric="dot"))
        found[start : start + len(part)] = sums @ whole.steps
    return found
