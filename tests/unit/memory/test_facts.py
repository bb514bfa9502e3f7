"""Facts that change, promises and issues."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from secondcall import InvalidValue, Memory, UnknownName
from secondcall.testing.fakes import FrozenClock

pytestmark = pytest.mark.anyio


async def test_a_newer_fact_ends_the_older_one(memory: Memory, clock: FrozenClock) -> None:
    """After a change only the new value is true, and the old one was true before."""
    user = memory.user("ann")
    await user.remember("diet", "vegetarian", kind="preference")
    before = clock.now()
    clock.advance(timedelta(days=30))
    await user.remember("Diet", "vegan", kind="preference")
    assert [fact.value for fact in await user.facts()] == ["vegan"]
    assert [fact.value for fact in await user.facts(as_of=before)] == ["vegetarian"]
    old, new = await user.history("diet")
    assert old.superseded_by == new.id
    assert old.invalid_at == new.valid_from


async def test_saying_it_again_changes_nothing(memory: Memory, clock: FrozenClock) -> None:
    """Remembering what already holds gives the same fact and no history."""
    user = memory.user("ann")
    first = await user.remember("diet", "vegan")
    clock.advance(timedelta(days=1))
    assert await user.remember("diet", "vegan") == first
    assert len(await user.history("diet")) == 1


async def test_there_and_back_again_is_three_facts(memory: Memory, clock: FrozenClock) -> None:
    """A value that returns is a fact of its own; the first is not revived."""
    user = memory.user("ann")
    for value in ("aisle", "window", "aisle"):
        await user.remember("seat", value)
        clock.advance(timedelta(days=1))
    assert [fact.value for fact in await user.history("seat")] == ["aisle", "window", "aisle"]
    assert [fact.value for fact in await user.facts()] == ["aisle"]


async def test_a_late_correction_does_not_change_now(memory: Memory, clock: FrozenClock) -> None:
    """A fact about the past is true then, and what is true now stays."""
    user = memory.user("ann")
    now = clock.now()
    await user.remember("city", "Porto", valid_from=now - timedelta(days=10))
    await user.remember("city", "Lyon", valid_from=now - timedelta(days=20))
    assert [fact.value for fact in await user.facts()] == ["Porto"]
    then = now - timedelta(days=15)
    assert [fact.value for fact in await user.facts(as_of=then)] == ["Lyon"]


async def test_a_fact_of_the_future_is_not_true_yet(memory: Memory, clock: FrozenClock) -> None:
    """What begins tomorrow leaves what is true today standing."""
    user = memory.user("ann")
    await user.remember("city", "Porto")
    await user.remember("city", "Lyon", valid_from=clock.now() + timedelta(days=1))
    assert [fact.value for fact in await user.facts()] == ["Porto"]
    brief = await user.brief(deadline_seconds=None)
    assert [fact.value for fact in brief.facts] == ["Porto"]
    clock.advance(timedelta(days=2))
    assert [fact.value for fact in await user.facts()] == ["Lyon"]


async def test_concurrent_changes_make_one_history(memory: Memory) -> None:
    """Of twenty changes at once one holds in the end and every one is in the history."""
    values = [f"value {number}" for number in range(20)]
    await asyncio.gather(*(memory.user("ann").remember("seat", value) for value in values))
    user = memory.user("ann")
    assert sorted(str(fact.value) for fact in await user.history("seat")) == sorted(values)
    assert len(await user.facts()) == 1


async def test_promises_are_kept_once(memory: Memory) -> None:
    """A promise goes from promised to kept, and from kept nowhere."""
    user = memory.user("ann")
    promise = await user.remember("discount", "20 %", kind="promise")
    assert promise.status == "promised"
    assert (await user.settle("discount", "kept")).status == "kept"
    with pytest.raises(InvalidValue, match="promise 'discount' is kept; from there"):
        await user.settle("discount", "broken")
    assert (await user.brief(deadline_seconds=None)).promises == []


async def test_issues_reopen(memory: Memory) -> None:
    """An issue is open, resolved and open again, and each step is in its history."""
    user = memory.user("ann")
    await user.remember("late parcel", "ordered in May", kind="issue")
    await user.settle("late parcel", "resolved")
    assert (await user.brief(deadline_seconds=None)).issues == []
    await user.settle("late parcel", "open")
    brief = await user.brief(deadline_seconds=None)
    assert [fact.predicate for fact in brief.issues] == ["late parcel"]
    steps = [fact.status for fact in await user.history("late parcel")]
    assert steps == ["open", "resolved", "open"]


async def test_settling_what_nobody_promised_is_an_error(memory: Memory) -> None:
    """A promise that does not exist cannot be kept."""
    with pytest.raises(UnknownName, match="no fact, promise or issue with predicate 'refund'"):
        await memory.user("ann").settle("refund", "kept")


async def test_a_retracted_fact_is_true_no_more(memory: Memory, clock: FrozenClock) -> None:
    """Retracting ends a fact without a successor; it was true before."""
    user = memory.user("ann")
    await user.remember("dog", "Rex")
    before = clock.now()
    clock.advance(timedelta(days=1))
    await user.retract("dog")
    assert await user.facts() == []
    assert len(await user.facts(as_of=before)) == 1


async def test_sensitive_facts_are_withheld_from_claimed_callers(memory: Memory) -> None:
    """A caller who only claims a number sees no sensitive fact, a verified one does."""
    caller = await memory.identify(phone="+14155550100")
    verified = memory.user(caller.user_id)
    await verified.remember("diagnosis", "asthma", sensitive=True)
    await verified.remember("seat", "aisle")
    claimed = memory.user(caller)
    assert [fact.value for fact in await claimed.facts()] == ["aisle"]
    brief = await claimed.brief(deadline_seconds=None)
    assert "asthma" not in brief.text
    assert brief.withheld == 1
    assert "asthma" in (await verified.brief(deadline_seconds=None)).text


@pytest.mark.parametrize(
    ("predicate", "value", "words"),
    [
        ("", "x", "predicate must not be empty"),
        ("   ", "x", "predicate must not be blank"),
        ("p" * 10_000, "x", "predicate has 10000 characters"),
        ("p", float("nan"), "value is nan"),
        ("p", "x" * 100_000, "value has 100,000 bytes"),
    ],
)
async def test_bad_facts_are_named(
    memory: Memory, predicate: str, value: str | float, words: str
) -> None:
    """A refused fact's error names the field."""
    with pytest.raises(InvalidValue, match=words):
        await memory.user("ann").remember(predicate, value)
    assert not await memory.user("ann").known()


