"""What a state in Redis costs beside the bare driver writing the same rows, in one run; by script,
by WATCH and in a cluster.

The servers are those that ``tests/services`` starts, with every acknowledged write on disk, or the
one that ``TEST_REDIS_URL`` names.
"""

from __future__ import annotations

import asyncio
import importlib
import random
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from measure import loop_lag, machine, percentile, report

from secondcall.abc_state import StateConflict, StateKey, StateStore, StoredState
from secondcall.stores.redis import RedisStates

sys.path.append(str(Path(__file__).parents[1] / "tests"))

_ROUNDS = 500
_WRITERS = 16
_SAVES = 600
_SAVES_BY_WATCH = 120
_TURNS = 12
_MOST_PAUSE_SECONDS = 0.01
_EPOCH = b"0123456789abcdef"
_BODY = b'{"workflow": "booking", "step": "payment", "slots": {"date": "2026-12-01"}}' * 8
_SUMMARY = b'{"step": ["dates", "payment"]}'
_SESSIONS = [f"s{number}" for number in range(_WRITERS)]
_SCRIPT = """
if redis.call('HGET', KEYS[1], 'v') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'v', ARGV[2], 'live', ARGV[2], 'body', ARGV[3], 'at', ARGV[4],
  'by', 'bench', 'schema', 1, 'times', '/')
redis.call('XADD', KEYS[2], ARGV[2] .. '-0', 'at', ARGV[4], 'by', 'bench', 'schema', 1,
  'summary', ARGV[5], 'body', ARGV[3])
return 1
"""

_Write = Callable[[str], Awaitable[None]]


