"""Many tasks, threads and event loops on one store at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from secondcall.abc import ANY_VERSION, Batch, Scope, Store
from secondcall.errors import UserErased, VersionConflict
from secondcall.testing.conformance.material import (
    EPOCH,
    NOW_US,
    SCOPE,
    StoreSuite,
    all_changes,
    document,
    entry,
    record,
    write_documents,
)

__all__ = ["ConcurrencySuite"]

TASKS = 20
THREADS = 4


async def _at_once(count: int, work: Callable[[int], Coroutine[Any, Any, object]]) -> None:
    async with anyio.create_task_group() as tasks:
        for number in range(count):
            tasks.start_soon(work, number)


def _in_threads(work: Callable[[int], Coroutine[Any, Any, object]]) -> None:
    """Run ``work`` in several threads, each with an event loop of its own."""
    failed: list[BaseException] = []

    async def worker(number: int) -> None:
        await work(number)

    def run(number: int) -> None:
        try:
            asyncio.run(worker(number))
        except BaseException as error:  # judged by the thread that began this one
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


async def _add_one(store: Store, name: str) -> None:
    """Add 1 to a counting document, as often as it takes to win."""
    while True:
        found = await store.document(SCOPE, "fact", name)
        await checkpoint()
        value, version = (0, None) if found is None else (int(found.body), found.version)
        try:
            await write_documents(store, document(name, b"%d" % (value + 1), expected=version))
        except VersionConflict:
            continue
        return


class ConcurrencySuite(StoreSuite):
    """Numbers without gaps, exactly one winner, and a failure that stays alone."""

    async def test_numbers_have_no_gaps(self, store: Store) -> None:
        """Tasks that write at once get contiguous numbers, each batch together and in order."""
        ranges: list[tuple[int, int]] = []

        async def write(task: int) -> None:
            for turn in range(5):
                entries = [entry(f"{task}-{turn}-{n}", session_id=f"s{task}") for n in range(3)]
                written = await record(store, *entries)
                first = written.first_change
                assert list(written.entry_changes) == [first, first + 1, first + 2]
                ranges.append((first, written.change))

        await _at_once(TASKS, write)
        changes = await all_changes(store)
        assert len(changes) == TASKS * 5 * 3
        assert sorted(ranges) == [(n, n + 2) for n in range(1, len(changes), 3)]
        outlines = await store.sessions(SCOPE, limit=100)
        assert [one.items for one in outlines] == [15] * TASKS

    async def test_threads_with_loops_of_their_own(self, store: Store) -> None:
        """Threads that each run an event loop use the store together without losing a write."""

        async def write(thread: int) -> None:
            async def one(number: int) -> None:
                await record(store, entry(f"{thread}-{number}", session_id=f"s{thread}"))
                await _add_one(store, "counter")
                assert len(await store.read(SCOPE, session_id=f"s{thread}", limit=1)) == 1

            await _at_once(10, one)

        await anyio.to_thread.run_sync(_in_threads, write)
        assert len(await all_changes(store)) == THREADS * 10
        found = await store.document(SCOPE, "fact", "counter")
        assert found is not None
        assert (found.body, found.version) == (b"%d" % (THREADS * 10), THREADS * 10)

    async def test_readers_see_whole_batches_only(self, store: Store) -> None:
        """Whoever reads while others write sees a log without gaps that only grows."""
        await record(store)
        done = False

        async def write() -> None:
            nonlocal done
            for turn in range(60):
                await record(store, *(entry(f"{turn}-{n}") for n in range(4)))
                await checkpoint()
            done = True

        async def tail() -> None:
            seen = 0
            while not done:
                page = await store.changes(SCOPE, after=seen, limit=1_000)
                assert [one.number for one in page] == list(range(seen + 1, seen + len(page) + 1))
                assert len(page) % 4 == 0
                header = await store.header(SCOPE)
                seen += len(page)
                assert header is not None
                assert header.change >= seen
                await checkpoint()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tail)
            tasks.start_soon(tail)
            tasks.start_soon(write)

    async def test_write_is_read_at_once(self, store: Store) -> None:
        """When a write has returned, every following read sees it."""
        await record(store)

        async def turn(task: int) -> None:
            for number in range(10):
                new = entry(f"{task}-{number}", session_id=f"s{task}")
                written = await record(store, new)
                assert len(await store.entries(SCOPE, [new.key])) == 1
                header = await store.header(SCOPE)
                assert header is not None
                assert header.change >= written.change
                assert len(await store.read(SCOPE, session_id=f"s{task}", limit=99)) == number + 1

        await _at_once(8, turn)

    async def test_save_if_absent_has_one_winner(self, store: Store) -> None:
        """Of many who save a document if it is absent, exactly one succeeds."""
        won: list[int] = []

        async def claim(task: int) -> None:
            try:
                await write_documents(store, document("claim", b"%d" % task))
            except VersionConflict:
                return
            won.append(task)

        await _at_once(TASKS, claim)
        found = await store.document(SCOPE, "fact", "claim")
        assert found is not None
        assert [b"%d" % task for task in won] == [found.body]
        assert found.version == 1

    async def test_no_update_is_lost(self, store: Store) -> None:
        """Read, add one, compare and set, from many tasks: the sum is right."""
        await _at_once(TASKS, lambda _: _add_one(store, "counter"))
        found = await store.document(SCOPE, "fact", "counter")
        assert found is not None
        assert (found.body, found.version) == (b"%d" % TASKS, TASKS)

    async def test_each_version_has_one_writer(self, store: Store) -> None:
        """In every round of equal compare-and-sets one wins and the others name its version."""
        await write_documents(store, document("d", b"start"))
        for version in range(1, 6):
            won: list[int] = []
            found: list[int | None] = []

            async def attempt(task: int) -> None:
                try:
                    await write_documents(store, document("d", b"%d" % task, expected=version))  # noqa: B023 - used within its round
                except VersionConflict as conflict:
                    found.append(conflict.found)  # noqa: B023 - ends within its round
                else:
                    won.append(task)  # noqa: B023 - ends within its round

            await _at_once(10, attempt)
            assert len(won) == 1
            assert found == [version + 1] * 9

    async def test_partition_is_made_once(self, store: Store) -> None:
        """Of many first writes with epochs of their own exactly one makes the partition."""
        made: list[bytes] = []

        async def begin(task: int) -> None:
            epoch = b"%016d" % task
            try:
                await store.write(
                    SCOPE,
                    Batch(entries=[entry(f"i{task}")]),
                    epoch=epoch,
                    now_us=NOW_US,
                    create=True,
                )
            except UserErased:
                return
            made.append(epoch)

        await _at_once(TASKS, begin)
        header = await store.header(SCOPE)
        assert header is not None
        assert made == [header.epoch]
        assert header.change == 1

    async def test_repeats_at_once_are_one(self, store: Store) -> None:
        """The same entry from many tasks is added once and takes one number."""
        outcomes: list[str] = []

        async def write(_task: int) -> None:
            written = await record(store, entry("same", "same"))
            outcomes.extend(written.outcomes)
            assert list(written.entry_changes) == [1]

        await _at_once(TASKS, write)
        assert sorted(outcomes) == ["added"] + ["unchanged"] * (TASKS - 1)
        assert len(await all_changes(store)) == 1

    async def test_bad_write_fails_alone(self, store: Store) -> None:
        """Writes that are refused do not take those with them that came at the same time."""
        await record(store)
        failed: list[int] = []

        async def write(task: int) -> None:
            batch = Batch(
                entries=[entry(f"i{task}")],
                documents=[document("d", expected=99 if task % 3 == 0 else ANY_VERSION)],
            )
            try:
                await store.write(SCOPE, batch, epoch=EPOCH, now_us=NOW_US)
            except VersionConflict:
                failed.append(task)

        await _at_once(TASKS, write)
        good = {f"i{task}" for task in range(TASKS) if task % 3}
        assert sorted(failed) == [task for task in range(TASKS) if task % 3 == 0]
        assert {one.key.id for one in await store.read(SCOPE, limit=99)} == good
        assert len(await all_changes(store)) == len(good)

    async def test_scopes_written_at_once_stay_apart(self, store: Store) -> None:
        """Tasks that write to scopes of their own each get numbers from 1 without gaps."""
        scopes = [Scope("tenant", "user", f"u{task}") for task in range(TASKS)]

        async def write(task: int) -> None:
            for number in range(5):
                written = await record(store, entry(f"i{number}"), scope=scopes[task])
                assert written.change == number + 1

        await _at_once(TASKS, write)
        for scope in scopes:
            assert len(await all_changes(store, scope)) == 5

    async def test_lease_has_one_winner(self, store: Store) -> None:
        """Of many who ask for a lease at once exactly one gets it."""
        await record(store)
        got: list[bool] = []

        async def ask(task: int) -> None:
            got.append(
                await store.acquire_lease(SCOPE, "l", holder=f"h{task}", now_us=NOW_US, seconds=60)
            )

        await _at_once(TASKS, ask)
        assert sorted(got) == [False] * (TASKS - 1) + [True]

    async def test_cancelled_writes_are_whole_or_absent(self, store: Store) -> None:
        """A cancelled write happened as a whole or not at all, and the store goes on."""
        await record(store)
        for number in range(20):
            with anyio.move_on_after(0.0005 * (number % 4)):
                await record(store, *(entry(f"{number}-{n}") for n in range(5)))
        written = await record(store, entry("after"))
        assert (written.change - 1) % 5 == 0
        assert len(await all_changes(store)) == written.change

    async def test_failed_write_raises_where_it_was_awaited(self, store: Store) -> None:
        """Two refused writes raise errors of their own, in their own tasks."""
        errors: list[VersionConflict] = []

        async def write(task: int) -> None:
            with pytest.raises(VersionConflict) as caught:
                await write_documents(store, document(f"d{task}", expected=task + 1))
            errors.append(caught.value)

        await _at_once(4, write)
        assert sorted(error.expected or 0 for error in errors) == [1, 2, 3, 4]
        assert len({id(error) for error in errors}) == 4
