"""The history of one predicate, and how a new fact finds its place in it. Pure.

A chain is the facts of one (subject, predicate), of a multi-valued predicate those of one value, in
order of ``valid_from``; at no time do two of them hold. A fact takes the place of the one that held
at its beginning, up to that one's end: so a late correction ends where its successor begins, or
where the predicate had ended. Of two that begin at the same time the one recorded later holds.

Nothing is overwritten: what changes of a fact is kept in ``earlier``, with the time until which it
was believed.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from secondcall.errors import TooLarge
from secondcall.types import Belief, Fact, JsonValue

__all__ = [
    "MAX_REVISIONS",
    "Changed",
    "at_or_next",
    "chain_key",
    "continued",
    "end",
    "holds_at",
    "insert",
    "is_standing",
    "key_of",
    "move_start",
    "normalise",
    "order",
    "predicate_key",
    "replaced",
    "revised",
    "same_value",
    "says_the_same",
    "stands",
    "value_key",
]

MAX_REVISIONS = 256
_TICK = timedelta(microseconds=1)
_NEVER = datetime.max.replace(tzinfo=UTC)
_STANDING = frozenset({"current", "promised", "open"})
_GOES_ON = _STANDING | {"kept"}


@dataclass(frozen=True, slots=True)
class Changed:
    """What a change did: the fact that it gives back, the last of the chain, and every fact that is
    new or other than before."""

    result: Fact
    head: Fact
    facts: Sequence[Fact]


def normalise(name: str) -> str:
    """How predicates and subjects are compared: NFKC, case-folded, white space collapsed."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def predicate_key(subject: str, predicate: str) -> str:
    """The fixed-length key of a predicate: a hash of length-prefixed parts, so none can collide."""
    return _digest(normalise(subject), normalise(predicate))


def value_key(value: JsonValue) -> str:
    """The fixed-length key of a value of a multi-valued predicate: equal JSON, equal key."""
    return _digest(json.dumps(value, sort_keys=True))


def chain_key(subject: str, predicate: str, *, of: Sequence[JsonValue] = ()) -> str:
    """The key of a chain; ``of`` holds the one value that it is of, where there may be several."""
    key = predicate_key(subject, predicate)
    return f"{key}/{value_key(of[0])}" if of else key


def key_of(fact: Fact) -> str:
    """The key of the chain that a fact belongs to."""
    return chain_key(fact.subject, fact.predicate, of=[fact.value] if fact.multi else ())


def holds_at(fact: Fact, moment: datetime) -> bool:
    """Whether the fact was true at ``moment`` (half open: not at ``invalid_at`` itself)."""
    return fact.valid_from <= moment and (fact.invalid_at is None or moment < fact.invalid_at)


def is_standing(fact: Fact) -> bool:
    """Whether the fact's status is one that is still to be reckoned with while it is true."""
    return fact.status in _STANDING


def stands(fact: Fact, now: datetime | None = None) -> bool:
    """Whether the fact is still to be reckoned with: not ended by ``now`` (``None``: no end is
    known), settled or resolved."""
    ended = fact.invalid_at is not None and (now is None or fact.invalid_at <= now)
    return not ended and is_standing(fact)


def order(fact: Fact) -> tuple[datetime, datetime, str]:
    """The order of a chain: by beginning, then by when it was recorded."""
    return (fact.valid_from, fact.recorded_at, fact.id)


def same_value(one: Fact, other: Fact) -> bool:
    """Whether both say the same: equal JSON, so that ``True`` is not ``1``."""
    return json.dumps(one.value, sort_keys=True) == json.dumps(other.value, sort_keys=True)


def continued(fact: Fact, successor: Fact | None) -> bool:
    """Whether what ended ``fact`` says the same at once again: of another kind, or a promise that
    was kept. Then what was said still holds."""
    return (
        successor is not None
        and fact.superseded_by == successor.id
        and successor.valid_from == fact.invalid_at
        and successor.status in _GOES_ON
        and same_value(fact, successor)
    )


