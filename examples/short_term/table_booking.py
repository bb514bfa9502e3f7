"""A booking agent whose tools share one typed short-term memory, and go on after a crash.

python table_booking.py [store URL]    the default is sqlite:///table_booking.db

The tools take the memory from their host, as LiveKit's do from ``context.userdata``; here a script
calls them, so that the example needs no model. The first call ends in the middle, as if the process
had died; the second handle takes up what was saved.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field

from secondcall import KeptShortTerm, Memory, Message


@dataclass
class Booking:
    """What the agent works on. The defaults are what a field has again when it runs out."""

    guest: str = ""
    people: int = 0
    offered: list[str] = field(default_factory=list[str])
    code: str | None = None
    wrong_codes: int = 0


TTL_SECONDS = {"*": 600, "code": 60, "messages": 120}
CODE = "4711"


async def note_guest(kept: KeptShortTerm[Booking], guest: str, people: int) -> None:
    """Two fields that belong together change in one step."""

    def change(booking: Booking) -> None:
        booking.guest, booking.people = guest, people

    kept.memory.update(change)
    kept.memory.set_intent("book a table")
    await kept.save()


async def offer(kept: KeptShortTerm[Booking], table: str) -> None:
    """The three newest offers are enough to answer 'the second one, please'."""
    kept.memory.append("offered", table, limit=3)
    await kept.save()


async def check_code(kept: KeptShortTerm[Booking], spoken: str) -> bool:
    """A counter that no tool running at the same time can lose."""
    if spoken == kept.memory.data.code:
        kept.memory.set_flag("verified")
        kept.memory.clear("code", "wrong_codes")
    else:
        kept.memory.increment("wrong_codes")
    await kept.save()
    return "verified" in kept.memory.flags


async def take_up(memory: Memory) -> KeptShortTerm[Booking]:
    """The short-term memory of this call: new, or as the last process saved it."""
    session = await memory.user("guest-1").session("call-1")
    return await session.shortterm(Booking, ttl_seconds=TTL_SECONDS)


async def first_call(url: str) -> None:
    """The call until the process dies."""
    async with Memory.open(url) as memory:
        kept = await take_up(memory)
        said = Message("user", "A table for four, my name is Ana.")
        await (await memory.user("guest-1").session("call-1")).record(said)
        kept.memory.add(said)
        await note_guest(kept, "Ana", 4)
        tables = ("by the door", "at the window", "upstairs", "in the garden")
        await asyncio.gather(*(offer(kept, table) for table in tables))
        kept.memory.set(code=CODE)
        await check_code(kept, "1174")


async def second_call(url: str) -> None:
    """The next process goes on where the first one stopped."""
    async with Memory.open(url) as memory:
        kept = await take_up(memory)
        booking = kept.memory.data
        print(f"{booking.guest}, {booking.people} people, wants to {kept.memory.intent}")
        print("offered:", ", ".join(booking.offered))
        print("wrong codes so far:", booking.wrong_codes)
        print("verified:", await check_code(kept, CODE))
        print("heard:", [message.text for message in kept.memory.messages])


def main() -> None:
    """Both calls, one after the other."""
    url = sys.argv[1] if len(sys.argv) > 1 else "sqlite:///table_booking.db"
    asyncio.run(first_call(url))
    asyncio.run(second_call(url))


if __name__ == "__main__":
    main()
