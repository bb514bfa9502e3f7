"""Work of a call that a store may be down for, tried until it is done."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from secondcall.adapters.livekit.opening import looked_at

__all__ = ["Insisting"]

_log = logging.getLogger("secondcall.livekit")
_PAUSE_SECONDS = (0.1, 5.0)
"""Before the next attempt: at first, and at most; each time twice as long."""


class Insisting:
    """Does ``work`` until it raises nothing or is not ``wanted`` any more."""

    def __init__(self, work: Callable[[], Awaitable[None]], *, wanted: Callable[[], bool]) -> None:
        self._work = work
        self._wanted = wanted
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Begin, if it is wanted and not under way. Returns at once."""
        if self._wanted() and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(looked_at)

    async def stop(self) -> None:
        """End what is under way. Harmless when repeated."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        pause, longest = _PAUSE_SECONDS
        while self._wanted():
            try:
                await self._work()
            except Exception as error:  # whatever a store does, it is tried again; it is logged
                _log.warning("a call tries again", extra={"error": type(error).__name__})
                await asyncio.sleep(pause)
                pause = min(2 * pause, longest)
            else:
                return
