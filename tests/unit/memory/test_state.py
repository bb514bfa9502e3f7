"""State through the handles: sessions and users, races, preferences, merging, forgetting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from secondcall import (
    AgentState,
    Caller,
    IllegalTransition,
    InvalidValue,
    Memory,
    Message,
    SchemaTooNew,
    Step,
    StoreCorrupt,
    StoreUnavailable,
    To,
    TooLarge,
    UserErased,
    VersionConflict,
    Workflow,
)
from secondcall.abc import Scope
from secondcall.abc_state import StateConflict, StatefulStore, StateKey, StateStore
from secondcall.memory.expiring import HISTORY_KEPT
from secondcall.memory.shared import Shared
from secondcall.state import Retry
from secondcall.testing.fakes import FrozenClock, WordAxisEmbedder

pytestmark = pytest.mark.anyio

BOOKING = Workflow(
    "booking",
    steps={
        "details": Step(),
        "payment": Step(requires=["amount"], expires="15m", then="abandoned"),
        "done": Step(terminal=True),
        "abandoned": Step(terminal=True),
    },
    transitions={"details": "payment", "payment": [To("done", needs_confirmation=True), "details"]},
    slots={"amount": Decimal},
)
KEY = StateKey("default", "ann", "s1")


@dataclass(frozen=True)
class Counter:
    """Fields of a host."""

    n: int = 0


def _started(state: Any) -> Any:
    return state.start(BOOKING).fill(amount=40).advance("payment")


def _counted(state: Any) -> Any:
    return state.with_fields(n=state.fields.n + 1)


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


def _states(memory: Memory) -> StateStore:
    return _shared(memory).state_store()


def _after_next_load(memory: Memory, action: Callable[[], Awaitable[object]]) -> None:
    """Do something between the next reading of a state and what follows from it."""
    states, store = _states(memory), _shared(memory).store
    assert isinstance(store, StatefulStore)
    load, both = states.load, store.state_and_documents

    async def interfered(read: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        states.load, store.state_and_documents = load, both
        found = await read(*arguments, **named)
        await action()
        return found

    states.load = partial(interfered, load)
    store.state_and_documents = partial(interfered, both)


async def _raw(memory: Memory, body: bytes, **more: Any) -> None:
    """Write bytes under the handles' feet."""
    shared = _shared(memory)
    stored = await _states(memory).load(KEY)
    found = await shared.store.header(_scope("ann"))
    assert found is not None
    await _states(memory).save(
        KEY,
        body,
        expected_version=None if stored is None else stored.version,
        epoch=found.epoch,
        now_us=shared.now_us(),
        by="test",
        **more,
    )


def _scope(user_id: str) -> Scope:
    return Scope("default", "user", user_id)


async def test_a_state_is_absent_until_it_is_written(memory: Memory) -> None:
    """Loading writes nothing and makes no user; a change that changes nothing writes nothing."""
    session = await memory.user("ann").session("s1")
    assert await session.state.load() is None
    same = await session.state.update(lambda state: state)
    assert same.version is None
    assert await session.state.load() is None
    assert await session.state.history() == []
    assert await memory.users() == []
    assert await session.state.delete() is False
    assert await session.state.settle() is None


async def test_a_session_and_its_user_have_states_of_their_own(memory: Memory) -> None:
    """Session-wide and user-wide state, and those of other sessions and users, are kept apart."""
    user = memory.user("ann")
    first, second = await user.session("s1"), await user.session("s2")
    saved = await first.state.update(_started)
    await user.state.update(lambda state: state.with_fields(tier="gold"))
    assert (saved.version, saved.step, saved.session_id) == (1, "payment", "s1")
    assert await second.state.load() is None
    wide = await user.state.load()
    assert wide is not None
    assert (dict(wide.fields), wide.session_id, wide.step) == ({"tier": "gold"}, None, None)
    assert await memory.user("bob").state.load() is None
    assert await memory.tenant("other").user("ann").state.load() is None


