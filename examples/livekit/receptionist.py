"""A receptionist whom people call again and again: who calls is known from their number.

python receptionist.py dev        with LIVEKIT_URL, LIVEKIT_API_KEY and LIVEKIT_API_SECRET
python receptionist.py console    here, in the terminal

Callers come by telephone over SIP. The brief of a known one is there before the greeting; a caller
who withholds the number is greeted as a stranger and shares a memory with nobody. SECONDCALL_URL
names the store.
"""

from __future__ import annotations

import os
from typing import Any

from livekit.agents import Agent, AgentServer, AgentSession, JobContext, cli

import secondcall
from secondcall import Memory
from secondcall.adapters.livekit import CallerOptions, CallSettings

INSTRUCTIONS = (
    "You are the receptionist of a bicycle workshop and answer the telephone. What you know of "
    "earlier calls stands between <memory> tags. When you promise something, note it as a promise; "
    "when something is wrong, open an issue, and resolve it when it is mended."
)
GREETING = "Greet the caller. If you know them, say what was promised and what is still open."

memory = Memory.open(os.environ.get("SECONDCALL_URL", "sqlite:///calls.db"))
# In numbers without a country: CallerOptions(default_region="DE"), with 'secondcall[phone]'.
settings = CallSettings(caller=CallerOptions(timeout_seconds=10.0))
server = AgentServer()


def models() -> dict[str, Any]:
    """What hears, thinks and speaks; the plugins of LiveKit do as well."""
    return {"stt": "deepgram/nova-3", "llm": "openai/gpt-4.1-mini", "tts": "cartesia/sonic-3"}


class Receptionist(Agent):
    """Greets by what it knows."""

    async def on_enter(self) -> None:
        """The brief is there by now, or its time is over."""
        await self.session.generate_reply(instructions=GREETING)


@server.rtc_session(agent_name="receptionist", on_session_end=secondcall.livekit.on_session_end)
async def answer(ctx: JobContext) -> None:
    """Answer one call."""
    async with secondcall.livekit.call(ctx, memory, settings=settings) as call:
        receptionist = Receptionist(instructions=INSTRUCTIONS, tools=[*await call.tools()])
        session = AgentSession[Any](**models(), userdata=call.userdata)
        await session.start(call.agent(receptionist), room=ctx.room)


if __name__ == "__main__":
    cli.run_app(server)
