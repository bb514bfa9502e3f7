"""Makes recaps, in the background: when a session is closed, and at the next open what is missing.

A recap is made of a bounded part of the session: its first 50 and last 150 items and those that its
facts rest on. It is written under the partition's epoch by compare-and-set; of two writers the one
that read an older document loses, reads again, and finds the work done. A removal deletes the
document in its own batch, so that what was read before it cannot be written after it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, get_args

import anyio.to_thread

from secondcall.abc import Batch, DocumentWrite, EntryKey
from secondcall.checks import from_us
from secondcall.context.recap import MAX_TOKENS, RULES, Clause, pick, recap_of, told_in
from secondcall.context.rewording import recap_prompt, reworded
from secondcall.errors import ModelError, UserErased, VersionConflict
from secondcall.facts.chain import holds_at
from secondcall.facts.read import standing
from secondcall.memory.recapped import KIND, PLACEHOLDER, Kept, decode, encode
from secondcall.record.append import decode_entry
from secondcall.types import Fact, ItemKey, ItemKind, Recap, RecordedItem, SessionSummary

if TYPE_CHECKING:
    from secondcall.abc import Document, Header, LanguageModel, Scope, SessionOutline, StoredEntry
    from secondcall.memory.shared import Place

__all__ = ["recap_again", "recap_at_close", "recap_sessions"]

FIRST_ITEMS, LAST_ITEMS = 50, 150
_NAMED_ITEMS = 50
_PAGE_ITEMS = 25
_MAX_BYTES = 2 * 1024 * 1024
"""At each end reading stops after so many bytes, so that huge items cannot fill the memory."""
_FACTS = 1_000
_LAST_SESSIONS = 3
_LOOK_AGAIN_SECONDS = 60.0
_MAX_LOOKED = 10_000
_QUIET = timedelta(minutes=10)
"""A session that was not closed is worded by a model only when it was quiet for so long."""
_MODEL_SECONDS = 60.0
_MAX_TRIES = 5
_log = logging.getLogger("secondcall")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Material:
    """What a recap is made of, as it was read after the header showed ``change``."""

    session: SessionSummary
    items: Sequence[RecordedItem]
    facts: Sequence[Fact]
    change: int
    digest: str


def recap_at_close(place: Place, session_id: str) -> None:
    """Make the recap of a session that is over, in the background."""

    async def work() -> None:
        for scope in await place.scopes():
            await _make(place, scope, session_id, over=True)

    key = ("recap", place.tenant_id, place.user_id, session_id)
    place.shared.background.start(key, work)


def recap_sessions(place: Place, *, but: str | None = None, at_once: bool = False) -> None:
    """Make the missing and stale recaps of the last three sessions, in the background.

    Of one user again only after a minute, unless ``at_once``. ``but`` is going on right now.
    """
    looked = place.shared.recapped
    name = (place.tenant_id, place.user_id)
    now = time.monotonic()
    if not at_once and now - looked.get(name, -_LOOK_AGAIN_SECONDS) < _LOOK_AGAIN_SECONDS:
        return
    if len(looked) >= _MAX_LOOKED:
        looked.clear()
    looked[name] = now
    place.shared.background.start(("recaps", *name, but), lambda: _make_last(place, but))


def recap_again(place: Place, scope: Scope, keys: Sequence[EntryKey]) -> None:
    """Make the recaps anew, in the background, of sessions that have lost items; of many only the
    first three, the others follow when they are asked for."""
    sessions = list(dict.fromkeys(key.session_id for key in keys))[:_LAST_SESSIONS]

    async def work() -> None:
        for session_id in sessions:
            await _make(place, scope, session_id, over=False)

    if sessions:
        place.shared.background.start(("recap", scope, tuple(sessions)), work)


async def _make_last(place: Place, but: str | None) -> None:
    store = place.shared.store
    ended = (await place.retention()).session_cutoff_us(place.shared.clock.now())
    found: list[tuple[Scope, SessionOutline]] = []
    for scope in await place.scopes():
        outlines = await store.sessions(scope, limit=_LAST_SESSIONS + 1)
        found.extend(
            (scope, one)
            for one in outlines
            if one.session_id != but and (ended is None or one.last_us >= ended)
        )
    found.sort(key=lambda pair: (pair[1].last_us, pair[1].session_id), reverse=True)
    for scope, one in found[:_LAST_SESSIONS]:
        await _make(place, scope, one.session_id, over=False)


async def _make(place: Place, scope: Scope, session_id: str, *, over: bool) -> None:
    """See to it that the session's recap is there and of today."""
    for _ in range(_MAX_TRIES):
        header = await place.shared.store.header(scope)
        if header is None:
            return
        try:
            if await _try(place, scope, header, session_id, over=over):
                return
        except UserErased:
            return
        except VersionConflict:
            continue


