"""Facts that rest on others, from end to end."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from secondcall import Fact, InvalidValue, Memory, Message, TooLarge, UnknownName, UserMemory
from secondcall.testing.fakes import FrozenClock

pytestmark = pytest.mark.anyio
DAY = timedelta(days=1)


async def _flagged(user: UserMemory) -> dict[str, str | None]:
    return {
        fact.predicate: fact.to_confirm
        for fact in await user.facts()
        if fact.to_confirm is not None
    }


async def _job(user: UserMemory) -> tuple[Fact, Fact, Fact]:
    employer = await user.remember("employer", "Harbour & Finch")
    card = await user.remember("travel costs", "staff tram card", rests_on=[employer])
    bike = await user.remember("bike", "lent to Oren", rests_on=[card.id])
    return employer, card, bike


async def test_what_rests_on_an_ended_fact_is_marked(memory: Memory, clock: FrozenClock) -> None:
    """Over every step, with the reason, in facts, brief, recall and history; not before."""
    user = memory.user("ann")
    await _job(user)
    assert await _flagged(user) == {}
    clock.advance(DAY)
    await user.remember("employer", "Tessel Rail")
    why = "employer was Harbour & Finch until 2026-05-05, since then Tessel Rail"
    assert await _flagged(user) == {"travel costs": why, "bike": why}
    brief = await user.brief(deadline_seconds=None)
    assert f"(to be confirmed: {why})" in brief.text
    assert [fact.to_confirm for fact in brief.facts] == [None, why, why]
    found = await user.recall("Who has the bike?")
    bike = next(one.fact for one in found.facts if one.fact.predicate == "bike")
    assert bike.to_confirm == why
    assert f"(to be confirmed: {why})" in found.text
    assert [fact.to_confirm for fact in await user.history("bike")] == [why]
    as_of = await user.facts(as_of=clock.now() - DAY / 2)
    assert [fact.to_confirm for fact in as_of] == [None, None, None]


async def test_retracting_a_ground_marks_too(memory: Memory, clock: FrozenClock) -> None:
    """An end with nothing in its place is said to be one."""
    user = memory.user("ann")
    await _job(user)
    clock.advance(DAY)
    await user.retract("employer")
    assert set(await _flagged(user)) == {"travel costs", "bike"}
    assert (await _flagged(user))["bike"] == (
        "employer was Harbour & Finch until 2026-05-05, with nothing in its place"
    )


async def test_telling_it_anew_confirms(memory: Memory, clock: FrozenClock) -> None:
    """The same value confirms the fact and what rests on it; so does another; only once."""
    user = memory.user("ann")
    _, card, _ = await _job(user)
    clock.advance(DAY)
    await user.remember("employer", "Tessel Rail")
    clock.advance(DAY)
    again = await user.remember("travel costs", "staff tram card")
    assert (again.id, again.to_confirm, again.confirmed) == (card.id, None, card.rests_on)
    assert await _flagged(user) == {}
    assert len(await user.history("travel costs")) == 1
    clock.advance(DAY)
    await user.retract("travel costs")
    assert set(await _flagged(user)) == {"bike"}
    await user.remember("bike", "sold")
    assert await _flagged(user) == {}


async def test_a_middle_one_stays_marked_when_the_last_is_told_anew(memory: Memory) -> None:
    """Confirming one fact says nothing of those that it rests on."""
    user = memory.user("ann")
    await _job(user)
    await user.remember("employer", "Tessel Rail")
    await user.remember("bike", "lent to Oren")
    assert set(await _flagged(user)) == {"travel costs"}
    await user.retract("travel costs")
    assert set(await _flagged(user)) == {"bike"}


async def test_the_old_value_coming_back_confirms_nothing(
    memory: Memory, clock: FrozenClock
) -> None:
    """There and back again, what rested on the first spell is still to be confirmed."""
    user = memory.user("ann")
    await _job(user)
    for value in ("Tessel Rail", "Harbour & Finch"):
        clock.advance(DAY)
        await user.remember("employer", value)
    assert set(await _flagged(user)) == {"travel costs", "bike"}


async def test_an_ended_ground_is_named_at_once(memory: Memory, clock: FrozenClock) -> None:
    """Whoever tells a fact on a ground that ended meanwhile is told so."""
    user = memory.user("ann")
    employer = await user.remember("employer", "Harbour & Finch")
    clock.advance(DAY)
    await user.remember("employer", "Tessel Rail")
    card = await user.remember("travel costs", "staff tram card", rests_on=[employer])
    assert card.to_confirm is not None
    clean = await user.remember("travel costs", "staff tram card", rests_on=[])
    assert (clean.id, clean.rests_on, clean.to_confirm) == (card.id, (), None)


async def test_a_plan_marks_when_it_comes_true(memory: Memory, clock: FrozenClock) -> None:
    """A ground that will end at a known day carries until then, whatever was confirmed before."""
    user = memory.user("ann")
    rent = await user.remember("rent", 640)
    await user.remember("budget", 900, rests_on=[rent])
    await user.remember("rent", 672, valid_from=clock.now() + 10 * DAY)
    clock.advance(DAY)
    await user.remember("budget", 900)
    assert await _flagged(user) == {}
    clock.advance(10 * DAY)
    assert set(await _flagged(user)) == {"budget"}


async def test_circles_are_refused(memory: Memory) -> None:
    """No fact rests on itself, on what it replaces, or on what rests on it."""
    user = memory.user("ann")
    employer, card, bike = await _job(user)
    for ground in (employer, card, bike):
        with pytest.raises(InvalidValue, match=r"rests_on\[0\] .* cannot rest on itself"):
            await user.remember("employer", "Other", rests_on=[ground])
    with pytest.raises(InvalidValue, match="cannot rest on itself"):
        await user.remember("employer", "Harbour & Finch", rests_on=[bike])
    assert [fact.value for fact in await user.history("employer")] == ["Harbour & Finch"]
    await user.remember("bike", "sold")
    await user.remember("employer", "Other", rests_on=[(await user.history("bike"))[-1]])


async def test_two_at_once_close_no_circle(memory: Memory) -> None:
    """Told at the same time that each rests on the other, one of two is refused."""
    for attempt in range(5):
        user = memory.user(f"user {attempt}")
        first, second = await user.remember("a", 1), await user.remember("b", 1)
        done = await asyncio.gather(
            user.remember("a", 1, rests_on=[second]),
            user.remember("b", 1, rests_on=[first]),
            return_exceptions=True,
        )
        assert sum(isinstance(one, InvalidValue) for one in done) == 1


async def test_bad_grounds_are_named(memory: Memory) -> None:
    """Unknown facts, another user's, too many, or no list: an error that says which."""
    user = memory.user("ann")
    other = await memory.user("bob").remember("city", "Porto")
    with pytest.raises(UnknownName, match=r"rests_on\[0\] is 'fact_x', which is no fact"):
        await user.remember("a", 1, rests_on=["fact_x"])
    with pytest.raises(UnknownName, match=r"rests_on\[0\]"):
        await user.remember("a", 1, rests_on=[other])
    with pytest.raises(TooLarge, match="rests_on has 65 facts, at most 64"):
        await user.remember("a", 1, rests_on=[str(number) for number in range(65)])
    with pytest.raises(InvalidValue, match="rests_on must be a list"):
        await user.remember("a", 1, rests_on="fact_x")
    assert not await user.known()