@pytest.mark.parametrize("name", ["/", "a:b", "..", "a\\b", "😀", "x" * 1_000, "a b", "é"])
async def test_ids_of_any_characters_have_states(memory: Memory, name: str) -> None:
    """Separators, dots, emoji and 1,000 characters name a state of their own."""
    session = await memory.user(name).session(name)
    await session.state.update(_started)
    loaded = await session.state.load()
    assert loaded is not None
    assert (loaded.user_id, loaded.session_id) == (name, name)


async def test_a_refused_change_changes_nothing(memory: Memory) -> None:
    """When the change raises, the state, its version and its history are as before."""
    session = await memory.user("ann").session("s1")
    await session.state.update(_started)
    before = await session.state.load()
    with pytest.raises(IllegalTransition):
        await session.state.update(lambda state: state.fill(amount=1).advance("nowhere"))
    assert await session.state.load() == before
    assert len(await session.state.history()) == 1


async def test_no_update_is_lost(memory: Memory) -> None:
    """Of 40 updates at once each counts, and each has a version of its own."""
    states = [memory.user("ann").state.of(Counter) for _ in range(40)]
    done = await asyncio.gather(*(one.update(_counted) for one in states))
    assert sorted(one.version or 0 for one in done) == list(range(1, 41))
    last = await states[0].load()
    assert last is not None
    assert (last.fields.n, last.version) == (40, 40)


async def test_a_lost_race_is_raised_when_tries_are_used_up(memory: Memory) -> None:
    """With one try a change that another overtook is told both versions, and not applied."""
    state = memory.user("ann").state.of(Counter)
    await state.update(_counted)
    overtaken = state.retrying(Retry(tries=1))
    _after_next_load(memory, lambda: state.update(_counted))
    with pytest.raises(VersionConflict) as lost:
        await overtaken.update(_counted)
    assert (lost.value.expected, lost.value.found) == (1, 2)
    last = await state.load()
    assert last is not None
    assert last.fields.n == 2


async def test_nothing_is_held_while_the_change_runs(memory: Memory) -> None:
    """While an update is between its reading and its saving, another's write of the same key goes
    through at once, and the change runs again on what that one wrote."""
    state = (await memory.user("ann").session("s1")).state.of(Counter)
    await state.update(_counted)
    seen: list[int] = []

    def change(one: AgentState[Counter]) -> AgentState[Counter]:
        seen.append(one.fields.n)
        return _counted(one)

    _after_next_load(memory, lambda: state.update(_counted))
    done = await state.update(change)
    assert (seen, done.fields.n, done.version) == ([1, 2], 3, 3)


async def test_saving_needs_the_version_that_was_loaded(memory: Memory) -> None:
    """Of what is saved, a fresh state needs that there is none and a loaded one its version."""
    state = memory.user("ann").state.of(Counter)
    first = await state.update(_counted)
    saved = await state.save(_counted(first))
    assert saved.version == 2
    for stale in (first, replace(first, version=None), replace(first, version=99)):
        with pytest.raises(StateConflict) as lost:
            await state.save(_counted(stale))
        assert lost.value.found == 2
        assert lost.value.current is not None
    with pytest.raises(InvalidValue, match="another user or session"):
        await memory.user("bob").state.of(Counter).save(saved)
    with pytest.raises(InvalidValue, match="takes an AgentState, not dict"):
        await state.save({"n": 1})  # pyright: ignore[reportArgumentType] - callers err


@pytest.mark.parametrize("version", [0, -1])
async def test_versions_begin_at_one(memory: Memory, version: int) -> None:
    """Version 0 and negative ones are no versions: they conflict or are refused."""
    state = memory.user("ann").state.of(Counter)
    first = await state.update(_counted)
    with pytest.raises((VersionConflict, InvalidValue)):
        await state.save(replace(first, version=version))
    with pytest.raises((VersionConflict, InvalidValue)):
        await state.delete(expected_version=version)
    assert await state.load() is not None


