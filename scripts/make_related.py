"""Makes ``recall/data/related.npy`` from the shipped word vectors: which terms are near in meaning.

    python scripts/make_related.py [src/secondcall/recall/data/related.npy]

A row for each pair of terms whose whole words stand in the vocabulary and whose vectors have a
cosine of at least 0.5, or 0.4 for the nearest four others: the term, the other term (both as their
64-bit names), the cosine in hundredths. At most twelve others a term, the nearest first.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

from secondcall.embedders.static import StaticEmbedder
from secondcall.embedders.vocabulary import default_vocabulary
from secondcall.recall.analyze import term_hash, terms
from secondcall.recall.related import NEAREST, RELATED, ROW

_TARGET = Path(__file__).parents[1] / "src" / "secondcall" / "recall" / "data" / "related.npy"
_LEAST = 0.4
_MOST_OTHERS = 12
_SHORTEST = 3
_STRETCH = 500


def words_by_term() -> dict[str, list[str]]:
    """Every plain lower-case word of the vocabulary by its term, in the order of the vocabulary."""
    found: dict[str, list[str]] = {}
    for word in default_vocabulary().words():
        if len(word) >= _SHORTEST and word.isascii() and word.isalpha() and word.islower():
            stems = terms(word)
            if len(stems) == 1:
                found.setdefault(stems[0], []).append(word)
    return found


def pairs() -> npt.NDArray[np.void]:
    """All rows, by term, then by falling cosine, then by the other term."""
    by_term = words_by_term()
    embedder = StaticEmbedder()
    names = np.array([term_hash(term) for term in by_term], np.uint64)
    vectors = np.stack([embedder.embed(words).mean(axis=0) for words in by_term.values()])
    vectors = vectors.astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rows: list[tuple[int, int, int]] = []
    for start in range(0, len(names), _STRETCH):
        cosines = vectors[start : start + _STRETCH] @ vectors.T
        for place, line in enumerate(cosines, start=start):
            near = [
                (-_hundredths(float(line[other])), int(names[other]))
                for other in np.flatnonzero(line >= _LEAST)
                if other != place
            ]
            rows += [
                (int(names[place]), name, -cosine)
                for rank, (cosine, name) in enumerate(sorted(near)[:_MOST_OTHERS])
                if rank < NEAREST or -cosine >= 100 * RELATED
            ]
    rows.sort(key=lambda one: (one[0], -one[2], one[1]))
    return np.array(rows, ROW)


def _hundredths(cosine: float) -> int:
    """Rounded, but never over the bound of those that are related."""
    found = round(100 * cosine)
    return found if cosine >= RELATED else min(found, round(100 * RELATED) - 1)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else _TARGET
    target.parent.mkdir(parents=True, exist_ok=True)
    np.save(target, pairs())
