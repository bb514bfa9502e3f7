from __future__ import annotations

import json
from typing import Any, cast

from adapters.llama_index.agents import run
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.tools import FunctionTool

from secondcall import Memory, MemoryTools, StateTools, Step, To, Workflow
from secondcall.adapters.llama_index.tools import (
    StateToolRetriever,
    function_tool,
    function_tools,
)
from secondcall.testing.llama_index import Call, Reply, ScriptedLLM

REFUND = Workflow(
    "refund",
    {"ask": Step(), "pay": Step(requires=["amount"]), "done": Step(terminal=True)},
    {"ask": "pay", "pay": To("done", needs_confirmation=True)},
    slots={"amount": int},
)
IDENTITIES = {"user_id", "session_id", "tenant_id", "user", "session", "tenant"}


async def test_no_tool_takes_an_identity() -> None:
    """No tool has a parameter for user, session or tenant, and each keeps its schema whole."""
    async with Memory.open("memory://") as memory:
        session = await memory.user("ana").session("a")
        state = StateTools(session, workflows=[REFUND])
        ours = [*MemoryTools(session).tools(), *await state.tools()]
        for tool, made in zip(ours, function_tools(ours), strict=True):
            parameters: dict[str, Any] = cast("Any", made.metadata).get_parameters_dict()
            assert isinstance(made, FunctionTool)
            assert (made.metadata.name, parameters) == (tool.name, tool.parameters)
            assert not IDENTITIES & set(parameters["properties"])
            assert made.metadata.to_openai_tool()["function"]["name"] == tool.name


async def test_an_agent_remembers_and_recalls() -> None:
    """An agent calls the tools; what it remembers is a fact of the user that the tools are of."""
    async with Memory.open("memory://") as memory:
        session = await memory.user("ana").session("a")
        llm = ScriptedLLM(
            [
                Reply(calls=[Call("remember", {"name": "seat", "value": "aisle"})]),
                Reply(text="Noted."),
            ]
        )
        agent = FunctionAgent(llm=llm, tools=[*function_tools(MemoryTools(session).tools())])
        await run(agent, "I like the aisle.")
        facts = await memory.user("ana").facts()
        assert [fact.value for fact in facts] == ["aisle"]
        assert await memory.user("bob").facts() == []


async def test_a_call_with_a_made_up_identity_is_refused() -> None:
    """An argument for whom to act is answered with what the tool takes; nothing is changed."""
    async with Memory.open("memory://") as memory:
        session = await memory.user("ana").session("a")
        tools = {tool.name: function_tool(tool) for tool in MemoryTools(session).tools()}
        arguments = {"name": "seat", "value": "aisle", "user_id": "bob"}
        output = await tools["remember"].acall(**arguments)
        assert "user_id" in str(output)
        assert await memory.user("ana").facts() == []
        assert await memory.user("bob").facts() == []


async def test_one_argument_may_come_by_place() -> None:
    """LlamaIndex gives the only argument of a tool by place: it is the one that the tool names."""
    async with Memory.open("memory://") as memory:
        session = await memory.user("ana").session("a")
        tools = {tool.name: function_tool(tool) for tool in await StateTools(session).tools()}
        one: Any = tools["get_workflow_state"]
        assert json.loads(str(await one.acall()))
        recall: Any = {tool.name: function_tool(tool) for tool in MemoryTools(session).tools()}
        by_place = await recall["recall"].acall("which seat?")
        assert str(by_place) == str(await recall["recall"].acall(question="which seat?"))


async def test_tools_are_those_of_the_present_step() -> None:
    """The retriever gives the schema of the step that the state is in when the agent asks."""
    async with Memory.open("memory://") as memory:
        session = await memory.user("ana").session("a")
        tools = StateTools(session, workflows=[REFUND])
        retriever = StateToolRetriever(tools)
        before = {one.metadata.name: one for one in await retriever.aretrieve("")}
        await session.state.update(lambda state: state.start(REFUND))
        after = {one.metadata.name: one for one in await retriever.aretrieve("")}
        name = "update_workflow_state"
        schemas = [cast("Any", one[name].metadata).fn_schema_str for one in (before, after)]
        assert schemas[0] != schemas[1]


async def test_an_agent_moves_a_workflow_on() -> None:
    """An agent with the retriever starts a workflow, fills its slots and moves on, and cannot make
    the step that needs the user's confirmation."""
    async with Memory.open("memory://", workflows=[REFUND]) as memory:
        session = await memory.user("ana").session("a")
        await session.state.update(lambda state: state.start(REFUND))
        llm = ScriptedLLM(
            [
                Reply(calls=[Call("fill_slots", {"amount": 40})]),
                Reply(calls=[Call("update_workflow_state", {"step": "pay"})]),
                Reply(calls=[Call("update_workflow_state", {"step": "done"})]),
                Reply(text="Please confirm."),
            ]
        )
        agent = FunctionAgent(llm=llm, tool_retriever=StateToolRetriever(StateTools(session)))
        await run(agent, "Refund 40 please.")
        state = await session.state.load()
        assert state is not None
        assert (state.step, state.slots["amount"]) == ("pay", 40)
