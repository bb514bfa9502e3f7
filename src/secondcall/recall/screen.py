"""What is found, but must not stand as it is: ended truths and repeats. Pure, first form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["screen", "unrepeated"]

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


def unrepeated(rows: Iterable[int], text_hashes: npt.NDArray[np.uint64]) -> Iterator[int]:
    """The rows in order, each text of one mouth once."""
    seen: set[int] = set()
    for row in rows:
        name = int(text_hashes[row])
        if name not in seen:
            seen.add(name)
            yield row
