"""The keyword-only floor: plain BM25 over the same items, without anything that recall does.

Words are stemmed, stop words left out, the speaker's name counts as a word; k1 1.2, b 0.75. Nothing
of the neighbours, the session or the date is used.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from secondcall.recall.analyze import Analyzer

__all__ = ["K1", "B", "Floor"]

K1 = 1.2
B = 0.75
_ANALYZER = Analyzer()


class Floor:
    """Ranks texts for a query by BM25."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._postings: dict[int, list[tuple[int, int]]] = {}
        lengths = np.zeros(len(texts))
        for number, text in enumerate(texts):
            terms = _ANALYZER.hashes(text)
            lengths[number] = len(terms)
            for term, count in Counter(terms).items():
                self._postings.setdefault(term, []).append((number, count))
        mean = float(lengths.mean()) if len(texts) else 0.0
        self._damping = K1 * (1 - B + B * lengths / (mean or 1.0))

    def rank(self, query: str) -> list[int]:
        """The numbers of the texts that share a word with the query, best first; ties by number."""
        scores = np.zeros(len(self._damping))
        for term in set(_ANALYZER.hashes(query)):
            postings = self._postings.get(term)
            if not postings:
                continue
            numbers, counts = np.array(postings).T
            rarity = math.log(1 + (len(scores) - len(numbers) + 0.5) / (len(numbers) + 0.5))
            scores[numbers] += rarity * counts * (K1 + 1) / (counts + self._damping[numbers])
        order = np.argsort(-scores, kind="stable")
        return [int(number) for number in order if scores[number] > 0]