async def _try(place: Place, scope: Scope, header: Header, session_id: str, *, over: bool) -> bool:
    """One attempt; whether nothing changed meanwhile. Raises: ``VersionConflict``."""
    store = place.shared.store
    document = await store.document(scope, KIND, session_id)
    kept = None if document is None else decode(scope.name, session_id, document.body)
    fresh = kept is not None and kept.rules == RULES and kept.change == header.change
    if kept is not None and fresh and _model_for(place, kept, over=over) is None:
        return True
    if document is None:
        if not await store.read(scope, session_id=session_id, newest_first=True, limit=1):
            return True
        document = await _put(place, scope, header, session_id, PLACEHOLDER, None)
    material = await _read(place, scope, header, session_id)
    if material is None:
        await _put(place, scope, header, session_id, None, document)
        return True
    if (
        kept is None
        or kept.rules != RULES
        or kept.digest != material.digest
        or not kept.is_of(material.session)
    ):
        kept = await anyio.to_thread.run_sync(_composed, place, material)
        document = await _put(place, scope, header, session_id, encode(kept), document)
        newest = await store.header(scope)
        if newest is None or newest.change != header.change:
            return False
    model = _model_for(place, kept, over=over)
    if model is not None:
        worded = await _worded(place, scope, header, material, kept, model)
        if worded is not None:
            await _put(place, scope, header, session_id, encode(worded), document)
    return True


async def _put(
    place: Place,
    scope: Scope,
    header: Header,
    session_id: str,
    body: bytes | None,
    over: Document | None,
) -> Document | None:
    """Write the document in place of ``over``; as it stands then. Raises: ``VersionConflict``."""
    shared = place.shared
    version = None if over is None else over.version
    write = DocumentWrite(kind=KIND, key=session_id, body=body, expected_version=version)
    await shared.store.write(
        scope, Batch(documents=[write]), epoch=header.epoch, now_us=shared.now_us()
    )
    if body is None:
        return None
    written = await shared.store.document(scope, KIND, session_id)
    if written is None or written.body != body:
        raise VersionConflict(
            f"the recap of session {session_id!r}",
            expected=version,
            found=None if written is None else written.version,
        )
    return written


async def _read(place: Place, scope: Scope, header: Header, session_id: str) -> _Material | None:
    """What the recap is made of; ``None`` when nothing of the session is left to show.

    Raises: ``VersionConflict`` when the session is written to just now.
    """
    store, policy, now = place.shared.store, await place.retention(), place.shared.clock.now()
    last = await _stretch(place, scope, session_id, newest_first=True, limit=LAST_ITEMS)
    if not last:
        return None
    after = (last[0].at_us, f"{session_id}\x01")
    outlines = await store.sessions(scope, limit=1, after=after)
    if not outlines or outlines[0].session_id != session_id:
        raise VersionConflict(f"session {session_id!r}", expected=None, found=None)
    outline = outlines[0]
    session = SessionSummary(
        user_id=scope.name,
        session_id=session_id,
        first_at=from_us(outline.first_us),
        last_at=from_us(outline.last_us),
        items=outline.items,
    )
    first = []
    if outline.items > len(last):
        first = await _stretch(place, scope, session_id, newest_first=False, limit=FIRST_ITEMS)
    entries = {entry.key: entry for entry in (*first, *last)}
    facts = await _facts(place, scope, session)
    named = [
        EntryKey(*source[1:])
        for fact in facts
        for source in fact.sources
        if source[:2] == (scope.name, session_id)
    ]
    missing = [key for key in dict.fromkeys(named) if key not in entries][:_NAMED_ITEMS]
    if missing:
        entries |= {entry.key: entry for entry in await store.entries(scope, missing)}
    cutoffs = {kind: policy.cutoff_us(kind, now) for kind in get_args(ItemKind)}
    kept = [
        one
        for one in entries.values()
        if (cutoff := cutoffs[one.key.kind]) is None or one.at_us >= cutoff
    ]
    if not kept:
        return None
    kept.sort(key=lambda one: (one.at_us, one.position))
    return await anyio.to_thread.run_sync(_material, place, session, kept, facts, header.change)