async def test_a_deleted_state_goes_on_with_its_versions(memory: Memory) -> None:
    """After a deletion it is absent, its history stays, and a new one takes the next version."""
    session = await memory.user("ann").session("s1")
    await session.state.update(_started)
    with pytest.raises(VersionConflict):
        await session.state.delete(expected_version=7)
    assert await session.state.delete(expected_version=1, by="ops", reason="asked for")
    assert await session.state.load() is None
    again = await session.state.update(_started)
    assert again.version == 3
    history = await session.state.history()
    assert [(one.version, one.by, one.deleted) for one in history] == [
        (3, "host", False), (2, "ops", True), (1, "host", False)
    ]  # fmt: skip
    assert history[1].changed == {"reason": "asked for"}
    assert history[1].state is None


async def test_the_history_says_who_and_what(memory: Memory, clock: FrozenClock) -> None:
    """Each save is in the history with its time, its author, the names of what changed, and the
    state as it was; pages go backwards."""
    session = await memory.user("ann").session("s1")
    await session.state.update(_started, by="agent", reason="the user asked")
    later = clock.advance(timedelta(minutes=1))
    await session.state.update(lambda state: state.advance("details"))
    newest, oldest = await session.state.history()
    assert (newest.at, newest.changed) == (later, {"step": ["payment", "details"]})
    assert (oldest.by, oldest.changed["reason"], oldest.changed["slots"]) == (
        "agent", "the user asked", ["amount"]
    )  # fmt: skip
    assert oldest.state is not None
    assert oldest.state.slots["amount"] == Decimal(40)
    assert [one.version for one in await session.state.history(before=2)] == [1]
    assert [one.version for one in await session.state.history(limit=1)] == [2]


async def test_old_history_goes(memory: Memory) -> None:
    """Of a state that is written for ever only so many versions are kept."""
    state = memory.user("ann").state.of(Counter)
    await state.update(_counted)
    kept = _states(memory).trim_history
    trimmed: list[int | None] = []

    async def trim(key: StateKey, *, keep: int | None = None, **rest: Any) -> int:
        trimmed.append(keep)
        return await kept(key, keep=10, **rest)

    _states(memory).trim_history = trim
    for _ in range(63):
        await state.update(_counted)
    await memory.flush()
    assert trimmed == [HISTORY_KEPT]
    assert len(await state.history(limit=100)) == 10


async def test_a_timer_goes_off_when_it_is_read(memory: Memory, clock: FrozenClock) -> None:
    """Past its time a state shows the step that the timer leads to, and the next save keeps it."""
    session = await memory.user("ann").session("s1")
    await session.state.update(_started)
    clock.advance(timedelta(minutes=16))
    late = await session.state.load()
    assert late is not None
    assert (late.step, late.ended, late.version) == ("abandoned", True, 1)
    with pytest.raises(IllegalTransition, match="has ended"):
        await session.state.update(lambda state: state.advance("done", confirmed=True))
    settled = await session.state.settle()
    assert settled is not None
    assert (settled.version, settled.updated_by) == (2, "timer")
    newest = (await session.state.history())[0]
    assert newest.changed == {"step": ["payment", "abandoned"]}


async def test_due_states_are_given_to_one_holder(memory: Memory, clock: FrozenClock) -> None:
    """A state whose timer went off is given to one who asks, once until its claim ends."""
    session = await memory.user("ann").session("s1")
    await session.state.update(_started)
    await memory.user("bob").state.update(_started)
    assert await memory.due_states() == []
    clock.advance(timedelta(minutes=16))
    both = await asyncio.gather(memory.due_states(), memory.due_states())
    found = [(one.user_id, one.session_id) for part in both for one in part]
    assert sorted(found, key=str) == [("ann", "s1"), ("bob", None)]
    assert await memory.due_states() == []
    clock.advance(timedelta(minutes=2))
    again = await memory.due_states(limit=1)
    assert len(again) == 1
    for one in (*again, *await memory.due_states()):
        settled = await one.settle()
        assert settled is not None
        assert settled.step == "abandoned"
    clock.advance(timedelta(days=1))
    assert await memory.due_states() == []


