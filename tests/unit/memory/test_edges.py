"""Where layers meet: trust and merges, retention and limits, policies and handles, closing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from secondcall import (
    InvalidValue,
    ItemKey,
    Memory,
    Message,
    RecordedItem,
    SyncMemory,
    ToolCall,
    UnknownName,
)
from secondcall.abc import Scope
from secondcall.record.manifest import read_manifest
from secondcall.record.seal import Sealer
from secondcall.testing.fakes import FrozenClock

pytestmark = pytest.mark.anyio


async def _say(memory: Memory, user_id: str, text: str, session_id: str = "s") -> ItemKey:
    session = await memory.user(user_id).session(session_id)
    return (await session.record(Message("user", text, id=text))).keys[0]


def _texts(items: Sequence[RecordedItem]) -> list[str]:
    return [one.item.text for one in items if isinstance(one.item, Message)]


async def test_a_retracted_fact_stays_in_the_history(memory: Memory, clock: FrozenClock) -> None:
    """Remembering a predicate again after retracting it keeps what was true before."""
    user = memory.user("ann")
    await user.remember("city", "Paris")
    then = clock.now()
    clock.advance(timedelta(days=1))
    await user.retract("city")
    clock.advance(timedelta(days=1))
    await user.remember("city", "Rome")
    assert [fact.value for fact in await user.history("city")] == ["Paris", "Rome"]
    assert [fact.value for fact in await user.facts(as_of=then)] == ["Paris"]


async def test_true_is_not_one(memory: Memory) -> None:
    """A value of another JSON type is another value, at any depth."""
    user = memory.user("ann")
    await user.remember("flags", [1])
    await user.remember("flags", [True])
    assert [fact.value for fact in await user.history("flags")] == [[1], [True]]


async def test_a_stale_note_names_what_is_true_at_the_moment_of_asking(
    memory: Memory, clock: FrozenClock
) -> None:
    """The note follows the chain to the fact of that moment, and is absent before the change."""
    user = memory.user("ann")
    key = await _say(memory, "ann", "I live in Paris.")
    start = clock.now()
    await user.remember("city", "Paris", sources=[key])
    for city in ("Rome", "Oslo"):
        clock.advance(timedelta(days=30))
        await user.remember("city", city)
    now = await user.recall("Paris", limit=1)
    then = await user.recall("Paris", limit=1, at=start + timedelta(days=1))
    assert now.items[0].stale == "since 2026-07-03: city is Oslo"
    assert then.items[0].stale is None


async def test_a_stale_note_names_nothing_sensitive(memory: Memory, clock: FrozenClock) -> None:
    """A claimed caller is told that something ended, not which sensitive value came instead."""
    caller = await memory.identify(phone="+14155550100")
    user = memory.user(caller.user_id)
    key = await _say(memory, caller.user_id, "My pin question is about a zebra.")
    await user.remember("pin", "zebra", sources=[key])
    clock.advance(timedelta(days=1))
    await user.remember("pin", "SECRET9999", sensitive=True)
    claimed = await memory.user(caller).recall("zebra pin", limit=1)
    verified = await user.recall("zebra pin", limit=1)
    assert "SECRET9999" not in claimed.text
    assert "ended 2026-05-05" in claimed.text
    assert "SECRET9999" in verified.text


async def test_every_source_of_a_sensitive_fact_is_withheld(memory: Memory) -> None:
    """However often a sensitive fact is confirmed, none of the words it rests on is shown."""
    caller = await memory.identify(phone="+14155550100")
    user = memory.user(caller.user_id)
    for number in range(70):
        key = await _say(memory, caller.user_id, f"asthma attack number {number}")
        await user.remember("diagnosis", "asthma", sensitive=True, sources=[key])
    found = await memory.user(caller).recall("asthma attack", limit=100)
    assert found.items == ()


async def test_what_a_swept_sensitive_fact_rested_on_stays_withheld(
    url: str, clock: FrozenClock
) -> None:
    """When the fact has run out and is gone, its words are still not shown to a claimed caller."""
    async with Memory.open(url, clock=clock, retain={"fact": "1d"}) as memory:
        caller = await memory.identify(phone="+14155550100")
        key = await _say(memory, caller.user_id, "my diagnosis is gout")
        user = memory.user(caller.user_id)
        await user.remember("diagnosis", "gout", sensitive=True, sources=[key])
        clock.advance(timedelta(days=2))
        await memory.sweep()
        assert await user.facts() == []
        assert (await memory.user(caller).recall("gout")).items == ()


async def test_a_claimed_caller_moves_a_sensitive_promise_on_without_seeing_it(
    memory: Memory,
) -> None:
    """What settle and retract give back holds no sensitive value for a claimed caller."""
    caller = await memory.identify(phone="+14155550100")
    await memory.user(caller.user_id).remember("refund", "SECRET", kind="promise", sensitive=True)
    claimed = memory.user(caller)
    assert (await claimed.settle("refund", "kept")).value is None
    assert (await claimed.retract("refund")).value is None


async def test_sources_must_be_the_user_s_own(memory: Memory) -> None:
    """A fact cannot rest on an item of somebody else."""
    key = await _say(memory, "bob", "hello")
    with pytest.raises(InvalidValue, match=r"sources\[0\] is an item of another user"):
        await memory.user("ann").remember("x", 1, sources=[key])


async def test_a_mark_set_while_merged_stays_with_the_item(memory: Memory) -> None:
    """A sensitive fact told of a merged user's words withholds them after the unmerge too."""
    ann = await memory.identify(phone="+14155550100")
    key = await _say(memory, ann.user_id, "I have asthma.")
    await _say(memory, "bob", "hello")
    await memory.merge(ann.user_id, "bob")
    await memory.user("bob").remember("diagnosis", "asthma", sensitive=True, sources=[key])
    await memory.unmerge(ann.user_id)
    claimed = memory.user(await memory.identify(phone="+14155550100"))
    assert (await claimed.recall("asthma")).items == ()
    assert _texts([one async for one in claimed.items()]) == []


