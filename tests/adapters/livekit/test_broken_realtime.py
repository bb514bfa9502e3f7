"""A realtime model keeps a context of its own: what changes in mid-call must reach it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from adapters.livekit.jobs import ANN, end
from adapters.livekit.realtime_model import ScriptedRealtime
from adapters.livekit.remembered import told_in
from adapters.livekit.waiting import until
from livekit.agents import Agent, AgentSession

from secondcall import Memory
from secondcall.adapters.livekit import CallSettings, call
from secondcall.testing.livekit_room import room_job

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("ann_is_known")]


async def test_the_model_is_told_who_it_is_and_forgets_when_asked(
    memory: Memory, tmp_path: Path
) -> None:
    """A caller who becomes known in mid-call is known to the model at once, and one who asks to be
    forgotten is taken out of its context."""
    settings = CallSettings(
        journal=tmp_path, preload_seconds=60, caller={"attribute_seconds": 0.05}
    )
    with room_job() as job:
        job.call_in(None)
        async with call(job.ctx, memory, settings=settings) as live:
            model = ScriptedRealtime()
            session: AgentSession[Any] = AgentSession(llm=model, vad=None)
            await session.start(live.agent(Agent(instructions="x")))
            await until(lambda: "_secondcall_memory" in vars(session))
            job.set_attributes("sip_1", {"sip.phoneNumber": ANN})
            await until(lambda: "aisle" in told_in(model.told[-1]))
            assert (await live.forget()).complete
            assert "aisle" not in told_in(model.told[-1])
            await session.aclose()
        await end(job.ctx)
