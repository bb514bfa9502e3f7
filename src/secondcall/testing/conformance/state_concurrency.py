"""Many tasks, threads and event loops on the states of one store at once."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import anyio
import pytest
from anyio.lowlevel import checkpoint

from secondcall.abc_state import StateConflict, StateStore
from secondcall.testing.conformance.state_material import (
    EPOCH,
    KEY,
    NOW_US,
    WIDE,
    StateSuite,
    add,
    all_history,
    save,
    session,
)

__all__ = ["StateConcurrencySuite"]

TASKS = 16
THREADS = 4


class StateConcurrencySuite(StateSuite):
    """No update is lost, every version has one writer, and its history is whole."""

    async def test_no_update_is_lost(self, states: StateStore) -> None:
        """Each of 16 tasks adds 1 five times, repeating after a conflict: the sum is exact."""
        async with anyio.create_task_group() as tasks:
            for number in range(TASKS):
                tasks.start_soon(lambda: add(states, 5), name=f"writer {number}")
        found = await states.load(KEY)
        assert found is not None
        assert (found.body, found.version) == (b"%d" % (TASKS * 5), TASKS * 5)
        assert [int(one.body or b"") for one in await all_history(states)] == list(
            range(1, TASKS * 5 + 1)
        )

    async def test_threads_with_loops_of_their_own(self, states: StateStore) -> None:
        """Threads that each run an event loop use the store together without losing an update."""
        failed: list[BaseException] = []

        def work() -> None:
            try:
                asyncio.run(add(states, 10))
            except BaseException as error:  # in a thread: the test raises it
                failed.append(error)

        def run() -> None:
            threads = [threading.Thread(target=work) for _ in range(THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        await anyio.to_thread.run_sync(run)
        assert failed == []
        found = await states.load(KEY)
        assert found is not None
        assert (found.body, found.version) == (b"%d" % (THREADS * 10), THREADS * 10)

    async def test_save_if_absent_has_one_winner(self, states: StateStore) -> None:
        """Of many who save a state if it is absent one succeeds, and the others see its state."""
        won: list[bytes] = []
        lost: list[StateConflict] = []

        async def claim(number: int) -> None:
            try:
                won.append((await save(states, b"%d" % number)).body)
            except StateConflict as conflict:
                lost.append(conflict)

        async with anyio.create_task_group() as tasks:
            for number in range(TASKS):
                tasks.start_soon(claim, number)
        current = await states.load(KEY)
        assert current is not None
        assert (won, current.version) == ([current.body], 1)
        assert [one.current for one in lost] == [current] * (TASKS - 1)

    async def test_each_version_has_one_writer(self, states: StateStore) -> None:
        """In every round of equal saves and deletions one wins; the history has what it wrote."""
        await save(states, b"start")
        for version in range(1, 11):
            won: list[bytes | None] = []
            found: list[int | None] = []

            async def attempt(number: int, version: int = version) -> None:
                try:
                    if number == 0 and version % 2 == 0:
                        await states.delete(
                            KEY, expected_version=version, epoch=EPOCH, now_us=NOW_US, by="test"
                        )
                        won.append(None)  # noqa: B023 - used within its round
                    else:
                        body = b"%d" % number
                        await save(states, body, expected=version)
                        won.append(body)  # noqa: B023 - used within its round
                except StateConflict as conflict:
                    found.append(conflict.found)  # noqa: B023 - used within its round

            async with anyio.create_task_group() as tasks:
                for number in range(8):
                    tasks.start_soon(attempt, number)
            assert len(won) == 1
            assert found == [None if won[0] is None else version + 1] * 7
            (newest,) = await states.history(KEY, limit=1)
            assert (newest.version, newest.body) == (version + 1, won[0])
            if won[0] is None:
                return

    async def test_refused_save_fails_alone(self, states: StateStore) -> None:
        """Saves that are refused do not take those with them that came at the same time."""
        lost: list[int] = []

        async def write(number: int) -> None:
            try:
                expected = 99 if number % 3 == 0 else None
                await save(states, key=session(f"s{number}"), expected=expected)
            except StateConflict:
                lost.append(number)

        async with anyio.create_task_group() as tasks:
            for number in range(TASKS):
                tasks.start_soon(write, number)
        assert sorted(lost) == [number for number in range(TASKS) if number % 3 == 0]
        good = {session(f"s{number}") for number in range(TASKS) if number % 3}
        assert set(await states.list("tenant", "alice", limit=99)) == good

    async def test_save_is_read_at_once(self, states: StateStore) -> None:
        """When a save has returned, every load sees it, and no load sees an older one again."""
        done = False

        async def watch() -> None:
            newest = 0
            while not done:
                found = await states.load(KEY)
                version = 0 if found is None else found.version
                assert version >= newest
                newest = version
                await checkpoint()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            tasks.start_soon(watch)
            for version in range(40):
                saved = await save(states, b"%d" % version, expected=version or None)
                assert await states.load(KEY) == saved
            done = True

    async def test_keys_written_at_once_stay_apart(self, states: StateStore) -> None:
        """Tasks with a state of their own never conflict."""
        keys = [WIDE, *(session(f"s{number}") for number in range(TASKS))]

        async def write(number: int) -> None:
            for version in range(5):
                await save(states, b"%d" % number, key=keys[number], expected=version or None)

        async with anyio.create_task_group() as tasks:
            for number in range(len(keys)):
                tasks.start_soon(write, number)
        for number, key in enumerate(keys):
            bodies = [one.body for one in await all_history(states, key)]
            assert bodies == [b"%d" % number] * 5

    async def test_cancelled_saves_are_whole_or_absent(self, states: StateStore) -> None:
        """A cancelled save happened with its history or not at all, and the store goes on."""
        await save(states, b"0")
        for number in range(30):
            current = await states.load(KEY)
            assert current is not None
            # One that was cancelled before may only now be done.
            with anyio.move_on_after(0.0005 * (number % 5)), contextlib.suppress(StateConflict):
                await save(states, b"%d" % number, expected=current.version)
        # What was cancelled may still be on its way.
        while True:
            current = await states.load(KEY)
            assert current is not None
            try:
                last = await save(states, b"last", expected=current.version)
            except StateConflict:
                continue
            break
        changes = await all_history(states)
        assert (len(changes), changes[-1].body) == (last.version, b"last")

    async def test_conflicts_are_raised_where_they_were_awaited(self, states: StateStore) -> None:
        """Refused saves raise errors of their own, in their own tasks."""
        errors: list[StateConflict] = []

        async def write(number: int) -> None:
            with pytest.raises(StateConflict) as caught:
                await save(states, key=session(f"s{number}"), expected=number + 1)
            errors.append(caught.value)

        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(write, number)
        assert sorted(error.expected or 0 for error in errors) == [1, 2, 3, 4]
        assert len({id(error) for error in errors}) == 4
