"""The threads of a ``SqliteStore``: one that writes, committing what came together at once, and a
few that read.

Callers await an ``asyncio`` future of their own loop; each finished group wakes every loop once.
Nothing here is bound to one loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar, cast

import apsw

from secondcall.errors import NotOpen
from secondcall.stores.sqlite_file import (
    SqliteSettings,
    connect_reader,
    connect_writer,
    map_error,
    run,
)

__all__ = ["Readers", "Writer"]

MAX_GROUP = 256
_MAX_GROUP_SECONDS = 0.05
_POLL_SECONDS = 0.001
_MAX_LOG_BYTES = 32 * 1024 * 1024
_LOG_CHECK_SECONDS = 1.0
_RESTART_SECONDS = 0.25

T = TypeVar("T")
Work = Callable[[apsw.Connection], object]


@dataclass(slots=True, eq=False)
class _Job:
    """What a task waits for. ``alone``: not inside a shared transaction."""

    work: Work
    alone: bool
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[object]
    since: float = field(default_factory=time.monotonic)
    result: object = None
    error: Exception | None = None


def _new_job(work: Work, *, alone: bool = False) -> _Job:
    loop = asyncio.get_running_loop()
    return _Job(work=work, alone=alone, loop=loop, future=loop.create_future())


def _wake(jobs: Iterable[_Job]) -> None:
    """Hand finished jobs to their loops, one call for each loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in jobs:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, finished in by_loop.items():
        # A closed loop has nobody left who waits.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve, finished)