async def test_promises_of_a_merged_user_can_be_kept(memory: Memory) -> None:
    """After a merge what was promised to either is settled through the canonical user."""
    await memory.user("ann").remember("refund", "40 EUR", kind="promise")
    await memory.user("bob").remember("name", "Bob")
    await memory.merge("ann", "bob")
    bob = memory.user("bob")
    assert (await bob.settle("refund", "kept")).status == "kept"
    assert (await bob.brief(deadline_seconds=None)).promises == []


async def test_an_open_handle_sees_an_unmerge(memory: Memory) -> None:
    """After an unmerge an open handle reads its own user alone."""
    await _say(memory, "ann", "ann likes walrus")
    await _say(memory, "bob", "bob likes giraffe")
    await memory.merge("ann", "bob")
    bob = memory.user("bob")
    assert (await bob.recall("walrus", limit=1)).items
    await memory.unmerge("ann")
    assert not any("walrus" in text for text in _texts([one async for one in bob.items()]))
    assert "walrus" not in (await bob.recall("walrus")).text
    assert "walrus" not in (await bob.brief(deadline_seconds=None)).text


async def test_a_hold_survives_another_handle_s_policy(memory: Memory) -> None:
    """A policy set through a handle that looked before the hold does not lift it."""
    await _say(memory, "ann", "hello")
    early = memory.user("ann")
    await early.retention()
    await memory.user("ann").hold()
    await early.retain("90d")
    with pytest.raises(InvalidValue, match="legal hold"):
        await early.forget()


async def test_one_kind_s_retention_leaves_the_places_to_the_others(
    url: str, clock: FrozenClock
) -> None:
    """Messages that have run out take no place in a result where tool calls still live."""
    async with Memory.open(url, clock=clock, retain={"message": "1d"}) as memory:
        session = await memory.user("ann").session("s")
        await session.record(
            *(Message("user", f"aisle seat please {number}") for number in range(10)),
            ToolCall("reserve", {"seat": "aisle"}, call_id="c", output="a seat on the aisle"),
        )
        clock.advance(timedelta(days=2))
        for by in ("message", "turn", "session"):
            found = await memory.user("ann").recall("aisle seat", by=cast("Any", by))
            assert [one.key.id for one in found.items] == ["c"], by


async def test_the_newest_of_many_facts_are_in_the_brief(
    memory: Memory, clock: FrozenClock
) -> None:
    """With hundreds of facts of one kind the brief begins with the newest."""
    user = memory.user("ann")
    for number in range(250):
        clock.advance(timedelta(minutes=1))
        await user.remember(f"note {number}", "v")
    brief = await user.brief(max_tokens=100_000, deadline_seconds=None)
    assert brief.facts[0].predicate == "note 249"
    assert len(brief.facts) == 250


