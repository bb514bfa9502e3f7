"""Writes facts: a newer one ends an older one of the same subject and predicate, in one batch.

Three kinds of documents. ``fact`` is the head of each chain: its newest fact, and the lock that
every change of the chain takes by compare-and-set, so that no chain forks. ``fact_ended`` holds
what the head ended. ``fact_standing`` lists, by kind, the facts that a brief shows, so that reading
them never costs more than there are; ``fact_sensitive`` lists what sensitive facts rest on.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, get_args

import anyio

from secondcall.abc import ANY_VERSION, Batch, Document, DocumentWrite, Scope
from secondcall.checks import check_id, check_json, check_metadata, check_text
from secondcall.errors import InvalidValue, TooLarge, UnknownName, VersionConflict
from secondcall.facts.chain import chain_key, decode_fact, encode_fact, insert, stands
from secondcall.facts.promises import check_transition, first_status
from secondcall.types import Fact, FactKind, FactStatus, ItemKey, JsonValue, Metadata

if TYPE_CHECKING:
    from secondcall.abc import Epoch, Store

__all__ = [
    "Step",
    "change_chain",
    "check_fact",
    "mark_sensitive",
    "new_fact",
    "retract",
    "settle",
    "supersede",
]

MAX_PREDICATE_BYTES = 1_024
MAX_VALUE_BYTES = 16_384
MAX_SOURCES = 256
_MAX_TRIES = 20
_PAGE = 1_000
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
) -> Fact:
    """A checked fact with a random id. Raises: ``InvalidValue``, ``TooLarge``."""
    fact = Fact(
        id=f"fact_{secrets.token_hex(10)}",
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


async def supersede(store: Store, scope: Scope, fact: Fact, *, epoch: Epoch, now_us: int) -> Fact:
    """Make ``fact`` true from its ``valid_from`` on, ending what was true there before.

    Saying what already holds changes nothing and gives the fact that stands (with the new sources
    added); concurrent changes of one predicate are put in one order, none is lost.

    Raises: ``VersionConflict`` after twenty lost races, ``UserErased``, store errors.
    """

    def step(head: Fact | None, ended: Sequence[Fact]) -> tuple[Fact, Fact, Sequence[Fact]]:
        if head is not None and _says_the_same(head, fact):
            merged = _merged(head, fact)
            return merged, merged, [] if merged == head else [merged]
        chain = [*ended, *([] if head is None else [head])]
        new_head, changed = insert(chain, fact)
        return changed[0], new_head, changed

    return await change_chain(store, scope, fact.subject, fact.predicate, step, epoch, now_us)


async def mark_sensitive(
    store: Store, scope: Scope, fact: Fact, *, epoch: Epoch, now_us: int
) -> None:
    """List a sensitive fact's sources in another partition that holds some of them, so that they
    stay withheld there whatever becomes of a merge."""
    write = _sensitive(chain_key(fact.subject, fact.predicate), fact)
    await store.write(scope, Batch(documents=[write]), epoch=epoch, now_us=now_us)


async def settle(
    store: Store,
    scope: Scope,
    predicate: str,
    status: FactStatus,
    *,
    subject: str,
    at: datetime,
    epoch: Epoch,
    now_us: int,
) -> Fact:
    """Move a promise or an issue on: kept, broken, withdrawn; resolved, open again.

    Raises: ``UnknownName`` when there is none of that predicate, ``InvalidValue`` when ``status``
    may not follow.
    """

    def step(head: Fact | None, ended: Sequence[Fact]) -> tuple[Fact, Fact, Sequence[Fact]]:
        if head is None or head.invalid_at is not None:
            raise UnknownName(f"no promise or issue with predicate {predicate!r} stands")
        if head.status == status:
            return head, head, []
        check_transition(head, status)
        moved = replace(
            head,
            id=f"fact_{secrets.token_hex(10)}",
            status=status,
            valid_from=max(at, head.valid_from),
            recorded_at=at,
        )
        new_head, changed = insert([*ended, head], moved)
        return moved, new_head, changed

    return await change_chain(store, scope, subject, predicate, step, epoch, now_us)


async def retract(
    store: Store,
    scope: Scope,
    predicate: str,
    *,
    subject: str,
    at: datetime,
    epoch: Epoch,
    now_us: int,
) -> Fact:
    """End the fact that holds, with nothing in its place. Raises: ``UnknownName``."""

    def step(head: Fact | None, ended: Sequence[Fact]) -> tuple[Fact, Fact, Sequence[Fact]]:
        if head is None or head.invalid_at is not None:
            raise UnknownName(f"no fact with predicate {predicate!r} holds")
        gone = replace(head, invalid_at=max(at, head.valid_from))
        return gone, gone, [gone]

    return await change_chain(store, scope, subject, predicate, step, epoch, now_us)


Step = Callable[[Fact | None, Sequence[Fact]], tuple[Fact, Fact, Sequence[Fact]]]
"""From the head and the ended facts of a chain to (result, head afterwards, facts that changed)."""


async def change_chain(
    store: Store,
    scope: Scope,
    subject: str,
    predicate: str,
    step: Step,
    epoch: Epoch,
    now_us: int,
) -> Fact:
    """Apply ``step`` to one chain, again after each lost race; what it gives as its result.

    Raises: ``VersionConflict`` after twenty lost races, ``UserErased``, store errors.
    """
    key = chain_key(subject, predicate)
    for attempt in range(_MAX_TRIES):
        document = await store.document(scope, "fact", key)
        head = None if document is None else decode_fact(document.body)
        ended = await _ended(store, scope, key) if document is not None else []
        result, new_head, changed = step(head, ended)
        if not changed:
            return result
        writes = _writes(key, document, head, new_head, changed)
        try:
            await store.write(scope, Batch(documents=writes), epoch=epoch, now_us=now_us)
        except VersionConflict:
            if attempt == _MAX_TRIES - 1:
                raise
            await anyio.sleep(secrets.randbelow(1_000 * (attempt + 1)) / 1e6)
            continue
        return result
    raise AssertionError("unreachable")


async def _ended(store: Store, scope: Scope, key: str) -> list[Fact]:
    found: list[Fact] = []
    after = ""
    while True:
        page = await store.documents(
            scope, "fact_ended", prefix=f"{key}/", after=after, limit=_PAGE
        )
        found.extend(decode_fact(document.body) for document in page)
        if len(page) < _PAGE:
            return found
        after = page[-1].key


def _writes(
    key: str,
    document: Document | None,
    head: Fact | None,
    new_head: Fact,
    changed: Sequence[Fact],
) -> list[DocumentWrite]:
    by_id = {fact.id: fact for fact in changed}
    new_head = by_id.pop(new_head.id, new_head)
    if head is not None and head.id != new_head.id:
        by_id.setdefault(head.id, head)  # one that was retracted ended before and did not change
    writes = [
        DocumentWrite(
            kind="fact",
            key=key,
            body=encode_fact(new_head),
            expected_version=None if document is None else document.version,
            announce=True,
        )
    ]
    writes.extend(
        DocumentWrite(
            kind="fact_ended",
            key=f"{key}/{fact.id}",
            body=encode_fact(fact),
            expected_version=ANY_VERSION,
        )
        for fact in by_id.values()
    )
    if head is not None and (head.kind != new_head.kind or not stands(new_head)):
        writes.append(_standing(head, key, None))
    if stands(new_head):
        writes.append(_standing(new_head, key, encode_fact(new_head)))
    writes.extend(_sensitive(key, fact) for fact in (new_head, *by_id.values()) if fact.sensitive)
    return writes


def _sensitive(key: str, fact: Fact) -> DocumentWrite:
    return DocumentWrite(
        kind="fact_sensitive",
        key=f"{key}/{fact.id}",
        body=json.dumps([list(source) for source in fact.sources]).encode(),
        expected_version=ANY_VERSION,
    )


def _standing(fact: Fact, key: str, body: bytes | None) -> DocumentWrite:
    return DocumentWrite(
        kind="fact_standing",
        key=f"{fact.kind}/{key}",
        body=body,
        expected_version=ANY_VERSION,
    )


def _says_the_same(head: Fact, fact: Fact) -> bool:
    return (
        head.invalid_at is None
        and head.kind == fact.kind
        and head.status == fact.status
        and json.dumps(head.value, sort_keys=True) == json.dumps(fact.value, sort_keys=True)
        and head.valid_from <= fact.valid_from
        and (fact.due_at is None or fact.due_at == head.due_at)
    )


def _merged(head: Fact, fact: Fact) -> Fact:
    """``head`` with the sources and metadata of ``fact``; of too many sources the newest stay.

    A sensitive fact keeps them all, since each of them is to be withheld.
    """
    sensitive = head.sensitive or fact.sensitive
    sources = tuple(dict.fromkeys([*head.sources, *fact.sources]))
    merged = replace(
        head,
        sources=sources if sensitive else sources[-MAX_SOURCES:],
        sensitive=sensitive,
        metadata={**head.metadata, **fact.metadata},
    )
    if merged == head:
        return head
    return check_fact(merged)


def _check_one_of(field: str, value: str, known: frozenset[str]) -> None:
    if value not in known:
        raise InvalidValue(f"{field} is {value!r}, expected one of {', '.join(sorted(known))}")


def _named(field: str, value: str) -> str:
    text = check_text(field, check_id(field, value), max_bytes=MAX_PREDICATE_BYTES)
    text = " ".join(text.split())
    if not text:
        raise InvalidValue(f"{field} must not be blank")
    return text
