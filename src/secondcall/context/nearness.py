"""How near the words of a question are to those of facts, by the vectors of words.

Pure: the vectors of ``texts_of`` and ``asked_texts`` are handed in. They are those of the shipped
word table, whichever embedder is configured, since the bounds hold for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import numpy as np
import numpy.typing as npt

from secondcall.recall.analyze import is_stop_word
from secondcall.types import Fact

__all__ = ["NEAR_WORD", "Asked", "Nearness", "asked_of", "asked_texts", "nearness", "texts_of"]

NEAR_WORD = 0.36
"""The cosine from which on a word of a fact is near to one of a question. Of unrelated records four
in a hundred have one so near, beside those that are found otherwise (``bench/sets/changes``)."""
_MOST_WORDS = 24
_MOST_CHARACTERS = 2_048
_WORD = re.compile(r"[^\W\d_]{2,}")
Floats = npt.NDArray[np.float32]
Vectors = Mapping[str, Floats]
"""By text, each ``(d,)`` and of unit length."""


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """The words of a question: what they mean together ``(d,)``, and one by one ``(n, d)``."""

    together: Floats
    words: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Nearness:
    """The words of some facts, each text once."""

    vectors: Floats
    predicates: npt.NDArray[np.int64]
    """For each fact the row of its predicate, or -1."""
    facts: npt.NDArray[np.int64]
    """The places of facts, one for each word of each,"""
    words: npt.NDArray[np.int64]
    """and the rows of these words."""

    def of(self, asked: Asked | None) -> tuple[Floats, Floats]:
        """For each fact the cosine of the question with its predicate, and that of the nearest two
        of their words; 0 where nothing is known."""
        count = len(self.predicates)
        meant, nearest = np.zeros(count, np.float32), np.zeros(count, np.float32)
        if asked is None or self.vectors.shape[1:] != asked.together.shape:
            return meant, nearest
        known = self.predicates >= 0
        meant[known] = (self.vectors @ asked.together)[self.predicates[known]]
        if len(self.facts) and len(asked.words):
            best = (self.vectors @ asked.words.T).max(axis=1)
            np.maximum.at(nearest, self.facts, best[self.words])
        return meant, nearest


def nearness(facts: Sequence[Fact], vectors: Vectors) -> Nearness:
    """What ``vectors`` know of the words of ``facts``."""
    rows: dict[str, int] = {}
    predicates = np.full(len(facts), -1, np.int64)
    pairs: list[tuple[int, int]] = []
    for place, fact in enumerate(facts):
        predicate, *words = texts_of(fact)
        if predicate in vectors:
            predicates[place] = rows.setdefault(predicate, len(rows))
        known = [word for word in words if word in vectors]
        pairs += [(place, rows.setdefault(word, len(rows))) for word in known]
    width = next((len(one) for one in vectors.values()), 0)
    table = np.stack([vectors[text] for text in rows]) if rows else np.zeros((0, width))
    places, words = np.array(pairs, np.int64).reshape(-1, 2).T
    return Nearness(table.astype(np.float32), predicates, places, words)


def texts_of(fact: Fact) -> Sequence[str]:
    """What of a fact has a vector: its predicate, then each word of it and of its value."""
    return _texts(fact.predicate.replace("_", " ")[:_MOST_CHARACTERS], str(fact.value))


def asked_texts(question: str) -> Sequence[str]:
    """What of a question has a vector: its words that say something, together, then each; nothing
    of one that has none."""
    words = _words(question)
    return [" ".join(words), *words] if words else []


def asked_of(vectors: Floats) -> Asked | None:
    """A question from the vectors of its texts."""
    return Asked(vectors[0], vectors[1:]) if len(vectors) else None


@lru_cache(maxsize=4_096)
def _texts(predicate: str, value: str) -> Sequence[str]:
    return [predicate, *_words(f"{predicate} {value[:_MOST_CHARACTERS]}")]


def _words(text: str) -> list[str]:
    several: Iterable[str] = _WORD.findall(text[:_MOST_CHARACTERS])
    told = (word for word in dict.fromkeys(several) if not is_stop_word(word.lower()))
    return list(islice(told, _MOST_WORDS))
