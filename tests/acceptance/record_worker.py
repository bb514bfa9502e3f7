"""Processes that record into a SQLite file.

``record_worker.py contend FILE NAME SECONDS`` records for some seconds and prints what it did as
one JSON object. ``record_worker.py serve`` reads lines ``FILE NAME`` and for each starts a process,
by fork so that nothing is imported again, and prints its pid; that process records and erases until
it is killed, and adds a line to ``FILE.NAME`` for each item that was acknowledged.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import sys
import time

from secondcall.abc import ANY_VERSION, Batch, Scope
from secondcall.stores.sqlite import SqliteStore
from secondcall.testing.conformance.material import NOW_US, document, entry

SHARED = Scope("tenant", "user", "shared")
SHARED_EPOCH = b"shared by all   "
TASKS = 4


def own_scope(name: str) -> Scope:
    """The scope that only this worker writes to."""
    return Scope("tenant", "user", name)


@dataclasses.dataclass
class _Done:
    writes: int = 0
    worst_seconds: float = 0.0
    errors: list[str] = dataclasses.field(default_factory=list[str])


async def _record_for_ever(store: SqliteStore, name: str, task: int, log: int) -> None:
    number = 0
    while True:
        number += 1
        scope, epoch = (SHARED, SHARED_EPOCH) if number % 2 else (own_scope(name), name.encode())
        ids = [f"{name}-{task}-{number}-{n}" for n in range(1 + number % 3)]
        await store.write(
            scope,
            Batch(
                entries=[entry(one, one * (1 + number % 40), session_id=f"s{task}") for one in ids],
                documents=[document(ids[0], ids[0].encode(), announce=number % 5 == 0)],
            ),
            epoch=epoch,
            now_us=NOW_US,
            create=True,
        )
        # One call, so that a killed process leaves whole lines.
        os.write(log, "".join(f"{scope.name} {one}\n" for one in ids).encode())


async def _erase_for_ever(store: SqliteStore, name: str) -> None:
    number = 0
    while True:
        number += 1
        scope = own_scope(f"{name} erased {number}")
        for part in range(3):
            entries = [entry(f"i{part}-{n}", "x" * 500) for n in range(100)]
            await store.write(scope, Batch(entries=entries), epoch=b"e", now_us=NOW_US, create=True)
        await store.put_blob(scope, "b", b"x" * 100_000, epoch=b"e")
        await store.erase(scope)
        if number % 2:
            await store.finish_erasure()


async def _until_killed(path: str, name: str) -> None:
    log = os.open(f"{path}.{name}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    store = SqliteStore(f"sqlite:///{path}")
    await store.open()
    await asyncio.gather(
        *(_record_for_ever(store, name, task, log) for task in range(TASKS)),
        _erase_for_ever(store, name),
    )


def _serve() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        path, name = line.split()
        pid = os.fork()
        if pid == 0:
            asyncio.run(_until_killed(path, name))
        print(pid, flush=True)


async def _contend(path: str, name: str, seconds: float) -> None:
    store = SqliteStore(f"sqlite:///{path}")
    await store.open()
    done = _Done()
    until = time.monotonic() + seconds

    async def work(task: int) -> None:
        while time.monotonic() < until:
            number = done.writes = done.writes + 1
            batch = Batch(
                entries=[entry(f"{name}-{number}", "x" * 200, session_id=f"{name}-{task}")],
                documents=[document(name, b"%d" % number, expected=ANY_VERSION)],
            )
            begun = time.monotonic()
            try:
                await store.write(SHARED, batch, epoch=SHARED_EPOCH, now_us=NOW_US, create=True)
            except Exception as error:  # reported to the test, which judges it
                done.errors.append(f"{type(error).__name__}: {error}")
            done.worst_seconds = max(done.worst_seconds, time.monotonic() - begun)

    await asyncio.gather(*(work(task) for task in range(TASKS)))
    await store.aclose()
    print(json.dumps(dataclasses.asdict(done)), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        _serve()
    else:
        asyncio.run(_contend(sys.argv[2], sys.argv[3], float(sys.argv[4])))
