"""Reads at a live edge keep to their deadline and say what is missing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest

from secondcall import InvalidValue, Memory, Message
from secondcall.abc import Change, Document, EntryKey, Header, Scope, SessionOutline, StoredEntry
from secondcall.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio

PATIENCE_SECONDS = 2.0
"""How long the slow store takes; far above any deadline here, so no machine is too slow."""


class _SlowStore(MemoryStore):
    """Answers the named reads only when it is let go."""

    def __init__(self, *slow: str) -> None:
        super().__init__("memory://")
        self.slow = set(slow)

    async def _wait(self, name: str) -> None:
        if name in self.slow:
            await asyncio.sleep(PATIENCE_SECONDS)

    async def changes(self, scope: Scope, *, after: int, limit: int) -> Sequence[Change]:
        await self._wait("changes")
        return await super().changes(scope, after=after, limit=limit)

    async def header(self, scope: Scope) -> Header | None:
        await self._wait("header")
        return await super().header(scope)

    async def document(self, scope: Scope, kind: str, key: str) -> Document | None:
        await self._wait("document")
        return await super().document(scope, kind, key)

    async def entries(self, scope: Scope, keys: Sequence[EntryKey]) -> Sequence[StoredEntry]:
        await self._wait("entries")
        return await super().entries(scope, keys)

    async def documents(self, scope: Scope, kind: str, **more: Any) -> Sequence[Document]:
        await self._wait("documents")
        return await super().documents(scope, kind, **more)

    async def sessions(
        self, scope: Scope, *, limit: int, after: tuple[int, str] | None = None
    ) -> Sequence[SessionOutline]:
        await self._wait("sessions")
        return await super().sessions(scope, limit=limit, after=after)


async def _fill(memory: Memory) -> None:
    session = await memory.user("ann").session("s")
    await session.record(Message("user", "My dog is called Rex."))
    await memory.user("ann").remember("dog", "Rex")


async def test_a_brief_without_its_facts_says_so_and_gives_the_rest() -> None:
    """When facts are not read in time, the sessions are there and the facts are named missing."""
    store = _SlowStore()
    async with Memory.open(store) as memory:
        await _fill(memory)
        store.slow.add("documents")
        brief = await memory.user("ann").brief(deadline_seconds=0.5)
        assert brief.missing == ("facts",)
        assert "My dog is called Rex." in brief.text
        assert brief.elapsed_seconds < PATIENCE_SECONDS
        store.slow.clear()


async def test_a_brief_without_sessions_keeps_the_facts() -> None:
    """When sessions are not read in time, the facts are there."""
    store = _SlowStore()
    async with Memory.open(store) as memory:
        await _fill(memory)
        store.slow.add("sessions")
        brief = await memory.user("ann").brief(deadline_seconds=0.5)
        assert brief.missing == ("sessions",)
        assert [fact.value for fact in brief.facts] == ["Rex"]
        store.slow.clear()


async def test_a_claimed_caller_s_brief_shows_nothing_when_what_to_hide_is_unknown() -> None:
    """If the sensitive items cannot be read in time, a claimed caller is shown nothing."""
    store = _SlowStore()
    async with Memory.open(store) as memory:
        caller = await memory.identify(phone="+14155550100")
        session = await memory.user(caller.user_id).session("s")
        await session.record(Message("user", "I have asthma."))
        store.slow.add("documents")
        brief = await memory.user(caller).brief(deadline_seconds=0.5)
        assert brief.text == ""
        assert set(brief.missing) == {"facts", "sessions"}
        store.slow.clear()


async def test_a_late_index_answers_with_a_reason_and_is_there_the_next_time() -> None:
    """When the index does not load in time, recall says so; the load goes on in the background."""
    store = _SlowStore()
    async with Memory.open(store) as memory:
        await _fill(memory)
        store.slow.add("changes")
        started = time.monotonic()
        found = await memory.user("ann").recall("dog", deadline_seconds=0.3)
        assert time.monotonic() - started < PATIENCE_SECONDS
        assert (found.items, found.stale) == ((), True)
        assert found.reason == "the deadline came before the record could be read"
        store.slow.clear()
        await memory.flush()
        assert (await memory.user("ann").recall("dog")).items


async def test_a_late_tail_is_answered_from_what_was_read_before() -> None:
    """When the newest changes are not read in time, the older ones answer, marked stale."""
    store = _SlowStore()
    async with Memory.open(store) as memory:
        await _fill(memory)
        await memory.user("ann").recall("dog")
        session = await memory.user("ann").session("s")
        await session.record(Message("user", "My cat is called Mimi."))
        store.slow.add("changes")
        found = await memory.user("ann").recall("dog", deadline_seconds=0.3)
        assert found.stale
        assert found.items
        store.slow.clear()


@pytest.mark.parametrize("deadline", [-1.0, float("nan")])
async def test_deadlines_below_nothing_are_refused(deadline: float) -> None:
    """A negative deadline is an error that names it."""
    async with Memory.open("memory://") as memory:
        with pytest.raises(InvalidValue, match="deadline_seconds"):
            await memory.user("ann").recall("x", deadline_seconds=deadline)
        with pytest.raises(InvalidValue, match="deadline_seconds"):
            await memory.user("ann").brief(deadline_seconds=deadline)


async def test_a_store_that_is_slow_everywhere_cannot_hold_up_an_answer() -> None:
    """Whichever read is slow, recall and brief come back by their deadline."""
    for slow in ("changes", "documents", "sessions", "entries", "document", "header"):
        store = _SlowStore()
        async with Memory.open(store) as memory:
            await _fill(memory)
            store.slow.add(slow)
            started = time.monotonic()
            await memory.user("ann").brief(deadline_seconds=0.2)
            await memory.user("ann").recall("dog", deadline_seconds=0.2)
            assert time.monotonic() - started < PATIENCE_SECONDS, slow
            store.slow.clear()
