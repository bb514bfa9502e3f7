"""What a state store declares about durability and sharing, proved with others beside it."""

from __future__ import annotations

from functools import partial

import anyio
import anyio.to_thread
import pytest

from secondcall.abc_state import StateConflict, StateKey, StateStore
from secondcall.errors import UserErased
from secondcall.testing.conformance.state_material import (
    EPOCH,
    KEY,
    NOW_US,
    WIDE,
    StateHarness,
    StateSuite,
    add,
    all_history,
    save,
    session,
)
from secondcall.testing.conformance.state_processes import (
    PROCESSES,
    TASKS,
    kill_while_saving,
    run_writers,
)

__all__ = ["StateReopeningSuite", "check_killed"]


async def _everything(store: StateStore) -> list[object]:
    keys = [KEY, WIDE, session("deleted")]
    return [
        [await store.load(key) for key in keys],
        [[*await store.history(key, limit=99)] for key in keys],
        [*await store.list("tenant", "alice", limit=99)],
        dict(await store.scan("tenant", "alice")),
    ]


async def _fill(store: StateStore) -> None:
    await save(store, b"one", due_us=NOW_US, expires_us=NOW_US + 1)
    await save(store, b"two", expected=1, due_us=NOW_US)
    await save(store, b"wide", key=WIDE)
    await save(store, key=session("deleted"))
    await store.delete(
        session("deleted"), expected_version=1, epoch=EPOCH, now_us=NOW_US, by="test"
    )


async def _opened(harness: StateHarness) -> StateStore:
    store = harness.make()
    await store.open()
    return store


def _shared_url(store: StateStore, harness: StateHarness) -> str:
    """The URL for other processes, or the test is left out because the store is not shared."""
    if not store.capabilities.shared:
        pytest.skip("this store declares shared=False")
    assert harness.url is not None, "a store that declares shared=True needs the harness's url"
    return harness.url


async def check_killed(store: StateStore, acknowledged: dict[str, int]) -> None:
    """Every acknowledged version is there, with its history, and nothing is torn."""
    for session_id, version in acknowledged.items():
        key = StateKey("tenant", "alice", session_id)
        found = await store.load(key)
        assert found is not None
        assert found.version >= version
        changes = await all_history(store, key)
        assert len(changes) == found.version
        assert all(one.body == b"%d" % one.version for one in changes)
        assert found.body == b"%d" % found.version


class StateReopeningSuite(StateSuite):
    """Another store over the same place sees what was acknowledged, as far as it is declared."""

    async def test_store_is_reopened(self, harness: StateHarness) -> None:
        """After closing, a new store over a durable place shows the same; else it is empty."""
        first = await _opened(harness)
        await first.admit("tenant", "alice", epoch=EPOCH, now_us=NOW_US)
        await _fill(first)
        assert await first.claim_due("tenant", now_us=NOW_US, limit=9, holder="h", seconds=1) == [
            KEY
        ]
        before = await _everything(first)
        await first.aclose()
        second = await _opened(harness)
        if second.capabilities.durable == "never":
            assert await second.load(KEY) is None
        else:
            assert await _everything(second) == before
            claim = partial(second.claim_due, "tenant", limit=9, holder="h", seconds=1)
            assert list(await claim(now_us=NOW_US)) == []
            assert list(await claim(now_us=NOW_US + 1_000_000)) == [KEY]
            assert (await save(second, expected=2)).version == 3
            assert (await save(second, key=session("deleted"))).version == 3
            assert list(await second.problems()) == []
        await second.aclose()

    async def test_erasure_outlives_the_store(self, harness: StateHarness) -> None:
        """A new store refuses the epoch that an earlier one erased."""
        first = await _opened(harness)
        await first.admit("tenant", "alice", epoch=EPOCH, now_us=NOW_US)
        await _fill(first)
        await first.erase("tenant", "alice")
        await first.erase("tenant", "bob", epoch=b"of bob")
        await first.aclose()
        second = await _opened(harness)
        if second.capabilities.durable != "never":
            assert sum((await second.scan("tenant", "alice")).values()) == 0
            for user_id, epoch in (("alice", EPOCH), ("bob", b"of bob")):
                with pytest.raises(UserErased):
                    await second.admit("tenant", user_id, epoch=epoch, now_us=NOW_US)
        await second.aclose()

    async def test_acknowledged_saves_are_seen_by_others(
        self, states: StateStore, harness: StateHarness
    ) -> None:
        """Another store opened beside the first sees each save as soon as it returned."""
        _shared_url(states, harness)
        second = await _opened(harness)
        for version in range(20):
            writer, reader = (states, second) if version % 2 else (second, states)
            saved = await save(writer, b"%d" % version, expected=version or None)
            assert await reader.load(KEY) == saved
        with pytest.raises(StateConflict) as caught:
            await save(second, expected=19)
        assert caught.value.current == await states.load(KEY)
        await states.erase("tenant", "alice")
        with pytest.raises(UserErased):
            await save(second, expected=20)
        await second.aclose()

    async def test_two_stores_lose_no_update(
        self, states: StateStore, harness: StateHarness
    ) -> None:
        """Two stores that add to one state at once give the exact sum."""
        _shared_url(states, harness)
        second = await _opened(harness)
        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(add, states if number % 2 else second, 5)
        found = await states.load(KEY)
        assert found is not None
        assert (found.body, found.version) == (b"40", 40)
        await second.aclose()

    async def test_stores_may_open_at_once(self, harness: StateHarness) -> None:
        """Several stores that open an empty place at the same time all work."""
        stores = [harness.make() for _ in range(4)]
        async with anyio.create_task_group() as tasks:
            for one in stores:
                tasks.start_soon(one.open)
        for number, one in enumerate(stores):
            await one.admit("tenant", "alice", epoch=EPOCH, now_us=NOW_US)
            await save(one, key=session(f"s{number}"))
        if stores[0].capabilities.shared:
            assert len(await stores[0].list("tenant", "alice", limit=9)) == 4
        for one in stores:
            await one.aclose()

    async def test_processes_lose_no_update(
        self, states: StateStore, harness: StateHarness
    ) -> None:
        """16 writers in 4 processes on one state, each repeating until it wins: the exact sum."""
        url = _shared_url(states, harness)
        expected = PROCESSES * TASKS * harness.increments
        await anyio.to_thread.run_sync(run_writers, url, harness.increments)
        found = await states.load(KEY)
        assert found is not None
        assert (found.body, found.version) == (b"%d" % expected, expected)
        assert len(await all_history(states)) == expected

    async def test_killed_writers_lose_nothing_acknowledged(
        self, states: StateStore, harness: StateHarness
    ) -> None:
        """After kill -9 of the writers every acknowledged save is there, with its history."""
        url = _shared_url(states, harness)
        if states.capabilities.durable == "never":
            pytest.skip("this store declares durable='never'")
        acknowledged = await anyio.to_thread.run_sync(kill_while_saving, url, "killed")
        assert acknowledged
        await check_killed(states, acknowledged)
        fresh = await _opened(harness)
        await check_killed(fresh, acknowledged)
        await fresh.aclose()
