"""The context of a session of 10,000 items, on SQLite: with the recall part, without it, and cold.

A turn is recorded before each request, as in a conversation that goes on. Without the recall part
there is no question; what is left is the look at the record, the brief and the buffer.
``SECONDCALL_BENCH_ITEMS`` sets the size of the session (default 10,000).
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path

from measure import loop_lag, machine, report
from texts import conversation, questions

from secondcall import Memory, Message, SessionMemory

_ITEMS = int(os.environ.get("SECONDCALL_BENCH_ITEMS", "10000"))
_WINDOW = 8_000
_REQUESTS = 200
_SYSTEM = "You are the agent of an airline. Be short, be kind, and never promise a refund. " * 8
_TOOLS = [{"name": f"tool_{number}", "parameters": {"type": "object"}} for number in range(8)]


async def _fill(memory: Memory) -> None:
    user = memory.user("ana")
    session = await user.session("long")
    messages = [one for _, some in conversation(1, _ITEMS) for one in some][:_ITEMS]
    for start in range(0, len(messages), 500):
        await session.record(*messages[start : start + 500])
    for number in range(20):
        other = await user.session(f"earlier-{number}")
        await other.record(Message("user", f"Earlier conversation number {number}."))
        await user.remember(f"fact {number}", f"value {number}")
    await user.flush()


async def _requests(session: SessionMemory, question: list[str]) -> list[float]:
    """The seconds of each request, after a turn was recorded."""
    seconds: list[float] = []
    for text in question:
        await session.record(
            Message("assistant", "Yes, that can be done."),
            Message("user", text.strip() or "Then please go on with it."),
        )
        started = time.perf_counter()
        context = await session.context(text, window=_WINDOW, system=_SYSTEM, tools=_TOOLS)
        seconds.append(time.perf_counter() - started)
        assert sum(context.tokens.values()) <= _WINDOW
        await asyncio.sleep(0)
    return seconds


async def _measure(url: str) -> None:
    cold: list[float] = []
    for _ in range(20):
        async with Memory.open(url) as memory:
            session = await memory.user("ana").session("long")
            started = time.perf_counter()
            await session.context(" ", window=_WINDOW, system=_SYSTEM, tools=_TOOLS)
            cold.append(time.perf_counter() - started)
    report(f"first context of a process, no recall, {_ITEMS:,} items", cold)
    async with Memory.open(url) as memory:
        session = await memory.user("ana").session("long")
        await _requests(session, ["warm"])
        await memory.flush()
        async with loop_lag() as lag:
            without = await _requests(session, [" "] * _REQUESTS)
            asked = await _requests(session, list(questions(1, _REQUESTS)))
    report(f"context without recall, {_ITEMS:,} items", without, promise="< 5 ms")
    report(f"context with recall, {_ITEMS:,} items", asked)
    report("loop lag meanwhile", lag.seconds, promise="p99 < 10 ms")


def main() -> None:
    """Fill a store in a temporary folder, then ask."""
    print(f"machine: {machine()}")
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'bench.db'}"

        async def run() -> None:
            async with Memory.open(url) as memory:
                await _fill(memory)
            await _measure(url)

        asyncio.run(run())


if __name__ == "__main__":
    main()
