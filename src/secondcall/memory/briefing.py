"""Gathers what a brief is made of: key reads, side by side, within the deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from secondcall.checks import from_us
from secondcall.context.brief import BriefParts
from secondcall.context.recap import shown_recap
from secondcall.facts.chain import holds_at, is_standing
from secondcall.facts.moved import is_moved
from secondcall.facts.over import Stated, ends_of, stated_in
from secondcall.facts.read import facts_at, standing, with_grounds
from secondcall.facts.rests import causes_of, marked
from secondcall.memory.recapped import read_recaps
from secondcall.memory.telling import may_see
from secondcall.record.append import decode_entry
from secondcall.types import Fact, FactKind, ItemKey, Message, Recap, RecordedItem, SessionSummary

if TYPE_CHECKING:
    from secondcall.abc import Scope
    from secondcall.memory.shared import Place

__all__ = ["gather", "recaps"]

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
    outlines = asyncio.ensure_future(_outlines(place, max_sessions))
    tasks: dict[str, asyncio.Task[Any]] = {
        name: asyncio.ensure_future(work)
        for name, work in {
            "facts": _facts(place, max_facts),
            "sessions": _sessions(place, outlines),
            "hidden": _hidden(place),
            "recaps": _recaps(place, outlines),
            "over": _over(place, outlines),
        }.items()
    }
    late = set(tasks.values())
    for task in tasks.values():
        task.add_done_callback(_looked_at)
    try:
        _, late = await asyncio.wait(tasks.values(), timeout=deadline_seconds)
    finally:
        outlines.cancel()
        for task in late:
            task.cancel()
    await asyncio.gather(outlines, *tasks.values(), return_exceptions=True)  # each is looked at
    missing = [name for name, task in tasks.items() if task in late]
    if "hidden" in missing:
        return BriefParts(missing=("facts", "sessions"))
    return _parts(tasks, missing, sensitive=place.trust == "verified")


def _looked_at(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()  # whoever asked for the brief may be gone


async def recaps(place: Place, limit: int) -> list[Recap]:
    """The recaps of the last sessions as they may be shown, the last one first."""
    parts = await gather(place, deadline_seconds=None, max_sessions=limit, max_facts=10_000)
    keys = [(session.user_id, session.session_id) for session in parts.sessions]
    return [parts.recaps[key] for key in keys if key in parts.recaps]


def _parts(
    tasks: dict[str, asyncio.Task[Any]], missing: list[str], *, sensitive: bool
) -> BriefParts:
    hidden: frozenset[ItemKey] = tasks["hidden"].result()
    facts: list[Fact] = [] if "facts" in missing else tasks["facts"].result()
    sessions: list[tuple[SessionSummary, RecordedItem | None]] = (
        [] if "sessions" in missing else tasks["sessions"].result()
    )
    shown = [fact for fact in facts if sensitive or not fact.sensitive]
    seen = {fact.id: sensitive or not fact.sensitive for fact in facts}
    over: Mapping[ItemKey, str] = {} if "over" in missing else tasks["over"].result()
    stored = () if "recaps" in missing else tasks["recaps"].result()
    recaps, withheld = _shown_recaps(stored, hidden, seen, over)
    words: dict[tuple[str, str], RecordedItem] = {}
    for session, item in sessions:
        key = (session.user_id, session.session_id)
        if item is None or key in recaps:
            continue
        if item.key in hidden:
            withheld.add(key)
        else:
            words[key] = item
    return BriefParts(
        facts=shown,
        sessions=[one for one, _ in sessions],
        last_words=words,
        over=over,
        recaps=recaps,
        withheld=len(facts) - len(shown) + len(withheld),
        missing=_named(missing),
    )


def _named(missing: Sequence[str]) -> tuple[str, ...]:
    """What is missing, in the words of ``Brief.missing``: without what became of facts the words
    of conversations are shown unmarked, and facts are missing."""
    names = {*missing}
    if "sessions" in names:  # nothing of conversations is shown
        names -= {"over", "recaps"}
    if "over" in names:
        names.add("facts")
    return tuple(name for name in ("facts", "sessions", "recaps") if name in names)


def _shown_recaps(
    stored: Sequence[tuple[Recap, frozenset[ItemKey]]],
    hidden: frozenset[ItemKey],
    facts: Mapping[str, bool],
    over: Mapping[ItemKey, str],
) -> tuple[dict[tuple[str, str], Recap], set[tuple[str, str]]]:
    """The recaps that may be shown, and the sessions of whose recap something is withheld."""
    recaps: dict[tuple[str, str], Recap] = {}
    withheld: set[tuple[str, str]] = set()
    for one, intact in stored:
        recap, less = shown_recap(one, intact=intact, hidden=hidden, facts=facts, over=over)
        key = (one.user_id, one.session_id)
        if recap is not None:
            recaps[key] = recap
        if less:
            withheld.add(key)
    return recaps, withheld


async def _load_index(place: Place) -> None:
    place.embed_waiting(await place.shared.cache.fresh(await place.scopes()))


async def _facts(place: Place, limit: int) -> list[Fact]:
    shared = place.shared
    now = shared.clock.now()
    scopes = await place.scopes()
    visible = await may_see(place)
    found = await standing(shared.store, scopes, get_args(FactKind), limit=limit, now=now)
    if any(fact.valid_from > now for fact in found):
        found = await facts_at(shared.store, scopes, now, shown=visible)
        found = [fact for fact in found if is_standing(fact)]
    else:
        pool = await with_grounds(shared.store, scopes, found)
        found = marked(found, causes_of(pool, now), visible)
    oldest = await place.oldest_fact()
    return [
        fact
        for fact in found
        if holds_at(fact, now)
        and not is_moved(fact)
        and (oldest is None or fact.recorded_at >= oldest)
    ]


async def _outlines(place: Place, limit: int) -> list[tuple[Scope, SessionSummary]]:
    """The last sessions that have not run out, with the partition that holds each."""
    shared = place.shared
    scopes = await place.scopes()
    reads = asyncio.gather(*(shared.store.sessions(scope, limit=limit) for scope in scopes))
    policy, pages = await asyncio.gather(place.retention(), reads)
    ended = policy.session_cutoff_us(shared.clock.now())
    found = [
        (
            scope,
            SessionSummary(
                user_id=scope.name,
                session_id=one.session_id,
                first_at=from_us(one.first_us),
                last_at=from_us(one.last_us),
                items=one.items,
            ),
        )
        for scope, page in zip(scopes, pages, strict=True)
        for one in page
        if ended is None or one.last_us >= ended
    ]
    found.sort(key=lambda pair: (pair[1].last_at, pair[1].session_id), reverse=True)
    return found[:limit]


async def _sessions(
    place: Place, outlines: asyncio.Future[list[tuple[Scope, SessionSummary]]]
) -> list[tuple[SessionSummary, RecordedItem | None]]:
    found = await asyncio.shield(outlines)
    policy = await place.retention()
    cutoff = policy.cutoff_us("message", place.shared.clock.now())
    work: list[Coroutine[Any, Any, RecordedItem | None]] = [
        _last_words(place, scope, one.session_id, cutoff) for scope, one in found
    ]
    words = await asyncio.gather(*work)
    return [(one, word) for (_, one), word in zip(found, words, strict=True)]


async def _recaps(
    place: Place, outlines: asyncio.Future[list[tuple[Scope, SessionSummary]]]
) -> list[tuple[Recap, frozenset[ItemKey]]]:
    return await read_recaps(place, await asyncio.shield(outlines))


async def _over(
    place: Place, outlines: asyncio.Future[list[tuple[Scope, SessionSummary]]]
) -> Mapping[ItemKey, str]:
    """What became of what the items of the last sessions state; read beside the recaps."""
    sessions = [one for _, one in await asyncio.shield(outlines)]
    store, scopes = place.shared.store, await place.scopes()
    reads = (
        stated_in(store, scope, one.user_id, one.session_id) for scope in scopes for one in sessions
    )
    stated = [one for several in await asyncio.gather(*reads) for one in several]
    oldest, verified = await place.oldest_fact(), place.trust == "verified"

    def shown(one: Stated) -> bool:
        kept = oldest is None or one.recorded_at >= oldest
        return kept and (verified or not one.sensitive)

    return ends_of(stated, place.shared.clock.now(), shown)


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
