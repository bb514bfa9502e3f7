"""Memory and state as LiveKit function tools in a real session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from adapters.livekit.calls import FailingStore
from adapters.livekit.jobs import calls, talk
from livekit.agents import Agent, AgentSession, FunctionToolsExecutedEvent

from secondcall import (
    Memory,
    MemoryTools,
    SessionMemory,
    Slot,
    StateTools,
    Step,
    StoreUnavailable,
    UserMemory,
    Workflow,
)
from secondcall.adapters.livekit.tools import StateSchemas, function_tools
from secondcall.testing.livekit import Reply

pytestmark = pytest.mark.anyio

REFUND = Workflow(
    "refund",
    {"details": Step(), "review": Step(requires=["amount"]), "paid": Step(terminal=True)},
    {"details": ["review"], "review": ["paid"]},
    slots={"amount": Slot(int)},
)


@pytest.fixture
async def session() -> AsyncIterator[SessionMemory]:
    """A session of Ann's."""
    async with Memory.open("memory://") as memory:
        yield await memory.user("ann").session("call-1")


def _answers(session: AgentSession[Any]) -> list[tuple[str, bool]]:
    """What tools answered, as it comes, and whether as an error."""
    told: list[tuple[str, bool]] = []

    def executed(event: FunctionToolsExecutedEvent) -> None:
        told.extend((one.output, one.is_error) for one in event.function_call_outputs if one)

    session.on("function_tools_executed", executed)
    return told


async def test_a_session_remembers_and_recalls(session: SessionMemory) -> None:
    """A model's parallel calls in a real session are all kept, and the answers come as texts."""
    memory = MemoryTools(session)
    agent = Agent(instructions="Be brief.", tools=[*await function_tools(memory)])
    script = calls(
        ("remember", {"name": "seat", "value": "aisle"}),
        ("remember", {"name": "meal", "value": "vegan"}),
        ("promise", {"name": "callback", "promise": "to call back"}),
        ("resolve_issue", {"name": "router"}),
    )
    async with talk(agent, script) as (live, _):
        told = _answers(live)
        await live.run(user_input="Aisle, vegan, and call me back.")
    facts = await session.user.facts()
    assert {one.predicate for one in facts} == {"seat", "meal", "callback"}
    assert [json.loads(text)["changed"] for text, _ in told].count(True) == 3
    assert any("no issue has the name" in text for text, _ in told)
    assert not any(failed for _, failed in told)


async def test_the_model_is_offered_the_present_step(session: SessionMemory) -> None:
    """The request after a step names the slots and steps of the new one, in the same turn."""
    state = StateTools(session, workflows=[REFUND])
    agent = Agent(instructions="Be brief.", tools=[*await function_tools(state=state)])
    script = [
        Reply(tools=[("update_workflow_state", {"start": "refund"})]),
        Reply(tools=[("update_workflow_state", {"step": "review", "slots": {"amount": 4}})]),
        "Done.",
    ]
    async with talk(agent, script) as (live, model):
        await live.run(user_input="I want a refund of 4.")
    steps = [one["update_workflow_state"]["parameters"]["properties"] for one in model.offered]
    assert steps[0] == {"start": {"type": "string", "enum": ["refund"]}}
    assert steps[1]["step"]["enum"] == ["review"]
    assert steps[1]["slots"]["properties"] == {"amount": {"type": "integer"}}
    assert steps[2]["step"]["enum"] == ["paid"]
    assert model.offered[1]["fill_slots"]["parameters"]["minProperties"] == 1
    loaded = await session.state.load()
    assert loaded is not None
    assert loaded.step == "review"


async def test_a_change_by_somebody_else_is_offered_after_a_refresh(session: SessionMemory) -> None:
    """``refresh`` brings what the host changed into the tools that are in use already."""
    schemas = StateSchemas(StateTools(session, workflows=[REFUND]))
    tools = {one.info.name: one for one in await schemas.load()}
    await session.state.update(lambda state: state.start(REFUND))
    assert await schemas.refresh() is True
    assert await schemas.refresh() is False
    schema = tools["update_workflow_state"].info.raw_schema
    assert schema["parameters"]["properties"]["step"]["enum"] == ["review"]