class _Bare:
    """The rows of one save by redis-py alone: by a script of its own that compares the version, or
    in a transaction that compares nothing."""

    def __init__(self, url: str, *, cluster: bool) -> None:
        module: Any = importlib.import_module("redis.asyncio")  # its types are too loose
        kind = module.RedisCluster if cluster else module.Redis
        address = url.partition("?")[0].replace("redis-cluster", "redis").split(",")[0]
        self._client: Any = kind.from_url(address)
        self._versions = dict.fromkeys(_SESSIONS, 0)
        self._sha = ""

    async def open(self) -> None:
        """Connect, and write the first version."""
        self._sha = await self._client.script_load(_SCRIPT)
        for session_id in _SESSIONS:
            await self._client.delete(f"bare:{{ana}}:s{session_id}", f"bare:{{ana}}:c{session_id}")
            await self._client.hset(f"bare:{{ana}}:s{session_id}", "v", "0")
            await self.by_script(session_id)

    async def aclose(self) -> None:
        """Disconnect."""
        await self._client.aclose()

    async def by_script(self, session_id: str) -> None:
        """The state if it is at its version, and a row of its history."""
        version = self._versions[session_id]
        done = await self._client.evalsha(
            self._sha,
            2,
            f"bare:{{ana}}:s{session_id}",
            f"bare:{{ana}}:c{session_id}",
            version,
            version + 1,
            _BODY,
            time.time_ns() // 1_000,
            _SUMMARY,
        )
        assert done == 1, "the bare save lost its comparison"
        self._versions[session_id] += 1

    async def in_a_transaction(self, session_id: str) -> None:
        """The same rows, whatever is there."""
        self._versions[session_id] = version = self._versions[session_id] + 1
        row = {"at": time.time_ns() // 1_000, "by": "bench", "schema": 1}
        state = {"v": version, "live": version, "body": _BODY, "times": "/", **row}
        change = {"summary": _SUMMARY, "body": _BODY, **row}
        async with self._client.pipeline(transaction=True) as pipeline:
            pipeline.hset(f"bare:{{ana}}:s{session_id}", mapping=state)
            pipeline.xadd(f"bare:{{ana}}:c{session_id}", change, id=f"{version}-0")
            await pipeline.execute()


async def _begin(url: str) -> StateStore:
    """A place with one user and a state of each session, open."""
    store = RedisStates(url)
    await store.open()
    await store.admit("bench", "ana", epoch=_EPOCH, now_us=0)
    for session_id in _SESSIONS:
        await _save(store, session_id, None)
    return store


async def _save(store: StateStore, session_id: str, expected: int | None) -> StoredState:
    return await store.save(
        StateKey("bench", "ana", session_id),
        _BODY,
        expected_version=expected,
        epoch=_EPOCH,
        now_us=time.time_ns() // 1_000,
        by="bench",
        summary=_SUMMARY,
    )


async def _measure(
    url: str, saves: int, *, beside: str = "a script", cluster: bool = False
) -> None:
    bare = _Bare(url, cluster=cluster)
    await bare.open()
    store = await _begin(url)
    versions = dict.fromkeys(_SESSIONS, 1)

    async def save(session_id: str) -> None:
        versions[session_id] = (await _save(store, session_id, versions[session_id])).version

    async def update(session_id: str) -> None:
        found = await store.load(StateKey("bench", "ana", session_id))
        versions[session_id] = (await _save(store, session_id, found and found.version)).version

    writes: dict[str, _Write] = {
        "redis-py alone, a script": bare.by_script,
        "redis-py alone, a transaction": bare.in_a_transaction,
        "save a state": save,
        "load and save a state": update,
    }
    seconds: dict[str, list[float]] = {name: [] for name in writes}
    for _ in range(_ROUNDS):
        for name, write in writes.items():
            started = time.perf_counter()
            await write("s0")
            seconds[name].append(time.perf_counter() - started)
    for name in writes:
        report(name, seconds[name])
    alone = f"redis-py alone, {beside}"
    added = percentile(seconds["save a state"], 0.5) - percentile(seconds[alone], 0.5)
    print(f"a save adds {1e3 * added:+.2f} ms to {alone} at the median")
    await _different_keys(writes, saves, alone)
    await _same_key(store, saves)
    await store.aclose()
    await bare.aclose()


async def _different_keys(writes: dict[str, _Write], saves: int, alone: str) -> None:
    """Each kind by turns, so that what else the machine does falls on all of them."""
    seconds = dict.fromkeys(writes, 0.0)
    lags: dict[str, list[float]] = {name: [] for name in writes}
    for _ in range(_TURNS):
        for name, write in writes.items():

            async def work(session_id: str, write: _Write = write) -> None:
                for _ in range(saves // _TURNS):
                    await write(session_id)

            started = time.perf_counter()
            async with loop_lag() as lag:
                await asyncio.gather(*(work(session_id) for session_id in _SESSIONS))
            seconds[name] += time.perf_counter() - started
            lags[name] += lag.seconds
    for name in writes:
        rate = _WRITERS * saves / seconds[name]
        print(f"{_WRITERS} writers, own keys: {name}: {rate:,.0f}/s")
        report("  loop lag", lags[name])
    times = seconds[alone] / seconds["save a state"]
    print(f"saves: {times:.2f} times {alone} (promised: at least 0.5)")


async def _same_key(store: StateStore, saves: int) -> None:
    """Sixteen tasks on one key, each repeating with what the conflict brought."""
    tries = 0

    async def work(current: StoredState | None) -> None:
        nonlocal tries
        for _ in range(saves // 12):
            while True:
                tries += 1
                try:
                    current = await _save(store, "s0", current and current.version)
                except StateConflict as conflict:
                    current = conflict.current
                    await asyncio.sleep(random.uniform(0, _MOST_PAUSE_SECONDS))
                else:
                    break

    found = await store.load(StateKey("bench", "ana", "s0"))
    started = time.perf_counter()
    await asyncio.gather(*(work(found) for _ in range(_WRITERS)))
    done = _WRITERS * (saves // 12)
    rate = done / (time.perf_counter() - started)
    print(f"{_WRITERS} writers, one key: {rate:,.0f} saves/s, {tries / done:.1f} tries each")


def main() -> None:
    """Print latencies with one writer and rates with sixteen."""
    services: Any = importlib.import_module("services.redis")
    print(f"machine: {machine()}")
    with services.redis_server() as server:
        print("\none server, by script")
        asyncio.run(_measure(server.url(), _SAVES))
        print("\none server, by WATCH")
        asyncio.run(_measure(server.url("&cas=watch"), _SAVES_BY_WATCH, beside="a transaction"))
    with services.redis_cluster() as cluster:
        print("\nthree servers as a cluster, by script")
        asyncio.run(_measure(cluster.url(), _SAVES, cluster=True))


if __name__ == "__main__":
    main()
