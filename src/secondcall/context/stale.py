"""What becomes of an item whose facts have ended: which, since when, and what is true instead.

Pure. An item may state several facts; it is wholly stale when all of them have ended and none of
them says again what holds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from secondcall.facts.chain import continued, holds_at, is_standing, key_of, same_value
from secondcall.types import Fact

__all__ = ["Note", "note_of"]

_SHOWN = 3
_VALUE_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Note:
    """What became of what an item says; ``whole``: of all of it, so that it may be left out."""

    text: str
    whole: bool


def note_of(
    stated: Sequence[Fact],
    chains: Mapping[str, Sequence[Fact]],
    at: datetime,
    visible: Callable[[Fact], bool],
) -> Note | None:
    """The note on an item that states the facts ``stated``, all begun by ``at``; ``None`` when all
    of them hold."""
    last = {key_of(fact): fact for fact in stated}
    ended: list[str] = []
    whole = True
    for key, fact in last.items():
        instead = _holding(chains[key], at)
        if _holds(fact, chains[key], at):
            whole = False
            continue
        if instead is not None and is_standing(instead) and same_value(fact, instead):
            whole = False
        shown = instead if instead is not None and visible(instead) else None
        ended.append(_words(fact, shown, named=len(last) > 1))
    if not ended:
        return None
    if len(ended) > _SHOWN:
        ended[_SHOWN:] = [f"and {len(ended) - _SHOWN} more"]
    return Note("; ".join(ended), whole)


def _holds(fact: Fact, chain: Sequence[Fact], at: datetime) -> bool:
    """Whether what the fact says has held ever since, under whatever kind."""
    by_id = {one.id: one for one in chain}
    while not holds_at(fact, at):
        successor = by_id.get(fact.superseded_by or "")
        if successor is None or not continued(fact, successor):
            return False
        fact = successor
    return is_standing(fact)


def _holding(chain: Sequence[Fact], at: datetime) -> Fact | None:
    return next((fact for fact in reversed(chain) if holds_at(fact, at)), None)


def _words(fact: Fact, instead: Fact | None, *, named: bool) -> str:
    if not is_standing(fact):
        what = f"{fact.predicate} " if named else ""
        return f"{what}{fact.status} {_day(fact.valid_from)}"
    ended = f"ended {_day(fact.invalid_at or fact.valid_from)}"
    if named and fact.multi:
        ended = f"{fact.predicate} {_value(fact)} {ended}"
    elif named:
        ended = f"{fact.predicate} {ended}"
    if instead is None or (not same_value(fact, instead) and not is_standing(instead)):
        return ended
    if not same_value(fact, instead):
        return f"since {_day(instead.valid_from)}: {fact.predicate} is {_value(instead)}"
    if not is_standing(instead):
        return f"{fact.predicate} " * named + f"{instead.status} {_day(instead.valid_from)}"
    return f"{ended}, and so again since {_day(instead.valid_from)}"


def _value(fact: Fact) -> str:
    value = fact.value if isinstance(fact.value, str) else json.dumps(fact.value)
    return value if len(value) <= _VALUE_CHARACTERS else f"{value[:_VALUE_CHARACTERS]}…"


def _day(at: datetime) -> str:
    return at.date().isoformat()
