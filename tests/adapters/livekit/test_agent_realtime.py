"""A realtime model is given the brief with its context; it has no node in which to look up."""

from __future__ import annotations

from typing import Any

import pytest
from adapters.livekit.realtime_model import ScriptedRealtime
from adapters.livekit.remembered import ObedientStore, a_caller, remembered_in
from adapters.livekit.waiting import until
from livekit.agents import Agent, AgentSession

from secondcall import UserMemory
from secondcall.adapters.livekit.agent import attach_memory, with_memory
from secondcall.adapters.livekit.preload import preload
from secondcall.adapters.livekit.source import CallMemory
from secondcall.adapters.livekit.window import WindowOptions

pytestmark = pytest.mark.anyio


def _session(model: ScriptedRealtime) -> AgentSession[None]:
    return AgentSession[None](llm=model, vad=None)


async def _source(user: UserMemory, **more: Any) -> CallMemory:
    await user.remember("seat preference", "aisle", kind="preference")
    return CallMemory(
        user, preloaded=await preload(user, deadline_seconds=5.0, last_turns=2), **more
    )


@pytest.mark.parametrize("how", ["agent", "session"])
async def test_the_model_is_told_before_it_speaks(how: str) -> None:
    """The context that the model begins with has brief and last turns, told in words once."""
    async with a_caller() as user:
        model, agent = ScriptedRealtime(), Agent(instructions="x")
        session = _session(model)
        source = await _source(user)
        if how == "session":
            attach_memory(session, source)
        else:
            with_memory(agent, source)
        await session.start(agent)
        await until(lambda: "_secondcall_memory" in vars(session))
        await until(lambda: len(remembered_in(model.told[-1], "turn")) == 0)
        assert "aisle" in str(remembered_in(model.told[0], "brief"))
        (brief,) = remembered_in(model.told[-1], "brief")
        assert "Bramble" in (brief.text_content or "")
        await session.aclose()


async def test_the_next_agent_tells_it_too() -> None:
    """After a handoff the model has the brief in the context of the next agent."""
    async with a_caller() as user:
        model = ScriptedRealtime()
        session = _session(model)
        attach_memory(session, await _source(user))
        await session.start(Agent(instructions="x"))
        before, following = len(model.told), Agent(instructions="y")
        session.update_agent(following)
        await until(lambda: len(model.told) > before)
        assert len(remembered_in(model.told[-1], "brief")) == 1
        await session.aclose()


async def test_a_brief_that_comes_late_is_told_before_the_agent_enters() -> None:
    """What is still being loaded at the start is told as soon as it is there, and the agent's own
    ``on_enter`` runs after that."""
    entered: list[int] = []
    model = ScriptedRealtime()

    class Entering(Agent):
        async def on_enter(self) -> None:
            entered.append(len(remembered_in(model.told[-1], "brief")))

    store = ObedientStore()
    async with a_caller(store) as user:
        await user.remember("seat preference", "aisle", kind="preference")
        store.gate.clear()
        loading = preload(user, deadline_seconds=30.0)
        source = CallMemory(user, preloaded=loading, gate_seconds=30.0)
        session = _session(model)
        await session.start(with_memory(Entering(instructions="x"), source))
        assert entered == []
        store.gate.set()
        await until(lambda: entered != [])
        assert entered == [1]
        await session.aclose()


async def test_the_context_of_a_realtime_model_is_never_cut() -> None:
    """A window has no say over a context that the model's own server keeps."""
    async with a_caller() as user:
        model = ScriptedRealtime()
        session = _session(model)
        source = await _source(user, window=WindowOptions(max_tokens=100))
        attached = attach_memory(session, source)
        await session.start(Agent(instructions="long " * 200))
        told = len(model.told)
        attached.keeper.between_replies()
        assert not attached.keeper.busy
        assert len(model.told) == told
        await session.aclose()
