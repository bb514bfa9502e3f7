"""How summaries stand in for each other: nodes, levels, and which are merged next. Pure.

A node of level 1 stands for items; one of level k+1 for consecutive nodes of level k. Each level
may be shorter than the one below by a quarter, so that however many levels there are, they fit
together; and a text rises one level each time it is summarised, so that of n rounds it goes through
at most log2(n) + 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, cast

from secondcall.types import ItemKey, JsonValue

__all__ = ["SummaryNode", "level_tokens", "next_merge"]

_SHARE = 5
_SHORTER = 0.75
_MIN_TOKENS = 16
_MAX_MERGED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryNode:
    """A summary of a stretch of the conversation.

    ``items`` (level 1) or ``children`` (above) are what it stands for, in order. Level 0 has no
    text: its items wait to be summarised anew, since something that they rested on changed.
    ``made_by`` is *model* or *extract*.
    """

    id: str
    level: int
    text: str = ""
    items: Sequence[ItemKey] = ()
    children: Sequence[str] = ()
    first_at: datetime | None = None
    last_at: datetime | None = None
    made_by: str = "extract"

    @classmethod
    def from_json(cls, content: JsonValue) -> SummaryNode:
        """The node of ``to_json``. Raises: ``KeyError``, ``TypeError``, ``ValueError``."""
        value = cast("dict[str, Any]", content)
        return cls(
            id=value["id"],
            level=value["level"],
            text=value["text"],
            items=tuple(ItemKey(*key) for key in value["items"]),
            children=tuple(value["children"]),
            first_at=_time(value["first_at"]),
            last_at=_time(value["last_at"]),
            made_by=value["made_by"],
        )

    def to_json(self) -> dict[str, JsonValue]:
        """A JSON object that holds all of it."""
        return {
            "id": self.id,
            "level": self.level,
            "text": self.text,
            "items": [list(key) for key in self.items],
            "children": list(self.children),
            "first_at": None if self.first_at is None else self.first_at.isoformat(),
            "last_at": None if self.last_at is None else self.last_at.isoformat(),
            "made_by": self.made_by,
        }

    def outline(self) -> SummaryNode:
        """The node without what it stands for, which is kept apart; one of level 0 keeps it."""
        return self if self.level == 0 else replace(self, items=(), children=())


def level_tokens(level: int, share_tokens: int) -> int:
    """How long a node of this level may be, when all of them together may have ``share_tokens``."""
    return max(_MIN_TOKENS, int(share_tokens / _SHARE * _SHORTER ** (level - 1)))


def next_merge(nodes: Sequence[SummaryNode]) -> tuple[int, int] | None:
    """Which nodes to merge into one, as (first, one past the last); ``None`` for fewer than two.

    The oldest half (2 to 4) of the lowest level of which two stand side by side; where none do, the
    two neighbours whose levels are lowest. Nodes of level 0 are left alone.
    """
    runs = [run for run in _runs(nodes) if run[1] - run[0] > 1 and nodes[run[0]].level > 0]
    if runs:
        first, end = min(runs, key=lambda run: (nodes[run[0]].level, run[0]))
        return first, first + min(_MAX_MERGED, max(2, (end - first + 1) // 2))
    pairs = [
        place
        for place in range(len(nodes) - 1)
        if nodes[place].level > 0 and nodes[place + 1].level > 0
    ]
    if not pairs:
        return None
    place = min(pairs, key=lambda one: (max(nodes[one].level, nodes[one + 1].level), one))
    return place, place + 2


def _runs(nodes: Sequence[SummaryNode]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for place, node in enumerate(nodes):
        if runs and nodes[runs[-1][0]].level == node.level:
            runs[-1] = (runs[-1][0], place + 1)
        else:
            runs.append((place, place + 1))
    return runs


def _time(value: str | None) -> datetime | None:
    return None if value is None else datetime.fromisoformat(value)
