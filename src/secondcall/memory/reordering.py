"""What was found in another order: what stands against what is asked for comes later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from secondcall.recall.polarity import asks, looks_further, may_deny, speaks_against, stance
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
    """An item as it stands to the question."""

    item: RecalledItem
    against: float = 0.0
    agrees: float = 0.0
    named: bool = False
    denies: bool = False
    asks: bool = False


def width(limit: int, wanted: Stance) -> int:
    """How many items are compared, so that ``limit`` are left that stand for what is wanted."""
    if not looks_further(wanted):
        return limit
    return limit + min(max(_LEAST_WIDER, 2 * limit), _MOST_WIDER)


def for_and_against(items: Sequence[RecalledItem], wanted: Stance) -> list[RecalledItem]:
    """The items by score, less ``STRENGTH`` where they stand against what is wanted; their feature
    ``opposite`` says so. What answers takes the place of the best of those (feature ``instead``),
    and stands before what has the same score.
    """
    further = looks_further(wanted)
    judged = _with_questions([_judged(one, wanted, further) for one in items])
    rivals = [one for one in judged if one.named and (one.against or _silent(one, wanted))]
    found = [_moved(one, wanted, rivals) for one in judged]
    return sorted(found, key=lambda one: (-one.score, "instead" not in one.features))


def _judged(item: RecalledItem, wanted: Stance, further: bool) -> _Judged:
    if not isinstance(item.item, Message):
        return _Judged(item)
    text = item.item.text
    if not (further or may_deny(text, wanted) or speaks_against(text, wanted)):
        return _Judged(item)
    found = stance(text, wanted)
    against = opposition(wanted, found)
    agrees = agreement(wanted, found) if further and not against else 0.0
    named = names_the_same(wanted, found)
    return _Judged(item, against, agrees, named, denies(found), asks(text))


def _with_questions(judged: Sequence[_Judged]) -> list[_Judged]:
    """A question that the opposite answers speaks of the opposite too."""
    answers = [one for one in judged if one.against == 1 and not one.asks]

    def answered(one: _Judged) -> bool:
        return any(_beside(one, other) and one.item.at < other.item.at for other in answers)

    return [
        replace(one, against=1.0) if one.asks and not one.against and answered(one) else one
        for one in judged
    ]


def _silent(one: _Judged, wanted: Stance) -> bool:
    """Where a denial is asked for: whether it names the matter and denies nothing."""
    return denies(wanted) and not one.denies and not one.agrees


def _moved(one: _Judged, wanted: Stance, rivals: Sequence[_Judged]) -> RecalledItem:
    item = one.item
    if one.against:
        return _more(item, "opposite", -STRENGTH * one.against)
    if one.agrees and one.named and denies(wanted):
        item = _more(item, "for", _FOR * one.agrees)
    place = max((other.item.score for other in rivals if _instead(one, other, wanted)), default=0.0)
    return _more(item, "instead", place - item.score) if place > item.score else item


def _instead(one: _Judged, other: _Judged, wanted: Stance) -> bool:
    """Whether an item answers in the place of another that names the matter: it takes the side that
    is asked for and the other the opposite one, or a denial is asked for and it denies something
    right after the other ("... but never in the yellow one")."""
    if one.agrees == 1 and other.against:
        return one.named or _beside(other, one)
    return denies(wanted) and one.denies and _beside(other, one) and other.item.at < one.item.at


def _beside(one: _Judged, other: _Judged) -> bool:
    return one.item.key.session_id == other.item.key.session_id and (
        abs(one.item.at - other.item.at) <= _BESIDE
    )


def _more(item: RecalledItem, feature: str, value: float) -> RecalledItem:
    value = round(value, 6)
    features = {**item.features, feature: value}
    return replace(item, score=round(item.score + value, 6), features=features)
