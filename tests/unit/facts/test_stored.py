"""Facts that the first format stored are read, asked and changed."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from secondcall import Memory
from secondcall.abc import Batch, DocumentWrite, Scope
from secondcall.stores.memory import MemoryStore
from secondcall.testing.fakes import FrozenClock

pytestmark = pytest.mark.anyio

WRITTEN = Path(__file__).parent / "data" / "first_form.json"
"""What the release before multi-valued facts stored of a user, from 4 May 2026 on."""
FOUR_MAY = datetime(2026, 5, 4, 9, tzinfo=UTC)


async def _opened() -> MemoryStore:
    store = MemoryStore()
    await store.open()
    writes = [
        DocumentWrite(
            kind=one["kind"], key=one["key"], body=one["body"].encode(), expected_version=None
        )
        for one in json.loads(WRITTEN.read_text("utf-8"))
    ]
    scope = Scope("default", "user", "ann")
    batch = Batch(documents=writes)
    await store.write(scope, batch, epoch=b"e" * 16, now_us=1, create=True)
    return store


async def test_the_first_format_is_read() -> None:
    """Every fact, its history and what was believed of it come back."""
    clock = FrozenClock(FOUR_MAY + timedelta(days=60))
    async with Memory.open(await _opened(), clock=clock) as memory:
        user = memory.user("ann")
        assert [(fact.predicate, fact.value, fact.status) for fact in await user.facts()] == [
            ("diet", "vegan", "current"),
            ("parcel", "late", "open"),
            ("refund", "40 EUR", "kept"),
        ]
        history = await user.history("diet")
        assert [fact.value for fact in history] == ["vegetarian", "pescetarian", "vegan"]
        then = FOUR_MAY + timedelta(days=7)
        assert [fact.value for fact in await user.facts(as_of=then)] == ["pescetarian"]
        assert [fact.value for fact in await user.facts(believed_at=then)] == ["vegetarian"]
        before = FOUR_MAY + timedelta(days=25)
        believed = await user.facts(believed_at=before, kinds=["attribute", "promise"])
        assert {(fact.predicate, fact.status) for fact in believed} == {
            ("dog", "current"),
            ("refund", "promised"),
        }


async def test_the_first_format_is_changed() -> None:
    """A newer value ends a fact of the first format, and a late one finds its place before it."""
    clock = FrozenClock(FOUR_MAY + timedelta(days=60))
    async with Memory.open(await _opened(), clock=clock) as memory:
        user = memory.user("ann")
        await user.remember("diet", "omnivore", kind="preference")
        await user.remember("dog", "Rex", valid_from=clock.now())
        assert [fact.value for fact in await user.history("diet")][-2:] == ["vegan", "omnivore"]
        assert len(await user.history("dog")) == 2
        brief = await user.brief(deadline_seconds=None)
        assert {str(fact.value) for fact in brief.facts} == {"omnivore", "Rex"}
        refund = await user.history("refund")
        assert [fact.status for fact in refund] == ["promised", "kept"]
