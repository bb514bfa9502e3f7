"""Writes a changed chain in one batch, under the lock that its head is.

Kinds of documents. ``fact`` is the head of each chain: its last fact, and the lock that every
change of the chain takes by compare-and-set, so that no chain forks. ``fact_ended`` holds the facts
before it. ``fact_standing`` lists, by kind, the facts that a brief shows (not the key facts that a
buffer moved here), so that reading them never costs more than there are; ``fact_sensitive`` lists
what sensitive facts come from, ``fact_over`` by conversation what became of facts.

The chains of a multi-valued predicate are keyed by the predicate and the value. A mark in the place
where the head of a single chain would be says that it is one, and its absence is part of the first
write of either, so that a predicate cannot become both.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from secondcall.abc import ANY_VERSION, Batch, Document, DocumentWrite, Scope
from secondcall.checks import from_us
from secondcall.errors import InvalidValue, VersionConflict
from secondcall.facts.chain import Changed, predicate_key, stands, value_key
from secondcall.facts.moved import is_moved
from secondcall.facts.over import over_writes
from secondcall.facts.stored import MULTI, decode_fact, encode_fact, is_fact
from secondcall.races import Race
from secondcall.types import Fact, JsonValue

if TYPE_CHECKING:
    from secondcall.abc import Epoch, Store

__all__ = ["Also", "Step", "change_chain", "sensitive_write"]

_PAGE = 1_000

Step = Callable[[Sequence[Fact], bool], Changed | Fact]
"""From the facts of a chain, and whether it is of one of several values, to what changes; a fact
when nothing does."""
Also = Callable[[], Awaitable[Sequence[DocumentWrite]]]
"""What is to be checked before each try, and written in the same batch."""


@dataclass(frozen=True, slots=True)
class _Chain:
    key: str
    document: Document | None
    multi: bool
    marks: Sequence[DocumentWrite] = ()


async def change_chain(
    store: Store,
    scope: Scope,
    subject: str,
    predicate: str,
    step: Step,
    *,
    value: Sequence[JsonValue] = (),
    multi: bool | None = None,
    since: datetime | None = None,
    also: Also | None = None,
    epoch: Epoch,
    now_us: int,
) -> Fact:
    """Apply ``step`` to one chain, again after each lost race; the fact that it gives.

    ``value`` is the one value that is meant, where the predicate has several. ``multi`` says how
    many it is to have, ``None`` as it is known, one if it is new. Of a chain whose last fact begins
    no later than ``since`` only that one is read.

    Raises: ``InvalidValue`` when ``multi`` is not what is known, or a value is needed;
    ``VersionConflict`` after thirty seconds of lost races, ``UserErased``, store errors.
    """
    race = Race()
    while True:
        writes = [] if also is None else list(await also())
        chain = await _locate(store, scope, subject, predicate, value, multi)
        head = None if chain.document is None else decode_fact(chain.document.body)
        known = [] if head is None else [head]
        if head is not None and (since is None or since < head.valid_from):
            known.extend(await _ended(store, scope, chain.key))
        changed = step(known, chain.multi)
        if isinstance(changed, Fact):
            return changed
        writes += _writes(chain, head, known, changed, from_us(now_us))
        try:
            await store.write(scope, Batch(documents=writes), epoch=epoch, now_us=now_us)
        except VersionConflict:
            if not await race.goes_on():
                raise
            continue
        return changed.result


async def _locate(
    store: Store,
    scope: Scope,
    subject: str,
    predicate: str,
    value: Sequence[JsonValue],
    multi: bool | None,
) -> _Chain:
    key = predicate_key(subject, predicate)
    document = await store.document(scope, "fact", key)
    if document is None and not multi:
        return _Chain(key, None, multi=False)
    if document is not None and is_fact(document.body):
        if multi:
            raise InvalidValue(
                f"predicate {predicate!r} has one value at a time, it cannot be told with "
                "multi=True; use another predicate for several"
            )
        return _Chain(key, document, multi=False)
    if multi is False:
        raise InvalidValue(
            f"predicate {predicate!r} has several values, it cannot be told with multi=False; use "
            "another predicate for one"
        )
    if not value:
        raise InvalidValue(f"predicate {predicate!r} has several values; give the value= meant")
    key = f"{key}/{value_key(value[0])}"
    if document is not None:
        return _Chain(key, await store.document(scope, "fact", key), multi=True)
    mark = DocumentWrite(kind="fact", key=key.partition("/")[0], body=MULTI, expected_version=None)
    return _Chain(key, None, multi=True, marks=[mark])


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
    chain: _Chain, head: Fact | None, known: Sequence[Fact], changed: Changed, now: datetime
) -> list[DocumentWrite]:
    by_id = {fact.id: fact for fact in changed.facts}
    new_head = by_id.pop(changed.head.id, changed.head)
    if head is not None and head.id != new_head.id:
        by_id.setdefault(head.id, head)  # one that was retracted ended before and did not change
    key, document = chain.key, chain.document
    writes = [
        *chain.marks,
        DocumentWrite(
            kind="fact",
            key=key,
            body=encode_fact(new_head),
            expected_version=None if document is None else document.version,
            announce=True,
        ),
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
    listed = stands(new_head, now) and not is_moved(new_head)
    if head is not None and (head.kind != new_head.kind or not listed):
        writes.append(_standing(head, key, None))
    if listed:
        writes.append(_standing(new_head, key, encode_fact(new_head)))
    told = (new_head, *by_id.values())
    writes.extend(sensitive_write(key, fact) for fact in told if fact.sensitive)
    writes.extend(over_writes(key, known, told, first=document is None))
    return writes


def sensitive_write(key: str, fact: Fact) -> DocumentWrite:
    """The list of what a sensitive fact comes from."""
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
