"""Which conversation answers: what else in it does, beside its best item. Pure.

Between people one conversation touches many things, and a question about several of them is
answered by the conversation that has more. With an assistant a conversation is about one thing,
and its length says nothing: there the best item decides alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from secondcall.recall.rank import Scored, View

__all__ = ["for_sessions"]

_FURTHER = 0.5
"""What each further item counts, relative to the one before it."""
_ITEMS = 6
_PROFILES = frozenset({"people"})


def for_sessions(view: View, scored: Scored) -> Scored:
    """The scores with what the next five items of their session add, as the part "session"."""
    if view.profile not in _PROFILES:
        return scored
    added = _added(view, np.flatnonzero(scored.found), scored.total)[view.session_numbers]
    return replace(
        scored,
        total=np.round(scored.total + added, 6),
        parts={**scored.parts, "session": added},
    )


def _added(
    view: View, rows: npt.NDArray[np.intp], total: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """For each session the falling scores of its items after the best, halved one by one."""
    sessions = view.session_numbers[rows]
    order = np.lexsort((-total[rows], sessions))
    rows, sessions = rows[order], sessions[order]
    begins = np.searchsorted(sessions, sessions, "left")
    places = np.arange(len(rows)) - begins
    added = np.zeros(len(view.sessions), dtype=np.float32)
    for place in range(1, _ITEMS):
        several = rows[places == place]
        worth = np.maximum(total[several], np.float32(0)) * np.float32(_FURTHER**place)
        added[view.session_numbers[several]] += worth
    return added
