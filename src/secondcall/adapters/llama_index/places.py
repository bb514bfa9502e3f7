"""Where LlamaIndex's objects reach a memory: from any loop, any thread, and without a loop.

LlamaIndex calls one memory from coroutines, from threads (the synchronous faces) and, after a
restart, from nothing but a name. So a memory that is named or given by URL runs in a loop of its
own, in one thread for the process, opened at its first use and shared by all that name it. A memory
that the host opened itself stays in the host's loop.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from secondcall.errors import NotOpen, UsageError
from secondcall.memory import Memory
from secondcall.named import named_memory

__all__ = ["HostPlace", "OwnPlace", "Place", "close_places", "place_of"]

T = TypeVar("T")
Work = Callable[[Memory], Awaitable[T]]

_CLOSE_SECONDS = 10.0


class Place(Protocol):
    """A memory that is reached from anywhere."""

    @property
    def name(self) -> str | None:
        """The name under which another process finds the same store; ``None`` without one."""
        ...

    async def run(self, work: Work[T]) -> T:
        """What ``work`` gives, awaited in the memory's loop. Raises: what it raises."""
        ...

    def run_blocking(self, work: Work[T]) -> T:
        """The same from a thread; the calling thread waits. Raises: what ``work`` raises."""
        ...


class OwnPlace:
    """A memory in a loop of its own, which any thread and any loop may use.

    The memory is opened at the first use, and again at the next one after ``aclose`` or after it
    could not be opened. The thread ends with the process, at the latest.
    """

    def __init__(self, name: str | None, open_memory: Callable[[], Memory]) -> None:
        self.name = name
        self._open_memory = open_memory
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._loop: Future[asyncio.AbstractEventLoop] | None = None
        self._thread: threading.Thread | None = None
        self._memory: Memory | None = None
        self._stopping: asyncio.Event | None = None

    async def run(self, work: Work[T]) -> T:
        """What ``work`` gives, awaited in this place's loop; cancelled with the caller."""
        loop = await asyncio.wrap_future(self._started())
        return await asyncio.wrap_future(self._submit(loop, work))

    def run_blocking(self, work: Work[T]) -> T:
        """What ``work`` gives; the calling thread waits, a running loop in it too."""
        loop = self._started().result()
        if threading.current_thread() is self._thread:
            raise UsageError("a blocking call was made from inside the memory's own loop; await it")
        return self._submit(loop, work).result()

    def close(self) -> None:
        """Finish background work, close the store, end the loop. Harmless when repeated."""
        with self._lock:
            started, thread = self._loop, self._thread
            self._loop = self._thread = None
        if started is None or thread is None or os.getpid() != self._process:
            return
        with contextlib.suppress(Exception):  # it was never open: nothing to be closed
            loop = started.result(_CLOSE_SECONDS)
            loop.call_soon_threadsafe(self._stop)
            thread.join(_CLOSE_SECONDS)

    def _stop(self) -> None:
        if self._stopping is not None:
            self._stopping.set()

    def _started(self) -> Future[asyncio.AbstractEventLoop]:
        """The loop, as soon as the memory is open in it."""
        with self._lock:
            if self._loop is not None and os.getpid() == self._process and not _failed(self._loop):
                return self._loop
            self._process = os.getpid()
            self._loop = Future[asyncio.AbstractEventLoop]()
            self._thread = threading.Thread(
                target=self._serve, args=(self._loop,), name="secondcall", daemon=True
            )
            self._thread.start()
            return self._loop

    def _serve(self, started: Future[asyncio.AbstractEventLoop]) -> None:
        try:
            asyncio.run(self._keep_open(started))
        except Exception as error:  # handed to the thread that waits for the store
            if not started.done():
                started.set_exception(error)

    async def _keep_open(self, started: Future[asyncio.AbstractEventLoop]) -> None:
        stopping = asyncio.Event()
        async with self._open_memory() as memory:
            self._memory, self._stopping = memory, stopping
            started.set_result(asyncio.get_running_loop())
            await stopping.wait()

    def _submit(self, loop: asyncio.AbstractEventLoop, work: Work[T]) -> Future[T]:
        """Begin the work in the loop, with the caller's context variables."""
        answer: Future[T] = Future()
        context = contextvars.copy_context()

        def begin() -> None:
            task = loop.create_task(self._do(work))
            answer.add_done_callback(lambda one: _cancel(loop, task) if one.cancelled() else None)
            task.add_done_callback(lambda one: _hand_over(one, answer))

        try:
            loop.call_soon_threadsafe(begin, context=context)
        except RuntimeError:  # the loop was closed meanwhile
            raise NotOpen("this memory was closed while it was called; call again") from None
        return answer

    async def _do(self, work: Work[T]) -> T:
        assert self._memory is not None
        return await work(self._memory)


class HostPlace:
    """A memory that the host has opened, in the host's loop: that of the first call."""

    def __init__(self, memory: Memory) -> None:
        self.name = None
        self._memory = memory
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, work: Work[T]) -> T:
        """What ``work`` gives; from another loop it is awaited in the host's."""
        loop = asyncio.get_running_loop()
        if self._loop is None or self._loop.is_closed():
            self._loop = loop
        if self._loop is loop:
            return await work(self._memory)
        elsewhere = asyncio.run_coroutine_threadsafe(_awaited(work, self._memory), self._loop)
        return await asyncio.wrap_future(elsewhere)

    def run_blocking(self, work: Work[T]) -> T:
        """What ``work`` gives, for another thread than the host loop's."""
        loop = self._loop
        if loop is None or loop.is_closed() or loop is _running_loop():
            raise UsageError(
                "this memory belongs to the loop that opened it: await the asynchronous method, or "
                "give the store by url= or name=, which works without a loop"
            )
        return asyncio.run_coroutine_threadsafe(_awaited(work, self._memory), loop).result()


_lock = threading.Lock()
_places: dict[tuple[str, str | None], OwnPlace] = {}


def place_of(name: str, url: str | None = None) -> OwnPlace:
    """The place of a name, one for the process, not opened yet; with ``url`` what the name means
    here.

    Raises: ``UnknownName`` naming it, where nothing says what it means.
    """
    with _lock:
        known = _places.get((name, url))
        if known is None and url is None:
            known = next((one for (other, _), one in _places.items() if other == name), None)
        if known is not None:
            return known
        if url is None:
            named_memory(name)  # raises now, not at the first message
        if not _places:
            atexit.register(close_places)
        place = OwnPlace(name, lambda: named_memory(name) if url is None else Memory.open(url))
        _places[name, url] = place
        return place


def close_places() -> None:
    """Close and forget every memory that was opened by name or URL. An object that still uses one
    opens it again at its next call."""
    with _lock:
        places = list(_places.values())
        _places.clear()
    for place in places:
        place.close()


def _failed(started: Future[Any]) -> bool:
    return started.done() and started.exception() is not None


def _cancel(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed, and the task with it
        loop.call_soon_threadsafe(task.cancel)


def _hand_over(task: asyncio.Task[T], answer: Future[T]) -> None:
    if task.cancelled():
        answer.cancel()
        return
    error = task.exception()
    if answer.set_running_or_notify_cancel():
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(task.result())


async def _awaited(work: Work[T], memory: Memory) -> T:
    return await work(memory)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
