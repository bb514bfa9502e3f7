"""States in PostgreSQL keep the contract of ``StateStore``, on its oldest and newest version."""

from __future__ import annotations

import os

import anyio.to_thread
import pytest
from services.postgresql import Server

from secondcall.abc_state import StateStore
from secondcall.stores.postgresql import PostgresStates
from secondcall.testing.conformance import StateConformance, StateHarness
from secondcall.testing.conformance.state_concurrency import StateConcurrencySuite
from secondcall.testing.conformance.state_erasure import StateErasureSuite
from secondcall.testing.conformance.state_timers import StateTimersSuite
from secondcall.testing.conformance.state_values import StateValuesSuite

pytestmark = pytest.mark.external_service


class PostgresHarness(StateHarness):
    """A schema of its own; the whole server is killed and started again."""

    increments = int(os.environ.get("SECONDCALL_CONTENTION_INCREMENTS", "5"))

    def __init__(self, server: Server, options: str = "") -> None:
        self._server = server
        self.can_stop = server.can_stop
        self._url = self.url = server.url(options)

    def make(self) -> StateStore:
        return PostgresStates(self._url)

    async def stop(self) -> None:
        await anyio.to_thread.run_sync(self._server.kill)

    async def start(self) -> None:
        await anyio.to_thread.run_sync(self._server.start)


class TestPostgresql16States(StateConformance):
    @pytest.fixture
    def harness(self, postgresql_16: Server) -> StateHarness:
        return PostgresHarness(postgresql_16)


class TestPostgresql18States(StateConformance):
    @pytest.fixture
    def harness(self, postgresql_18: Server) -> StateHarness:
        return PostgresHarness(postgresql_18)


class TestPostgresqlStatesThroughAPooler(
    StateValuesSuite, StateTimersSuite, StateErasureSuite, StateConcurrencySuite
):
    """Without prepared statements and session settings, as behind pgbouncer, and with few
    connections."""

    @pytest.fixture
    def harness(self, postgresql_18: Server) -> StateHarness:
        return PostgresHarness(postgresql_18, "&pgbouncer=1&connections=2")
