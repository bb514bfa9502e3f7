"""Recall, brief and import at 10,000 messages a user in a store of 1,000,000, on SQLite.

``SECONDCALL_BENCH_MESSAGES`` sets the size of the store (default 1,000,000).
"""

from __future__ import annotations

import asyncio
import os
import resource
import tempfile
import time
from pathlib import Path

from measure import loop_lag, machine, report
from texts import conversation, questions

from secondcall import Memory

_TOTAL = int(os.environ.get("SECONDCALL_BENCH_MESSAGES", "1000000"))
_PER_USER = 10_000
_QUESTIONS = 300


async def _fill(memory: Memory, user_id: str, seed: int, count: int) -> float:
    """Record one user's conversations, a session a batch; the seconds until all is searchable."""
    conversations = list(conversation(seed, count))
    started = time.perf_counter()
    user = memory.user(user_id)
    for session_id, messages in conversations:
        session = await user.session(session_id)
        await session.record(*messages)
    await user.flush()
    return time.perf_counter() - started


async def _import(url: str) -> None:
    seconds = 0.0
    async with Memory.open(url) as memory:
        for number in range(max(1, _TOTAL // _PER_USER)):
            seconds += await _fill(memory, f"user-{number}", number, _PER_USER)
            if number % 10 == 9:
                done = (number + 1) * _PER_USER
                print(f"  {done:>9,} messages, {done / seconds:,.0f} a second", flush=True)
    print(f"import, searchable: {_TOTAL / seconds:,.0f} messages a second (promised 3,000)")


async def _ask(url: str) -> None:
    cold: list[float] = []
    briefs: list[float] = []
    for number in range(min(20, _TOTAL // _PER_USER)):
        async with Memory.open(url) as memory:
            user = memory.user(f"user-{number}")
            await memory.user("nobody").recall("warm the code, not the index")
            started = time.perf_counter()
            await user.brief(deadline_seconds=None)
            briefs.append(time.perf_counter() - started)
        async with Memory.open(url) as memory:
            user = memory.user(f"user-{number}")
            await memory.user("nobody").recall("warm the code, not the index")
            started = time.perf_counter()
            await user.recall("hello")
            cold.append(time.perf_counter() - started)
    report("cold index open and first recall, 10,000", cold, promise="p50 < 60 ms")
    async with Memory.open(url) as memory:
        user = memory.user("user-0")
        await user.recall("warm")
        warm: list[float] = []
        work: list[float] = []
        async with loop_lag() as lag:
            for question in questions(0, _QUESTIONS):
                started, worked = time.perf_counter(), time.process_time()
                await user.recall(question)
                warm.append(time.perf_counter() - started)
                work.append(time.process_time() - worked)
                await asyncio.sleep(0)
            for _ in range(_QUESTIONS):
                started = time.perf_counter()
                await user.brief(deadline_seconds=None)
                briefs.append(time.perf_counter() - started)
    report("warm recall, 10,000 messages", warm, promise="p50 < 3, p99 < 10 ms")
    report("  the processor's time of it, all threads", work)
    report("brief", briefs, promise="p99 < 25 ms")
    report("loop lag meanwhile", lag.seconds, promise="p99 < 10 ms")


async def _large(url: str) -> None:
    async with Memory.open(url) as memory:
        await _fill(memory, "large", 7_000_001, 100_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with Memory.open(url) as memory:
        user = memory.user("large")
        started = time.perf_counter()
        await user.recall("warm")
        print(f"cold index open, 100,000 messages: {1e3 * (time.perf_counter() - started):.0f} ms")
        warm: list[float] = []
        for question in questions(7_000_001, _QUESTIONS):
            started = time.perf_counter()
            await user.recall(question)
            warm.append(time.perf_counter() - started)
        report("warm recall, 100,000 messages", warm, promise="p99 < 60 ms")
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        opened = memory._shared.cache.peek(await user._place.scopes())  # pyright: ignore[reportPrivateUsage] - measured from inside
        size = 0 if opened is None else opened.index.nbytes
        print(
            f"index of 100,000 messages: {size / 1e6:.0f} MB by its own count, process grew by "
            f"{(after - before) / 1e3:.0f} MB at most (promised < 250 MB)"
        )


def main() -> None:
    """Fill a store in a temporary folder, then ask."""
    print(f"machine: {machine()}")
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'bench.db'}"
        asyncio.run(_import(url))
        asyncio.run(_ask(url))
        asyncio.run(_large(url))


if __name__ == "__main__":
    main()
