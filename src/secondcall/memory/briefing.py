"""Gathers what a brief is made of: key reads, side by side, within the deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, get_args

from secondcall.checks import from_us
from secondcall.context.brief import BriefParts
from secondcall.facts.chain import holds_at
from secondcall.facts.read import facts_at, standing
from secondcall.record.append import decode_entry
from secondcall.types import Fact, FactKind, ItemKey, Message, RecordedItem, SessionSummary

if TYPE_CHECKING:
    from secondcall.abc import Scope
    from secondcall.memory.shared import Place

__all__ = ["gather"]

_LAST_ITEMS = 12
"""How far back from a session's end the user's last words are looked for."""


async def gather(
    place: Place, *, deadline_seconds: float | None, max_sessions: int, max_facts: int
) -> BriefParts:
    """The parts that could be read in time; the index is loaded meanwhile, for the first recall."""
    place.look_again()
    place.shared.background.start(
        ("open", place.tenant_id, place.user_id), lambda: _load_index(place)
    )
    tasks: dict[str, asyncio.Task[Any]] = {
        name: asyncio.ensure_future(work)
        for name, work in {
            "facts": _facts(place, max_facts),
            "sessions": _sessions(place, max_sessions),
            "hidden": _hidden(place),
        }.items()
    }
    _, late = await asyncio.wait(tasks.values(), timeout=deadline_seconds)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    missing = [name for name, task in tasks.items() if task in late]
    if "hidden" in missing:
        return BriefParts(missing=("facts", "sessions"))
    return _parts(tasks, missing, sensitive=place.trust == "verified")


def _parts(
    tasks: dict[str, asyncio.Task[Any]], missing: list[str], *, sensitive: bool
) -> BriefParts:
    hidden: frozenset[ItemKey] = tasks["hidden"].result()
    facts: list[Fact] = [] if "facts" in missing else tasks["facts"].result()
    sessions: list[tuple[SessionSummary, RecordedItem | None]] = (
        [] if "sessions" in missing else tasks["sessions"].result()
    )
    shown = [fact for fact in facts if sensitive or not fact.sensitive]
    words = {
        (one.user_id, one.session_id): item
        for one, item in sessions
        if item is not None and item.key not in hidden
    }
    withheld = len(facts) - len(shown)
    withheld += sum(1 for _, item in sessions if item is not None and item.key in hidden)
    return BriefParts(
        facts=shown,
        sessions=[one for one, _ in sessions],
        last_words=words,
        withheld=withheld,
        missing=tuple(missing),
    )


async def _load_index(place: Place) -> None:
    await place.shared.cache.fresh(await place.scopes())


async def _facts(place: Place, limit: int) -> list[Fact]:
    shared = place.shared
    now = shared.clock.now()
    scopes = await place.scopes()
    found = await standing(shared.store, scopes, get_args(FactKind), limit=limit)
    if any(fact.valid_from > now for fact in found):
        found = [
            fact
            for fact in await facts_at(shared.store, scopes, now)
            if fact.status in ("current", "promised", "open")
        ]
    oldest = await place.oldest_fact()
    return [
        fact
        for fact in found
        if holds_at(fact, now) and (oldest is None or fact.recorded_at >= oldest)
    ]


async def _sessions(place: Place, limit: int) -> list[tuple[SessionSummary, RecordedItem | None]]:
    shared = place.shared
    now = shared.clock.now()
    policy = await place.retention()
    cutoff, ended = policy.cutoff_us("message", now), policy.session_cutoff_us(now)
    found: list[tuple[Scope, SessionSummary]] = []
    for scope in await place.scopes():
        for one in await shared.store.sessions(scope, limit=limit):
            if ended is None or one.last_us >= ended:
                summary = SessionSummary(
                    user_id=scope.name,
                    session_id=one.session_id,
                    first_at=from_us(one.first_us),
                    last_at=from_us(one.last_us),
                    items=one.items,
                )
                found.append((scope, summary))
    found.sort(key=lambda pair: (pair[1].last_at, pair[1].session_id), reverse=True)
    work: list[Coroutine[Any, Any, RecordedItem | None]] = [
        _last_words(place, scope, one.session_id, cutoff) for scope, one in found[:limit]
    ]
    words = await asyncio.gather(*work)
    return [(one, word) for (_, one), word in zip(found[:limit], words, strict=True)]


async def _last_words(
    place: Place, scope: Scope, session_id: str, since_us: int | None
) -> RecordedItem | None:
    """The last thing that the user said in a session, if it is near its end."""
    page = await place.shared.store.read(
        scope, session_id=session_id, since_us=since_us, newest_first=True, limit=_LAST_ITEMS
    )
    for entry in page:
        if entry.key.kind == "message":
            item = decode_entry(scope.name, entry)
            if isinstance(item.item, Message) and item.item.role == "user" and item.item.text:
                return item
    return None


async def _hidden(place: Place) -> frozenset[ItemKey]:
    return frozenset() if place.trust == "verified" else await place.sensitive_items()
