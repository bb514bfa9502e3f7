"""Facts that a model found: judged against what was said, and applied all together.

Nothing that a model answers is believed. The words that it quotes must stand in the item that it
names, and must be the user's, but for the assistant's own promises; they must say what the fact
says, with its *not*; what the fact is about must be something that may be learnt from talk at all;
and dates are those of the day on which it was said.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING

from secondcall.errors import InvalidValue, TooLarge, UnknownName
from secondcall.facts.chain import holds_at, is_standing, predicate_key, same_value
from secondcall.facts.moved import EXTRACTED_BY
from secondcall.facts.proposed import Proposal, Source
from secondcall.facts.read import history
from secondcall.facts.refusals import (
    Reason,
    Spoken,
    contradicts,
    gives_orders,
    invents_numbers,
    is_about_power,
    normalised,
    place_of,
)
from secondcall.facts.supersede import new_fact, retract, settle, supersede
from secondcall.types import Fact, FactStatus, ItemKey

if TYPE_CHECKING:
    from secondcall.abc import Epoch, Scope, Store

__all__ = ["Applied", "Change", "apply", "is_extracted", "judge"]

_QUOTE_CHARACTERS = 500
_MAX_DUE = timedelta(days=3_660)
_MAX_SINCE = timedelta(days=36_525)
_ISO_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_SETTLED: Mapping[str, FactStatus] = {"promise": "withdrawn", "issue": "resolved"}
_MAY_BECOME: Mapping[str, frozenset[str]] = {
    "promise": frozenset({"kept", "broken", "withdrawn"}),
    "issue": frozenset({"resolved"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change that may stand: ``fact`` is told, or ``known`` ends, at ``at``; with both, the one
    takes the place of the other."""

    sources: Sequence[ItemKey]
    at: datetime
    fact: Fact | None = None
    known: Fact | None = None
    status: FactStatus | None = None
    several: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What a batch came to: how many facts were told, how many ended, and what was refused."""

    told: int
    ended: int
    refused: Sequence[Reason]


@dataclass(frozen=True, slots=True)
class _Quote:
    source: Source
    text: str
    span: tuple[int, int]

    @property
    def words(self) -> str:
        return self.text[self.span[0] : self.span[1]]

    @property
    def is_users(self) -> bool:
        return self.source.role == "user"


class _Refused(Exception):
    def __init__(self, reason: Reason) -> None:
        self.reason: Reason = reason


def judge(
    proposals: Sequence[Proposal],
    sources: Mapping[str, Source],
    known: Mapping[str, Fact],
    *,
    spoken: Spoken,
    model_id: str,
    now: datetime,
) -> tuple[list[Change], list[Reason]]:
    """The changes that may stand, in order of time, and why each of the others may not."""
    changes: list[Change] = []
    refused: list[Reason] = []
    for proposal in proposals:
        if proposal.op == "none":
            continue
        try:
            quotes = _quotes(proposal, sources)
            _check(proposal, quotes, spoken)
            changes.append(_change(proposal, quotes, known, spoken, model_id, now))
        except _Refused as refusal:
            refused.append(refusal.reason)
        except (InvalidValue, TooLarge):
            refused.append("form")
    changes.sort(key=lambda change: change.at)
    kept: list[Change] = []
    for change in changes:
        if any(_contradict(change, other) for other in kept):
            refused.append("contradiction")
        else:
            kept.append(change)
    return kept, refused


async def apply(
    store: Store,
    scope: Scope,
    changes: Sequence[Change],
    *,
    recorded: datetime,
    epoch: Epoch,
    now_us: int,
) -> Applied:
    """Make the changes one after the other; what has been made already is left as it is.

    Raises: store errors.
    """
    told = ended = 0
    refused: list[Reason] = []
    for change in changes:
        try:
            if change.fact is not None:
                told += await _tell(store, scope, change, change.fact, epoch, now_us)
            if change.known is not None and (change.fact is None or change.known.multi):
                ended += await _end(store, scope, change, change.known, recorded, epoch, now_us)
        except UnknownName:
            refused.append("fact")
        except (InvalidValue, TooLarge):
            refused.append("form")
    return Applied(told=told, ended=ended, refused=refused)


def is_extracted(fact: Fact) -> bool:
    """Whether a model found the fact, and no code of the host told it."""
    return EXTRACTED_BY in fact.metadata


async def _tell(
    store: Store, scope: Scope, change: Change, fact: Fact, epoch: Epoch, now_us: int
) -> int:
    chain = await history(store, [scope], fact.predicate, subject=fact.subject)
    if any(each.id == fact.id for each in chain):
        return 0
    for each in chain:
        same = holds_at(each, fact.valid_from) and same_value(each, fact)
        if same and (not is_extracted(each) or set(fact.sources) <= set(each.sources)):
            return 0
    if any(each.sensitive for each in chain):
        fact = replace(fact, sensitive=True)
    await supersede(
        store,
        scope,
        fact,
        multi=True if change.several and not chain else None,
        epoch=epoch,
        now_us=now_us,
    )
    return 1


async def _end(
    store: Store,
    scope: Scope,
    change: Change,
    known: Fact,
    recorded: datetime,
    epoch: Epoch,
    now_us: int,
) -> int:
    chain = await history(store, [scope], known.predicate, subject=known.subject)
    if not any(
        each.id == known.id and holds_at(each, change.at) and is_standing(each) for each in chain
    ):
        raise UnknownName("the fact that is to end does not stand then")
    value = [known.value] if known.multi else []
    if change.status is None:
        await retract(
            store,
            scope,
            known.predicate,
            subject=known.subject,
            value=value,
            at=change.at,
            recorded=recorded,
            epoch=epoch,
            now_us=now_us,
        )
    else:
        await settle(
            store,
            scope,
            known.predicate,
            change.status,
            subject=known.subject,
            value=value,
            at=change.at,
            recorded=recorded,
            epoch=epoch,
            now_us=now_us,
        )
    return 1


def _quotes(proposal: Proposal, sources: Mapping[str, Source]) -> list[_Quote]:
    found: list[_Quote] = []
    for quoted in proposal.sources:
        source = sources.get(quoted.label)
        if source is None:
            raise _Refused("source")
        text = normalised(source.text)
        span = place_of(normalised(quoted.words), text)
        if span is None:
            raise _Refused("quote")
        found.append(_Quote(source, text, span))
    if not found:
        raise _Refused("source")
    return found


def _check(proposal: Proposal, quotes: Sequence[_Quote], spoken: Spoken) -> None:
    """Raises: ``_Refused`` for what may not be learnt from these words."""
    if any(gives_orders(quote.text) for quote in quotes):
        raise _Refused("orders")
    if is_about_power(proposal.predicate, proposal.value):
        raise _Refused("power")
    by_user = any(quote.is_users for quote in quotes)
    if not by_user and (proposal.kind != "promise" or proposal.op == "end"):
        raise _Refused("speaker")
    if proposal.op == "end":
        return
    heard = [(quote.text, quote.span, quote.is_users) for quote in quotes]
    if contradicts(proposal.predicate, proposal.value, heard, spoken):
        raise _Refused("polarity")
    if invents_numbers(proposal.value, [quote.text for quote in quotes], spoken):
        raise _Refused("number")


def _change(
    proposal: Proposal,
    quotes: Sequence[_Quote],
    known: Mapping[str, Fact],
    spoken: Spoken,
    model_id: str,
    now: datetime,
) -> Change:
    by_user = [quote for quote in quotes if quote.is_users]
    said_at = max(quote.source.at for quote in by_user or quotes)
    keys = tuple(dict.fromkeys(quote.source.key for quote in quotes))
    old = _old(proposal, known, said_at, is_users=bool(by_user))
    if proposal.op == "end":
        assert old is not None
        status = _SETTLED.get(old.kind)
        if proposal.status in _MAY_BECOME.get(old.kind, ()):
            status = proposal.status
        return Change(sources=keys, at=said_at, known=old, status=status)
    since = _since(proposal.since, quotes, spoken, said_at)
    if old is not None:
        since = max(since, old.valid_from)
    kind, subject, predicate = proposal.kind, "user" if by_user else "assistant", proposal.predicate
    if old is not None:
        kind, subject, predicate = old.kind, old.subject, old.predicate
    if isinstance(proposal.value, str) and _ISO_DAY.fullmatch(proposal.value):
        _check_day(proposal.value, quotes, spoken)
    fact = new_fact(
        predicate,
        proposal.value,
        kind=kind,
        subject=subject,
        now=now,
        valid_from=since,
        due_at=_due(proposal.due, quotes, spoken) if kind in ("promise", "issue") else None,
        sensitive=proposal.sensitive or any(quote.source.sensitive for quote in quotes),
        sources=keys,
        metadata={
            EXTRACTED_BY: model_id,
            "quotes": [quote.words[:_QUOTE_CHARACTERS] for quote in quotes],
        },
    )
    fact = replace(fact, id=_id_of(fact))
    return Change(sources=keys, at=since, fact=fact, known=old, several=proposal.several)


def _old(
    proposal: Proposal, known: Mapping[str, Fact], said_at: datetime, *, is_users: bool
) -> Fact | None:
    """The known fact that is replaced or ends, if one is named."""
    if proposal.op == "add":
        return None
    old = known.get(proposal.known or "")
    if old is None or said_at < old.valid_from:
        raise _Refused("fact")
    if is_about_power(old.predicate, old.value):
        raise _Refused("power")
    if not is_users and (old.kind, old.subject) != ("promise", "assistant"):
        raise _Refused("speaker")
    return old


def _contradict(one: Change, other: Change) -> bool:
    """Whether both give one predicate a value from the same moment on, and not the same."""
    first, second = one.fact, other.fact
    return (
        first is not None
        and second is not None
        and not (one.several and other.several)
        and first.valid_from == second.valid_from
        and predicate_key(first.subject, first.predicate)
        == predicate_key(second.subject, second.predicate)
        and not same_value(first, second)
        and not (one.known is not None and one.known.multi)
    )


def _since(
    proposed: date | None, quotes: Sequence[_Quote], spoken: Spoken, said_at: datetime
) -> datetime:
    """From when it is true: what the words name, as seen from the day they were said, if the model
    says that they name a time; else from when they were said."""
    if proposed is None:
        return said_at
    named = [
        span
        for quote in quotes
        for span in spoken.days(quote.words, quote.source.at)
        if span[0] <= quote.source.at.date()
    ]
    if named and not any(first <= proposed < last for first, last in named):
        proposed = named[0][0]
    plausible = said_at.date() - _MAX_SINCE <= proposed <= said_at.date()
    if not plausible or not (named or any(c.isdecimal() for quote in quotes for c in quote.words)):
        return said_at
    return min(said_at, datetime.combine(proposed, time(), UTC))


def _due(proposed: date | None, quotes: Sequence[_Quote], spoken: Spoken) -> datetime | None:
    """By when: the end of the day that the words name, as seen from the day they were said."""
    if proposed is None:
        return None
    said_on = max(quote.source.at for quote in quotes).date()
    named = [
        span
        for quote in quotes
        for span in spoken.days(quote.words, quote.source.at)
        if span[1] > quote.source.at.date()
    ]
    if named and not any(first <= proposed < last for first, last in named):
        proposed = named[0][1] - timedelta(days=1)
    if not said_on <= proposed <= said_on + _MAX_DUE:
        return None
    return datetime.combine(proposed, time(23, 59, 59), UTC)


def _check_day(value: str, quotes: Sequence[_Quote], spoken: Spoken) -> None:
    """Raises: ``_Refused`` when the words name one day and the value another, or none there is."""
    try:
        day = date.fromisoformat(value)
    except ValueError:
        raise _Refused("date") from None
    named = [span for quote in quotes for span in spoken.days(quote.words, quote.source.at)]
    if named and not any(
        first <= day < last or (first.month, first.day) == (day.month, day.day)
        for first, last in named
    ):
        raise _Refused("date")


def _id_of(fact: Fact) -> str:
    """The same words giving the same fact have the same id, so that nothing is told twice."""
    said = [
        sorted(map(list, fact.sources)),
        fact.kind,
        predicate_key(fact.subject, fact.predicate),
        fact.value,
    ]
    text = json.dumps(said, sort_keys=True).encode()
    return f"fact_{hashlib.blake2b(text, digest_size=10).hexdigest()}"
