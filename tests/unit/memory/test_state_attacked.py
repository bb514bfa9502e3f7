"""State through the handles, as hostile or unlucky hosts, callers and clocks use it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from secondcall import (
    AgentState,
    Caller,
    InvalidValue,
    Memory,
    SchemaTooNew,
    SecondcallError,
    Step,
    StoreCorrupt,
    TooLarge,
    Workflow,
)
from secondcall.abc_state import StateKey
from secondcall.memory.shared import Shared
from secondcall.testing.fakes import FrozenClock

pytestmark = pytest.mark.anyio

TIMED = Workflow(
    "timed",
    {"wait": Step(expires="5m", then="over"), "over": Step(terminal=True)},
    {"wait": "over"},
    slots={"n": int},
)
KEY = StateKey("default", "ann", "s1")


@dataclass(frozen=True)
class Total:
    """Fields of a host."""

    n: int = 0


@pytest.fixture(params=["memory", "sqlite", "apart"])
async def memory(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FrozenClock
) -> AsyncIterator[Memory]:
    """A memory with its states beside the record, in a file of their own, or in memory."""
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'm.db'}"
    state = f"sqlite:///{tmp_path / 's.db'}" if request.param == "apart" else None
    async with Memory.open(url, clock=clock, state=state) as opened:
        yield opened


def _shared(memory: Memory) -> Shared:
    return memory._shared  # pyright: ignore[reportPrivateUsage] - to look behind the face


def _counted(state: Any) -> Any:
    return state.with_fields(n=state.fields.n + 1)


async def test_a_key_is_of_one_state(memory: Memory) -> None:
    """Two sessions that number their turns alike do not silence each other's preferences; and what
    an update gives back is what holds, not what it would have said."""
    user = memory.user("ann")
    one, two = await user.session("s1"), await user.session("s2")
    await one.state.update(lambda state: state.prefer("diet", "vegan"), key="turn-1")
    told = await two.state.update(lambda state: state.prefer("diet", "fish"), key="turn-1")
    assert dict(told.preferences) == {"diet": "fish"}
    again = await one.state.update(lambda state: state.prefer("diet", "vegan"), key="turn-1")
    assert dict(again.preferences) == {"diet": "fish"}
    other = await one.state.update(lambda state: state.prefer("diet", "eggs"), key="turn-1")
    assert dict(other.preferences) == {"diet": "eggs"}
    assert [fact.value for fact in await user.history("diet")] == ["vegan", "fish", "eggs"]


async def test_a_storm_under_one_key_tells_once(memory: Memory) -> None:
    """Many processes that try one update again at once tell its preference once."""
    user = memory.user("ann")
    await user.remember("diet", "omnivore", kind="preference")
    states = [memory.user("ann").state for _ in range(12)]
    changes = (
        one.update(lambda state: state.prefer("diet", "vegan"), key="call-1") for one in states
    )
    await asyncio.gather(*changes)
    await user.remember("diet", "fish", kind="preference")
    await states[0].update(lambda state: state.prefer("diet", "vegan"), key="call-1")
    told = [fact.value for fact in await user.history("diet")]
    assert told == ["omnivore", "vegan", "fish"]


async def test_a_key_is_written_with_its_preference(memory: Memory) -> None:
    """A process that dies right after the preference was written has left its mark: its successor
    does not say it again over what came since."""
    user = memory.user("ann")
    store: Any = _shared(memory).store
    write = store.write

    async def dies(*arguments: Any, **named: Any) -> Any:
        done = await write(*arguments, **named)
        if any(one.kind == "fact" for one in arguments[1].documents):
            store.write = write
            raise asyncio.CancelledError
        return done

    store.write = dies
    with pytest.raises(asyncio.CancelledError):
        await user.state.update(lambda state: state.prefer("diet", "vegan"), key="k")
    await user.remember("diet", "fish", kind="preference")
    successor = memory.user("ann").state
    await successor.update(lambda state: state.prefer("diet", "vegan"), key="k")
    assert [fact.value for fact in await user.history("diet")] == ["vegan", "fish"]


async def test_marks_of_keys_run_out(memory: Memory, clock: FrozenClock) -> None:
    """The marks of updates under a key are swept after their 30 days, so that they do not pile up;
    a key that is used again then counts anew."""
    user = memory.user("ann")
    await user.state.update(lambda state: state.prefer("diet", "vegan"), key="k")
    scope, store = (await user._place.home()), _shared(memory).store  # pyright: ignore[reportPrivateUsage] - to count
    assert len(await store.documents(scope, "state_told", limit=9)) == 1
    await user.sweep()
    assert len(await store.documents(scope, "state_told", limit=9)) == 1
    clock.advance(timedelta(days=31))
    await user.remember("diet", "fish", kind="preference")
    await user.state.update(lambda state: state.prefer("diet", "vegan"), key="k")
    assert [fact.value for fact in await user.facts()] == ["vegan"]
    clock.advance(timedelta(days=31))
    await user.sweep()
    assert len(await store.documents(scope, "state_told", limit=9)) == 0


async def test_all_preferences_are_checked_before_any_is_told(memory: Memory) -> None:
    """One that is refused leaves the others of the same update untold."""
    user = memory.user("ann")
    with pytest.raises(TooLarge):
        await user.state.update(
            lambda state: state.prefer("diet", "vegan").prefer("note", "a" * 100_000)
        )
    assert await user.facts() == []


async def test_preferences_with_several_values(memory: Memory) -> None:
    """Where several values stand, one more is added, the view shows all, and ending ends all."""
    user = memory.user("ann")
    await user.remember("likes", "jazz", kind="preference", multi=True)
    await user.remember("likes", "blues", kind="preference", multi=True)
    state = await user.state.update(lambda one: one.prefer("likes", "folk"))
    assert sorted(state.preferences["likes"]) == ["blues", "folk", "jazz"]  # pyright: ignore[reportArgumentType] - texts
    state = await user.state.update(lambda one: one.prefer("likes", None))
    assert dict(state.preferences) == {}
    assert await user.facts() == []


async def test_the_history_names_no_sensitive_preference_to_a_claimed_caller(
    memory: Memory,
) -> None:
    """That there is a sensitive preference is itself sensitive."""
    change = "clinic visits"
    await memory.user("ann").state.update(
        lambda state: state.prefer(change, "monthly", sensitive=True).with_fields(n=1)
    )
    await memory.user("ann").state.update(
        lambda state: state.prefer("seat", "aisle").prefer(change, None).with_fields(n=2)
    )
    claimed = memory.user(Caller(user_id="ann", trust="claimed", known=True))
    seen = [dict(one.changed) for one in await claimed.state.history()]
    assert seen == [{"fields": True, "preferences": ["seat"]}, {"fields": True}]
    verified = [dict(one.changed) for one in await memory.user("ann").state.history()]
    assert verified[1]["preferences"] == [change]


async def test_many_long_names_fit_into_the_history(memory: Memory) -> None:
    """What a version changed is told in bounded bytes, however many names that is."""
    user = memory.user("ann")

    def change(state: AgentState[Any]) -> AgentState[Any]:
        for number in range(30):
            state = state.prefer(f"{number:02}" + "n" * 1_000, number)
        return state.with_fields(n=1)

    await user.state.update(change)
    (one,) = await user.state.history()
    assert one.changed["cut"] is True
    assert len(json.dumps(dict(one.changed))) <= 16_384


async def test_fields_of_a_wrong_type_are_refused_before_they_are_stored(memory: Memory) -> None:
    """Nothing is written that could not be read again: the state stays as it was, and usable."""
    state = memory.user("ann").state.of(Total)
    await state.update(_counted)
    with pytest.raises(InvalidValue, match=r"fields\.n must be a whole number"):
        await state.update(lambda one: one.with_fields(n="many"))
    with pytest.raises(InvalidValue, match="a change cannot set now"):
        await state.update(lambda one: replace(one, now=one.now + timedelta(days=9)))
    assert (await state.update(_counted)).fields.n == 2


async def test_a_frame_that_no_verb_gives_is_refused(memory: Memory) -> None:
    """A host that edits the frames by hand reaches no undeclared step and no slot of a wrong
    type."""
    session = await memory.user("ann").session("s1")
    await session.state.update(lambda state: state.start(TIMED, n=1))
    for wrong in ({"step": "nowhere"}, {"slots": {"n": "one"}}, {"workflow": "x"}):
        with pytest.raises(SecondcallError) as refused:
            await session.state.update(
                lambda state, wrong=wrong: replace(
                    state, frames=(replace(state.frames[0], stored=None, **wrong),)
                )
            )
        assert isinstance(refused.value, InvalidValue | LookupError)
    loaded = await session.state.load()
    assert loaded is not None
    assert (loaded.step, loaded.version) == ("wait", 1)


@pytest.mark.parametrize(
    "body",
    [
        b'{"frames":[{"workflow":"x","version":1,"step":"a","slots":{},"entered_us":1,"timer":5}]}',
        b'{"frames":[{"workflow":"x","version":true,"step":"a","slots":{},"entered_us":1}]}',
        b'{"fields":{"n":NaN}}',
        b'{"fields":{"n":' + b"[" * 900 + b"]" * 900 + b"}}",
        b'{"fields_version":"x","fields":{"n":1}}',
        b'{"fields":{"n":{"$":"record","t":"T","v":3}}}',
    ],
    ids=range(6),
)
async def test_damaged_bytes_are_named_and_the_history_is_read(memory: Memory, body: bytes) -> None:
    """Damage of any kind is StoreCorrupt, never a bare error, and deleting begins anew."""
    session = await memory.user("ann").session("s1")
    await session.state.update(lambda state: state.start(TIMED))
    shared = _shared(memory)
    states = shared.state_store()
    header = await shared.store.header(await session._place.home())  # pyright: ignore[reportPrivateUsage] - to break it
    assert header is not None
    await states.save(
        KEY, body, expected_version=1, epoch=header.epoch, now_us=shared.now_us(), by="x"
    )
    with pytest.raises(StoreCorrupt):
        await session.state.load()
    with pytest.raises(StoreCorrupt):
        await session.state.settle()
    assert [bool(one.problem) for one in await session.state.history()] == [True, False]
    assert await session.state.delete()
    assert (await session.state.update(lambda state: state.start(TIMED))).version == 4


async def test_a_merged_user_is_due_once(memory: Memory, clock: FrozenClock) -> None:
    """The timer of a state that a merge hid is settled with the one in front of it, and is not due
    for ever."""
    for name in ("old", "new"):
        session = await memory.user(name).session("s1")
        await session.state.update(lambda state: state.start(TIMED))
    await memory.merge("old", "new")
    counts: list[int] = []
    for _ in range(3):
        clock.advance(timedelta(minutes=6))
        due = await memory.due_states(seconds=1)
        counts.append(len(due))
        for one in due:
            await one.settle()
    assert counts == [2, 0, 0]
    await memory.unmerge("old")
    apart = await (await memory.user("old").session("s1")).state.load()
    assert apart is not None
    assert (apart.step, apart.version, apart.updated_by) == ("over", 2, "timer")


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e300, "1", None, True])
async def test_claims_are_for_a_sane_time(memory: Memory, seconds: Any) -> None:
    """A claim for no time, or for ever, is refused."""
    with pytest.raises(InvalidValue, match="seconds"):
        await memory.due_states(seconds=seconds)


async def test_an_older_process_leaves_timers_that_it_does_not_know(
    tmp_path: Path, clock: FrozenClock
) -> None:
    """A process that does not know the workflow may save its fields; what a timer leads to is left
    to one that does, which also is still told that it is due."""
    inner = Workflow("in", {"code": Step(), "ok": Step(terminal=True)}, {"code": "ok"})
    second = Workflow(
        "timed",
        {
            "wait": Step(expires="5m", then="check"),
            "check": Step(runs=inner, returns={"ok": "over"}),
            "over": Step(terminal=True),
        },
        {"wait": "over"},
        version=2,
    )
    url = f"sqlite:///{tmp_path / 'm.db'}"
    async with Memory.open(url, clock=clock) as memory:
        session = await memory.user("ann").session("s1")
        await session.state.update(lambda state: state.start(second))
    clock.advance(timedelta(minutes=6))
    async with Memory.open(url, clock=clock, workflows=[TIMED]) as memory:
        session = await memory.user("ann").session("s1")
        seen = await session.state.update(lambda state: state.with_fields(n=1))
        assert seen.step == "check"
        with pytest.raises(SchemaTooNew):
            await session.state.update(lambda state: state.advance("over"))
    async with Memory.open(url, clock=clock, workflows=[second]) as memory:
        (due,) = await memory.due_states()
        state = await due.settle()
        assert state is not None
        assert (state.workflow, state.step, dict(state.fields)) == ("in", "code", {"n": 1})
        assert await memory.due_states() == []
