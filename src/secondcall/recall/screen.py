"""What is found, but must not stand as it is: ended truths and repeats. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["current_first", "screen", "unrepeated"]

Key = TypeVar("Key")


def screen(
    keys: Sequence[Key], ended: Mapping[Key, str], *, mode: Literal["mark", "drop"] = "mark"
) -> list[tuple[Key, str | None]]:
    """Each key in order with its note from ``ended`` (``None`` without one).

    ``ended`` names the items all of whose facts have ended, and says since when. With "drop" those
    are left out, except that a list is never emptied by it: then everything is marked instead.
    """
    marked = [(key, ended.get(key)) for key in keys]
    kept = [pair for pair in marked if pair[1] is None]
    return kept if kept and mode == "drop" else marked


def current_first(
    keys: Sequence[Key],
    states: Mapping[Key, tuple[Collection[str], Collection[str]]],
    *,
    limit: int,
) -> list[Key]:
    """The keys with what states a fact that holds in front of what states only its ended ones.

    ``states`` has, for a key, the predicates of which it states what holds, and those of which it
    states only what has ended. Whatever states what holds of a predicate and is among the first
    ``limit``, or else the best that does, moves to just before the first that states only the end.
    """
    order = list(keys)
    predicates = dict.fromkeys(name for key in keys if key in states for name in states[key][1])
    for name in predicates:
        ended = next(place for place, key in enumerate(order) if name in _then(states, key))
        if ended >= limit:
            continue
        behind = [key for key in order[ended + 1 :] if name in _now(states, key)]
        near = [key for key in order[ended + 1 : limit] if name in _now(states, key)]
        before = any(name in _now(states, key) for key in order[:ended])
        moved = near or ([] if before else behind[:1])
        rest = [key for key in order[ended:] if key not in moved]
        order[ended:] = [*moved, *rest]
    return order


def _now(
    states: Mapping[Key, tuple[Collection[str], Collection[str]]], key: Key
) -> Collection[str]:
    return states[key][0] if key in states else ()


def _then(
    states: Mapping[Key, tuple[Collection[str], Collection[str]]], key: Key
) -> Collection[str]:
    return states[key][1] if key in states else ()


def unrepeated(rows: Iterable[int], text_hashes: npt.NDArray[np.uint64]) -> Iterator[int]:
    """The rows in order, each text of one mouth once."""
    seen: set[int] = set()
    for row in rows:
        name = int(text_hashes[row])
        if name not in seen:
            seen.add(name)
            yield row