def _resolve(jobs: list[_Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)


def _closed() -> NotOpen:
    return NotOpen("the store is closed; open it first")


class _Inbox:
    """A queue that refuses new jobs once it is closed; ``None`` ends whoever takes from it."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False

    def put(self, job: _Job) -> None:
        with self._lock:
            if self._closed:
                raise _closed()
            self._queue.put(job)

    def close(self, *, taken: bool = True) -> None:
        """Refuse what comes from now on; an end mark for whoever takes, if somebody does."""
        with self._lock:
            if not self._closed:
                self._closed = True
                if taken:
                    self._queue.put(None)

    def take(self) -> _Job | None:
        return self._queue.get()

    def take_waiting(self) -> _Job | None:
        """The next job if one waits. An end mark is left where it was: it is the last."""
        try:
            job = self._queue.get_nowait()
        except queue.Empty:
            return None
        if job is None:
            self._queue.put(None)
        return job


class Writer:
    """The one thread of this process that writes to the file."""

    def __init__(self, settings: SqliteSettings) -> None:
        self._settings = settings
        self._inbox = _Inbox()
        self._held: deque[_Job] = deque()
        self._thread: threading.Thread | None = None
        self._wait_until = 0.0
        self._log_checked = 0.0

    async def start(self, prepare: Work) -> None:
        """Start the thread, connect and run ``prepare`` on the connection.

        Raises: what ``prepare`` raises, mapped; the thread has ended then.
        """
        first = _new_job(prepare, alone=True)
        self._thread = threading.Thread(
            target=self._run, args=(first,), name="secondcall-sqlite-writer", daemon=True
        )
        self._thread.start()
        await asyncio.shield(first.future)

    async def write(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run ``work`` in a transaction, shared with what came at the same time.

        If it raises, only its own changes are undone: it begins the transaction, or has a savepoint
        of its own. When this returns, the transaction is committed.

        Raises: what ``work`` raises, or the mapped error.
        """
        job = _new_job(work)
        self._inbox.put(job)
        return cast("T", await job.future)

    async def alone(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run ``work`` between transactions. Raises: what it raises, mapped."""
        job = _new_job(work, alone=True)
        self._inbox.put(job)
        return cast("T", await job.future)

    async def aclose(self) -> None:
        """Finish what waits, then end the thread."""
        self._inbox.close()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _run(self, first: _Job) -> None:
        connection: apsw.Connection | None = None
        try:
            self._wait_until = first.since + self._settings.busy_timeout_seconds
            connection = connect_writer(self._settings, keep_waiting=self._keep_waiting)
            self._run_alone(connection, first, wake=False)
        except Exception as error:  # raised where the job is waited for
            first.error = map_error(error, self._settings)
        if connection is None or first.error is not None:
            self._inbox.close(taken=False)
            if connection is not None:
                connection.close(True)
            _wake([first])
            return
        _wake([first])
        self._serve(connection)
        with contextlib.suppress(apsw.Error):
            connection.close()

    def _serve(self, connection: apsw.Connection) -> None:
        while True:
            job = self._held.popleft() if self._held else self._inbox.take()
            if job is None:
                return
            if job.alone:
                self._run_alone(connection, job)
            else:
                self._run_group(connection, job)
                self._bound_log(connection)
            # An idle thread must not keep the last result alive.
            del job

    def _keep_waiting(self, _calls: int) -> bool:
        # SQLite's own handler sleeps up to 100 ms and so loses to whoever writes all the time;
        # short even steps give each process the same chance whenever the lock is free.
        if time.monotonic() >= self._wait_until:
            return False
        time.sleep(_POLL_SECONDS)
        return True

    def _run_alone(self, connection: apsw.Connection, job: _Job, *, wake: bool = True) -> None:
        self._wait_until = job.since + self._settings.busy_timeout_seconds
        try:
            job.result = job.work(connection)
        except Exception as error:  # raised where the job is waited for
            job.error = map_error(error, self._settings)
        _roll_back(connection)
        if wake:
            _wake([job])

    def _run_group(self, connection: apsw.Connection, first: _Job) -> None:
        self._wait_until = first.since + self._settings.busy_timeout_seconds
        done = [first]
        try:
            run(connection, "BEGIN IMMEDIATE")
            if self._lead(connection, first):
                _roll_back(connection)
                _wake(done)
                return
            until = time.monotonic() + _MAX_GROUP_SECONDS
            while len(done) < MAX_GROUP and time.monotonic() < until:
                job = self._next_for_group()
                if job is None:
                    break
                done.append(job)
                self._attempt(connection, job)
            run(connection, "COMMIT")
        except Exception as error:  # raised where the jobs are waited for
            # Nothing of the group is there, so nothing of it may be acknowledged.
            _roll_back(connection)
            for job in done:
                job.error = job.error or map_error(error, self._settings)
        _wake(done)

    def _next_for_group(self) -> _Job | None:
        job = self._inbox.take_waiting()
        if job is not None and job.alone:
            self._held.append(job)
            return None
        return job

    def _lead(self, connection: apsw.Connection, job: _Job) -> bool:
        """Do the first job of a group, which needs no savepoint: if it fails, it takes nothing but
        its own changes with the transaction. Whether it failed."""
        try:
            job.result = job.work(connection)
        except Exception as error:  # raised where the job is waited for
            job.error = map_error(error, self._settings)
        return job.error is not None

    def _attempt(self, connection: apsw.Connection, job: _Job) -> None:
        """Do a job in a savepoint. Raises only if the whole transaction is gone."""
        run(connection, "SAVEPOINT job")
        try:
            job.result = job.work(connection)
        except Exception as error:  # raised where the job is waited for
            job.error = map_error(error, self._settings)
            if not connection.in_transaction:
                # A full disk or an I/O error takes the whole transaction with it.
                raise
            run(connection, "ROLLBACK TO job")
        run(connection, "RELEASE job")

    def _bound_log(self, connection: apsw.Connection) -> None:
        """Restart the WAL when readers kept the automatic checkpoints from doing so."""
        now = time.monotonic()
        if now - self._log_checked < _LOG_CHECK_SECONDS:
            return
        self._log_checked = now
        try:
            if os.stat(f"{self._settings.path}-wal").st_size < _MAX_LOG_BYTES:
                return
            self._wait_until = now + _RESTART_SECONDS
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        except (OSError, apsw.Error):
            # It is tried again; nothing is lost by a long log.
            return


def _roll_back(connection: apsw.Connection) -> None:
    if connection.in_transaction:
        with contextlib.suppress(apsw.Error):
            run(connection, "ROLLBACK")


class Readers:
    """A few threads with a connection each, which only read, each job in one short transaction.

    Of those that are free the last one that worked is given the next job: its connection still has
    the pages at hand.
    """

    def __init__(self, settings: SqliteSettings, count: int = 4) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._free: list[queue.SimpleQueue[_Job | None]] = []
        self._waiting: deque[_Job] = deque()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._run, name=f"secondcall-sqlite-reader-{n}", daemon=True)
            for n in range(count)
        ]

    def start(self) -> None:
        """Start the threads; each connects at its first job."""
        for thread in self._threads:
            thread.start()

    async def read(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run ``work`` on one consistent view of the file.

        Raises: what ``work`` raises, or the mapped error.
        """
        job = _new_job(work)
        with self._lock:
            if self._closed:
                raise _closed()
            if self._free:
                self._free.pop().put(job)
            else:
                self._waiting.append(job)
        return cast("T", await job.future)

    async def aclose(self) -> None:
        """Finish what waits, then end the threads."""
        with self._lock:
            self._closed = True
            free, self._free = self._free, []
        for inbox in free:
            inbox.put(None)
        for thread in self._threads:
            if thread.ident is not None:
                await asyncio.to_thread(thread.join)

    def _run(self) -> None:
        connection: apsw.Connection | None = None
        inbox: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._offer(inbox)
        while (job := inbox.get()) is not None:
            try:
                if connection is None:
                    connection = connect_reader(self._settings)
                job.result = _in_view(connection, job.work)
            except Exception as error:  # raised where the job is waited for
                job.error = map_error(error, self._settings)
            # Before the task that waits goes on, so that its next read comes here again.
            self._offer(inbox)
            _wake([job])
            # An idle thread must not keep the last result alive.
            del job
        if connection is not None:
            connection.close()

    def _offer(self, inbox: queue.SimpleQueue[_Job | None]) -> None:
        """Take the job that waits longest; be free when none does, or done after closing."""
        with self._lock:
            if self._waiting:
                inbox.put(self._waiting.popleft())
            elif self._closed:
                inbox.put(None)
            else:
                self._free.append(inbox)


def _in_view(connection: apsw.Connection, work: Work) -> object:
    run(connection, "BEGIN")
    try:
        return work(connection)
    finally:
        if connection.in_transaction:
            run(connection, "COMMIT")
