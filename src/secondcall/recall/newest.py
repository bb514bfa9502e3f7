"""Of what answers a question about now nearly equally well, the newest comes first. Pure.

Who tells an assistant of a thing again, tells how it is by now. Facts know that by themselves; this
is for what no fact was made of. Between people the same thing is spoken of again without a change,
so there nothing is moved. The bounds are chosen on LongMemEval dev (``docs/retrieval.md``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from secondcall.recall.rank import vector_of

if TYPE_CHECKING:
    from secondcall.recall.rank import Scored, View

__all__ = ["DEPTH", "newest_first"]

DEPTH = 3
"""So many of the best are compared."""
_ALIKE = 0.3
"""Two items whose vectors have at least this cosine may speak of one thing."""
_NEARLY = 0.8
"""What share of the better one's score a newer item must have."""
_PROFILES = frozenset({"assistant"})


def newest_first(view: View, scored: Scored, rows: Sequence[int]) -> tuple[Scored, list[int]]:
    """The best rows with newer versions before older ones, and the scores with what that raises, as
    the part "newest"."""
    if view.profile not in _PROFILES:
        return scored, list(rows)
    rest, first = list(rows[:DEPTH]), list[int]()
    while rest:
        newer = [row for row in rest[1:] if _is_newer(view, scored, row, rest[0])]
        chosen = max(newer, key=lambda row: int(view.at_us[row]), default=rest[0])
        first.append(chosen)
        rest.remove(chosen)
    if first == list(rows[:DEPTH]):
        return scored, list(rows)
    raised = np.zeros_like(scored.total)
    least = np.float32(-np.inf)
    for row in reversed(first):
        raised[row] = max(np.float32(0), least - scored.total[row])
        least = max(least, scored.total[row])
    total = np.round(scored.total + raised, 6)
    return replace(scored, total=total, parts={**scored.parts, "newest": raised}), [
        *first,
        *rows[DEPTH:],
    ]


def _is_newer(view: View, scored: Scored, row: int, other: int) -> bool:
    """Whether a row comes from the same mouth in a later conversation, is nearly as good, and much
    the same."""
    return bool(
        view.at_us[row] > view.at_us[other]
        and view.session_numbers[row] != view.session_numbers[other]
        and view.role_numbers[row] == view.role_numbers[other]
        and view.speaker_numbers[row] == view.speaker_numbers[other]
        and scored.total[row] >= np.float32(_NEARLY) * scored.total[other]
        and _cosine(view, row, other) >= _ALIKE
    )


def _cosine(view: View, row: int, other: int) -> float:
    one, two = vector_of(view, row), vector_of(view, other)
    norm = float(np.linalg.norm(one) * np.linalg.norm(two))
    return round(float(one @ two) / norm, 4) if norm > 0 and len(one) == len(two) else 0.0