def _material(
    place: Place,
    session: SessionSummary,
    entries: Sequence[StoredEntry],
    facts: Sequence[Fact],
    change: int,
) -> _Material:
    made_of = [
        place.shared.counter.id,
        [[entry.key.kind, entry.key.id, entry.change] for entry in entries],
        [[fact.id, fact.sources] for fact in facts],
    ]
    digest = hashlib.blake2b(json.dumps(made_of).encode(), digest_size=16).hexdigest()
    items = [decode_entry(session.user_id, entry) for entry in entries]
    return _Material(session=session, items=items, facts=facts, change=change, digest=digest)


async def _stretch(
    place: Place, scope: Scope, session_id: str, *, newest_first: bool, limit: int
) -> list[StoredEntry]:
    """The items at one end of the session, page by page, until there are enough or many bytes."""
    found: list[StoredEntry] = []
    after: tuple[int, int] | None = None
    size = 0
    while len(found) < limit and size < _MAX_BYTES:
        page = await place.shared.store.read(
            scope,
            session_id=session_id,
            after=after,
            newest_first=newest_first,
            limit=_PAGE_ITEMS,
        )
        found.extend(page)
        size += sum(len(entry.body) for entry in page)
        if len(page) < _PAGE_ITEMS:
            break
        after = (page[-1].at_us, page[-1].position)
    return found


async def _facts(place: Place, scope: Scope, session: SessionSummary) -> list[Fact]:
    """The facts told in the session that stand, of the same partition: what another one holds is
    not to stay behind when a merge is taken back."""
    now, oldest = place.shared.clock.now(), await place.oldest_fact()
    found = await standing(
        place.shared.store, (scope,), ("decision", "issue", "promise"), limit=_FACTS, now=now
    )
    return [
        fact
        for fact in told_in(session, found)
        if holds_at(fact, now) and (oldest is None or fact.recorded_at >= oldest)
    ]


def _composed(place: Place, material: _Material) -> Kept:
    shared = place.shared
    recap = recap_of(
        material.session,
        _clauses(place, material),
        counter=shared.counter,
        made_at=shared.clock.now(),
        max_tokens=MAX_TOKENS,
    )
    return Kept(
        recap=recap,
        rules=RULES,
        change=material.change,
        digest=material.digest,
        changes=_changes(material, recap),
    )


def _clauses(place: Place, material: _Material) -> list[Clause]:
    now = place.shared.clock.now()
    return pick(material.session, material.items, material.facts, now=now)


def _changes(material: _Material, recap: Recap) -> dict[ItemKey, int]:
    wanted = {*recap.sources, *(key for part in recap.parts for key in part.sources)}
    return {item.key: item.change for item in material.items if item.key in wanted}


def _model_for(place: Place, kept: Kept, *, over: bool) -> LanguageModel | None:
    """The model that is to word the recap and has not tried yet."""
    model = place.shared.model
    if model is None or kept.tried == model.id or not kept.recap.text:
        return None
    quiet = place.shared.clock.now() - kept.recap.last_at >= _QUIET
    return model if over or quiet else None


async def _worded(
    place: Place,
    scope: Scope,
    header: Header,
    material: _Material,
    kept: Kept,
    model: LanguageModel,
) -> Kept | None:
    """The recap in the model's words, or as it was if they may not stand; ``None`` when the model
    failed and is to be asked again another time."""
    shared = place.shared
    session_id = material.session.session_id
    found = await anyio.to_thread.run_sync(_clauses, place, material)
    prompt = await anyio.to_thread.run_sync(recap_prompt, found, MAX_TOKENS)
    try:
        with shared.meter.calls("state", scope, header.epoch, session_id=session_id):
            async with asyncio.timeout(_MODEL_SECONDS):
                answer = await model.complete(prompt)
    except (ModelError, TimeoutError) as error:
        _log.warning(
            "a recap could not be worded; the chosen sentences stand",
            extra={"error": type(error).__name__},
        )
        return None
    recap = reworded(
        kept.recap,
        found,
        answer,
        model_id=model.id,
        counter=shared.counter,
        max_tokens=MAX_TOKENS,
    )
    if recap is None:
        return replace(kept, tried=model.id)
    return replace(kept, recap=recap, changes=_changes(material, recap), tried=model.id)