async def test_a_state_can_expire(memory: Memory, clock: FrozenClock) -> None:
    """From ``expires_at`` on a state is absent, and a new one may be written in its place."""
    state = memory.user("ann").state.of(Counter)
    until = clock.now() + timedelta(days=1)
    await state.update(lambda one: _counted(one).expiring(until))
    kept = await state.update(_counted)
    assert (kept.expires_at, kept.fields.n) == (until, 2)
    clock.set(until)
    assert await state.load() is None
    fresh = await state.update(_counted)
    assert (fresh.fields.n, fresh.version, fresh.expires_at) == (1, 3, None)
    clock.set(until + timedelta(days=400))
    assert await state.load() is not None


async def test_a_clock_that_jumps_back_turns_nothing_back(
    memory: Memory, clock: FrozenClock
) -> None:
    """Times and versions of a state never go back, whatever the clock does."""
    session = await memory.user("ann").session("s1")
    first = await session.state.update(_started)
    clock.advance(timedelta(days=-1_000))
    second = await session.state.update(lambda state: state.advance("details"))
    assert second.updated_at == first.updated_at
    assert (first.version, second.version) == (1, 2)
    clock.advance(timedelta(days=2_000))
    third = await session.state.update(lambda state: state.fill(amount=1))
    assert third.updated_at == clock.now()
    assert [one.version for one in await session.state.history()] == [3, 2, 1]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"frames": 7}'])
async def test_a_corrupt_state_is_named_and_its_history_read(memory: Memory, body: bytes) -> None:
    """A stored value that cannot be read raises StoreCorrupt, its history shows the others, and a
    deletion lets it begin anew."""
    session = await memory.user("ann").session("s1")
    await session.state.update(_started)
    await _raw(memory, body)
    for work in (session.state.load(), session.state.update(_started)):
        with pytest.raises(StoreCorrupt, match="session 's1' of user 'ann' cannot be read"):
            await work
    broken, good = await session.state.history()
    assert (broken.state, good.state is not None) == (None, True)
    assert "cannot be read" in broken.problem
    assert await session.state.delete()
    assert (await session.state.update(_started)).version == 4


async def test_a_state_of_a_newer_release_is_refused(memory: Memory) -> None:
    """A body in a newer format is neither read nor overwritten."""
    session = await memory.user("ann").session("s1")
    await session.state.update(_started)
    await _raw(memory, b"{}", schema=9)
    for work in (session.state.load(), session.state.update(_started)):
        with pytest.raises(SchemaTooNew, match="format 9"):
            await work


async def test_a_state_of_a_megabyte_is_refused(memory: Memory) -> None:
    """A slot or field of 1 MB is refused by name, and nothing of the change is kept."""
    session = await memory.user("ann").session("s1")
    with pytest.raises(TooLarge, match=r"fields\.note alone has 1,000,002"):
        await session.state.update(
            lambda state: state.with_fields(note="x" * 1_000_000).prefer("diet", "vegan")
        )
    assert await session.state.load() is None
    assert await memory.user("ann").facts() == []


async def test_a_preference_is_changed_by_the_state_alone(clock: FrozenClock) -> None:
    """Vegetarian becomes vegan by an update of the state: recall marks the old words as ended, and
    nothing is embedded again."""
    embedder = WordAxisEmbedder(["vegetarian", "vegan", "food eat meal", "call"])
    async with Memory.open("memory://", clock=clock, embedder=embedder) as memory:
        user = memory.user("ann")
        session = await user.session("s1")
        old = await session.record(Message("user", "I am vegetarian, no meat in my food."))
        await session.state.update(
            lambda state: state.prefer("diet", "vegetarian", sources=old.keys)
        )
        clock.advance(timedelta(days=30))
        new = await session.record(Message("user", "I eat vegan food now."))
        await user.recall("which food do I eat?")
        embedded = len(embedder.seen)
        after = await session.state.update(
            lambda state: state.prefer("diet", "vegan", sources=new.keys)
        )
        assert after.preferences == {"diet": "vegan"}
        found = await user.recall("which food do I eat?")
        stale = {one.key: one.stale for one in found.items}
        assert stale[new.keys[0]] is None
        assert "diet is vegan" in (stale[old.keys[0]] or "")
        assert [fact.fact.value for fact in found.facts if fact.fact.predicate == "diet"] == [
            "vegan"
        ]
        since = embedder.seen[embedded:]
        assert set(since) & set(embedder.seen[:embedded]) == {"which food do I eat?"}
        assert len(since) == 2  # the question and the new fact: nothing that was there before
        assert [fact.value for fact in await user.history("diet")] == ["vegetarian", "vegan"]


