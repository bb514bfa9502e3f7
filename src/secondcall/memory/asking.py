"""A question from end to end: refresh the index, search, fetch, screen, render, in time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Literal, get_args

import anyio.to_thread

from secondcall.abc import EntryKey, Scope
from secondcall.context.answer import answer, mark_stale
from secondcall.errors import EmbedderError, InvalidValue
from secondcall.record.append import decode_entry
from secondcall.record.index import OpenIndex, index_key, item_key
from secondcall.types import (
    FactKind,
    ItemKey,
    ItemKind,
    Metadata,
    Recalled,
    RecalledItem,
    RecordedItem,
    Role,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from secondcall.context.known import Known
    from secondcall.memory.shared import Place
    from secondcall.recall.index import Hit, SearchResult
    from secondcall.record.retain import Retention

__all__ = ["Question", "ask", "clamp_query"]

_log = logging.getLogger("secondcall")
_INLINE_ROWS = 4_000
"""A search over so few rows takes about a millisecond: less than it is worth to leave the loop."""
_INLINE_FACTS = 200
_INLINE_CHARACTERS = 2_000
_EMBED_CHARACTERS = 8_000
_QUERY_CHARACTERS = 20_000
_RESERVE_SECONDS = 0.02
_LATE = "the deadline came before the record could be read"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A checked ``recall`` call."""

    query: str
    limit: int
    at: datetime
    by: Literal["message", "turn", "session"]
    where: Metadata | None
    kinds: Collection[ItemKind | FactKind] | None
    roles: Collection[Role] | None
    sessions: Collection[str] | None
    since: datetime | None
    until: datetime | None
    max_tokens: int | None
    deadline_seconds: float | None


