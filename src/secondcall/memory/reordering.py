"""What was found in another order: what stands against what is asked for comes later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from secondcall.recall.polarity import looks_further, may_deny, stance
from secondcall.recall.sides import (
    STRENGTH,
    Stance,
    agreement,
    denies,
    names_the_same,
    opposition,
)
from secondcall.types import Message, RecalledItem

__all__ = ["for_and_against", "width"]

_LEAST_WIDER = 20
_MOST_WIDER = 100
_FOR = 0.4
"""What it gives to be against a thing where that is asked for."""
_BESIDE = timedelta(minutes=5)
"""Of two messages so near to each other the second may speak of the first one's thing unnamed."""


@dataclass(frozen=True, slots=True)
class _Judged:
    item: RecalledItem
    against: float = 0.0
    agrees: float = 0.0
    named: bool = False


def width(limit: int, wanted: Stance) -> int:
    """How many items are compared, so that ``limit`` are left that stand for what is wanted."""
    if not looks_further(wanted):
        return limit
    return limit + min(max(_LEAST_WIDER, 2 * limit), _MOST_WIDER)


def for_and_against(items: Sequence[RecalledItem], wanted: Stance) -> list[RecalledItem]:
    """The items by score, less ``STRENGTH`` where they stand against what is wanted; their feature
    ``opposite`` says so. What answers takes the place of the best of those (feature ``instead``).
    """
    further = looks_further(wanted)
    judged = [_judged(one, wanted, further) for one in items]
    opposed = [one for one in judged if one.against and one.named]
    found = [_moved(one, wanted, opposed) for one in judged]
    return sorted(found, key=lambda one: -one.score)


def _judged(item: RecalledItem, wanted: Stance, further: bool) -> _Judged:
    if not isinstance(item.item, Message) or not (further or may_deny(item.item.text, wanted)):
        return _Judged(item)
    found = stance(item.item.text, wanted)
    against = opposition(wanted, found)
    agrees = 0.0 if against or not further else agreement(wanted, found)
    return _Judged(item, against, agrees, names_the_same(wanted, found))


def _moved(one: _Judged, wanted: Stance, opposed: Sequence[_Judged]) -> RecalledItem:
    item = one.item
    if one.against:
        return _more(item, "opposite", -STRENGTH * one.against)
    if one.agrees and one.named and denies(wanted):
        item = _more(item, "for", _FOR * one.agrees)
    if one.agrees == 1:
        place = max((o.item.score for o in opposed if one.named or _beside(o, one)), default=0.0)
        if place > item.score:
            item = _more(item, "instead", place - item.score)
    return item


def _beside(one: _Judged, other: _Judged) -> bool:
    return one.item.key.session_id == other.item.key.session_id and (
        abs(one.item.at - other.item.at) <= _BESIDE
    )


def _more(item: RecalledItem, feature: str, value: float) -> RecalledItem:
    value = round(value, 6)
    features = {**item.features, feature: value}
    return replace(item, score=round(item.score + value, 6), features=features)
