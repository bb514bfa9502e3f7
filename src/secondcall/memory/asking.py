"""A question from end to end: refresh the index, search, fetch, screen, render, in time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

import anyio.to_thread

from secondcall import telemetry
from secondcall.abc import EntryKey, Scope
from secondcall.checks import from_us
from secondcall.context.answer import answer, mark_stale
from secondcall.errors import InvalidValue
from secondcall.memory.extracting import note_recalled
from secondcall.memory.fetching import ReadEntries, fetch, with_neighbours
from secondcall.memory.looking import Looking
from secondcall.memory.meaning import Meaning, meaning_of
from secondcall.memory.reordering import for_and_against, width
from secondcall.memory.screening import Screen, screened
from secondcall.memory.warming import are_words_loaded, load_words
from secondcall.recall.confidence import DEFAULT_CONFIDENCE
from secondcall.recall.explain import matched
from secondcall.recall.index import Hit
from secondcall.recall.polarity import intent
from secondcall.recall.screen import current_first, screen
from secondcall.recall.talks import names_the_past
from secondcall.record.index import OpenIndex, index_key, item_key
from secondcall.types import (
    FactKind,
    ItemKey,
    ItemKind,
    Message,
    Metadata,
    Recalled,
    RecalledItem,
    Role,
)

if TYPE_CHECKING:
    from secondcall.context.known import Known, Shown
    from secondcall.memory.shared import Place
    from secondcall.recall.index import Neighbours, SearchResult
    from secondcall.record.retain import Retention

__all__ = ["LATE", "Question", "ask", "clamp_query"]

RankedT = TypeVar("RankedT", Hit, RecalledItem)

_INLINE_ROWS = 4_000
"""A search over so few rows takes about a millisecond: less than it is worth to leave the loop."""
_INLINE_FACTS = 200
_INLINE_CHARACTERS = 2_000
_QUERY_CHARACTERS = 20_000
_WIDE = 4
_LEAST_WIDE = 20
"""So many more are looked through for what states the fact that holds now."""
LATE = "the deadline came before the record could be read"


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
    apart_from: tuple[str, datetime] | None = None
    stale: Literal["mark", "drop"] = "mark"
    prefer_current: bool = True
    time: Literal["soft", "hard"] = "soft"
    screen: Screen | None = None
    min_confidence: float = DEFAULT_CONFIDENCE
    neighbours: Neighbours = 0
    small_talk: bool = False
    explain: bool = False
    told: Collection[ItemKey] = ()
    """Items that whoever asks has already: neither found nor brought along."""
    told_facts: Collection[str] = ()


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
    if opened is None or known is None or place.is_behind(opened):
        return None
    return _Seen(opened, dict(opened.applied), known, policy)


def _hidden(place: Place, known: Known) -> Collection[ItemKey]:
    return frozenset() if place.trust == "verified" else known.sensitive_items


async def ask(place: Place, question: Question, started: float) -> Recalled:
    """Answer ``question``; ``started`` is when it was asked, on the performance counter."""
    with telemetry.operation("recall", store=place.shared.scheme) as span:
        span.content(query=question.query, user_id=place.user_id)
        found = await _ask(place, question, started)
        span.set(found_items=len(found.items), found_facts=len(found.facts), stale=found.stale)
        if found.stale:
            telemetry.count_late("recall", "record")
        note_recalled(place, found.items)
        return found


async def _ask(place: Place, question: Question, started: float) -> Recalled:
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
    return _finish(place, question, started)([], [], reason=LATE, withheld=0, stale=True)


async def _answer(
    place: Place, question: Question, started: float, *, until: float | None
) -> Recalled:
    finish = _finish(place, question, started)
    seen = _seen(place)
    looking = Looking(place, started, until)
    try:
        if seen is None:
            looking.begin()
        if not are_words_loaded():
            await anyio.to_thread.run_sync(load_words)
        meaning = await meaning_of(place, question.query, until)
        early = None
        if seen is not None:
            early = await _found(place, question, meaning, seen, read=looking.entries)
        opened, stale = await looking.done()
    finally:
        looking.cancel()
    if opened is None:
        return finish([], [], reason=LATE, withheld=0, stale=True)
    place.looked(opened)
    known = await place.shared.known_of(opened)
    now_seen = _Seen(opened, dict(opened.applied), known, await place.retention())
    if early is None or now_seen != seen:
        early = await _found(place, question, meaning, now_seen)
    result, items = early
    sensitive = place.trust == "verified"
    hidden = _hidden(place, known)
    oldest = await place.oldest_fact()
    news = any(fact.id not in question.told_facts for fact in known.facts)
    asked = await place.shared.words.of_question(question.query) if news else None
    search = partial(
        known.search,
        question.query,
        meaning.vector,
        asked=asked,
        said=_scores(known, result),
        answering=[item_key(opened.scopes, hit.key) for hit in result.hits or result.unsure],
        at=question.at,
        limit=question.limit,
        sensitive=sensitive,
        oldest=oldest,
        kinds=question.kinds,
        where=question.where,
        told=question.told_facts,
    )
    few = len(known.facts) <= _INLINE_FACTS and len(question.query) <= _INLINE_CHARACTERS
    facts, withheld = search() if few else await place.shared.search(search)
    visible = known.shown(sensitive=sensitive, oldest=oldest)
    marked = _marked(items, known, question, visible)
    passed, warnings = await screened(marked, question.screen, until=until)
    reason = result.reason_if_empty or _why_nothing(opened, question)
    if items and not passed:
        reason = "the application's screen let nothing pass"
    answered = finish(passed, facts, reason=reason, withheld=withheld + len(hidden), stale=stale)
    explanation = opened.index.explain(question.query, at=question.at) if question.explain else None
    return replace(
        answered,
        confidence=result.confidence,
        warnings=tuple(warnings),
        explanation=explanation,
    )


def _marked(
    items: Sequence[RecalledItem], known: Known, question: Question, visible: Shown
) -> list[RecalledItem]:
    """The items with what became of the facts that they state."""
    if question.explain:
        items = [_explained(item, question.query) for item in items]
    keys = [item.key for item in items if item.key in known.by_source]
    if not keys:
        return list(items)
    return mark_stale(
        items,
        known.notes(keys, at=question.at, visible=visible),
        known.to_confirm(keys, at=question.at, visible=visible),
    )


def _explained(item: RecalledItem, query: str) -> RecalledItem:
    text = item.item.text if isinstance(item.item, Message) else item.item.name
    return replace(item, matched=tuple(matched(query, text)))


def _finish(place: Place, question: Question, started: float) -> partial[Recalled]:
    return partial(
        answer, max_tokens=question.max_tokens, counter=place.shared.counter, started=started
    )


async def _found(
    place: Place,
    question: Question,
    meaning: Meaning,
    seen: _Seen,
    *,
    read: ReadEntries | None = None,
) -> tuple[SearchResult, list[RecalledItem]]:
    """The search and its items; a wider one when some of what it found has run out or is gone."""
    limit = question.limit
    cutoff = seen.policy.cutoff_us("fact", place.shared.clock.now())
    oldest = None if cutoff is None else from_us(cutoff)
    visible = seen.known.shown(sensitive=place.trust == "verified", oldest=oldest)
    wanted = intent(question.query)
    while True:
        taken = width(limit, wanted)
        wide = max(_WIDE * limit, _LEAST_WIDE, taken) if seen.known.by_source else taken
        result = await _search(place, question, meaning, seen, wide)
        hits = list(result.hits)
        if len(hits) < question.limit and question.by == "message":
            hits += _of_the_same(seen, result, visible)
        hits = _screened(question, seen, hits, visible)[:taken]
        more = len(hits) > question.limit
        fetched = await fetch(place, seen.opened.scopes, seen.policy, hits, read=read, alone=more)
        items = _current_first(question, seen, for_and_against(fetched, wanted), visible)
        if len(items) >= question.limit or len(result.hits) < wide:
            items = items[: question.limit]
            if more:
                items = await with_neighbours(place, seen.opened.scopes, seen.policy, items, hits)
            return result, items
        limit *= 4


def _screened(question: Question, seen: _Seen, hits: Sequence[Hit], visible: Shown) -> list[Hit]:
    """The hits with what states a fact that holds before what states its ended ones, when the
    question is about the moment of asking; and without the latter, if they are to be dropped."""
    known, opened = seen.known, seen.opened
    if not known.by_source or not _about_now(question):
        return list(hits)
    by_key = {item_key(opened.scopes, hit.key): hit for hit in hits}
    keys = [key for key in by_key if key in known.by_source]
    if not keys:
        return list(hits)
    order = list(by_key)
    if question.prefer_current:
        states = {key: known.states(key, at=question.at, visible=visible) for key in keys}
        order = current_first(order, states, limit=question.limit)
    if question.stale == "drop":
        notes = known.notes(keys, at=question.at, visible=visible)
        ended = {key: note.text for key, note in notes.items() if note.whole}
        order = [key for key, _ in screen(order, ended, mode="drop")]
    return _rescored([by_key[key] for key in order])


def _current_first(
    question: Question, seen: _Seen, items: Sequence[RecalledItem], visible: Shown
) -> list[RecalledItem]:
    """The items with what states the fact that holds before what states its ended ones, whatever
    side they take."""
    known = seen.known
    keys = [item.key for item in items if item.key in known.by_source]
    if not keys or not question.prefer_current or not _about_now(question):
        return list(items)
    states = {key: known.states(key, at=question.at, visible=visible) for key in keys}
    by_key = {item.key: item for item in items}
    order = current_first(list(by_key), states, limit=question.limit)
    return _rescored([by_key[key] for key in order])


def _of_the_same(seen: _Seen, result: SearchResult, visible: Shown) -> list[Hit]:
    """Where there is room: what states other facts of the predicates that the hits state, so that
    what was true before is found by what is true now, and the other way about."""
    known, scopes, hits = seen.known, seen.opened.scopes, result.hits
    if not hits or not known.by_source:
        return []
    keys = {item_key(scopes, hit.key) for hit in hits}
    scores = _scores(known, result)
    beside = [key for key in known.sources_beside(keys, visible=visible) if key in scores]
    least = hits[-1].score
    by_name = {scope.name: scope for scope in scopes}
    return [
        Hit(
            key=index_key(scopes, by_name[key.user_id], EntryKey(*key[1:])),
            score=round(min(least, scores[key]), 6),
            at_us=0,
            change=0,
            position=0,
        )
        for key in sorted(beside, key=lambda key: (-scores[key], key))
    ]


def _scores(known: Known, result: SearchResult) -> dict[ItemKey, float]:
    """The scores of the items that facts come from, where they are held and pass the filters."""
    return {item: result.also[name] for item, name in known.hashed.items() if name in result.also}


def _rescored(ranked: Sequence[RankedT]) -> list[RankedT]:
    """The same with scores that do not rise: one that was moved up has that of the next."""
    found: list[RankedT] = []
    least = float("-inf")
    for one in reversed(ranked):
        if one.score < least:
            raised = round(least - one.score + one.features.get("current", 0.0), 6)
            one = replace(one, score=least, features={**one.features, "current": raised})
        least = one.score
        found.append(one)
    return found[::-1]


def _about_now(question: Question) -> bool:
    """Whether the question names no time that was over when it was asked."""
    return not names_the_past(question.query, at=question.at)


async def _search(
    place: Place,
    question: Question,
    meaning: Meaning,
    seen: _Seen,
    limit: int,
) -> SearchResult:
    opened, hidden = seen.opened, _hidden(place, seen.known)
    now = place.shared.clock.now()
    cutoffs = {kind: seen.policy.cutoff_us(kind, now) for kind in get_args(ItemKind)}
    search = partial(
        opened.index.search,
        question.query,
        meaning.vector,
        query_tokens=meaning.tokens,
        at=question.at,
        limit=limit,
        by=question.by,
        roles=question.roles,
        sessions=_session_names(opened.scopes, question.sessions),
        kinds=_item_kinds(question),
        where=question.where,
        since=question.since,
        until=question.until,
        apart_from=_apart(opened.scopes, question.apart_from),
        oldest_us={kind: cutoff for kind, cutoff in cutoffs.items() if cutoff is not None},
        told=_entry_keys(opened.scopes, question.told),
        exclude_keys=_entry_keys(opened.scopes, hidden),
        also=seen.known.hashed.values(),
        small_talk=question.small_talk,
        time=question.time,
        neighbours=question.neighbours,
        least_confidence=question.min_confidence,
    )
    if len(opened.index) <= _INLINE_ROWS and len(question.query) <= _INLINE_CHARACTERS:
        return search()
    return await place.shared.search(search)


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


def _apart(
    scopes: Sequence[Scope], apart_from: tuple[str, datetime] | None
) -> tuple[Collection[str], datetime] | None:
    if apart_from is None:
        return None
    names = _session_names(scopes, [apart_from[0]])
    return None if names is None else (names, apart_from[1])


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
