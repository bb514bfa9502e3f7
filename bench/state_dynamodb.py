"""What a state in DynamoDB costs beside the bare driver writing the same rows, in one run.

Against the emulator that the tests use, or ``TEST_DYNAMODB_ENDPOINT``: both sides wait for the same
server, so the ratio says what we add, and neither rate says anything about Amazon's.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

from aiobotocore import session as aiobotocore_session
from botocore.config import Config
from measure import loop_lag, machine, report

from secondcall.abc_state import StateKey
from secondcall.stores.dynamodb import DynamoStates, state_store

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from services.dynamodb import Server, running

_WRITERS = 16
_SAVES = 50
_ROUNDS = 3
_EPOCH = b"0123456789abcdef"
_BODY = b'{"workflow": "booking", "step": "payment", "slots": {"date": "2026-12-01"}}' * 8
_SUMMARY = b'{"step": ["dates", "payment"]}'


class _Bare:
    """The two rows of one save in one transaction, by the driver alone."""

    def __init__(self, client: Any, table: str) -> None:
        self._client = client
        self._table = table

    async def write(self, session: int, version: int) -> None:
        common = {
            "version": {"N": str(version)},
            "at_us": {"N": str(time.time_ns() // 1_000)},
            "by": {"S": "bench"},
            "schema": {"N": "1"},
            "body": {"B": _BODY},
        }
        key = {"pk": {"B": b"bench"}, "sk": {"B": b"s%d" % session}}
        row = {"pk": {"B": b"bench"}, "sk": {"B": b"h%d" % session + version.to_bytes(8, "big")}}
        condition = {"ConditionExpression": "attribute_not_exists(pk)"}
        if version > 1:
            condition = {
                "ConditionExpression": "version = :version",
                "ExpressionAttributeValues": {":version": {"N": str(version - 1)}},
            }
        put = {"TableName": self._table, "Item": {**key, **common}, **condition}
        history = {**row, **common, "summary": {"B": _SUMMARY}}
        await self._client.transact_write_items(
            TransactItems=[{"Put": put}, {"Put": {"TableName": self._table, "Item": history}}]
        )


async def _save(store: DynamoStates, session: int, version: int) -> None:
    await store.save(
        StateKey("bench", "ana", f"s{session}"),
        _BODY,
        expected_version=version - 1 or None,
        epoch=_EPOCH,
        now_us=time.time_ns() // 1_000,
        by="bench",
        summary=_SUMMARY,
    )


async def _rate(first: int, write: Callable[[int, int], Awaitable[None]]) -> float:
    """Writes a second of 16 writers, each on a key of its own, from this version on."""

    async def work(session: int) -> None:
        for version in range(first, first + _SAVES):
            await write(session, version)

    started = time.perf_counter()
    await asyncio.gather(*(work(session) for session in range(_WRITERS)))
    return _WRITERS * _SAVES / (time.perf_counter() - started)


async def _measure(server: Server) -> None:
    store = state_store(server.url())
    await store.open()
    await store.admit("bench", "ana", epoch=_EPOCH, now_us=0)
    other = state_store(server.url())
    await other.open()
    table = server.tables[-1]
    config = Config(max_pool_connections=50)
    driver = cast("Any", aiobotocore_session).get_session()
    async with driver.create_client(
        "dynamodb", endpoint_url=server.endpoint, config=config
    ) as client:
        bare = _Bare(client, table)

        async def update(session: int, version: int) -> None:
            await store.load(StateKey("bench", "ana", f"s{session}"))
            await _save(store, session, version)

        async def save(session: int, version: int) -> None:
            await _save(store, session, version)

        rates: dict[str, list[float]] = {"bare": [], "save": [], "load and save": []}
        async with loop_lag() as lag:
            for number in range(_ROUNDS):
                at = 1 + number * _SAVES
                rates["bare"].append(await _rate(at, bare.write))
                rates["save"].append(await _rate(1 + 2 * number * _SAVES, save))
                rates["load and save"].append(await _rate(1 + (2 * number + 1) * _SAVES, update))
    await store.aclose()
    await other.aclose()
    best = {name: max(found) for name, found in rates.items()}
    for name, rate in best.items():
        print(
            f"{name}: {rate:,.0f} a second, {rate / best['bare']:.2f} times the bare driver"
            + (" (promised: at least 0.5)" if name == "save" else "")
        )
    report("loop lag, 16 writers", lag.seconds)


def main() -> None:
    """Print it."""
    print(f"machine: {machine()}")
    with running() as server:
        asyncio.run(_measure(server))


if __name__ == "__main__":
    main()
