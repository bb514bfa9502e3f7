"""What a state in PostgreSQL costs beside the bare driver writing the same rows, in one run.

The server is one that ``tests/services`` starts, or that ``TEST_PG_DSN`` names.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from measure import loop_lag, machine, percentile, report

from secondcall.abc_state import StateKey, StateStore
from secondcall.stores.postgresql import PostgresStates
from secondcall.stores.postgresql_link import parse_url

sys.path.append(str(Path(__file__).parents[1] / "tests"))

_ROUNDS = 500
_WRITERS = 16
_SAVES = 200
_EPOCH = b"0123456789abcdef"
_BODY = b'{"workflow": "booking", "step": "payment", "slots": {"date": "2026-12-01"}}' * 8
_SUMMARY = b'{"step": ["dates", "payment"]}'
_SESSIONS = [f"s{number}" for number in range(_WRITERS)]
_BARE = """
WITH changed AS (
    UPDATE {schema}.states AS s SET version = version + 1, schema = 1, updated_us = $3,
        updated_by = 'bench', expires_us = NULL, due_us = NULL, body = $4
    WHERE s.tenant_id = 'bench' AND s.user_id = 'ana' AND s.in_session = 1 AND s.session_id = $1
    AND s.version = $2
    RETURNING version
)
INSERT INTO {schema}.state_history (
    tenant_id, user_id, in_session, session_id, version, schema, at_us, by, summary, body
) SELECT 'bench', 'ana', 1, $1, version, 1, $3, 'bench', $5, $4 FROM changed
RETURNING version
"""

_Write = Callable[[str], Awaitable[None]]


async def _begin(url: str) -> StateStore:
    """A schema with one user and a state of each session, open."""
    store = PostgresStates(url)
    await store.open()
    await store.admit("bench", "ana", epoch=_EPOCH, now_us=0)
    for session_id in _SESSIONS:
        await _save(store, session_id, None)
    return store


async def _save(store: StateStore, session_id: str, expected: int | None) -> int:
    saved = await store.save(
        StateKey("bench", "ana", session_id),
        _BODY,
        expected_version=expected,
        epoch=_EPOCH,
        now_us=time.time_ns() // 1_000,
        by="bench",
        summary=_SUMMARY,
    )
    return saved.version


class _Bare:
    """The rows of one save by asyncpg alone, in one statement, on a connection for each session."""

    def __init__(self, url: str) -> None:
        self._settings = parse_url(url)
        self._sql = _BARE.replace("{schema}", f'"{self._settings.schema}"')
        self._versions = dict.fromkeys(_SESSIONS, 1)
        self._connections: dict[str, Any] = {}

    async def open(self) -> None:
        """Connect."""
        driver: Any = importlib.import_module("asyncpg")  # it has no types
        for session_id in _SESSIONS:
            self._connections[session_id] = await driver.connect(self._settings.dsn)

    async def aclose(self) -> None:
        """Disconnect."""
        for connection in self._connections.values():
            await connection.close()

    async def write(self, session_id: str) -> None:
        """The state if it is at its version, and a row of its history."""
        version, now_us = self._versions[session_id], time.time_ns() // 1_000
        connection = self._connections[session_id]
        row = await connection.fetchval(self._sql, session_id, version, now_us, _BODY, _SUMMARY)
        assert row == version + 1, "the bare save lost its comparison"
        self._versions[session_id] = row


async def _measure(ours_url: str, bare_url: str) -> None:
    await (await _begin(bare_url)).aclose()
    bare = _Bare(bare_url)
    await bare.open()
    store = await _begin(ours_url)
    versions = dict.fromkeys(_SESSIONS, 1)

    async def save(session_id: str) -> None:
        versions[session_id] = await _save(store, session_id, versions[session_id])

    async def update(session_id: str) -> None:
        found = await store.load(StateKey("bench", "ana", session_id))
        versions[session_id] = await _save(store, session_id, found and found.version)

    writes: dict[str, _Write] = {
        "the same rows by asyncpg alone": bare.write,
        "save a state, acknowledged durable": save,
        "load and save a state": update,
    }
    await _one_writer(writes)
    for _ in range(2):
        await _different_keys(writes)
    await store.aclose()
    await bare.aclose()


async def _one_writer(writes: dict[str, _Write]) -> None:
    seconds: dict[str, list[float]] = {name: [] for name in writes}
    for _ in range(_ROUNDS):
        for name, write in writes.items():
            started = time.perf_counter()
            await write("s0")
            seconds[name].append(time.perf_counter() - started)
    for name in writes:
        report(name, seconds[name])
    first, second, _ = (percentile(one, 0.5) for one in seconds.values())
    print(f"a save adds {1e3 * (second - first):+.2f} ms at the median")


async def _different_keys(writes: dict[str, _Write]) -> None:
    rates: list[float] = []
    for name, write in writes.items():

        async def work(session_id: str, write: _Write = write) -> None:
            for _ in range(_SAVES):
                await write(session_id)

        started = time.perf_counter()
        async with loop_lag() as lag:
            await asyncio.gather(*(work(session_id) for session_id in _SESSIONS))
        rates.append(_WRITERS * _SAVES / (time.perf_counter() - started))
        times = rates[-1] / rates[0]
        print(f"{_WRITERS} writers, own keys: {name}: {rates[-1]:,.0f}/s, {times:.2f} times")
        report("  loop lag", lag.seconds)
    print(f"saves: {rates[1] / rates[0]:.2f} times the bare driver (promised: at least 0.5)")


def main() -> None:
    """Print latencies with one writer and rates with sixteen."""
    services: Any = importlib.import_module("services.postgresql")
    print(f"machine: {machine()}")
    with services.running(18) as server:
        asyncio.run(_measure(server.url(), server.url()))


if __name__ == "__main__":
    main()
