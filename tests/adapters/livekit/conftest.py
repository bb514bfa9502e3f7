"""What tests of calls have in common: a memory, and a caller that it knows."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from adapters.livekit.jobs import ANN

from secondcall import Memory


@pytest.fixture
async def memory() -> AsyncIterator[Memory]:
    """An empty memory."""
    async with Memory.open("memory://") as memory:
        yield memory


@pytest.fixture
async def ann_is_known(memory: Memory) -> None:
    """Ann has called before: her name and her seat are remembered under her number."""
    ann = memory.user(await memory.identify(phone=ANN))
    await ann.remember("name", "Ann")
    await ann.remember("seat", "aisle")
