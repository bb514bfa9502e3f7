"""Calls side by side in one process: each agent knows its own caller and nobody else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from adapters.livekit.jobs import calls, end, talk, texts
from livekit.agents import Agent, function_tool

from secondcall import Memory, Message
from secondcall.adapters.livekit import CallSettings, call, handoff_context
from secondcall.testing.livekit_room import room_job

pytestmark = pytest.mark.anyio

CALLERS = 4


class _First(Agent):
    """Hands over with the turns so far."""

    @function_tool
    async def hand_over(self) -> Agent:
        """Give the caller to the next agent."""
        return _Second(instructions="second", chat_ctx=await handoff_context(self))


class _Second(Agent):
    """Takes over."""


async def test_calls_side_by_side_share_nothing(tmp_path: Path) -> None:
    """Callers at once, each with a secret of their own, handoffs and tools: what any model is given
    to read, and what is recorded and remembered, holds no other's secret."""
    async with Memory.open(f"sqlite:///{tmp_path}/memory.db") as memory:
        numbers = [f"+1415555010{number}" for number in range(CALLERS)]
        users = [memory.user(await memory.identify(phone=one)) for one in numbers]
        for number, user in enumerate(users):
            await user.remember("code word", f"secret{number}")
            earlier = await user.session("earlier")
            await earlier.record(Message("user", f"My code word is secret{number}, as ever."))

        async def one(number: int) -> str:
            with room_job(job_id=f"AJ_{number}") as job:
                job.call_in(numbers[number])
                settings = CallSettings(journal=tmp_path / "j", preload_seconds=60, last_turns=1)
                async with call(job.ctx, memory, settings=settings) as live:
                    tools = await live.tools()
                    agent = live.agent(_First(instructions="first", tools=[*tools]))
                    script = [
                        *calls(("recall", {"question": "What is my code word?"})),
                        *calls(("remember", {"name": "number", "value": f"mine{number}"})),
                        *calls(("hand_over", {}), then="Here I am."),
                        "Yours.",
                    ]
                    async with talk(agent, script, userdata=live.userdata) as (session, model):
                        for words in ("My code word?", "Note it", "The next one", "And now?"):
                            await session.run(user_input=f"{words} It is caller{number}")
                await end(job.ctx)
            return "\n".join(f"{texts(one)} {one.items}" for one in model.requests)

        read = await asyncio.gather(*map(one, range(CALLERS)))
        for number, user in enumerate(users):
            others = [other for other in range(CALLERS) if other != number]
            kept = str([one async for one in user.items()]) + str(await user.facts())
            assert f"secret{number}" in read[number]
            assert f"mine{number}" in kept
            assert f"caller{number}" in kept
            for other in others:
                for text in (read[number], kept):
                    assert f"secret{other}" not in text
                    assert f"caller{other}" not in text
                    assert f"mine{other}" not in text