async def test_preferences_have_one_home(memory: Memory) -> None:
    """The view shows what ``remember`` said, in sessions and user-wide; nothing of it is stored."""
    user = memory.user("ann")
    await user.remember("diet", "vegan", kind="preference")
    await user.remember("name", "Ann", kind="attribute")
    await user.remember("pet food", "dry", kind="preference", subject="the dog")
    session = await user.session("s1")
    seen: list[Any] = []
    await session.state.update(
        lambda state: (seen.append(dict(state.preferences)), _started(state))[1]
    )
    loaded = await session.state.load()
    assert loaded is not None
    assert seen == [{"diet": "vegan"}]
    assert dict(loaded.preferences) == {"diet": "vegan"}
    stored = await _states(memory).load(KEY)
    assert stored is not None
    assert b"vegan" not in stored.body
    await user.state.update(lambda state: state.prefer("DIET", "omnivore").prefer("seat", "aisle"))
    again = await session.state.load()
    assert again is not None
    assert sorted(again.preferences.values(), key=str) == ["aisle", "omnivore"]
    await user.state.update(lambda state: state.prefer("seat", None).prefer("never", None))
    wide = await user.state.update(lambda state: state)
    assert list(wide.preferences.values()) == ["omnivore"]


async def test_a_retried_update_tells_a_preference_once(memory: Memory) -> None:
    """An update that loses a race does not state its preference again over a newer one; under a key
    that holds for later calls too."""
    user = memory.user("ann")
    state = user.state.of(Counter)
    await state.update(_counted)
    runs = 0

    def change(one: AgentState[Counter]) -> AgentState[Counter]:
        nonlocal runs
        runs += 1
        return _counted(one).prefer("diet", "vegan")

    saves = _states(memory).save

    async def overtaken(*arguments: Any, **named: Any) -> Any:
        _states(memory).save = saves
        await user.remember("diet", "omnivore", kind="preference")
        await state.update(_counted)
        return await saves(*arguments, **named)

    _states(memory).save = overtaken
    await state.update(change, key="call-7/turn-3")
    assert runs == 2
    assert [fact.value for fact in await user.history("diet")] == ["vegan", "omnivore"]
    await state.update(change, key="call-7/turn-3")
    assert [fact.value for fact in await user.history("diet")] == ["vegan", "omnivore"]
    await state.update(change, key="call-7/turn-4")
    assert [fact.value for fact in await user.history("diet")] == ["vegan", "omnivore", "vegan"]


async def test_a_failed_save_does_not_undo_a_preference(memory: Memory) -> None:
    """The preference is written first: a save that then fails leaves it told."""
    user = memory.user("ann")

    async def down(*arguments: Any, **named: Any) -> Any:
        raise StoreUnavailable("it is down")

    saves = _states(memory).save
    _states(memory).save = down
    with pytest.raises(StoreUnavailable):
        await user.state.update(lambda state: _started(state).prefer("diet", "vegan"))
    _states(memory).save = saves
    assert await user.state.load() is None
    assert [fact.value for fact in await user.facts()] == ["vegan"]


async def test_a_claimed_caller_sees_no_sensitive_preference(memory: Memory) -> None:
    """What is sensitive is left out of the view of a caller whose identity is only claimed."""
    await memory.user("ann").state.update(
        lambda state: state.prefer("clinic", "north", sensitive=True).prefer("seat", "aisle")
    )
    claimed = memory.user(Caller(user_id="ann", trust="claimed", known=True))
    state = await claimed.state.update(lambda one: one)
    assert dict(state.preferences) == {"seat": "aisle"}
    assert state.trust == "claimed"