async def test_a_reason_names_nothing_sensitive(memory: Memory, clock: FrozenClock) -> None:
    """A merely claimed caller learns that a ground ended, not which."""
    caller = await memory.identify(phone="+14155550100")
    verified = memory.user(caller.user_id)
    diagnosis = await verified.remember("diagnosis", "asthma", sensitive=True)
    await verified.remember("sport", "no running", rests_on=[diagnosis])
    clock.advance(DAY)
    await verified.remember("diagnosis", "none", sensitive=True)
    claimed = memory.user(caller)
    hidden = {"sport": "rests on a fact that ended 2026-05-05"}
    assert await _flagged(claimed) == hidden
    texts = [
        (await claimed.brief(deadline_seconds=None)).text,
        (await claimed.recall("sport running")).text,
        str(await claimed.history()),
    ]
    assert all("asthma" not in text and "diagnosis" not in text for text in texts)
    assert all("rests on a fact that ended 2026-05-05" in text for text in texts)
    assert "asthma" in str(await _flagged(verified))


async def test_many_grounds_are_found_by_their_keys(memory: Memory, clock: FrozenClock) -> None:
    """The brief marks as the facts do, with few ended grounds and with many."""
    user = memory.user("ann")
    for number in range(90):
        ground = await user.remember(f"ground {number}", 1)
        await user.remember(f"over {number}", 1, rests_on=[ground])
        if number in (1, 89):
            clock.advance(DAY)
            for done in range(number):
                await user.remember(f"ground {done}", number + 1)
        if number in (1, 89):
            brief = await user.brief(max_tokens=100_000, deadline_seconds=None)
            marked = {fact.predicate for fact in brief.facts if fact.to_confirm is not None}
            assert marked == {f"over {done}" for done in range(number)} == set(await _flagged(user))


async def test_grounds_come_back_with_an_export(memory: Memory, clock: FrozenClock) -> None:
    """Restored, in whatever order and however split, the same facts are to be confirmed."""
    user = memory.user("ann")
    await _job(user)
    clock.advance(DAY)
    await user.remember("employer", "Tessel Rail")
    exported = await user.history()
    other = memory.user("bob")
    for fact in exported[::-1]:
        await other.restore([fact])
    assert await other.history() == exported
    assert await _flagged(other) == await _flagged(user)
    brief = await other.brief(deadline_seconds=None)
    assert brief.text == (await user.brief(deadline_seconds=None)).text


async def test_an_item_that_states_it_says_so(memory: Memory, clock: FrozenClock) -> None:
    """What was said of a fact that is to be confirmed is found with the reason."""
    user = memory.user("ann")
    session = await user.session("s")
    recorded = await session.record(
        Message("user", "I work for Harbour & Finch."),
        Message("user", "The company pays for my tram card."),
    )
    employer = await user.remember("employer", "Harbour & Finch", sources=recorded.keys[:1])
    await user.remember("tram", "card", sources=recorded.keys[1:], rests_on=[employer])
    clock.advance(DAY)
    await user.remember("employer", "Tessel Rail")
    found = await user.recall("tram card", limit=1)
    why = "employer was Harbour & Finch until 2026-05-05, since then Tessel Rail"
    assert (found.items[0].stale, found.items[0].to_confirm) == (None, why)
    assert f"(to be confirmed: {why})" in found.text
