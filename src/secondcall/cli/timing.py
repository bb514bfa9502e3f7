"""How long the steps of the demo's calls take."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from secondcall.config import Settings
from secondcall.memory import Memory

__all__ = ["Timer", "opened"]


@dataclass
class Timer:
    """Milliseconds by step."""

    steps: dict[str, float] = field(default_factory=dict[str, float])

    @contextmanager
    def step(self, name: str) -> Generator[None, None, None]:
        """Time one step."""
        begun = time.perf_counter()
        yield
        self.steps[name] = round((time.perf_counter() - begun) * 1_000, 3)


@asynccontextmanager
async def opened(url: str, timer: Timer) -> AsyncGenerator[Memory, None]:
    """The memory at ``url`` with the configured embedder."""
    memory = Memory.open(url, embedder=Settings.from_environment().embedder)
    with timer.step("open"):
        await memory.__aenter__()
    try:
        yield memory
    finally:
        await memory.aclose()
