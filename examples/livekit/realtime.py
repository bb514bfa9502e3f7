"""A realtime model with memory: it is given the brief at its start, and looks up by a tool.

python realtime.py dev | console        with OPENAI_API_KEY, and livekit-plugins-openai

LiveKit calls no node of an agent whose model hears and speaks by itself. So there is no lookup in
front of each reply; the brief, the last turns and ``recall`` as a tool take its place.
SECONDCALL_URL names the store.
"""

from __future__ import annotations

import os
from typing import Any

from livekit.agents import Agent, AgentServer, AgentSession, JobContext, cli
from livekit.plugins import openai

import secondcall
from secondcall import Memory
from secondcall.adapters.livekit import CallSettings

INSTRUCTIONS = (
    "You answer the telephone of a bicycle workshop. What you know of the caller's earlier calls "
    "stands between <memory> tags; for anything more ask the tool recall before you answer."
)

memory = Memory.open(os.environ.get("SECONDCALL_URL", "sqlite:///calls.db"))
settings = CallSettings(max_tokens=800, last_turns=4)
server = AgentServer()


def models() -> dict[str, Any]:
    """What hears, thinks and speaks in one."""
    return {"llm": openai.realtime.RealtimeModel(voice="marin")}


@server.rtc_session(agent_name="realtime", on_session_end=secondcall.livekit.on_session_end)
async def answer(ctx: JobContext) -> None:
    """Answer one call."""
    async with secondcall.livekit.call(ctx, memory, settings=settings) as call:
        session = AgentSession[Any](**models(), userdata=call.userdata)
        agent = Agent(instructions=INSTRUCTIONS, tools=[*await call.tools()])
        await session.start(call.agent(agent), room=ctx.room)


if __name__ == "__main__":
    cli.run_app(server)
