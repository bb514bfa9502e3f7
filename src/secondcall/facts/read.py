"""Reads facts: what stands, what was true when, and how it came to be.

A merged user has several partitions, each with chains of its own. Read together they are one: what
began later ends what held before, whichever partition it is in.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import anyio.to_thread

from secondcall.errors import StoreCorrupt
from secondcall.facts.belief import believed
from secondcall.facts.chain import holds_at, key_of, order, predicate_key, replaced, stands
from secondcall.facts.rests import causes_of, marked
from secondcall.facts.stored import decode_fact, is_fact
from secondcall.types import Fact, FactKind, ItemKey

if TYPE_CHECKING:
    from secondcall.abc import Document, Scope, Store

__all__ = [
    "GROUND",
    "all_facts",
    "chain_facts",
    "facts_at",
    "history",
    "joined",
    "listed",
    "select_at",
    "sensitive_items",
    "standing",
    "with_grounds",
]

GROUND = "fact_ground"
"""The kind of the documents that say in which chain a fact is that others rest on."""

_PAGE = 1_000
_MAX_GROUNDS = 64
_INLINE = 50
"""So few facts are decoded at once, without the detour over a thread."""


async def standing(
    store: Store, scopes: Sequence[Scope], kinds: Sequence[FactKind], *, limit: int, now: datetime
) -> list[Fact]:
    """Facts that are neither ended by ``now`` nor settled, of the given kinds, oldest first.

    Reads at most ``limit`` facts a kind and partition.
    """
    if len(scopes) > 1:
        heads = [fact for scope in scopes for fact in await _pages(store, scope, "fact")]
        return [fact for fact in joined(heads) if fact.kind in kinds and stands(fact, now)]
    found: list[Fact] = []
    for kind in kinds:
        page = await store.documents(scopes[0], "fact_standing", prefix=f"{kind}/", limit=limit)
        found.extend(fact for fact in await _decoded(page) if stands(fact, now))
    return sorted(found, key=order)


async def listed(page: Sequence[Document]) -> list[Fact]:
    """The facts of one page of the list of those that stand, oldest first."""
    return sorted(await _decoded(page), key=order)


async def facts_at(
    store: Store,
    scopes: Sequence[Scope],
    moment: datetime,
    *,
    believed_at: datetime | None = None,
    kinds: Collection[FactKind] | None = None,
    shown: Callable[[Fact], bool] = lambda _: True,
) -> list[Fact]:
    """What was true at ``moment``, by what is known now or was at ``believed_at``, oldest first.

    Facts that are to be confirmed say why, naming only what may be ``shown``.
    """
    facts = await all_facts(store, scopes)

    def select() -> list[Fact]:
        return select_at(facts, moment, believed_at=believed_at, kinds=kinds, shown=shown)

    return select() if len(facts) <= _INLINE else await anyio.to_thread.run_sync(select)


def select_at(
    facts: Collection[Fact],
    moment: datetime,
    *,
    believed_at: datetime | None = None,
    kinds: Collection[FactKind] | None = None,
    shown: Callable[[Fact], bool] = lambda _: True,
) -> list[Fact]:
    """Of all facts ever held, those that were true at ``moment``."""
    if believed_at is not None:
        facts = believed(facts, believed_at)
    facts = joined(facts)
    found = [
        fact for fact in facts if holds_at(fact, moment) and (kinds is None or fact.kind in kinds)
    ]
    return marked(found, causes_of(facts, moment), shown)


def joined(facts: Iterable[Fact]) -> list[Fact]:
    """The facts with each ended where the next of its chain begins, in order of beginning.

    In one partition they are so already.
    """
    following: dict[str, Fact] = {}
    found: list[Fact] = []
    for fact in sorted(facts, key=order, reverse=True):
        key = key_of(fact)
        after = following.get(key)
        if after is not None and (fact.invalid_at is None or fact.invalid_at > after.valid_from):
            fact = replaced(
                fact,
                max(fact.recorded_at, after.recorded_at),
                invalid_at=max(after.valid_from, fact.valid_from),
                superseded_by=after.id,
            )
        following[key] = fact
        found.append(fact)
    return found[::-1]


async def history(
    store: Store, scopes: Sequence[Scope], predicate: str, *, subject: str
) -> list[Fact]:
    """Every fact of one predicate, oldest first, ended ones included."""
    key = predicate_key(subject, predicate)
    found: list[Fact] = []
    for scope in scopes:
        heads = await _keyed(store, scope, "fact", prefix=key)
        if heads:
            ended = await _keyed(store, scope, "fact_ended", prefix=f"{key}/")
            found.extend(_of_one_moment(heads, ended))
    return sorted(found, key=order)


async def chain_facts(store: Store, scopes: Sequence[Scope], key: str) -> list[Fact]:
    """Every fact of the chain with that key, in all partitions, oldest first."""
    found: list[Fact] = []
    for scope in scopes:
        head = await store.document(scope, "fact", key)
        heads = {} if head is None or not is_fact(head.body) else {key: decode_fact(head.body)}
        ended = await _keyed(store, scope, "fact_ended", prefix=f"{key}/")
        ended = {k: fact for k, fact in ended.items() if k == f"{key}/{fact.id}"}
        found.extend(_of_one_moment(heads, ended))
    return sorted(found, key=order)


async def all_facts(store: Store, scopes: Sequence[Scope]) -> list[Fact]:
    """Every fact that was ever held, ended ones included, oldest first."""
    found: list[Fact] = []
    for scope in scopes:
        heads = await _keyed(store, scope, "fact")
        found.extend(_of_one_moment(heads, await _keyed(store, scope, "fact_ended")))
    return sorted(found, key=order)


def _of_one_moment(heads: Mapping[str, Fact], ended: Mapping[str, Fact]) -> list[Fact]:
    """The heads, by the keys of their documents, with what was ended before them: what was a head
    when those were read, and what came after it, was moved to the ended ones meanwhile."""
    found = [*heads.values()]
    for key, fact in ended.items():
        head = heads.get(key[: -len(fact.id) - 1])
        if head is None or (fact.id != head.id and order(fact) < order(head)):
            found.append(fact)
    return found


async def with_grounds(
    store: Store, scopes: Sequence[Scope], facts: Sequence[Fact]
) -> Sequence[Fact]:
    """``facts`` and whatever they rest on, however many facts lie between, with what replaced it.

    Costs a few reads for each ground that has ended; with very many, all facts are read.
    """
    if not any(fact.rests_on for fact in facts):
        return facts
    if len(scopes) > 1:
        return joined(await all_facts(store, scopes))
    pool = {fact.id: fact for fact in facts}
    asked: set[str] = set()
    while True:
        missing = {name for fact in pool.values() for name in fact.rests_on} - {*pool, *asked}
        if not missing:
            return [*pool.values()]
        asked |= missing
        if len(asked) > _MAX_GROUNDS:
            return await all_facts(store, scopes)
        for found in await asyncio.gather(*(_ground(store, scopes[0], one) for one in missing)):
            if found is None:
                return await all_facts(store, scopes)
            pool |= {fact.id: fact for fact in found}


async def _ground(store: Store, scope: Scope, fact_id: str) -> Sequence[Fact] | None:
    """A fact that others rest on, what it goes on as, and the head of its chain; ``None`` if it is
    not listed."""
    listed = await store.document(scope, GROUND, fact_id)
    if listed is None:
        return None
    key = listed.body.decode()
    head = await store.document(scope, "fact", key)
    found = [] if head is None else [decode_fact(head.body)]
    name: str | None = fact_id
    while name is not None and name not in {fact.id for fact in found}:
        ended = await store.document(scope, "fact_ended", f"{key}/{name}")
        if ended is None:
            break
        found.append(decode_fact(ended.body))
        name = found[-1].superseded_by
    return found


async def sensitive_items(
    store: Store, scopes: Sequence[Scope], *, prefix: str = ""
) -> frozenset[ItemKey]:
    """The items that sensitive facts, ended ones included, rest on: all of them, or those of the
    predicate whose key is ``prefix``."""
    found: set[ItemKey] = set()
    for scope in scopes:
        after = ""
        while True:
            page = await store.documents(
                scope, "fact_sensitive", prefix=prefix, after=after, limit=_PAGE
            )
            for document in page:
                found.update(_sources(document))
            if len(page) < _PAGE:
                break
            after = page[-1].key
    return frozenset(found)


def _sources(document: Document) -> list[ItemKey]:
    try:
        return [ItemKey(*source) for source in json.loads(document.body)]
    except (ValueError, TypeError) as error:
        raise StoreCorrupt(
            f"a stored list of sensitive items cannot be read ({type(error).__name__}); run "
            "'secondcall doctor'"
        ) from None


async def _pages(store: Store, scope: Scope, kind: str, *, prefix: str = "") -> list[Fact]:
    return [*(await _keyed(store, scope, kind, prefix=prefix)).values()]


async def _keyed(store: Store, scope: Scope, kind: str, *, prefix: str = "") -> dict[str, Fact]:
    """All facts of a kind of documents, by the keys of those."""
    found: dict[str, Fact] = {}
    after = ""
    while True:
        page = await store.documents(scope, kind, prefix=prefix, after=after, limit=_PAGE)
        bodies = [document for document in page if is_fact(document.body)]
        facts = await _decoded(bodies)
        found |= {one.key: fact for one, fact in zip(bodies, facts, strict=True)}
        if len(page) < _PAGE:
            return found
        after = page[-1].key


async def _decoded(page: Sequence[Document]) -> list[Fact]:
    def decode() -> list[Fact]:
        return [decode_fact(document.body) for document in page if is_fact(document.body)]

    return decode() if len(page) <= _INLINE else await anyio.to_thread.run_sync(decode)
