"""Who goes on with a session: one holder at a time, for as long as it says."""

from __future__ import annotations

from datetime import timedelta

import pytest

from secondcall import Memory, Message
from secondcall.testing.fakes import FrozenClock

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("scheme", ["memory", "sqlite"])
async def test_a_session_is_held_by_one(
    scheme: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Nobody else takes it before it is given up or has run out; the holder may renew it."""
    clock = FrozenClock()
    path = tmp_path_factory.mktemp("claims") / "memory.db"
    url = "memory://" if scheme == "memory" else f"sqlite:///{path}"
    async with Memory.open(url, clock=clock) as memory:
        session = await memory.user("ann").session("call-1")
        assert await session.claim("one", seconds=10) is False
        await session.record(Message("user", "Hello"))
        assert await session.claim("one", seconds=10) is True
        assert await session.claim("two", seconds=10) is False
        other = await memory.user("ann").session("call-2")
        assert await other.claim("two", seconds=10) is True
        clock.advance(timedelta(seconds=8))
        assert await session.claim("one", seconds=10) is True
        clock.advance(timedelta(seconds=8))
        assert await session.claim("two", seconds=10) is False
        await session.release("two")
        assert await session.claim("two", seconds=10) is False
        await session.release("one")
        assert await session.claim("two", seconds=10) is True
        clock.advance(timedelta(seconds=11))
        assert await session.claim("one", seconds=10) is True


async def test_a_memory_says_whether_it_is_open_and_what_time_it_is() -> None:
    """It is open inside ``async with`` only; a user's time is the memory's."""
    clock = FrozenClock()
    memory = Memory.open("memory://", clock=clock)
    assert memory.is_open is False
    async with memory:
        assert memory.is_open is True
        assert memory.user("ann").now() == clock.now()
    assert memory.is_open is False
