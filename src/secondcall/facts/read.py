"""Reads facts: what stands, what was true when, and how it came to be.

A merged user has several partitions, each with chains of its own. Of one predicate the fact that
began last, by the moment asked about, speaks for all of them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import anyio.to_thread

from secondcall.errors import StoreCorrupt
from secondcall.facts.chain import chain_key, decode_fact, holds_at, order, stands
from secondcall.types import Fact, FactKind, ItemKey

if TYPE_CHECKING:
    from secondcall.abc import Document, Scope, Store

__all__ = [
    "all_facts",
    "facts_at",
    "history",
    "holds_now",
    "select_at",
    "sensitive_items",
    "standing",
]

_PAGE = 1_000
_INLINE = 50
"""So few facts are decoded at once, without the detour over a thread."""


async def standing(
    store: Store, scopes: Sequence[Scope], kinds: Sequence[FactKind], *, limit: int
) -> list[Fact]:
    """Facts that are neither ended nor settled, of the given kinds, oldest first.

    Reads at most ``limit`` facts a kind and partition.
    """
    if len(scopes) > 1:
        heads = [fact for scope in scopes for fact in await _pages(store, scope, "fact")]
        return [fact for fact in _last_begun(heads) if fact.kind in kinds and stands(fact)]
    found: list[Fact] = []
    for kind in kinds:
        page = await store.documents(scopes[0], "fact_standing", prefix=f"{kind}/", limit=limit)
        found.extend(await _decoded(page))
    return sorted(found, key=order)


async def facts_at(
    store: Store,
    scopes: Sequence[Scope],
    moment: datetime,
    *,
    kinds: Collection[FactKind] | None = None,
) -> list[Fact]:
    """What was true at ``moment``, by what is known now; one fact a predicate, oldest first."""
    facts = await all_facts(store, scopes)
    if len(facts) <= _INLINE:
        return select_at(facts, moment, kinds=kinds)
    return await anyio.to_thread.run_sync(lambda: select_at(facts, moment, kinds=kinds))


def select_at(
    facts: Iterable[Fact], moment: datetime, *, kinds: Collection[FactKind] | None = None
) -> list[Fact]:
    """Of all facts ever held, those that were true at ``moment``."""
    begun = [fact for fact in facts if fact.valid_from <= moment]
    return [
        fact
        for fact in _last_begun(begun)
        if holds_at(fact, moment) and (kinds is None or fact.kind in kinds)
    ]


async def history(
    store: Store, scopes: Sequence[Scope], predicate: str, *, subject: str
) -> list[Fact]:
    """Every fact of one predicate, oldest first, ended ones included."""
    key = chain_key(subject, predicate)
    found: list[Fact] = []
    for scope in scopes:
        head = await store.document(scope, "fact", key)
        if head is not None:
            found.append(decode_fact(head.body))
            found.extend(await _pages(store, scope, "fact_ended", prefix=f"{key}/"))
    return sorted(found, key=order)


async def holds_now(store: Store, scope: Scope, predicate: str, *, subject: str) -> bool:
    """Whether the chain's head has not ended."""
    head = await store.document(scope, "fact", chain_key(subject, predicate))
    return head is not None and decode_fact(head.body).invalid_at is None


async def all_facts(store: Store, scopes: Sequence[Scope]) -> list[Fact]:
    """Every fact that was ever held, ended ones included, oldest first."""
    found: list[Fact] = []
    for scope in scopes:
        found.extend(await _pages(store, scope, "fact"))
        found.extend(await _pages(store, scope, "fact_ended"))
    return sorted(found, key=order)


async def sensitive_items(store: Store, scopes: Sequence[Scope]) -> frozenset[ItemKey]:
    """The items that sensitive facts, ended ones included, rest on."""
    found: set[ItemKey] = set()
    for scope in scopes:
        after = ""
        while True:
            page = await store.documents(scope, "fact_sensitive", after=after, limit=_PAGE)
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
    found: list[Fact] = []
    after = ""
    while True:
        page = await store.documents(scope, kind, prefix=prefix, after=after, limit=_PAGE)
        found.extend(await _decoded(page))
        if len(page) < _PAGE:
            return found
        after = page[-1].key


async def _decoded(page: Sequence[Document]) -> list[Fact]:
    if len(page) <= _INLINE:
        return [decode_fact(document.body) for document in page]
    return await anyio.to_thread.run_sync(lambda: [decode_fact(document.body) for document in page])


def _last_begun(facts: Iterable[Fact]) -> list[Fact]:
    newest: dict[str, Fact] = {}
    for fact in facts:
        key = chain_key(fact.subject, fact.predicate)
        other = newest.get(key)
        if other is None or order(other) < order(fact):
            newest[key] = fact
    return sorted(newest.values(), key=order)