def revised(fact: Fact, at: datetime, **changes: Any) -> Fact:
    """``fact`` with ``changes``, and with what was believed until ``at`` added to ``earlier``.

    Raises: ``TooLarge`` for more than 256 revisions.
    """
    if len(fact.earlier) >= MAX_REVISIONS:
        raise TooLarge(
            f"fact {fact.id!r} was revised {MAX_REVISIONS} times, more are not accepted; remember "
            "its predicate anew without an older valid_from"
        )
    return replaced(fact, at, **changes)


def replaced(fact: Fact, at: datetime, **changes: Any) -> Fact:
    """As ``revised``, without a limit: for what is not stored, and for what has to be possible."""
    if fact.earlier:
        at = max(at, fact.earlier[-1].until)  # clocks of several writers need not agree
    return replace(fact, **changes, earlier=(*fact.earlier, _belief(fact, at)))


def insert(chain: Iterable[Fact], fact: Fact, *, keep_recorded: bool = False) -> Changed:
    """Put ``fact`` into ``chain``.

    ``recorded_at`` is moved on by a microsecond where the clock has not moved since the last change
    of the chain, unless it is to be kept.
    """
    chain = sorted(chain, key=order)
    if not keep_recorded:
        fact = replace(fact, recorded_at=_after(chain, fact.recorded_at))
    before = [each for each in chain if order(each) <= order(fact)]
    after = chain[len(before) :]
    holder = next((each for each in before if holds_at(each, fact.valid_from)), None)
    changed: list[Fact] = []
    if after and after[0].valid_from == fact.valid_from:
        ends, ended_by = fact.valid_from, after[0].id
    elif holder is not None:
        ends, ended_by = holder.invalid_at, holder.superseded_by
        if not keep_recorded:
            changed.append(_ended_by(holder, fact))
    else:
        ends, ended_by = (after[0].valid_from, after[0].id) if after else (None, None)
    if keep_recorded:
        changed = [cut for one in before if (cut := _cut(one, fact)) != one]
        fact = replace(fact, earlier=fact.earlier or _ends_learnt(fact, holder, after))
    if ends is not None and (fact.invalid_at is None or ends < fact.invalid_at):
        fact = replace(fact, invalid_at=ends, superseded_by=ended_by)
    return Changed(fact, after[-1] if after else fact, [fact, *changed])


def move_start(chain: Iterable[Fact], fact: Fact) -> Changed | None:
    """Let the fact that says the same as ``fact`` next begin where ``fact`` begins, as was learnt
    when ``fact`` was; ``None`` where something else lies between."""
    chain = sorted(chain, key=order)
    start = fact.valid_from
    following = next((each for each in chain if each.valid_from > start), None)
    holder = next((each for each in chain if holds_at(each, start)), None)
    if (
        following is None
        or not _says_the_same(following, fact)
        or any(each.valid_from == start for each in chain)
        or (holder is not None and holder.invalid_at != following.valid_from)
    ):
        return None
    at = _after(chain, fact.recorded_at)
    moved = revised(following, at, valid_from=start)
    changed = [moved]
    if holder is not None:
        changed.append(revised(holder, at, invalid_at=start, superseded_by=moved.id))
    last = chain[-1]
    return Changed(moved, moved if last.id == moved.id else last, changed)


def says_the_same(chain: Iterable[Fact], fact: Fact) -> Fact | None:
    """The fact of the chain that already says what ``fact`` says from its beginning on."""
    for each in chain:
        if holds_at(each, fact.valid_from) and _says_the_same(each, fact):
            return each
    return None


def end(chain: Iterable[Fact], fact: Fact, moment: datetime, at: datetime) -> Changed:
    """End ``fact`` at ``moment`` with nothing in its place, as was learnt at ``at``."""
    chain = sorted(chain, key=order)
    moment = max(moment, fact.valid_from)
    how = replaced if fact.invalid_at is None else revised
    gone = how(fact, _after(chain, at), invalid_at=moment, superseded_by=None)
    last = chain[-1]
    return Changed(gone, gone if last.id == gone.id else last, [gone])


