"""Two agents in one call: the front desk hands over to the workshop, and both know the caller.

python front_desk.py dev | console

Only the first agent is given its memory; the one that it hands over to has the same brief without
being wrapped, and is told the conversation so far. Notes go along in the userdata. SECONDCALL_URL
names the store.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeAlias, cast

from livekit.agents import (
    Agent,
    AgentServer,
    AgentSession,
    JobContext,
    RunContext,
    cli,
    function_tool,
    llm,
)

import secondcall
from secondcall import Memory, ShortTermMemory
from secondcall.adapters.livekit import CallNotes, CallSettings, handoff_context

memory = Memory.open(os.environ.get("SECONDCALL_URL", "sqlite:///calls.db"))
settings = CallSettings()
server = AgentServer()

Call: TypeAlias = RunContext[ShortTermMemory[CallNotes]]


def models() -> dict[str, Any]:
    """What hears, thinks and speaks; the plugins of LiveKit do as well."""
    return {"stt": "deepgram/nova-3", "llm": "openai/gpt-4.1-mini", "tts": "cartesia/sonic-3"}


class FrontDesk(Agent):
    """Finds out what it is about."""

    def __init__(self, tools: Sequence[llm.Tool] = ()) -> None:
        super().__init__(
            instructions="You answer the telephone. Ask what it is about; for repairs hand over.",
            tools=[*tools],
        )
        self._shared = tools

    @function_tool
    async def to_the_workshop(self, context: Call, trouble: str) -> Agent:
        """Hand the caller over to the workshop, which mends bicycles."""
        context.userdata.update(lambda call: call.notes.update(trouble=trouble))
        return Workshop(await handoff_context(self), self._shared)


class Workshop(Agent):
    """Sees to repairs, and knows what was said at the front desk."""

    def __init__(self, chat_ctx: llm.ChatContext, tools: Sequence[llm.Tool] = ()) -> None:
        super().__init__(
            instructions="You mend bicycles. Say when it will be done, and note it as a promise.",
            chat_ctx=chat_ctx,
            tools=[*tools],
        )

    async def on_enter(self) -> None:
        """Take over with what the front desk noted."""
        session = cast("AgentSession[ShortTermMemory[CallNotes]]", self.session)
        trouble = session.userdata.data.notes.get("trouble", "what it is about")
        await self.session.generate_reply(
            instructions=f"Take over; the caller's trouble: {trouble}"
        )


@server.rtc_session(agent_name="front-desk", on_session_end=secondcall.livekit.on_session_end)
async def answer(ctx: JobContext) -> None:
    """Answer one call."""
    async with secondcall.livekit.call(ctx, memory, settings=settings) as call:
        session = AgentSession[Any](**models(), userdata=call.userdata)
        await session.start(call.agent(FrontDesk(await call.tools())), room=ctx.room)


if __name__ == "__main__":
    cli.run_app(server)
