"""The running turn: bounded by the model's window, and cleared when a run has failed."""

from __future__ import annotations

import logging

import pytest
from adapters.llama_index.agents import agent_of, calls, contents, memory_of, roles, run
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.workflow import Context

from secondcall import OverBudget
from secondcall.adapters.llama_index.outputs import tokens_of
from secondcall.adapters.llama_index.running import bound_running_turn, clear_failed_run
from secondcall.testing.llama_index import Call, Reply, ScriptedLLM, check_history

pytestmark = pytest.mark.anyio


def pages(number: int) -> str:
    """Many words about a number."""
    return " ".join(f"word{number}" for _ in range(40 * number))


def _pages(*numbers: int) -> Reply:
    return Reply(calls=[Call("pages", {"number": number}) for number in numbers])


def _sent(llm: ScriptedLLM) -> list[int]:
    return [sum(map(tokens_of, request)) for request in llm.requests]


async def test_tool_outputs_are_sent_within_the_window(url: str) -> None:
    """Rounds of large outputs stay within the window, the largest shortened and said to be; the
    record has every output whole."""
    llm = ScriptedLLM([_pages(1, 60), _pages(80), "done"], context_window=2_000, num_output=200)
    agent = bound_running_turn(FunctionAgent(tools=[pages], llm=llm))
    memory = memory_of(url, window=2_000, reserve=200)
    await run(agent, "read", memory=memory)
    assert max(_sent(llm)) <= 1_800
    assert [check_history(request) for request in llm.requests] == [[], [], []]
    sent = contents(llm.requests[2])
    assert sent[2] == pages(1)
    assert "characters more" in str(sent[3])
    assert "characters more" in str(sent[5])
    kept = contents(await memory.aget_all())
    assert kept == ["read", None, pages(1), pages(60), None, pages(80), "done"]


async def test_older_turns_give_way_first(url: str) -> None:
    """Where outputs need the room, older turns are not sent, whole turns at a time; the question
    always is."""
    llm = ScriptedLLM(context_window=2_000, num_output=200)
    agent = bound_running_turn(FunctionAgent(tools=[pages], llm=llm, system_prompt="Be brief."))
    memory = memory_of(url, window=2_000, reserve=200)
    for number in range(6):
        said = [
            ChatMessage(role="user", content=f"{number} " + "old " * 100),
            ChatMessage(role="assistant", content="I see"),
        ]
        await memory.aput_messages(said)
    llm.script([_pages(7, 7), "done"])
    await run(agent, "the question", memory=memory)
    assert max(_sent(llm)) <= 1_800
    assert roles(llm.requests[0])[0] == "system"
    assert len(llm.requests[1]) < len(llm.requests[0]) + 3
    assert "the question" in contents(llm.requests[1])
    assert not any("characters more" in str(one) for one in contents(llm.requests[1]))
    assert check_history(llm.requests[1]) == []


async def test_a_question_that_does_not_fit(url: str) -> None:
    """A question larger than the window stops the run, and the error says what is too large and by
    how much."""
    llm = ScriptedLLM(["never"], context_window=500, num_output=100)
    agent = bound_running_turn(FunctionAgent(tools=[pages], llm=llm))
    with pytest.raises(OverBudget, match="newest question") as caught:
        await run(agent, "word " * 600, memory=memory_of(url, window=8_000))
    assert caught.value.tokens > caught.value.limit
    assert llm.requests == []


async def test_react_agents_are_bounded_too(url: str) -> None:
    """The observations of a ReAct agent are shortened in what is sent, and whole in what is
    stored."""
    llm = ScriptedLLM(
        [
            'Thought: read\nAction: pages\nAction Input: {"number": 50}',
            "Thought: I know\nAnswer: done",
        ],
        context_window=1_500,
        num_output=100,
    )
    agent = bound_running_turn(ReActAgent(tools=[pages], llm=llm))
    memory = memory_of(url, window=8_000)
    await run(agent, "read", memory=memory)
    observed = [one for one in contents(llm.requests[1]) if str(one).startswith("Observation")]
    assert "characters more" in str(observed[0])
    assert pages(50) in str(contents(await memory.aget_all())[1])


async def test_agents_of_a_workflow_are_bounded(url: str) -> None:
    """An agent that was bound is so inside an ``AgentWorkflow``, and binding it twice is binding
    it once."""
    llm = ScriptedLLM([_pages(60), "done"], context_window=1_500, num_output=100)
    agent = FunctionAgent(tools=[pages], llm=llm, name="a", description="reads")
    assert bound_running_turn(bound_running_turn(agent)) is agent
    workflow = AgentWorkflow(agents=[agent], root_agent="a")
    await run(workflow, "read", memory=memory_of(url, window=1_500))
    assert max(_sent(llm)) <= 1_400


async def test_a_stale_turn_is_not_sent_again(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """A bound agent does not send what an earlier run left behind, and the log says so."""
    agent, llm = agent_of([calls(1), Reply(error=RuntimeError("no model")), "here"])
    bound_running_turn(agent)
    memory = memory_of(url)
    ctx = Context(agent)
    with pytest.raises(Exception, match="no model"):
        await run(agent, "look", memory=memory, ctx=ctx)
    with caplog.at_level(logging.WARNING, "secondcall"):
        await run(agent, "hello?", ctx=ctx)
    assert check_history(llm.requests[-1]) == []
    assert contents(llm.requests[-1])[-1] == "hello?"
    assert "what a failed run left behind is not sent; see clear_failed_run" in caplog.messages


async def test_clearing_what_is_clear(url: str) -> None:
    """Clearing a context after a run that ended well changes nothing."""
    agent, _ = agent_of([calls(1), "done"])
    memory = memory_of(url)
    ctx = Context(agent)
    await run(agent, "look", memory=memory, ctx=ctx)
    before = await memory.aget_all()
    cleared = await clear_failed_run(ctx)
    assert (cleared.scratchpad, cleared.recorded, cleared.unanswered) == (0, 0, 0)
    assert await memory.aget_all() == before


async def test_clearing_without_keeping(url: str) -> None:
    """Finished calls are not recorded when that is asked for, and the question goes with them."""
    agent, _ = agent_of([calls(1), Reply(error=RuntimeError("no model"))])
    memory = memory_of(url)
    ctx = Context(agent)
    with pytest.raises(Exception, match="no model"):
        await run(agent, "look", memory=memory, ctx=ctx)
    cleared = await clear_failed_run(ctx, keep_calls=False)
    assert (cleared.scratchpad, cleared.recorded, cleared.unanswered) == (2, 0, 1)
    assert await memory.aget_all() == []


async def test_clearing_a_context_of_another_memory() -> None:
    """A context with a memory of LlamaIndex's own is cleared too."""
    agent, _ = agent_of([calls(1), Reply(error=RuntimeError("no model"))])
    ctx = Context(agent)
    memory = ChatMemoryBuffer.from_defaults(token_limit=3_000)
    with pytest.raises(Exception, match="no model"):
        await run(agent, "look", memory=memory, ctx=ctx)
    assert (await clear_failed_run(ctx)).recorded == 1
    assert await ctx.store.get("scratchpad") == []