def clamp_query(query: str) -> str:
    """The query; of one over 20,000 characters the beginning and the end, half each.

    Raises: ``InvalidValue`` for what is no text.
    """
    if not isinstance(query, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
        raise InvalidValue(f"query must be text, not {type(query).__name__}")
    if len(query) <= _QUERY_CHARACTERS:
        return query
    half = _QUERY_CHARACTERS // 2
    return f"{query[:half]} {query[-half:]}"


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a search stood on: if all of it is still so afterwards, the search holds."""

    opened: OpenIndex
    applied: Mapping[Scope, int]
    known: Known
    policy: Retention


def _seen(place: Place) -> _Seen | None:
    """What the last question of this handle stood on, so that the next can be searched for while
    it is looked up whether anything changed."""
    last = place.last_look()
    if last is None:
        return None
    scopes, policy = last
    opened = place.shared.cache.peek(scopes)
    known = None if opened is None else place.shared.peek_known(opened)
    if opened is None or known is None:
        return None
    return _Seen(opened, dict(opened.applied), known, policy)


def _hidden(place: Place, known: Known) -> Collection[ItemKey]:
    return frozenset() if place.trust == "verified" else known.sensitive_items


async def ask(place: Place, question: Question, started: float) -> Recalled:
    """Answer ``question``; ``started`` is when it was asked, on the performance counter."""
    if question.by not in ("message", "turn", "session"):
        raise InvalidValue(f"by is {question.by!r}, expected 'message', 'turn' or 'session'")
    if question.deadline_seconds is None:
        return await _answer(place, question, started, until=None)
    until = started + question.deadline_seconds
    task = asyncio.ensure_future(_answer(place, question, started, until=until))
    try:
        done, _ = await asyncio.wait({task}, timeout=max(0.0, until - time.perf_counter()))
    except asyncio.CancelledError:
        task.cancel()
        raise
    if done:
        return task.result()
    task.add_done_callback(lambda late: late.cancelled() or late.exception())
    task.cancel()
    return _finish(place, question, started)([], [], reason=_LATE, withheld=0, stale=True)


async def _answer(
    place: Place, question: Question, started: float, *, until: float | None
) -> Recalled:
    finish = _finish(place, question, started)
    seen = _seen(place)
    opening = asyncio.ensure_future(_open(place, started, until))
    try:
        vector = await _query_vector(place, question, until)
        early = None if seen is None else await _found(place, question, vector, seen)
        opened, stale = await opening
    finally:
        opening.cancel()
    if opened is None:
        return finish([], [], reason=_LATE, withheld=0, stale=True)
    place.looked(opened)
    known = await place.shared.known_of(opened)
    now_seen = _Seen(opened, dict(opened.applied), known, await place.retention())
    if early is None or now_seen != seen:
        early = await _found(place, question, vector, now_seen)
    result, items = early
    sensitive = place.trust == "verified"
    hidden = _hidden(place, known)
    oldest = await place.oldest_fact()
    search = partial(
        known.search,
        question.query,
        at=question.at,
        limit=question.limit,
        sensitive=sensitive,
        oldest=oldest,
        kinds=question.kinds,
        where=question.where,
    )
    few = len(known.facts) <= _INLINE_FACTS and len(question.query) <= _INLINE_CHARACTERS
    facts, withheld = search() if few else await anyio.to_thread.run_sync(search)
    notes = known.stale_notes(
        [item.key for item in items], at=question.at, sensitive=sensitive, oldest=oldest
    )
    return finish(
        mark_stale(items, notes),
        facts,
        reason=result.reason_if_empty or _why_nothing(opened, question),
        withheld=withheld + len(hidden),
        stale=stale,
    )


def _finish(place: Place, question: Question, started: float) -> partial[Recalled]:
    return partial(
        answer, max_tokens=question.max_tokens, counter=place.shared.counter, started=started
    )


async def _open(place: Place, started: float, until: float | None) -> tuple[OpenIndex | None, bool]:
    """The user's index, and whether it may lack what others wrote just now.

    Some of the time is kept back for answering from what was read before.
    """
    headers = await place.look()
    scopes = await place.scopes()
    fresh = place.shared.cache.fresh(scopes, headers)
    if until is None:
        return await fresh, False
    task = asyncio.ensure_future(fresh)
    reserve = min(_RESERVE_SECONDS, (until - started) / 4)
    timeout = max(0.0, until - reserve - time.perf_counter())
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout)
    finally:
        if not task.done():
            place.shared.background.adopt(task)
    if done:
        return task.result(), False
    return place.shared.cache.peek(scopes), True


async def _query_vector(
    place: Place, question: Question, until: float | None
) -> npt.NDArray[np.float32] | None:
    """The query's vector; a model that fails or is late leaves the search to the words."""
    if not question.query.strip():
        return None
    embedder = place.shared.embedder
    if embedder.local:
        return await embedder.embed_query(question.query[:_EMBED_CHARACTERS])
    timeout = None if until is None else max(0.0, until - time.perf_counter())
    try:
        async with asyncio.timeout(timeout):
            return await embedder.embed_query(question.query[:_EMBED_CHARACTERS])
    except (EmbedderError, TimeoutError) as error:
        _log.warning(
            "the query could not be embedded; searched by words only",
            extra={"error": type(error).__name__},
        )
        return None


async def _found(
    place: Place, question: Question, vector: npt.NDArray[np.float32] | None, seen: _Seen
) -> tuple[SearchResult, list[RecalledItem]]:
    """The search and its items; a wider one when some of what it found has run out or is gone."""
    limit = question.limit
    while True:
        result = await _search(place, question, vector, seen, limit)
        items = await _fetch(place, seen, result.hits)
        if len(items) >= question.limit or len(result.hits) < limit:
            return result, items[: question.limit]
        limit *= 4


async def _search(
    place: Place,
    question: Question,
    vector: npt.NDArray[np.float32] | None,
    seen: _Seen,
    limit: int,
) -> SearchResult:
    opened, hidden = seen.opened, _hidden(place, seen.known)
    now = place.shared.clock.now()
    cutoffs = {kind: seen.policy.cutoff_us(kind, now) for kind in get_args(ItemKind)}
    search = partial(
        opened.index.search,
        question.query,
        vector,
        at=question.at,
        limit=limit,
        by=question.by,
        roles=question.roles,
        sessions=_session_names(opened.scopes, question.sessions),
        kinds=_item_kinds(question),
        where=question.where,
        since=question.since,
        until=question.until,
        oldest_us={kind: cutoff for kind, cutoff in cutoffs.items() if cutoff is not None},
        exclude_keys=_entry_keys(opened.scopes, hidden),
    )
    if len(opened.index) <= _INLINE_ROWS and len(question.query) <= _INLINE_CHARACTERS:
        return search()
    return await anyio.to_thread.run_sync(search)


async def _fetch(place: Place, seen: _Seen, hits: Sequence[Hit]) -> list[RecalledItem]:
    """The items of the hits as the record has them now, without what is gone or has run out."""
    opened, policy = seen.opened, seen.policy
    keys = [item_key(opened.scopes, hit.key) for hit in hits]
    stored: dict[ItemKey, RecordedItem] = {}
    for scope in opened.scopes:
        wanted = [EntryKey(*key[1:]) for key in keys if key.user_id == scope.name]
        if wanted:
            for entry in await place.shared.store.entries(scope, wanted):
                cutoff = policy.cutoff_us(entry.key.kind, place.shared.clock.now())
                if cutoff is None or entry.at_us >= cutoff:
                    stored[ItemKey(scope.name, *entry.key)] = decode_entry(scope.name, entry)
    found: list[RecalledItem] = []
    for key, hit in zip(keys, hits, strict=True):
        item = stored.get(key)
        if item is not None:
            found.append(
                RecalledItem(
                    key=key, item=item.item, at=item.at, score=hit.score, features=hit.features
                )
            )
    return found


def _item_kinds(question: Question) -> Collection[ItemKind] | None:
    if question.kinds is None:
        return None
    return [kind for kind in get_args(ItemKind) if kind in question.kinds]


def _session_names(
    scopes: Sequence[Scope], sessions: Collection[str] | None
) -> Collection[str] | None:
    if sessions is None:
        return None
    return {
        index_key(scopes, scope, EntryKey(one, "message", "")).session_id
        for scope in scopes
        for one in sessions
    }


def _entry_keys(scopes: Sequence[Scope], keys: Collection[ItemKey]) -> list[EntryKey]:
    by_name = {scope.name: scope for scope in scopes}
    return [
        index_key(scopes, by_name[key.user_id], EntryKey(*key[1:]))
        for key in keys
        if key.user_id in by_name
    ]


def _why_nothing(opened: OpenIndex, question: Question) -> str:
    if not question.query.strip():
        return "the query is empty"
    if not len(opened.index):
        return "nothing is recorded of this user"
    return "nothing in the record answers this within the filters"