def at_or_next(chain: Iterable[Fact], moment: datetime) -> Fact | None:
    """What holds at ``moment``, or else what begins next."""
    chain = sorted(chain, key=order)
    holder = next((each for each in chain if holds_at(each, moment)), None)
    if holder is not None:
        return holder
    return next(
        (each for each in chain if each.valid_from > moment and each.invalid_at is None), None
    )


def _belief(fact: Fact, until: datetime) -> Belief:
    return Belief(
        until=until,
        valid_from=fact.valid_from,
        invalid_at=fact.invalid_at,
        superseded_by=fact.superseded_by,
        rests_on=fact.rests_on,
        confirmed=fact.confirmed,
    )


def _ended_by(holder: Fact, fact: Fact) -> Fact:
    """``holder``, ended where ``fact`` begins. What had no end can always be given one."""
    how = replaced if holder.invalid_at is None else revised
    learnt = max(fact.recorded_at, holder.recorded_at)
    return how(holder, learnt, invalid_at=fact.valid_from, superseded_by=fact.id)


def _cut(fact: Fact, by: Fact) -> Fact:
    """``fact`` as it would be had it always been known, since ``by`` was recorded, that ``by``
    began where it did. Raises: ``TooLarge`` for more than 256 revisions."""
    found: list[Belief] = []
    since, moment = fact.recorded_at, by.valid_from
    for one in (*fact.earlier, _belief(fact, _NEVER)):
        ended = one.invalid_at is not None and one.invalid_at <= moment
        if one.until <= by.recorded_at or one.valid_from > moment or ended:
            found.append(one)
        else:
            if since < by.recorded_at:
                found.append(replace(one, until=by.recorded_at))
            found.append(replace(one, invalid_at=moment, superseded_by=by.id))
        since = one.until
    if len(found) > MAX_REVISIONS + 1:
        return revised(fact, by.recorded_at)
    *earlier, now = found
    return replace(
        fact, invalid_at=now.invalid_at, superseded_by=now.superseded_by, earlier=tuple(earlier)
    )


def _ends_learnt(fact: Fact, holder: Fact | None, after: Sequence[Fact]) -> tuple[Belief, ...]:
    """What was believed of the end of ``fact``, which was recorded before others of its chain: of
    each time what was known by then of the one that held where it begins, and of those behind."""
    held = () if holder is None else (*holder.earlier, _belief(holder, _NEVER))
    first = _NEVER if holder is None else holder.recorded_at
    times = {one.until for one in held} | {one.recorded_at for one in after}
    found: list[Belief] = []
    for until in sorted(times - {_NEVER}):
        if until <= fact.recorded_at:
            continue
        known = next((one for one in held if first < until <= one.until), None)
        ends = [(one.valid_from, one.id) for one in after if one.recorded_at < until]
        if known is not None and known.valid_from <= fact.valid_from and known.invalid_at:
            ends.append((known.invalid_at, known.superseded_by or ""))
        ends = [one for one in ends if fact.invalid_at is None or one[0] < fact.invalid_at]
        end, by = min(ends, default=(fact.invalid_at, fact.superseded_by))
        found.append(replace(_belief(fact, until), invalid_at=end, superseded_by=by or None))
    return tuple(found)


def _says_the_same(known: Fact, fact: Fact) -> bool:
    return (
        known.kind == fact.kind
        and known.status == fact.status
        and same_value(known, fact)
        and (fact.due_at is None or fact.due_at == known.due_at)
    )


def _after(chain: Sequence[Fact], at: datetime) -> datetime:
    """``at``, or just after the last time at which anything of the chain was recorded."""
    times = [each.recorded_at for each in chain]
    times.extend(each.earlier[-1].until for each in chain if each.earlier)
    return max([at, *(one + _TICK for one in times)])


def _digest(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(4, "big") + encoded)
    return digest.hexdigest()[:40]
