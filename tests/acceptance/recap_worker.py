"""A process that records a call and is killed before it ends: ``recap_worker.py URL``."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from secondcall import Memory, Message


async def main(url: str) -> None:
    """Record, say so, and die without closing anything."""
    memory = Memory.open(url)
    await memory.__aenter__()
    session = await memory.user("ann").session("crashed")
    await session.record(
        Message("user", "I need a new seat for the flight to Lisbon."),
        Message("assistant", "I will send the boarding pass by Friday."),
    )
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
