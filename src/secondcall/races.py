"""How long a lost compare-and-set is tried again: by time, not by count, so that nobody starves."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio

__all__ = ["RACE_SECONDS", "Race"]

RACE_SECONDS = 30.0
"""As long as a store waits for a lock. Tries that are counted run out in a moment where one writer
is faster many times in a row: it needs no wait, and who waits comes while it writes."""
_FIRST_PAUSE_SECONDS = 0.001
_LONGEST_PAUSE_SECONDS = 0.064


@dataclass(slots=True)
class Race:
    """The tries of one change. The first lost one is repeated at once, since whoever won must read
    before the next; then pauses of random length grow, so that rivals do not meet again."""

    limit_seconds: float = RACE_SECONDS
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[object]] = anyio.sleep
    _lost: int = field(default=0, init=False)
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        self._began = self.now()

    async def goes_on(self) -> bool:
        """Wait for the next try after a lost one; ``False`` when the time is used up."""
        if self.now() - self._began >= self.limit_seconds:
            return False
        self._lost += 1
        if self._lost > 1:
            longest = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2 ** min(self._lost, 32))
            await self.sleep(longest * secrets.randbelow(1_000) / 1_000)
        return True
