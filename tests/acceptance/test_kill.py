"""Recording survives kill -9: what was acknowledged is there, and nothing is torn.

``SECONDCALL_KILL_ROUNDS`` sets how often the processes are killed (20; ``make soak``: 200).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import anyio
import apsw
import pytest

from secondcall.abc import Scope
from secondcall.stores.sqlite import SqliteStore
from secondcall.testing.conformance.material import all_changes, key

pytestmark = pytest.mark.anyio

ROUNDS = int(os.environ.get("SECONDCALL_KILL_ROUNDS", "20"))
WORKER = Path(__file__).with_name("record_worker.py")
PROCESSES = 2


@pytest.fixture
def server() -> Iterator[subprocess.Popen[str]]:
    """A process that starts recording processes on demand."""
    with subprocess.Popen(
        [sys.executable, str(WORKER), "serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    ) as server:
        yield server
        assert server.stdin is not None
        server.stdin.close()


def _start(server: subprocess.Popen[str], path: Path, name: str) -> int:
    """Start a recording process; its pid."""
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(f"{path} {name}\n")
    server.stdin.flush()
    return int(server.stdout.readline())


def _kill(pid: int) -> None:
    """kill -9, and wait until the process is gone."""
    os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.001)
    pytest.fail(f"process {pid} is still there")


def _wait_for_first_line(log: Path) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if log.exists() and log.stat().st_size:
            return
        time.sleep(0.001)
    pytest.fail("nothing was recorded within 30 s")


def _kill_while_recording(
    server: subprocess.Popen[str], path: Path, number: int, chance: random.Random
) -> dict[str, list[str]]:
    """Start processes, kill them at a random moment; the acknowledged ids of each scope."""
    names = [f"r{number}-{process}" for process in range(PROCESSES)]
    pids = [_start(server, path, name) for name in names]
    _wait_for_first_line(Path(f"{path}.{names[0]}"))
    time.sleep(chance.uniform(0, 0.4))
    for pid in pids:
        _kill(pid)
    acknowledged: dict[str, list[str]] = defaultdict(list)
    for log in (Path(f"{path}.{name}") for name in names):
        for line in log.read_text("utf-8").splitlines() if log.exists() else ():
            scope_name, item_id = line.split()
            acknowledged[scope_name].append(item_id)
    return acknowledged


async def _verify(path: Path, acknowledged: dict[str, list[str]]) -> None:
    store = SqliteStore(f"sqlite:///{path}")
    await store.open()
    for name, ids in acknowledged.items():
        scope = Scope("tenant", "user", name)
        keys = [key(one, f"s{one.split('-')[-3]}") for one in ids]
        found = await store.entries(scope, keys)
        assert [one.key for one in found] == keys
        assert all(one.body.startswith(one.key.id.encode()) for one in found)
        await all_changes(store, scope)
    left = await store.scopes("tenant", "user", limit=100_000)
    for scope in left:
        if "erased" in scope.name:
            assert {len(await all_changes(store, scope))} <= {0, 100, 200, 300}
    assert list(await store.problems()) == []
    await store.aclose()


async def test_nothing_acknowledged_is_lost(tmp_path: Path, server: subprocess.Popen[str]) -> None:
    """After each kill every acknowledged item is there, numbers have no gaps, the file is whole."""
    path = tmp_path / "memory.db"
    chance = random.Random()
    total = 0
    for number in range(ROUNDS):
        acknowledged = await anyio.to_thread.run_sync(
            _kill_while_recording, server, path, number, chance
        )
        await _verify(path, acknowledged)
        total += sum(map(len, acknowledged.values()))
    connection = apsw.Connection(str(path))
    checked = connection.execute("PRAGMA integrity_check").fetchall()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - untyped in apsw
    erased = connection.execute("SELECT count(*) FROM partitions WHERE epoch IS NULL").fetchall()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - untyped in apsw
    connection.close()
    assert checked == [("ok",)]
    assert erased == [(0,)]
    print(f"{ROUNDS} rounds of kill -9, {PROCESSES} processes, {total} acknowledged items, 0 lost")
    assert total >= ROUNDS
