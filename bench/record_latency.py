"""What durable recording costs beside a bare apsw transaction of the same rows, in one run."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import cast

from measure import loop_lag, machine, percentile, report

from secondcall import Memory, Message
from secondcall.record.append import encode_item
from secondcall.stores.sqlite_file import SqliteSettings, connect_writer, row_of, run
from secondcall.stores.statements import load_queries

_ROUNDS = 1_000
_CALLS = 20
_ITEMS = 100
_TEXT = "I would like to move my appointment from Tuesday to Thursday afternoon, please."


class _Bare:
    """The rows of one record written by apsw alone, with the store's pragmas and tables."""

    def __init__(self, path: Path) -> None:
        self._connection = connect_writer(
            SqliteSettings(path=str(path)), keep_waiting=lambda _: False
        )
        self._queries = load_queries("sqlite")
        partition = row_of(self._connection, "SELECT id, change FROM partitions LIMIT 1")
        self._partition, self._change = cast("tuple[int, int]", partition)
        session = row_of(self._connection, "SELECT id, items FROM sessions LIMIT 1")
        self._session, self._items = cast("tuple[int, int]", session)

    def write(self) -> None:
        """One transaction: the entry, the header's change number, the session's outline."""
        entry = encode_item("s", Message("user", _TEXT), now_us=time.time_ns() // 1_000)
        self._change += 1
        self._items += 1
        connection = self._connection
        run(connection, "BEGIN IMMEDIATE")
        run(
            connection,
            self._queries["add_entry"],
            (
                self._partition,
                self._change,
                self._session,
                entry.key.kind,
                entry.key.id,
                entry.at_us,
                self._change,
                None,
                entry.at_us,
                entry.digest,
                entry.body,
            ),
        )
        run(connection, self._queries["set_change"], (self._change, self._partition))
        run(connection, self._queries["set_session"], (0, entry.at_us, self._items, self._session))
        run(connection, "COMMIT")


async def _record(folder: Path) -> None:
    async with Memory.open(f"sqlite:///{folder / 'bare.db'}") as memory:
        await (await memory.user("bench").session("s")).record(Message("user", _TEXT))
    async with Memory.open(f"sqlite:///{folder / 'ours.db'}") as memory:
        session = await memory.user("bench").session("s")
        await session.record(Message("user", _TEXT))
        bare_writer = _Bare(folder / "bare.db")
        ours: list[float] = []
        bare: list[float] = []
        for _ in range(_ROUNDS):
            started = time.perf_counter()
            bare_writer.write()
            bare.append(time.perf_counter() - started)
            started = time.perf_counter()
            await session.record(Message("user", _TEXT))
            ours.append(time.perf_counter() - started)
        report("the same rows by apsw alone", bare)
        report("record one message, acknowledged durable", ours)
        low, high = percentile(bare, 0.5), percentile(ours, 0.5)
        print(
            f"at the median {high / low:.2f} times and {1e3 * (high - low):+.2f} ms "
            "(promised: at most the larger of 2 times and +0.5 ms)"
        )
        await _lag(memory)


async def _lag(memory: Memory) -> None:
    async with loop_lag() as idle:
        await asyncio.sleep(5)

    async def call(number: int) -> None:
        session = await memory.user(f"caller-{number}").session("s")
        for _ in range(_ITEMS):
            await session.record(Message("user", _TEXT))

    started = time.perf_counter()
    async with loop_lag() as busy:
        await asyncio.gather(*(call(number) for number in range(_CALLS)))
    seconds = time.perf_counter() - started
    print(f"{_CALLS} calls at once: {_CALLS * _ITEMS / seconds:,.0f} items a second, durable")
    report("loop lag, idle", idle.seconds)
    report("loop lag, 20 calls recording at once", busy.seconds, promise="p99 < 10 ms")
    print(
        f"longest lag: {1e3 * max(idle.seconds):.1f} ms idle, {1e3 * max(busy.seconds):.1f} ms "
        "recording (promised: within 10 ms of idle)"
    )


def main() -> None:
    """Print both, and the loop's lag while 20 calls record at once."""
    print(f"machine: {machine()}")
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(_record(Path(name)))


if __name__ == "__main__":
    main()
