"""What is settled is not brought up again as open: by recaps and last words in the brief."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from secondcall import Brief, ItemKey, Memory, Message, Recap, UserMemory
from secondcall.abc import Document, Scope
from secondcall.stores.memory import MemoryStore
from secondcall.testing.fakes import FrozenClock
from secondcall.testing.models import ScriptedModel

pytestmark = pytest.mark.anyio

PARCEL = "My parcel from Porto never came."
OFFER = "I will send a new parcel by Friday."
MOVED = "I need it sent to Lisbon from now on."


def _source(name: str, session_id: str = "s", user: str = "ann") -> ItemKey:
    return ItemKey(user, session_id, "message", name)


async def _closed(memory: Memory, session_id: str = "s", user: str = "ann") -> None:
    session = await memory.user(user).session(session_id)
    await session.record(
        Message("user", PARCEL, id="parcel"),
        Message("assistant", OFFER, id="offer"),
        Message("user", "Thank you, goodbye.", id="bye"),
    )
    await session.close()
    await memory.flush()


async def _brief(user: UserMemory) -> Brief:
    return await user.brief(deadline_seconds=None)


async def _recap(user: UserMemory) -> Recap:
    (recap,) = (await _brief(user)).recaps
    return recap


async def test_an_issue_resolved_later_is_marked(memory: Memory, clock: FrozenClock) -> None:
    """Words chosen by their wording say how the issue that they state ended: at once, and after
    the recap was made anew; the other clauses stay as they are."""
    user = memory.user("ann")
    await _closed(memory)
    await user.remember("delivery", "parcel missing", kind="issue", sources=[_source("parcel")])
    assert PARCEL in (await _recap(user)).text
    assert "resolved" not in (await _brief(user)).text
    clock.advance(timedelta(days=2))
    await user.settle("delivery", "resolved")
    for _ in range(2):
        brief = await _brief(user)
        assert f'"{PARCEL}" (delivery: resolved 2026-05-06)' in brief.text
        assert f'"{OFFER}";' in f"{brief.recaps[0].text};"
        assert brief.withheld == 0
        await memory.flush()


async def test_a_promise_that_was_kept_is_marked(memory: Memory) -> None:
    """So do the assistant's words of a promise."""
    user = memory.user("ann")
    await _closed(memory)
    await user.remember("parcel", "a new one", kind="promise", sources=[_source("offer")])
    await user.settle("parcel", "kept")
    await memory.flush()
    assert f'"{OFFER}" (parcel: kept 2026-05-04)' in (await _recap(user)).text


async def test_what_is_open_again_is_not_marked(memory: Memory, clock: FrozenClock) -> None:
    """Reopened, it stands as it was said; resolved once more, it is marked with the last date."""
    user = memory.user("ann")
    await _closed(memory)
    await user.remember("delivery", "missing", kind="issue", sources=[_source("parcel")])
    for status, day in (("resolved", 5), ("open", 6), ("resolved", 7)):
        clock.advance(timedelta(days=1))
        await user.settle("delivery", status)  # pyright: ignore[reportArgumentType] - of a list
        marked = f"(delivery: resolved 2026-05-0{day})" in (await _recap(user)).text
        assert marked == (status == "resolved")


async def test_what_was_replaced_is_marked(memory: Memory, clock: FrozenClock) -> None:
    """An ended fact of any kind marks the words it comes from, not those of the newer one."""
    user = memory.user("ann")
    session = await user.session("s")
    await session.record(Message("user", MOVED, id="moved"))
    await session.close()
    await user.remember("city", "Lisbon", sources=[_source("moved")])
    await memory.flush()
    clock.advance(timedelta(days=3))
    await user.remember("city", "Porto")
    await memory.flush()
    assert f'"{MOVED}" (city: ended 2026-05-07)' in (await _recap(user)).text


async def test_an_end_to_come_marks_when_it_comes(memory: Memory, clock: FrozenClock) -> None:
    """What is to end later stands until then; nothing has to be written at that moment."""
    user = memory.user("ann")
    await _closed(memory)
    await user.remember("delivery", "missing", kind="issue", sources=[_source("parcel")])
    await user.retract("delivery", at=clock.now() + timedelta(days=1))
    assert "ended" not in (await _recap(user)).text
    clock.advance(timedelta(days=2))
    assert "(delivery: ended 2026-05-05)" in (await _recap(user)).text


async def test_a_last_question_that_was_settled_is_left_out(memory: Memory) -> None:
    """What the recap calls left open is not called so any more."""
    user = memory.user("ann")
    session = await user.session("s")
    await session.record(
        Message("user", "I want to talk about my order 77.", id="first"),
        Message("assistant", "Go ahead, please.", id="go"),
        Message("user", "When does my parcel from Porto come?", id="when"),
    )
    await session.close()
    await memory.flush()
    assert "left open" in (await _recap(user)).text
    await user.remember("delivery", "missing", kind="issue", sources=[_source("when")])
    await user.settle("delivery", "resolved")
    recap = await _recap(user)
    assert "left open" not in recap.text
    assert "order 77" in recap.text


