"""The state store on DynamoDB keeps the contract of ``StateStore``, on an emulator.

It is cut off by a proxy: the emulator keeps nothing over a kill.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from services.dynamodb import Proxy, Server, dynamodb_server, dynamodb_url

from secondcall.abc_state import StateStore
from secondcall.stores.dynamodb import state_store
from secondcall.testing.conformance import StateConformance, StateHarness

pytestmark = pytest.mark.external_service


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """The emulator, or what ``TEST_DYNAMODB_ENDPOINT`` names."""
    with dynamodb_server() as found:
        yield found


class DynamoHarness(StateHarness):
    """A table of its own; other processes reach it past the proxy."""

    can_stop = True

    def __init__(self, table: str, server: Server, proxy: Proxy) -> None:
        self._table = table
        self._proxy = proxy
        self.url = dynamodb_url(table, server.endpoint)

    def make(self) -> StateStore:
        return state_store(dynamodb_url(self._table, self._proxy.endpoint, "&timeout_seconds=5"))

    async def stop(self) -> None:
        self._proxy.cut()

    async def start(self) -> None:
        self._proxy.mend()


class TestDynamoStates(StateConformance):
    @pytest.fixture
    def harness(self, server: Server) -> Iterator[StateHarness]:
        with Proxy(server.endpoint) as proxy:
            yield DynamoHarness(server.table(), server, proxy)
