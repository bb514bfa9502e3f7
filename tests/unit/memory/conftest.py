"""Open memories over both embedded stores, with a frozen clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from secondcall import Memory
from secondcall.testing.fakes import FrozenClock

START = datetime(2026, 5, 4, 9, tzinfo=UTC)


@pytest.fixture
def clock() -> FrozenClock:
    """A clock that stands at 4 May 2026, 9:00 UTC."""
    return FrozenClock(START)


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A URL for each embedded store."""
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'm.db'}"


@pytest.fixture
async def memory(url: str, clock: FrozenClock) -> AsyncIterator[Memory]:
    """An open memory of the tenant *default*."""
    async with Memory.open(url, clock=clock) as opened:
        yield opened
