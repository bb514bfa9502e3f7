"""What the conformance tests of states are made of: the harness of a backend, and short calls."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import NoReturn

import anyio
import pytest

from secondcall.abc_state import (
    StateChange,
    StateConflict,
    StateKey,
    StateStore,
    StoredState,
)

__all__ = [
    "EPOCH",
    "KEY",
    "NOW_US",
    "OTHER_EPOCH",
    "WIDE",
    "StateHarness",
    "StateSuite",
    "add",
    "all_history",
    "save",
    "session",
    "total",
]

EPOCH = b"0123456789abcdef"
OTHER_EPOCH = b"fedcba9876543210"
NOW_US = 1_767_225_600_000_000
KEY = StateKey("tenant", "alice", "s")
WIDE = StateKey("tenant", "alice", None)
_MOST_PAUSE_SECONDS = 0.01


class StateHarness(ABC):
    """One place for states, as a backend's tests set it up: empty when the test begins.

    ``url``: what ``secondcall.registry.state_store_from_url`` opens the same place by, in other
    processes; a store that declares ``shared`` needs it. ``can_stop``: ``stop`` and ``start`` work.
    ``increments``: how many each of 16 writers in 4 processes does on one key.
    """

    url: str | None = None
    can_stop: bool = False
    increments: int = 20

    @abstractmethod
    def make(self) -> StateStore:
        """Another store over the same place, not opened yet."""

    async def stop(self) -> None:
        """Make the place unreachable: kill the server, cut the connection, hold the lock."""
        self._cannot()

    async def start(self) -> None:
        """Make it reachable again, with what it had acknowledged."""
        self._cannot()

    def _cannot(self) -> NoReturn:
        raise NotImplementedError(f"{type(self).__name__} declares can_stop; write stop and start")


class StateSuite:
    """The fixtures that every part of the suite uses. Override ``harness``."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def anyio_backend(self) -> str:
        """The event loop of the suite."""
        return "asyncio"

    @pytest.fixture
    def harness(self) -> StateHarness:
        """The backend under test over one empty place, a new place for each test."""
        raise NotImplementedError(
            "override the fixture harness: it returns a StateHarness over a place that is empty "
            "when the test begins"
        )

    @pytest.fixture
    async def states(self, harness: StateHarness) -> AsyncIterator[StateStore]:
        """An open store that has let *alice* in; its own check must find nothing wrong."""
        store = harness.make()
        await store.open()
        await store.admit(KEY.tenant_id, KEY.user_id, epoch=EPOCH, now_us=NOW_US)
        yield store
        assert list(await store.problems()) == []
        await store.aclose()


def session(session_id: str | None, user_id: str = "alice", tenant_id: str = "tenant") -> StateKey:
    """The key of a state of *alice*, or of somebody else."""
    return StateKey(tenant_id, user_id, session_id)


async def save(
    store: StateStore,
    body: bytes = b"{}",
    *,
    expected: int | None = None,
    key: StateKey = KEY,
    epoch: bytes = EPOCH,
    now_us: int = NOW_US,
    by: str = "test",
    summary: bytes = b"{}",
    due_us: int | None = None,
    expires_us: int | None = None,
) -> StoredState:
    """Save a state, by default if it is absent."""
    return await store.save(
        key,
        body,
        expected_version=expected,
        epoch=epoch,
        now_us=now_us,
        by=by,
        summary=summary,
        due_us=due_us,
        expires_us=expires_us,
    )


async def add(store: StateStore, count: int, *, key: StateKey = KEY, by: str = "test") -> None:
    """Add 1 to a counting state so many times, each as often as it takes to win."""
    current = await store.load(key)
    for _ in range(count):
        while True:
            value, version = (0, None) if current is None else (int(current.body), current.version)
            try:
                current = await save(store, b"%d" % (value + 1), expected=version, key=key, by=by)
            except StateConflict as conflict:
                current = conflict.current
                await anyio.sleep(random.uniform(0, _MOST_PAUSE_SECONDS))
            else:
                break


async def all_history(store: StateStore, key: StateKey = KEY) -> Sequence[StateChange]:
    """The whole history, oldest first, after checking that its versions are 1, 2, 3 and so on."""
    changes = [*await store.history(key, limit=100_000)][::-1]
    assert [one.version for one in changes] == list(range(1, len(changes) + 1))
    return changes


async def total(store: StateStore, user_id: str = "alice", tenant_id: str = "tenant") -> int:
    """How many rows a scan finds, in all places together."""
    return sum((await store.scan(tenant_id, user_id)).values())
