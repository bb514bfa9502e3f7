"""An agent whose class takes no layer: it has what was loaded, and holds up nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from adapters.livekit.jobs import ANN, end, settings_in, talk, texts
from livekit.agents import Agent, function_tool, llm

from secondcall import Memory
from secondcall.adapters.livekit import call
from secondcall.testing.livekit import Reply
from secondcall.testing.livekit_room import room_job

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("ann_is_known")]


class _Strict(Agent):
    """A class that lets nobody derive from it, as some code bases have them."""

    def __init_subclass__(cls, **more: Any) -> None:
        raise TypeError("final")


class _Desk(Agent):
    @function_tool
    async def to_sales(self) -> Agent:
        """Hands over to sales."""
        return _Strict(instructions="Sell.")


def _handing_over(chat_ctx: llm.ChatContext) -> Reply:
    if "Sell." in texts(chat_ctx):
        return Reply(text="Sales here.")
    return Reply(tools=[("to_sales", {})])


async def test_it_has_the_brief_and_loses_it_when_the_caller_is_forgotten(
    memory: Memory, tmp_path: Path
) -> None:
    """It is told what every agent of the session is told; ``forget`` takes that from it and erases
    the caller as ever."""
    with room_job() as job:
        job.call_in(ANN)
        async with call(job.ctx, memory, settings=settings_in(tmp_path)) as live:
            async with talk(live.agent(_Desk(instructions="x")), _handing_over) as (session, model):
                await session.run(user_input="To sales")
                await session.run(user_input="Hello?")
                assert "aisle" in texts(model.requests[-1])
                assert (await live.forget()).complete
                await session.run(user_input="And now?")
                assert "aisle" not in texts(model.requests[-1])
        await end(job.ctx)
    assert await memory.users() == []