async def test_facts_are_restored_as_they_were(memory: Memory, clock: FrozenClock) -> None:
    """A whole history, given to another user, has the same ids, times and statuses there."""
    user = memory.user("ann")
    for value in ("aisle", "window"):
        await user.remember("seat", value, kind="preference", sensitive=value == "aisle")
        clock.advance(timedelta(days=1))
    await user.remember("refund", "40 EUR", kind="promise")
    clock.advance(timedelta(days=1))
    await user.settle("refund", "kept")
    await user.remember("dog", "Rex")
    clock.advance(timedelta(days=1))
    await user.retract("dog")
    exported = await user.history()
    clock.advance(timedelta(days=100))
    other = memory.user("bob")
    assert await other.restore(exported) == 5
    assert await other.history() == exported
    assert await other.facts() == await user.facts()
    brief = await user.brief(deadline_seconds=None)
    assert (await other.brief(deadline_seconds=None)).text == brief.text
    assert await other.restore(exported) == 0
    assert await other.history() == exported


async def test_restored_facts_sort_into_a_history(memory: Memory, clock: FrozenClock) -> None:
    """Restored beside newer facts, one still holds at a time and none is lost."""
    await memory.user("ann").remember("seat", "aisle")
    exported = await memory.user("ann").history()
    clock.advance(timedelta(days=1))
    other = memory.user("bob")
    await other.remember("seat", "window")
    await other.restore(exported)
    assert [fact.value for fact in await other.history("seat")] == ["aisle", "window"]
    assert [fact.value for fact in await other.facts()] == ["window"]
