"""Facts told late, ended late, planned, and what was believed of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from secondcall import Fact, InvalidValue, Memory, UnknownName, UserMemory
from secondcall.testing.fakes import FrozenClock

pytestmark = pytest.mark.anyio
DAY = timedelta(days=1)


def _values(facts: Sequence[Fact]) -> list[object]:
    return [fact.value for fact in facts]


async def _told(user: UserMemory, clock: FrozenClock) -> datetime:
    """Leeds from day 0, Hull from day 220 told then, York from day 70 told on day 270."""
    start = clock.now()
    await user.remember("home", "Leeds")
    clock.advance(220 * DAY)
    await user.remember("home", "Hull")
    clock.advance(50 * DAY)
    await user.remember("home", "York", valid_from=start + 70 * DAY)
    return start


async def test_true_then_and_believed_then(memory: Memory, clock: FrozenClock) -> None:
    """What was true on a day and what was believed on it are asked for apart, and together."""
    user = memory.user("ann")
    start = await _told(user, clock)
    assert _values(await user.facts()) == ["Hull"]
    assert _values(await user.facts(as_of=start + 100 * DAY)) == ["York"]
    assert _values(await user.facts(believed_at=start + 100 * DAY)) == ["Leeds"]
    assert _values(await user.facts(as_of=start + 100 * DAY, believed_at=start + 250 * DAY)) == [
        "Leeds"
    ]
    assert _values(await user.facts(as_of=start + 100 * DAY, believed_at=start + 275 * DAY)) == [
        "York"
    ]
    assert await user.facts(believed_at=start - DAY) == []


async def test_a_history_shows_both_times(memory: Memory, clock: FrozenClock) -> None:
    """Each fact says since when it is true, when it was told, and what was held of it before."""
    user = memory.user("ann")
    start = await _told(user, clock)
    leeds, york, hull = await user.history("home")
    assert _values([leeds, york, hull]) == ["Leeds", "York", "Hull"]
    assert (york.valid_from, york.recorded_at) == (start + 70 * DAY, start + 270 * DAY)
    assert (york.invalid_at, york.superseded_by) == (hull.valid_from, hull.id)
    assert [(one.invalid_at, one.superseded_by) for one in leeds.earlier] == [
        (None, None),
        (start + 220 * DAY, hull.id),
    ]


async def test_two_late_ones(memory: Memory, clock: FrozenClock) -> None:
    """Late corrections find their places in whatever order they come."""
    user = memory.user("ann")
    start = clock.now()
    clock.advance(100 * DAY)
    await user.remember("title", "Senior", valid_from=start + 90 * DAY)
    await user.remember("title", "Middle", valid_from=start + 50 * DAY)
    await user.remember("title", "Junior", valid_from=start)
    assert _values(await user.history("title")) == ["Junior", "Middle", "Senior"]
    assert _values(await user.facts()) == ["Senior"]
    assert _values(await user.facts(as_of=start + 10 * DAY)) == ["Junior"]
    assert _values(await user.facts(as_of=start + 50 * DAY)) == ["Middle"]


async def test_of_equal_times_the_later_told_holds(memory: Memory, clock: FrozenClock) -> None:
    """Two values from the same moment on: the one told last is true, both are in the history."""
    user = memory.user("ann")
    start = clock.now()
    for value in ("A", "B"):
        await user.remember("shift", value, valid_from=start)
    assert _values(await user.facts()) == ["B"]
    assert _values(await user.history("shift")) == ["A", "B"]
    await user.remember("shift", "C")
    await user.remember("shift", "D", valid_from=start)
    assert _values(await user.facts(as_of=start)) == ["D"]


async def test_an_earlier_start_is_recorded(memory: Memory, clock: FrozenClock) -> None:
    """The same value, true for longer than was thought, is one fact that says so."""
    user = memory.user("ann")
    start = clock.now()
    await user.remember("insurer", "Concordia")
    clock.advance(100 * DAY)
    first = await user.remember("insurer", "Baltic")
    clock.advance(10 * DAY)
    moved = await user.remember("insurer", "Baltic", valid_from=start + 40 * DAY)
    assert (moved.id, moved.valid_from) == (first.id, start + 40 * DAY)
    assert len(await user.history("insurer")) == 2
    assert _values(await user.facts(as_of=start + 60 * DAY)) == ["Baltic"]
    assert _values(await user.facts(believed_at=start + 60 * DAY)) == ["Concordia"]
    before = await user.facts(as_of=start + 60 * DAY, believed_at=start + 105 * DAY)
    assert _values(before) == ["Concordia"]


async def test_an_end_that_is_told_late(memory: Memory, clock: FrozenClock) -> None:
    """A fact can end in the past, or at a day to come; until it was told it was believed."""
    user = memory.user("ann")
    start = clock.now()
    await user.remember("gym", "Ironworks")
    await user.remember("lease", "flat 4")
    clock.advance(30 * DAY)
    await user.retract("gym", at=start + 20 * DAY)
    await user.retract("lease", at=start + 60 * DAY)
    assert _values(await user.facts()) == ["flat 4"]
    assert _values((await user.brief(deadline_seconds=None)).facts) == ["flat 4"]
    assert len(await user.facts(believed_at=start + 25 * DAY)) == 2
    clock.advance(40 * DAY)
    assert await user.facts() == []
    assert (await user.brief(deadline_seconds=None)).facts == []
    with pytest.raises(UnknownName, match="'gym' stands"):
        await user.retract("gym")


async def test_a_plan_is_believed_but_not_true_yet(memory: Memory, clock: FrozenClock) -> None:
    """A rent rise that was announced is true from its day on, and calling it off takes it back."""
    user = memory.user("ann")
    start = clock.now()
    await user.remember("rent", 640)
    await user.remember("rent", 672, valid_from=start + 90 * DAY)
    assert _values(await user.facts()) == [640]
    assert _values(await user.facts(as_of=start + 91 * DAY, believed_at=start + DAY)) == [672]
    await user.remember("rent", 640, valid_from=start + 90 * DAY)
    assert _values(await user.facts(as_of=start + 91 * DAY)) == [640]


async def test_a_promise_is_settled_when_it_was(memory: Memory, clock: FrozenClock) -> None:
    """A promise that was kept on Monday and told on Friday was kept from Monday on."""
    user = memory.user("ann")
    start = clock.now()
    await user.remember("refund", "40 EUR", kind="promise", due_at=start + DAY)
    clock.advance(10 * DAY)
    assert "overdue since" in (await user.brief(deadline_seconds=None)).text
    await user.settle("refund", "kept", at=start + 5 * DAY)
    then = await user.facts(as_of=start + 6 * DAY)
    assert [fact.status for fact in then] == ["kept"]
    believed = await user.facts(as_of=start + 6 * DAY, believed_at=start + 6 * DAY)
    assert [fact.status for fact in believed] == ["promised"]
    assert (await user.brief(deadline_seconds=None)).promises == []


async def test_an_overdue_issue_says_so(memory: Memory, clock: FrozenClock) -> None:
    """An open issue with a day behind it is overdue in the brief."""
    user = memory.user("ann")
    await user.remember("parcel", "lost", kind="issue", due_at=clock.now() + DAY)
    assert ", due 2026-05-05" in (await user.brief(deadline_seconds=None)).text
    clock.advance(2 * DAY)
    assert ", overdue since 2026-05-05" in (await user.brief(deadline_seconds=None)).text


async def test_times_without_a_zone_are_refused(memory: Memory) -> None:
    """A naive time is an error that names the argument."""
    user = memory.user("ann")
    naive = datetime(2026, 5, 1)  # noqa: DTZ001 - the point of the test
    with pytest.raises(InvalidValue, match="as_of is a naive"):
        await user.facts(as_of=naive)
    with pytest.raises(InvalidValue, match="believed_at is a naive"):
        await user.facts(believed_at=naive)
    with pytest.raises(InvalidValue, match="at is a naive"):
        await user.retract("city", at=naive)
    with pytest.raises(InvalidValue, match="valid_from is a naive"):
        await user.remember("city", "Porto", valid_from=naive)


async def test_what_was_believed_is_restored(memory: Memory, clock: FrozenClock) -> None:
    """Exported and brought back, a history can still be asked what was believed when."""
    user = memory.user("ann")
    start = await _told(user, clock)
    other = memory.user("bob")
    await other.restore(await user.history())
    assert _values(await other.facts(believed_at=start + 100 * DAY)) == ["Leeds"]
    assert await other.history() == await user.history()


async def test_merged_users_are_asked_as_one(memory: Memory, clock: FrozenClock) -> None:
    """What one partition says later ends what the other said, then and in belief."""
    start = clock.now()
    await memory.user("ann").remember("home", "Leeds")
    clock.advance(10 * DAY)
    await memory.user("bob").remember("home", "Hull")
    await memory.merge("ann", "bob")
    user = memory.user("bob")
    assert _values(await user.facts()) == ["Hull"]
    assert _values((await user.brief(deadline_seconds=None)).facts) == ["Hull"]
    assert _values(await user.facts(as_of=start + DAY)) == ["Leeds"]
    assert _values(await user.facts(believed_at=start + DAY)) == ["Leeds"]


async def test_a_contradictory_batch_has_one_truth(memory: Memory, clock: FrozenClock) -> None:
    """Facts that come back and claim to hold at once are put in order; none is lost."""
    user = memory.user("ann")
    first = await user.remember("home", "Leeds")
    both = [first, replace(first, id="fact_other", value="Hull", valid_from=clock.now() - DAY)]
    other = memory.user("bob")
    assert await other.restore(both) == 2
    assert _values(await other.facts()) == ["Leeds"]
    assert _values(await other.history("home")) == ["Hull", "Leeds"]
    assert _values((await other.brief(deadline_seconds=None)).facts) == ["Leeds"]