async def test_forgetting_takes_the_states_along(memory: Memory) -> None:
    """The receipt names the states, their history too; a handle from before writes nothing more,
    and a user who returns begins anew."""
    user = memory.user("ann")
    session = await user.session("s1")
    held = await session.state.update(_started)
    await user.state.update(_started)
    await memory.user("bob").state.update(_started)
    receipt = await memory.user("ann").forget()
    assert receipt.complete
    assert sum(count for place, count in receipt.removed.items() if place.endswith("states")) == 2
    assert any(
        place.endswith("state_history") and count for place, count in receipt.removed.items()
    )
    for work in (
        session.state.update(_started),
        session.state.save(held),
        session.state.update(lambda state: state.prefer("diet", "vegan")),
    ):
        with pytest.raises((UserErased, VersionConflict)):
            await work
    assert await memory.users() == ["bob"]
    fresh = await memory.user("ann").session("s1")
    assert await fresh.state.load() is None
    assert await fresh.state.history() == []
    assert (await fresh.state.update(_started)).version == 1
    assert await memory.user("bob").state.load() is not None


async def test_an_update_under_way_does_not_outlive_its_user(memory: Memory) -> None:
    """A user forgotten between the reading and the saving of an update stays forgotten, also by a
    handle that never wrote before."""
    await (await memory.user("ann").session("s1")).state.update(_started)
    session = await memory.user("ann").session("s1")
    _after_next_load(memory, lambda: memory.user("ann").forget())
    with pytest.raises(UserErased):
        await session.state.update(lambda state: state.advance("details"))
    assert await memory.users() == []


async def test_merged_users_have_one_state(memory: Memory) -> None:
    """After a merge the state of either is found, new writes go to the canonical user, deleting
    deletes all, and taking the merge back leaves each side what was written to it."""
    old = await memory.user("old").session("s1")
    await old.state.of(Counter).update(_counted)
    await memory.user("new").remember("name", "Ann")
    await memory.merge("old", "new")
    session = await memory.user("new").session("s1")
    seen = await session.state.of(Counter).load()
    assert seen is not None
    assert (seen.fields.n, seen.user_id, seen.version) == (1, "new", None)
    grown = await session.state.of(Counter).update(_counted)
    assert (grown.fields.n, grown.version) == (2, 1)
    through_old = await (await memory.user("old").session("s1")).state.of(Counter).load()
    assert through_old is not None
    assert (through_old.fields.n, through_old.user_id) == (2, "old")
    await memory.unmerge("old")
    apart = await (await memory.user("old").session("s1")).state.of(Counter).load()
    assert apart is not None
    assert apart.fields.n == 1
    await memory.merge("old", "new")
    session = await memory.user("new").session("s1")
    assert await session.state.delete()
    assert await session.state.load() is None


async def test_a_store_without_states_says_what_to_do(clock: FrozenClock) -> None:
    """A store that keeps no states gives an error that names ``state=``."""
    async with Memory.open("memory://", clock=clock) as memory:
        _shared(memory).states = None
        with pytest.raises(InvalidValue, match=r"state='sqlite:///state\.db'"):
            await memory.user("ann").state.load()


async def test_workflows_named_at_opening_are_known(memory: Memory, clock: FrozenClock) -> None:
    """A process that never started a workflow goes on with it when it named it at opening."""
    session = await memory.user("ann").session("s1")
    await session.state.update(_started)
    shared = _shared(memory)
    apart = shared.states if shared.states_apart else None
    async with Memory.open(shared.store, clock=clock, state=apart, workflows=[BOOKING]) as other:
        state = await (await other.user("ann").session("s1")).state.update(
            lambda one: one.advance("done", confirmed=True)
        )
        assert (state.step, state.version) == ("done", 2)


@pytest.mark.parametrize("named", [{"by": ""}, {"by": 7}, {"key": ""}, {"reason": 7}])
async def test_wrong_names_are_refused(memory: Memory, named: dict[str, Any]) -> None:
    """An author, key or reason that is no text is refused before anything is done."""
    with pytest.raises(InvalidValue):
        await memory.user("ann").state.update(_started, **named)
    assert await memory.user("ann").state.load() is None
