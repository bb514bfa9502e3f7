"""States in Redis keep the contract of ``StateStore``: by script, by WATCH, and in a cluster."""

from __future__ import annotations

import os

import anyio.to_thread
import pytest
from services.redis import Cluster, Server

from secondcall.abc_state import StateStore
from secondcall.stores.redis import RedisStates
from secondcall.testing.conformance import StateConformance, StateHarness

pytestmark = pytest.mark.external_service

INCREMENTS = int(os.environ.get("SECONDCALL_CONTENTION_INCREMENTS", "5"))


class RedisHarness(StateHarness):
    """A prefix of its own; the whole server is killed and started again."""

    increments = INCREMENTS

    def __init__(self, server: Server, options: str = "") -> None:
        self._server = server
        self.can_stop = server.can_stop
        self._place = self.url = server.url(options)

    def make(self) -> StateStore:
        return RedisStates(self._place)

    async def stop(self) -> None:
        await anyio.to_thread.run_sync(self._server.kill)

    async def start(self) -> None:
        await anyio.to_thread.run_sync(self._server.start)


class TestRedisStates(StateConformance):
    """By script, with every acknowledged save on disk."""

    @pytest.fixture
    def harness(self, redis_durable: Server) -> StateHarness:
        return RedisHarness(
            redis_durable, "&cas=script&durable=commit" if redis_durable.can_stop else ""
        )


class TestRedisStatesByWatch(StateConformance):
    @pytest.fixture
    def harness(self, redis_quick: Server) -> StateHarness:
        return RedisHarness(redis_quick, "&cas=watch&connections=4")


class TestRedisClusterStates(StateConformance):
    @pytest.fixture
    def harness(self, redis_in_three: Cluster) -> StateHarness:
        return RedisHarness(redis_in_three)
