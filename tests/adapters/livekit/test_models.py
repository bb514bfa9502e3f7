"""The models that drive a session by code."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from adapters.livekit.waiting import until
from livekit.agents import Agent, AgentSession

from secondcall.testing.livekit import FedSTT, ScriptedLLM

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def _session(model: ScriptedLLM, ears: FedSTT) -> AsyncGenerator[AgentSession[None]]:
    session = AgentSession[None](
        llm=model,
        stt=ears,
        vad=None,
        turn_handling={
            "turn_detection": "stt",
            "endpointing": {"min_delay": 0.01, "max_delay": 0.05},
        },
    )
    await session.start(Agent(instructions="Be brief."))
    yield session
    await session.aclose()


async def test_a_spoken_turn_is_answered() -> None:
    """What is fed is heard as one turn, and answered by the script."""
    model, ears = ScriptedLLM(["Good morning."]), FedSTT()
    async with _session(model, ears) as session:
        ears.say("hello there", interim=["hello"])
        await until(lambda: len(session.history.messages()) == 2)
        said = [(one.role, one.text_content) for one in session.history.messages()]
    assert [(role, (text or "").strip()) for role, text in said] == [
        ("user", "hello there"), ("assistant", "Good morning.")
    ]  # fmt: skip
