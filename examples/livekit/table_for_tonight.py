"""A booking agent that holds no state: all of it is in the userdata that its tools are handed.

python table_for_tonight.py dev | console

The tools may run at the same time and lose no update, what nobody has touched for five minutes runs
out, and a call that drops goes on where it was, in whatever process answers when the caller rings
again within two minutes. SECONDCALL_URL names the store.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from livekit.agents import (
    Agent,
    AgentServer,
    AgentSession,
    JobContext,
    RunContext,
    cli,
    function_tool,
)

import secondcall
from secondcall import Memory, ShortTermMemory
from secondcall.adapters.livekit import CallSettings

INSTRUCTIONS = (
    "You book tables for tonight. Note what the guest wants with the tools, and read the booking "
    "before you speak of it."
)

memory = Memory.open(os.environ.get("SECONDCALL_URL", "sqlite:///bookings.db"))
settings = CallSettings(keep_userdata=True, grace_seconds=120, last_turns=2)
server = AgentServer()


@dataclass
class Booking:
    """What is known so far; the defaults are what a field has again when it runs out."""

    guest: str = ""
    people: int = 0
    wishes: list[str] = field(default_factory=list[str])
    offered: str | None = None


Call: TypeAlias = RunContext[ShortTermMemory[Booking]]


def models() -> dict[str, Any]:
    """What hears, thinks and speaks; the plugins of LiveKit do as well."""
    return {"stt": "deepgram/nova-3", "llm": "openai/gpt-4.1-mini", "tts": "cartesia/sonic-3"}


@function_tool
async def note_guest(context: Call, name: str) -> str:
    """Note the guest's name."""
    context.userdata.set(guest=name)
    return f"The table is for {name}."


@function_tool
async def add_people(context: Call, count: int) -> str:
    """So many more people will come."""
    return f"{context.userdata.increment('people', count)} people."


@function_tool
async def note_wish(context: Call, wish: str) -> str:
    """Note where the guest would like to sit; the three newest wishes count."""
    context.userdata.append("wishes", wish, limit=3)
    return "Noted."


@function_tool
async def offer(context: Call) -> str:
    """The table that is free for the guest."""

    def choose(booking: Booking) -> str:
        booking.offered = booking.wishes[-1] if booking.wishes else "in the middle"
        return booking.offered

    return f"There is a table {context.userdata.update(choose)}."


@function_tool
async def read_booking(context: Call) -> str:
    """The booking as it is now."""
    booking = context.userdata.data
    where = booking.offered or "not chosen"
    return f"{booking.guest or 'nobody yet'}, {booking.people} people, table {where}"


@server.rtc_session(agent_name="bookings", on_session_end=secondcall.livekit.on_session_end)
async def answer(ctx: JobContext) -> None:
    """Answer one call."""
    async with secondcall.livekit.call(ctx, memory, userdata=Booking, settings=settings) as call:
        tools = [note_guest, add_people, note_wish, offer, read_booking]
        session = AgentSession[Any](**models(), userdata=call.userdata)
        agent = Agent(instructions=INSTRUCTIONS, tools=[*tools])
        await session.start(call.agent(agent), room=ctx.room)


if __name__ == "__main__":
    cli.run_app(server)
