"""What was found in another order: what stands against what is asked for comes later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from secondcall.recall.polarity import STRENGTH, Stance, looks_further, may_deny, opposition, stance
from secondcall.types import Message, RecalledItem

__all__ = ["for_and_against", "width"]

_LEAST_WIDER = 20
_MOST_WIDER = 100


def width(limit: int, wanted: Stance) -> int:
    """How many items are compared, so that ``limit`` are left that stand for what is wanted."""
    if not looks_further(wanted):
        return limit
    return limit + min(max(_LEAST_WIDER, 2 * limit), _MOST_WIDER)


def for_and_against(items: Sequence[RecalledItem], wanted: Stance) -> list[RecalledItem]:
    """The items by score, less ``STRENGTH`` where they stand against what is wanted; their feature
    ``opposite`` says so."""
    found: list[RecalledItem] = []
    further = looks_further(wanted)
    for one in items:
        against = 0.0
        if isinstance(one.item, Message) and (further or may_deny(one.item.text, wanted)):
            against = opposition(wanted, stance(one.item.text, wanted))
        if against:
            less = round(STRENGTH * against, 6)
            features = {**one.features, "opposite": -less}
            one = replace(one, score=round(one.score - less, 6), features=features)
        found.append(one)
    return sorted(found, key=lambda one: -one.score)
