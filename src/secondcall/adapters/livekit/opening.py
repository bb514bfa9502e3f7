"""A memory that the calls of a process share: the first that needs it opens it, the last that is
over closes it. One that the application has opened stays its own to close."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from secondcall.errors import NotOpen, StoreUnavailable, UsageError
from secondcall.memory import Memory

__all__ = ["Opened", "answered", "is_misuse", "looked_at"]

T = TypeVar("T")

_LOOK_AGAIN_SECONDS = 0.01


class _Use:
    """How many calls need a memory, whether one of them has opened it, and what moves it now."""

    def __init__(self) -> None:
        self.calls = 0
        self.by_a_call = False
        self.moving: asyncio.Future[object] | None = None

    async def settled(self) -> None:
        """Wait until nobody is opening or closing the memory."""
        while self.moving is not None and not self.moving.done():
            if self.moving.get_loop() is asyncio.get_running_loop():
                await asyncio.wait({self.moving})
            else:
                await asyncio.sleep(_LOOK_AGAIN_SECONDS)

    async def move(self, work: Awaitable[object]) -> None:
        """Open or close it; whoever is cancelled meanwhile leaves nothing half done."""
        self.moving = asyncio.ensure_future(work)
        self.moving.add_done_callback(looked_at)
        await asyncio.shield(self.moving)


_uses: WeakKeyDictionary[Memory, _Use] = WeakKeyDictionary()


class Opened:
    """One call's part in ``memory``."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        """The memory itself."""
        self._use = _uses.setdefault(memory, _Use())
        self._needs = False

    async def open(self) -> None:
        """Open it, unless it is. Raises: store errors; it can be tried again."""
        use = self._use
        if not self._needs:
            self._needs = True
            use.calls += 1
        await use.settled()
        if not self.memory.is_open:
            use.by_a_call = True
            await use.move(self.memory.__aenter__())
        if not self.memory.is_open:
            raise NotOpen("this memory belongs to one that is not open; open that first")

    async def close(self) -> None:
        """Need it no more. Harmless when repeated."""
        use = self._use
        if not self._needs:
            return
        self._needs = False
        use.calls -= 1
        await use.settled()
        if not use.calls and use.by_a_call and self.memory.is_open:
            use.by_a_call = False
            await use.move(self.memory.aclose())


def is_misuse(error: Exception) -> bool:
    """Whether the application is wrong, and not a store, whose failures cost a call its memory."""
    return isinstance(error, UsageError) and not isinstance(error, NotOpen)


async def answered(work: Coroutine[Any, Any, T], seconds: float, otherwise: str) -> T:
    """What ``work`` comes to, without waiting longer for a store's thread, which cannot be
    cancelled. Raises: ``StoreUnavailable``, which says what holds ``otherwise``."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(looked_at)
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        done = task.done()
        task.cancel()
    if not done:
        raise StoreUnavailable(f"the store has not answered within {seconds:g} s; {otherwise}")
    return task.result()


def looked_at(task: asyncio.Future[Any]) -> None:
    """Take note of how a task ended that nobody may wait for any more."""
    if not task.cancelled():
        task.exception()  # whoever waited for it may be gone
