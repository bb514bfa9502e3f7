"""What a ranking is worth. Pure; the definitions stand in ``docs/evaluation.md``."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

__all__ = [
    "MESSAGE_FIGURES",
    "SESSION_FIGURES",
    "all_at",
    "any_at",
    "figures",
    "frac_at",
    "mean_figures",
    "newest_first",
    "percentile",
    "reciprocal_rank",
    "unique",
]

MESSAGE_FIGURES = ("frac@5", "frac@10", "any@10", "all@10", "mrr")
SESSION_FIGURES = ("any@1", "any@5", "all@5", "any@10")

_T = TypeVar("_T", bound=Hashable)


def frac_at(ranking: Sequence[_T], gold: Collection[_T], k: int) -> float:
    """The share of ``gold`` among the first ``k``."""
    return len(set(ranking[:k]) & set(gold)) / len(set(gold))


def any_at(ranking: Sequence[_T], gold: Collection[_T], k: int) -> float:
    """1 if at least one of ``gold`` is among the first ``k``, else 0."""
    return float(not set(gold).isdisjoint(ranking[:k]))


def all_at(ranking: Sequence[_T], gold: Collection[_T], k: int) -> float:
    """1 if every one of ``gold`` is among the first ``k``, else 0."""
    return float(set(gold) <= set(ranking[:k]))


def reciprocal_rank(ranking: Sequence[_T], gold: Collection[_T]) -> float:
    """One over the place (from 1) of the first of ``gold``; 0 if none is ranked."""
    wanted = set(gold)
    return next((1 / place for place, name in enumerate(ranking, 1) if name in wanted), 0.0)


def newest_first(ranking: Sequence[_T], newest: Collection[_T], gold: Collection[_T]) -> float:
    """1 if the first of ``newest`` stands above all other ``gold``; 0 if it does not, or is not
    ranked."""
    first = next((name for name in ranking if name in set(gold)), None)
    return float(first is not None and first in set(newest))


def figures(
    names: Sequence[str], ranking: Sequence[_T], gold: Collection[_T]
) -> Mapping[str, float]:
    """The named figures (``frac@5``, ``mrr``, ...) of one ranking."""
    found: dict[str, float] = {}
    for name in names:
        measure, _, k = name.partition("@")
        if measure == "frac":
            found[name] = frac_at(ranking, gold, int(k))
        elif measure == "any":
            found[name] = any_at(ranking, gold, int(k))
        elif measure == "all":
            found[name] = all_at(ranking, gold, int(k))
        else:
            found[name] = reciprocal_rank(ranking, gold)
    return found


def mean_figures(
    names: Sequence[str], each: Sequence[Mapping[str, float]]
) -> Mapping[str, float | None]:
    """The mean over questions, to four places; ``None`` when there is no question."""
    if not each:
        return dict.fromkeys(names)
    return {name: round(math.fsum(one[name] for one in each) / len(each), 4) for name in names}


def unique(names: Iterable[_T]) -> list[_T]:
    """Each name once, at its first place: a session ranks by its best message."""
    return list(dict.fromkeys(names))


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least ``share`` of the values do not pass (nearest rank)."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
