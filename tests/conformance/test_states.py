"""The state stores of this package keep the contract of ``StateStore``."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from secondcall.abc_state import StateStore
from secondcall.stores import memory, sqlite
from secondcall.testing.conformance import StateConformance, StateHarness


class MemoryHarness(StateHarness):
    """Each store is a place of its own."""

    def make(self) -> StateStore:
        return memory.state_store("memory://")


class SqliteHarness(StateHarness):
    """One file; it is away while another connection holds its lock."""

    can_stop = True

    def __init__(self, path: Path, options: str = "") -> None:
        self._path = path
        self._options = options
        self._blocker: apsw.Connection | None = None
        self.url = f"sqlite:///{path}{options}"

    def make(self) -> StateStore:
        # Whoever waits for the lock gives up soon.
        options = f"{self._options or '?'}&busy_timeout_seconds=0.2"
        return sqlite.state_store(f"sqlite:///{self._path}{options}")

    async def stop(self) -> None:
        self._blocker = apsw.Connection(str(self._path))
        self._blocker.set_busy_timeout(10_000)
        self._blocker.execute("BEGIN IMMEDIATE")  # pyright: ignore[reportUnknownMemberType] - untyped in apsw

    async def start(self) -> None:
        if self._blocker is not None:
            self._blocker.close()
            self._blocker = None


class TestMemoryStates(StateConformance):
    @pytest.fixture
    def harness(self) -> StateHarness:
        return MemoryHarness()


class TestSqliteStates(StateConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> StateHarness:
        harness = SqliteHarness(tmp_path / "state.db")
        harness.increments = 10
        return harness


class TestSqliteStatesWithNormalSynchronous(StateConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> StateHarness:
        return SqliteHarness(tmp_path / "state.db", "?synchronous=normal")