async def test_last_words_are_marked_too(memory: Memory) -> None:
    """Where there is no recap yet, the user's last words say how what they state ended."""
    user = memory.user("ann")
    session = await user.session("s")
    await session.record(Message("user", PARCEL, id="parcel"))
    await user.remember("delivery", "missing", kind="issue", sources=[_source("parcel")])
    await user.settle("delivery", "resolved")
    brief = await _brief(user)
    assert brief.recaps == []
    assert f'"{PARCEL}" (delivery: resolved 2026-05-04)' in brief.text


async def test_words_of_a_model_give_way_to_marked_clauses(url: str, clock: FrozenClock) -> None:
    """A text that a model worded cannot be marked in part: the chosen sentences stand instead."""
    worded = f'user asked "{PARCEL}"; assistant promised "{OFFER}"'
    async with Memory.open(url, clock=clock, model=ScriptedModel([worded] * 3)) as memory:
        user = memory.user("ann")
        await _closed(memory)
        await user.remember("delivery", "missing", kind="issue", sources=[_source("parcel")])
        await user.settle("delivery", "resolved")
        recap = await _recap(user)
        assert "(delivery: resolved 2026-05-04)" in recap.text
        assert recap.made_by == "rules"


async def test_a_claimed_caller_learns_nothing_of_secrets(memory: Memory) -> None:
    """Marks name no sensitive fact to a merely claimed caller, and words it comes from stay
    withheld."""
    caller = await memory.identify(phone="+14155550100")
    user = memory.user(caller.user_id)
    await _closed(memory, user=caller.user_id)
    source = _source("parcel", user=caller.user_id)
    await user.remember("diagnosis", "x", kind="issue", sources=[source], sensitive=True)
    await user.settle("diagnosis", "resolved")
    assert "diagnosis: resolved" in (await _brief(user)).text
    claimed = await _brief(memory.user(caller))
    assert "diagnosis" not in claimed.text
    assert PARCEL not in claimed.text
    assert OFFER in claimed.text


async def test_merged_users_are_told_of_each_other_s_ends(memory: Memory) -> None:
    """A fact in one partition marks words of the other, until the merge is taken back."""
    await _closed(memory, session_id="old", user="bob")
    await memory.user("ann").remember("name", "Ann")
    await memory.merge("bob", "ann")
    user = memory.user("ann")
    source = _source("parcel", "old", "bob")
    await user.remember("delivery", "missing", kind="issue", sources=[source])
    await user.settle("delivery", "resolved")
    assert "(delivery: resolved" in (await _recap(user)).text
    await memory.unmerge("bob")
    assert "resolved" not in (await _recap(memory.user("bob"))).text


async def test_ends_come_back_with_an_export(memory: Memory) -> None:
    """Restored facts mark the words as they did."""
    user = memory.user("ann")
    await _closed(memory)
    await user.remember("delivery", "missing", kind="issue", sources=[_source("parcel")])
    await user.settle("delivery", "resolved")
    facts = await user.history()
    await user.forget()
    await _closed(memory)
    await memory.user("ann").restore(facts)
    assert "(delivery: resolved" in (await _recap(memory.user("ann"))).text


async def test_what_has_run_out_marks_nothing_and_is_swept(url: str, clock: FrozenClock) -> None:
    """A fact past its retention is not named any more, and no document of it is left."""
    async with Memory.open(url, clock=clock, retain={"fact": "10d"}) as memory:
        user = memory.user("ann")
        await _closed(memory)
        await user.remember("delivery", "missing", kind="issue", sources=[_source("parcel")])
        await user.settle("delivery", "resolved")
        clock.advance(timedelta(days=11))
        assert "resolved" not in (await _brief(user)).text
        await user.sweep()
        store = memory._shared.store  # pyright: ignore[reportPrivateUsage] - what is left
        left = await store.documents(Scope("default", "user", "ann"), "fact_over", limit=10)
        assert list(left) == []


async def test_many_conversations_cost_few_writes(memory: Memory, clock: FrozenClock) -> None:
    """Of a fact that comes from forty conversations only the newest sixteen are listed."""
    user = memory.user("ann")
    sources = [_source("m", f"s{number}") for number in range(40)]
    await user.remember("delivery", "missing", kind="issue", sources=sources)
    await user.settle("delivery", "resolved")
    store = memory._shared.store  # pyright: ignore[reportPrivateUsage] - what is written
    listed = await store.documents(Scope("default", "user", "ann"), "fact_over", limit=100)
    assert len(listed) == 32


class _Slow(MemoryStore):
    """A store in which what became of facts is read slowly."""

    late = False

    async def documents(
        self, scope: Scope, kind: str, *, prefix: str = "", after: str = "", limit: int
    ) -> Sequence[Document]:
        if kind == "fact_over" and self.late:
            await asyncio.sleep(30)
        return await super().documents(scope, kind, prefix=prefix, after=after, limit=limit)


async def test_without_knowing_what_is_over_facts_are_missing(clock: FrozenClock) -> None:
    """When the deadline cuts that off, words are shown unmarked, and the brief says that it lacks
    facts."""
    store = _Slow()
    async with Memory.open(store, clock=clock) as memory:
        user = memory.user("ann")
        await _closed(memory)
        await user.remember("delivery", "missing", kind="issue", sources=[_source("parcel")])
        await user.settle("delivery", "resolved")
        store.late = True
        brief = await user.brief(deadline_seconds=0.2)
        assert brief.missing == ("facts",)
        assert PARCEL in brief.text
        assert "resolved" not in brief.text