async def test_a_store_that_is_down_fails_a_tool_in_words() -> None:
    """The model is told that nothing was found or changed, the tools are there without a schema of
    a step, and the session goes on."""
    store = FailingStore()
    async with Memory.open(store) as memory:
        session = await memory.user("ann").session("call-1")
        store.down = True
        bound = MemoryTools(session, deadline_seconds=0.05)
        tools = await function_tools(bound, state=StateTools(session))
        agent = Agent(instructions="Be brief.", tools=[*tools])
        script = calls(
            ("recall", {"question": "Which seat?"}),
            ("remember", {"name": "seat", "value": "aisle"}),
            then="Sorry.",
        )
        async with talk(agent, script) as (live, model):
            told = _answers(live)
            await live.run(user_input="Which seat do I have?")
        assert len(told) == 2
        assert any("cannot be reached" in text and failed for text, failed in told)
        assert any("do not say that it is saved" in text for text, _ in told)
        assert model.offered[0]["fill_slots"]["parameters"]["properties"] == {}
        assert len(model.requests) == 2
        store.down = False
        assert await bound.flush(deadline_seconds=60) == 0
        assert [one.value for one in await memory.user("ann").facts()] == ["aisle"]


async def test_a_slow_tool_lets_the_call_go_on(
    session: SessionMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its deadline a tool says that it is not done; what it does is done all the same."""
    held = asyncio.Event()
    remember = UserMemory.remember

    async def slow(self: UserMemory, *told: Any, **more: Any) -> Any:
        await held.wait()
        return await remember(self, *told, **more)

    monkeypatch.setattr(UserMemory, "remember", slow)
    memory = MemoryTools(session, deadline_seconds=60)
    tools = await function_tools(memory, deadline_seconds=0.05)
    agent = Agent(instructions="Be brief.", tools=[*tools])
    script = calls(("remember", {"name": "seat", "value": "aisle"}))
    async with talk(agent, script) as (live, _):
        told = _answers(live)
        await live.run(user_input="Aisle.")
    assert "not done yet" in told[0][0]
    held.set()
    assert await memory.flush(deadline_seconds=60) == 0
    assert [one.value for one in await session.user.facts()] == ["aisle"]


async def test_an_interruption_undoes_nothing(
    session: SessionMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn that is interrupted while its tool is at work leaves the fact remembered, once."""
    reached, held = asyncio.Event(), asyncio.Event()
    remember = UserMemory.remember

    async def slow(self: UserMemory, *told: Any, **more: Any) -> Any:
        reached.set()
        await held.wait()
        return await remember(self, *told, **more)

    monkeypatch.setattr(UserMemory, "remember", slow)
    memory = MemoryTools(session, deadline_seconds=60)
    agent = Agent(instructions="Be brief.", tools=[*await function_tools(memory)])
    script = calls(("remember", {"name": "seat", "value": "aisle"}))
    async with talk(agent, script) as (live, _):
        live.generate_reply(user_input="Aisle.")
        await reached.wait()
        interrupted = live.interrupt(force=True)
        held.set()
        await interrupted
    assert await memory.flush(deadline_seconds=60) == 0
    assert [one.value for one in await session.user.history()] == ["aisle"]


async def test_other_failures_of_the_state_are_told(
    session: SessionMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state that cannot be read at a call is an error in words, not LiveKit's own."""
    state = StateTools(session, workflows=[REFUND])
    agent = Agent(instructions="Be brief.", tools=[*await function_tools(state=state)])

    async def down(self: StateTools) -> Any:
        raise StoreUnavailable("it is down")

    monkeypatch.setattr(StateTools, "tools", down)
    async with talk(agent, calls(("get_workflow_state", {}))) as (live, _):
        told = _answers(live)
        await live.run(user_input="Where are we?")
    assert told[0][1] is True
    assert "cannot be reached" in told[0][0]
