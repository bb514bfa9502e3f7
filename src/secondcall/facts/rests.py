"""Facts that rest on others: what is to be confirmed when one of those ends, and why. Pure.

A fact that stands is to be confirmed when one that it rests on has ended, or is itself to be
confirmed. Nothing of this is stored: it follows from the facts, so there is no moment at which the
ground is gone and nobody says so. Telling the fact anew confirms it. That the old value comes back
does not: it is another fact.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from secondcall.facts.belief import learnt_to_end
from secondcall.facts.chain import continued, holds_at, is_standing, key_of
from secondcall.types import Fact

__all__ = ["Cause", "causes_of", "in_a_circle", "marked", "reason"]

_SHOWN = 3
_MAX_CAUSES = 256
_VALUE_CHARACTERS = 80

Shown = Callable[[Fact], bool]


@dataclass(frozen=True, slots=True)
class Cause:
    """A fact, by its id, that ended and took the ground from others, from ``at`` on, when it was
    both known and the case; ``None`` for one that is no longer kept. ``instead`` is what holds in
    its place."""

    name: str
    ended: Fact | None
    at: datetime | None
    instead: Fact | None


def causes_of(facts: Collection[Fact], moment: datetime) -> Mapping[str, Sequence[Cause]]:
    """For the id of each fact that stands at ``moment`` and is to be confirmed: why.

    ``facts`` are all that were ever held, or at least what the standing ones rest on.
    """
    standing = [fact for fact in facts if fact.rests_on and _stands(fact, moment)]
    if not standing:
        return {}
    ground = _Ground(facts, moment)
    found = {fact.id: ground.causes(fact) for fact in standing}
    return {name: causes for name, causes in found.items() if causes}


def marked(
    facts: Iterable[Fact],
    causes: Mapping[str, Sequence[Cause]],
    shown: Shown = lambda _: True,
) -> list[Fact]:
    """The facts, with ``to_confirm`` where there are causes; what may not be ``shown`` is not
    named in it."""
    return [
        replace(fact, to_confirm=reason(causes[fact.id], shown)) if fact.id in causes else fact
        for fact in facts
    ]


def reason(causes: Sequence[Cause], shown: Shown = lambda _: True) -> str:
    """In words: what ended, when, and what replaced it."""
    words = list(dict.fromkeys(_words(cause, shown) for cause in causes))
    if len(words) > _SHOWN:
        words[_SHOWN:] = [f"and {len(words) - _SHOWN} more"]
    return "; ".join(words)


def in_a_circle(by_id: Mapping[str, Fact], fact: Fact) -> str | None:
    """The id in ``fact.rests_on`` that, over however many of the facts ``by_id``, rests on what
    ``fact`` says or replaces; ``None`` when none does."""
    own = key_of(fact)
    for first in fact.rests_on:
        seen: set[str] = set()
        ahead = [first]
        while ahead:
            name = ahead.pop()
            each = by_id.get(name)
            if each is None or name in seen:
                continue
            seen.add(name)
            if name == fact.id or key_of(each) == own:
                return first
            ahead.extend(_still_on(each))
    return None


def _still_on(fact: Fact) -> list[str]:
    """What a fact rests on, without what had ended when it was confirmed."""
    return [name for name in fact.rests_on if name not in fact.confirmed]


class _Ground:
    """The facts by id, what holds in each chain, and the causes that were found."""

    def __init__(self, facts: Collection[Fact], moment: datetime) -> None:
        self._by_id = {fact.id: fact for fact in facts}
        self._moment = moment
        self._holding = {key_of(fact): fact for fact in facts if holds_at(fact, moment)}
        self._found: dict[str, list[Cause]] = {}

    def causes(self, fact: Fact) -> list[Cause]:
        """Why ``fact`` is to be confirmed; without recursion, however long the row is."""
        ahead = [fact]
        entered: set[str] = set()
        while ahead:
            each = ahead[-1]
            if each.id in self._found:
                ahead.pop()
                continue
            waiting = [
                ground
                for name in each.rests_on
                if (ground := self._ground(name)) is not None
                and ground.rests_on
                and ground.id not in self._found
                and ground.id not in entered
            ]
            entered.add(each.id)
            if waiting:
                ahead.extend(waiting)
                continue
            self._found[each.id] = self._causes(each)
            ahead.pop()
        return self._found[fact.id]

    def _ground(self, name: str) -> Fact | None:
        """What a fact rests on, if it stands; where it goes on as another fact, that one."""
        fact = self._by_id.get(name)
        while fact is not None and self._ended(fact):
            successor = self._by_id.get(fact.superseded_by or "")
            fact = successor if continued(fact, successor) else None
        return fact

    def _causes(self, fact: Fact) -> list[Cause]:
        found: dict[str, Cause] = {}
        for name in fact.rests_on:
            ground = self._ground(name)
            if ground is None:
                cause = self._end_of(name)
                found[cause.name] = cause
            elif _stands(ground, self._moment):
                found |= {cause.name: cause for cause in self._found.get(ground.id, ())}
        causes = [cause for name, cause in found.items() if name not in fact.confirmed]
        return sorted(causes, key=_newest_first)[:_MAX_CAUSES]

    def _end_of(self, name: str) -> Cause:
        fact = self._by_id.get(name)
        successor: Fact | None = None
        while fact is not None:
            successor = self._by_id.get(fact.superseded_by or "")
            if not continued(fact, successor):
                break
            fact = successor
        if fact is None or fact.invalid_at is None:
            return Cause(name, None, None, None)
        known = learnt_to_end(fact, successor, self._moment)
        instead = self._holding.get(key_of(fact))
        return Cause(fact.id, fact, max(known, fact.invalid_at), instead)

    def _ended(self, fact: Fact) -> bool:
        return fact.invalid_at is not None and fact.invalid_at <= self._moment


def _newest_first(cause: Cause) -> float:
    return 0.0 if cause.at is None else -cause.at.timestamp()


def _stands(fact: Fact, moment: datetime) -> bool:
    return is_standing(fact) and holds_at(fact, moment)


def _words(cause: Cause, shown: Shown) -> str:
    ended = cause.ended
    if ended is None or ended.invalid_at is None:
        return "rests on a fact that is no longer kept"
    when = ended.invalid_at.date().isoformat()
    if not shown(ended):
        return f"rests on a fact that ended {when}"
    was = f"{ended.predicate} was {_short(ended)} until {when}"
    if cause.instead is None:
        return f"{was}, with nothing in its place"
    if not shown(cause.instead):
        return was
    if cause.instead.status not in ("current", "promised", "open"):
        return f"{was}, since then {cause.instead.status}"
    return f"{was}, since then {_short(cause.instead)}"


def _short(fact: Fact) -> str:
    value = fact.value if isinstance(fact.value, str) else json.dumps(fact.value)
    cut = len(value) > _VALUE_CHARACTERS
    return f"{value[:_VALUE_CHARACTERS]}…" if cut else value
