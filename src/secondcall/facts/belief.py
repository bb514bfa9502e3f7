"""What was believed at a time: the facts as they were known then. Pure.

A fact keeps what was held of it before in ``earlier``, so that every change can be taken back. An
end that a later fact brought cannot have been known before that fact was: that is all that tells of
it in facts that were stored before ``earlier`` was kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from secondcall.types import Fact

__all__ = ["believed", "learnt_to_end"]


def believed(facts: Iterable[Fact], at: datetime) -> list[Fact]:
    """The facts that were known at ``at``, as they were known, in the order given."""
    known = {fact.id: fact for fact in facts if fact.recorded_at <= at}
    return [_as_known(fact, known, at) for fact in known.values()]


def learnt_to_end(fact: Fact, successor: Fact | None, moment: datetime) -> datetime:
    """When it was recorded that ``fact``, which has ended by ``moment``, has."""
    learnt = fact.recorded_at
    for belief in fact.earlier:
        if belief.invalid_at is None or belief.invalid_at > moment:
            learnt = max(learnt, belief.until)
    if not fact.earlier and successor is not None:
        learnt = max(learnt, successor.recorded_at)
    return learnt


def _as_known(fact: Fact, known: dict[str, Fact], at: datetime) -> Fact:
    belief = next((one for one in fact.earlier if one.until > at), None)
    if belief is not None:
        fact = replace(
            fact,
            valid_from=belief.valid_from,
            invalid_at=belief.invalid_at,
            superseded_by=belief.superseded_by,
            rests_on=belief.rests_on,
            confirmed=belief.confirmed,
        )
    fact = replace(fact, earlier=tuple(one for one in fact.earlier if one.until <= at))
    if fact.superseded_by is not None and fact.superseded_by not in known:
        return replace(fact, invalid_at=None, superseded_by=None)
    return fact
