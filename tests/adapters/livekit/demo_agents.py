"""Agents for the second-call checker, each imported in a process of its own."""

from __future__ import annotations

import os
from dataclasses import replace

from livekit.agents import AgentServer, JobContext

from secondcall import Memory
from secondcall.adapters.livekit.attributes import CallerOptions
from secondcall.adapters.livekit.settings import CallSettings
from secondcall.testing.livekit_demo import answer_call

# The checker calls again at once, and a loaded machine may be slow to load.
_SETTINGS = CallSettings(journal=False, grace_seconds=0, preload_seconds=10.0)

server = AgentServer()


def _memory() -> Memory:
    return Memory.open(os.environ["AGENT_URL"])


@server.rtc_session()
async def with_memory(ctx: JobContext) -> None:
    """An agent as it should be."""
    await answer_call(ctx, _memory(), settings=_SETTINGS)


async def detached(ctx: JobContext) -> None:
    """An agent whose session has no memory."""
    await answer_call(ctx, _memory(), settings=_SETTINGS, attached=False)


async def by_call_id(ctx: JobContext) -> None:
    """An agent that looks for the caller's number in the wrong attribute."""
    settings = replace(_SETTINGS, caller=CallerOptions(phone_keys=["sip.callID"]))
    await answer_call(ctx, _memory(), settings=settings)


async def silent(ctx: JobContext) -> None:
    """An entrypoint that starts no session."""
    del ctx