async def test_a_removal_while_a_segment_is_built_is_taken_out_of_it(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words removed between a seal's reading and its listing are in no listed segment."""
    reached, go_on = asyncio.Event(), asyncio.Event()
    build = Sealer._build  # pyright: ignore[reportPrivateUsage] - stopped in the middle

    async def slow(self: Sealer, *rest: Any) -> Any:
        listed = await build(self, *rest)
        reached.set()
        await go_on.wait()
        return listed

    monkeypatch.setattr(Sealer, "_build", slow)
    user = memory.user("ann")
    session = await user.session("s")
    await session.record(*(Message("user", f"word {n}", id=f"plantedzebra{n}") for n in range(300)))
    await reached.wait()
    await user.remove([ItemKey("ann", "s", "message", "plantedzebra7")])
    monkeypatch.undo()
    go_on.set()
    await memory.flush()
    store = memory._shared.store  # pyright: ignore[reportPrivateUsage] - looked at from inside
    scope = Scope("default", "user", "ann")
    for listed in (await read_manifest(store, scope)).segments:
        data = await store.blob(scope, listed.name)
        assert data is not None
        ids = data.split(b"plantedzebra")
        assert b"8" in ids
        assert b"7" not in ids


async def test_links_are_made_together_or_not_at_all(memory: Memory) -> None:
    """When one of two identities is another's, neither is linked; unlinking frees it."""
    taken = await memory.identify(email="taken@example.com")
    with pytest.raises(InvalidValue):
        await memory.link("ann", phone="+14155550100", email="taken@example.com")
    assert await memory.identities("ann") == []
    assert await memory.unlink(taken.user_id, email="taken@example.com") == 1
    linked = await memory.link("ann", phone="+14155550100", email="taken@example.com")
    assert len(linked) == 2
    assert (await memory.identify(phone="+14155550100")).user_id == "ann"
    with pytest.raises(InvalidValue, match="no identity was given"):
        await memory.link("ann")


async def test_a_failed_settling_makes_no_user(memory: Memory) -> None:
    """Settling or retracting what nobody told leaves no trace of the user asked about."""
    for verb in (memory.user("ann").retract("x"), memory.user("ann").settle("x", "kept")):
        with pytest.raises(UnknownName):
            await verb
    assert await memory.users() == []


async def test_last_words_at_closing_are_recorded(url: str, tmp_path: Path) -> None:
    """Records that are under way when the memory is closed are finished, not refused."""
    url = url if url.startswith("sqlite") else f"sqlite:///{tmp_path / 'c.db'}"
    memory = Memory.open(url)
    await memory.__aenter__()
    sessions = [await memory.user(f"u{n}").session("s") for n in range(20)]
    tasks = [asyncio.create_task(one.record(Message("user", "bye"))) for one in sessions]
    await asyncio.sleep(0)
    await memory.aclose()
    assert all(done.added == 1 for done in await asyncio.gather(*tasks))


async def test_a_memory_can_be_opened_again(url: str) -> None:
    """Opened a second time, background sealing works as the first time."""
    memory = Memory.open(url)
    async with memory:
        await _say(memory, "ann", "hello")
    async with memory:
        session = await memory.user("ann").session("s")
        await session.record(*(Message("user", f"note {n}", id=str(n)) for n in range(600)))
        await memory.flush()
        store = memory._shared.store  # pyright: ignore[reportPrivateUsage] - looked at from inside
        sealed = (await read_manifest(store, Scope("default", "user", "ann"))).sealed_through
        assert sealed >= 600


def test_closing_a_tenant_leaves_the_others_open(url: str) -> None:
    """A blocking tenant handle used as a context manager closes nothing but itself."""
    with SyncMemory.open(url) as memory:
        with memory.tenant("other") as other:
            other.user("ann").session("s").record(Message("user", "hi"))
        memory.user("ann").session("s").record(Message("user", "hi"))
        assert len(list(memory.user("ann").items())) == 1


@pytest.mark.parametrize("limit", [0, -1, "3", None, 1.5])
async def test_a_session_s_limit_is_checked(memory: Memory, limit: Any) -> None:
    """A limit that is no whole number of one or more is refused."""
    with pytest.raises(InvalidValue, match="limit"):
        await (await memory.user("ann").session("s")).items(limit=limit)


@pytest.mark.parametrize("query", [None, 5, b"x", ["x"]])
async def test_a_query_must_be_text(memory: Memory, query: Any) -> None:
    """Something else than text as a query is refused by name."""
    with pytest.raises(InvalidValue, match="query must be text"):
        await memory.user("ann").recall(query)


async def test_wrong_types_are_named(memory: Memory) -> None:
    """Keys, flags, numbers and URLs of the wrong type are refused with the field's name."""
    user = memory.user("ann")
    session = await user.session("s")
    with pytest.raises(InvalidValue, match="named by its ItemKey"):
        await user.item(cast("ItemKey", "a"))
    with pytest.raises(InvalidValue, match="named by its ItemKey"):
        await user.remove([cast("ItemKey", "a")])
    with pytest.raises(InvalidValue, match=r"interrupted must be True or False"):
        await session.record(Message("user", "x", interrupted=cast("bool", "no")))
    with pytest.raises(InvalidValue, match=r"metadata\.n is an integer of over 1024 bits"):
        await session.record(Message("user", "x", metadata={"n": 10**5_000}))
    with pytest.raises(InvalidValue, match="url must be text or a Store"):
        Memory.open(cast("str", None))


async def test_a_huge_item_does_not_hold_up_the_loop_or_the_deadline(memory: Memory) -> None:
    """A four-megabyte item is indexed by its beginning and end, beside the loop."""
    user = memory.user("ann")
    session = await user.session("s")
    text = "beginning " + " ".join(f"w{number}" for number in range(500_000)) + " ending"
    await session.record(Message("user", text, id="huge"))
    assert (await user.recall("beginning", limit=1)).items
    assert (await user.recall("ending", limit=1)).items
