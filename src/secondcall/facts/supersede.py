"""Changes facts: a newer one ends an older one of the same subject and predicate, in one batch."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, get_args

from secondcall.abc import Batch, Scope
from secondcall.checks import check_id, check_json, check_metadata, check_text
from secondcall.errors import InvalidValue, TooLarge, UnknownName
from secondcall.facts.chain import (
    Changed,
    at_or_next,
    end,
    insert,
    move_start,
    order,
    predicate_key,
    revised,
    same_value,
    says_the_same,
)
from secondcall.facts.promises import check_transition, first_status
from secondcall.facts.stored import encode_fact
from secondcall.facts.write import Also, change_chain, sensitive_write
from secondcall.types import Fact, FactKind, FactStatus, ItemKey, JsonValue, Metadata

if TYPE_CHECKING:
    from secondcall.abc import Epoch, Store

__all__ = [
    "check_fact",
    "confirm",
    "mark_sensitive",
    "new_fact",
    "retract",
    "settle",
    "supersede",
]

MAX_PREDICATE_BYTES = 1_024
MAX_VALUE_BYTES = 16_384
MAX_SOURCES = 256
MAX_RESTS_ON = 64
_MAX_CONFIRMED = 512
_KINDS = frozenset(get_args(FactKind))
_STATUSES = frozenset(get_args(FactStatus))


def new_fact(
    predicate: str,
    value: JsonValue,
    *,
    kind: FactKind,
    subject: str,
    now: datetime,
    valid_from: datetime | None = None,
    due_at: datetime | None = None,
    sensitive: bool = False,
    sources: Sequence[ItemKey] = (),
    metadata: Metadata | None = None,
    rests_on: Sequence[str] = (),
) -> Fact:
    """A checked fact with a random id. Raises: ``InvalidValue``, ``TooLarge``."""
    fact = Fact(
        id=_new_id(),
        kind=kind,
        subject=subject,
        predicate=predicate,
        value=value,
        status="current",
        valid_from=now if valid_from is None else valid_from,
        recorded_at=now,
        due_at=due_at,
        sensitive=sensitive,
        sources=tuple(ItemKey(*source) for source in sources),
        metadata={} if metadata is None else metadata,
        rests_on=tuple(rests_on),
    )
    return replace(check_fact(fact), status=first_status(kind))


def check_fact(fact: Fact) -> Fact:
    """The fact in its stored form: names without stray spaces, text that UTF-8 can hold.

    Raises: ``InvalidValue``, ``TooLarge`` naming the field.
    """
    check_id("id", fact.id)
    _check_one_of("kind", fact.kind, _KINDS)
    _check_one_of("status", fact.status, _STATUSES)
    if len(fact.sources) > MAX_SOURCES:
        raise TooLarge(f"sources has {len(fact.sources)} items, at most {MAX_SOURCES} are accepted")
    if len(fact.rests_on) > MAX_RESTS_ON:
        raise TooLarge(
            f"rests_on has {len(fact.rests_on)} facts, at most {MAX_RESTS_ON} are accepted"
        )
    for index, one in enumerate(fact.rests_on):
        check_id(f"rests_on[{index}]", one)
    value = check_json("value", fact.value)
    if isinstance(value, str):
        value = check_text("value", value, max_bytes=MAX_VALUE_BYTES)
    checked = replace(
        fact,
        subject=_named("subject", fact.subject),
        predicate=_named("predicate", fact.predicate),
        value=value,
        metadata=check_metadata("metadata", fact.metadata),
    )
    size = len(encode_fact(checked))
    if size > 4 * MAX_VALUE_BYTES:
        raise TooLarge(f"the fact has {size:,} bytes, at most {4 * MAX_VALUE_BYTES:,} are accepted")
    return checked


async def supersede(
    store: Store,
    scope: Scope,
    fact: Fact,
    *,
    multi: bool | None = None,
    keeps_rests_on: bool = True,
    elsewhere: Sequence[Fact] = (),
    also: Also | None = None,
    epoch: Epoch,
    now_us: int,
) -> Fact:
    """Make ``fact`` true from its ``valid_from`` on, ending what was true there before.

    Saying what already holds gives the fact that stands, with the new sources and metadata added,
    and what it rests on unless it ``keeps_rests_on``. Saying it from an earlier time on moves its
    beginning. Concurrent changes of one predicate are put in one order, none is lost. What other
    partitions say of it (``elsewhere``) in between makes it a fact of its own.

    Raises: ``InvalidValue`` when ``multi`` is not what is known of the predicate;
    ``VersionConflict`` after thirty seconds of lost races, ``UserErased``, store errors.
    """

    def step(chain: Sequence[Fact], is_multi: bool) -> Changed | Fact:
        told = replace(fact, multi=is_multi)
        if is_multi and told.value is None:
            raise InvalidValue(f"value is None, which cannot be one of several {told.predicate!r}")
        others = [one for one in elsewhere if not is_multi or same_value(one, told)]
        standing = says_the_same(chain, told)
        if standing is not None and not _between(others, standing, told):
            merged = _merged(standing, told, keeps_rests_on=keeps_rests_on)
            return standing if merged == standing else _put(chain, merged)
        moved = move_start(chain, told)
        if moved is None or standing is not None or _between(others, told, _unmoved(moved.result)):
            return insert(chain, told)
        merged = _merged(moved.result, told, keeps_rests_on=keeps_rests_on)
        head = merged if moved.head.id == merged.id else moved.head
        return Changed(merged, head, [merged, *moved.facts[1:]])

    return await change_chain(
        store,
        scope,
        fact.subject,
        fact.predicate,
        step,
        value=[fact.value],
        multi=multi,
        since=fact.valid_from,
        also=also,
        epoch=epoch,
        now_us=now_us,
    )


async def confirm(
    store: Store,
    scope: Scope,
    fact: Fact,
    ended: Sequence[str],
    *,
    at: datetime,
    epoch: Epoch,
    now_us: int,
) -> Fact:
    """Let ``fact`` stand, although the facts ``ended``, which it rests on, have."""

    def step(chain: Sequence[Fact], _multi: bool) -> Changed | Fact:
        for each in chain:
            if each.id == fact.id:
                seen = tuple(dict.fromkeys([*each.confirmed, *ended]))[-_MAX_CONFIRMED:]
                return _put(chain, revised(each, max(at, each.recorded_at), confirmed=seen))
        return fact

    return await change_chain(
        store,
        scope,
        fact.subject,
        fact.predicate,
        step,
        value=[fact.value],
        epoch=epoch,
        now_us=now_us,
    )


async def mark_sensitive(
    store: Store, scope: Scope, fact: Fact, *, epoch: Epoch, now_us: int
) -> None:
    """List a sensitive fact's sources in another partition that holds some of them, so that they
    stay withheld there whatever becomes of a merge."""
    write = sensitive_write(predicate_key(fact.subject, fact.predicate), fact)
    announced = replace(write, announce=True)  # no fact of this partition changes with it
    await store.write(scope, Batch(documents=[announced]), epoch=epoch, now_us=now_us)


async def settle(
    store: Store,
    scope: Scope,
    predicate: str,
    status: FactStatus,
    *,
    subject: str,
    value: Sequence[JsonValue] = (),
    at: datetime,
    recorded: datetime,
    epoch: Epoch,
    now_us: int,
) -> Fact:
    """Move a promise or an issue on: kept, broken, withdrawn; resolved, open again.

    ``value`` holds the one that is meant, needed where there may be several. ``at`` is when it
    happened, ``recorded`` when it was told.

    Raises: ``UnknownName`` when there is none of that predicate, ``InvalidValue`` when ``status``
    may not follow.
    """

    def step(chain: Sequence[Fact], _multi: bool) -> Changed | Fact:
        fact = _meant(chain, predicate, value, at)
        if fact.status == status:
            return fact
        check_transition(fact, status)
        moved = replace(
            fact,
            id=_new_id(),
            status=status,
            valid_from=max(at, fact.valid_from),
            invalid_at=None,
            superseded_by=None,
            recorded_at=recorded,
            earlier=(),
        )
        return insert(chain, moved)

    return await change_chain(
        store,
        scope,
        subject,
        predicate,
        step,
        value=value,
        since=at,
        epoch=epoch,
        now_us=now_us,
    )


async def retract(
    store: Store,
    scope: Scope,
    predicate: str,
    *,
    subject: str,
    value: Sequence[JsonValue] = (),
    at: datetime,
    recorded: datetime,
    epoch: Epoch,
    now_us: int,
) -> Fact:
    """End the fact that holds ``at`` a time, with nothing in its place.

    ``value`` holds the one that is meant, needed where there may be several.

    Raises: ``UnknownName``.
    """

    def step(chain: Sequence[Fact], _multi: bool) -> Changed | Fact:
        return end(chain, _meant(chain, predicate, value, at), at, recorded)

    return await change_chain(
        store,
        scope,
        subject,
        predicate,
        step,
        value=value,
        since=at,
        epoch=epoch,
        now_us=now_us,
    )


def _meant(chain: Sequence[Fact], predicate: str, value: Sequence[JsonValue], at: datetime) -> Fact:
    fact = at_or_next(chain, at)
    if fact is None or (value and not same_value(fact, replace(fact, value=value[0]))):
        which = "with that value" if value else "and no promise or issue"
        raise UnknownName(f"no fact with predicate {predicate!r} {which} stands then")
    return fact


def _between(others: Sequence[Fact], one: Fact, other: Fact) -> bool:
    """Whether something else begins after ``one`` and no later than ``other``."""
    return any(order(one) < order(each) <= order(other) for each in others)


def _unmoved(fact: Fact) -> Fact:
    return replace(fact, valid_from=fact.earlier[-1].valid_from)


def _put(chain: Sequence[Fact], fact: Fact) -> Changed:
    """``fact`` in the place of the one with its id."""
    last = max(chain, key=order)
    return Changed(fact, fact if last.id == fact.id else last, [fact])


def _merged(standing: Fact, fact: Fact, *, keeps_rests_on: bool) -> Fact:
    """``standing`` with the sources and metadata of ``fact``; of too many sources the newest stay.

    A sensitive fact keeps them all, since each of them is to be withheld.
    """
    sensitive = standing.sensitive or fact.sensitive
    sources = tuple(dict.fromkeys([*standing.sources, *fact.sources]))
    merged = replace(
        standing,
        sources=sources if sensitive else sources[-MAX_SOURCES:],
        sensitive=sensitive,
        metadata={**standing.metadata, **fact.metadata},
    )
    if not keeps_rests_on and (set(merged.rests_on) != set(fact.rests_on) or merged.confirmed):
        at = max(fact.recorded_at, merged.recorded_at)
        merged = revised(merged, at, rests_on=fact.rests_on, confirmed=())
    return merged if merged == standing else check_fact(merged)


def _new_id() -> str:
    return f"fact_{secrets.token_hex(10)}"


def _check_one_of(field: str, value: str, known: frozenset[str]) -> None:
    if value not in known:
        raise InvalidValue(f"{field} is {value!r}, expected one of {', '.join(sorted(known))}")


def _named(field: str, value: str) -> str:
    text = check_text(field, check_id(field, value), max_bytes=MAX_PREDICATE_BYTES)
    text = " ".join(text.split())
    if not text:
        raise InvalidValue(f"{field} must not be blank")
    return text
