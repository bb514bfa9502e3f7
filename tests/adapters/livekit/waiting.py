"""Waiting for what a session does in its own time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["until"]


async def until(condition: Callable[[], bool], *, seconds: float = 10.0) -> None:
    """Return when ``condition`` holds; ``TimeoutError`` after ``seconds``."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - there is no event for all that tests wait for
            await asyncio.sleep(0.005)
