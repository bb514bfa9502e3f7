"""The times that a question means, as the facts know them: "before I turned vegan". Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from secondcall.recall.talks import anchors
from secondcall.recall.times import time_hints
from secondcall.types import Fact

if TYPE_CHECKING:
    from secondcall.context.known import Known

__all__ = ["Span", "held_in", "spans_of"]

Span = tuple[datetime, datetime]
"""From when until when, half open."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_US = 253_402_300_799_000_000
_TICK = timedelta(microseconds=1)


def spans_of(
    query: str, known: Known, *, at: datetime, visible: Callable[[Fact], bool]
) -> list[Span]:
    """The times named in ``query`` that were over at ``at``: those of the calendar, and the moment
    before or after what it measures from, where a visible fact tells when that began."""
    found = [
        (_moment(hint.start_us), _moment(hint.end_us))
        for hint in time_hints(query, at=at)
        if _moment(hint.end_us) <= at
    ]
    for anchor in anchors(query):
        began = known.began(anchor.words, at=at, visible=visible)
        if began is not None:
            start = began - _TICK if anchor.side == "before" else began
            found.append((start, start + _TICK))
    return found


def held_in(fact: Fact, spans: Sequence[Span]) -> bool:
    """Whether the fact was true at any moment of one of the spans."""
    return any(
        fact.valid_from < end
        and (
            fact.invalid_at is None
            or (fact.invalid_at > start and fact.invalid_at > fact.valid_from)
        )
        for start, end in spans
    )


def _moment(at_us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=min(max(at_us, 0), _LATEST_US))
