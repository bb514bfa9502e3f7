"""Reads all that is held of a user, past what cannot be read, and says what that is."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from secondcall.abc import Document, Scope, Store
from secondcall.errors import SecondcallError
from secondcall.facts.stored import decode_fact, is_fact
from secondcall.memory import Memory
from secondcall.record.append import decode_entry
from secondcall.record.manifest import read_manifest
from secondcall.record.retain import Retention, read_policy
from secondcall.record.seal import load_segment
from secondcall.types import ItemKey

__all__ = ["Examined", "examine_user"]

_PAGE = 500
_FACTS = ("fact", "fact_ended", "fact_standing")


@dataclass
class Examined:
    """How much could be read, and one line for each thing that could not."""

    users: int = 0
    items: int = 0
    facts: int = 0
    problems: list[str] = field(default_factory=list[str])


async def examine_user(memory: Memory, store: Store, user_id: str, found: Examined) -> None:
    """Read the partition of one user: items, facts, segments, policy, identities.

    Writes nothing. What cannot be read is named by user, session and id, without its text.
    """
    scope = Scope(memory.tenant_id, "user", user_id)
    found.users += 1
    for read in (_items, _facts, _sensitive, _segments, _policy):
        try:
            await read(store, scope, found)
        except SecondcallError as error:
            found.problems.append(f"user {user_id!r}: {error}")
    try:
        await memory.identities(user_id)
        await memory.audit(user_id)
    except SecondcallError as error:
        found.problems.append(f"user {user_id!r}, identities: {error}")


async def _items(store: Store, scope: Scope, found: Examined) -> None:
    after: tuple[int, int] | None = None
    while page := await store.read(scope, after=after, limit=_PAGE):
        for entry in page:
            try:
                decode_entry(scope.name, entry)
                found.items += 1
            except SecondcallError:
                key = entry.key
                found.problems.append(
                    f"user {scope.name!r}, session {key.session_id!r}, {key.kind} {key.id!r} "
                    "cannot be read"
                )
        after = (page[-1].at_us, page[-1].position)


async def _facts(store: Store, scope: Scope, found: Examined) -> None:
    for kind in _FACTS:
        async for document in _documents(store, scope, kind):
            if not is_fact(document.body):
                continue
            try:
                decode_fact(document.body)
                found.facts += kind != "fact_standing"
            except SecondcallError:
                found.problems.append(_unread(scope, document))


async def _sensitive(store: Store, scope: Scope, found: Examined) -> None:
    async for document in _documents(store, scope, "fact_sensitive"):
        try:
            for source in json.loads(document.body):
                ItemKey(*source)
        except (ValueError, TypeError):
            found.problems.append(_unread(scope, document))


async def _segments(store: Store, scope: Scope, found: Examined) -> None:
    for listed in (await read_manifest(store, scope)).segments:
        if await load_segment(store, scope, listed) is None:
            found.problems.append(
                f"user {scope.name!r}, search segment {listed.name!r} is missing or damaged; the "
                "next recall repairs it, as does 'secondcall reindex'"
            )


async def _policy(store: Store, scope: Scope, found: Examined) -> None:
    try:
        await read_policy(store, scope, Retention())
    except (ValueError, KeyError, TypeError, AttributeError):
        found.problems.append(f"user {scope.name!r}, the retention policy cannot be read")


async def _documents(store: Store, scope: Scope, kind: str) -> AsyncIterator[Document]:
    after = ""
    while page := await store.documents(scope, kind, after=after, limit=_PAGE):
        for document in page:
            yield document
        after = page[-1].key


def _unread(scope: Scope, document: Document) -> str:
    return f"user {scope.name!r}, {document.kind} {document.key!r} cannot be read"
