"""How agents call a memory, and what a model is sent by it."""

from __future__ import annotations

import asyncio

import pytest
from adapters.llama_index.agents import (
    agent_of,
    calls,
    contents,
    look_up,
    memory_of,
    recorded,
    roles,
    run,
    start,
)
from llama_index.core.agent.workflow import AgentWorkflow, CodeActAgent, FunctionAgent, ReActAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context
from workflows.errors import WorkflowRuntimeError

from secondcall.adapters.llama_index.running import clear_failed_run, context_after
from secondcall.record.append import text_of
from secondcall.testing.llama_index import Call, Reply, ScriptedLLM, check_history

pytestmark = pytest.mark.anyio


def _valid(llm: ScriptedLLM) -> None:
    assert llm.requests
    assert [check_history(request) for request in llm.requests] == [[]] * len(llm.requests)


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_run_without_tools(url: str, streaming: bool) -> None:
    """A plain run puts the question, gets, puts the answer, and gets once more."""
    agent, llm = agent_of(["hello"], streaming=streaming)
    memory = memory_of(url)
    await run(agent, "hi", memory=memory)
    assert memory.log == [
        ("aput", "user"),
        ("aget", None),
        ("aput_messages", ["assistant"]),
        ("aget", None),
    ]
    assert contents(await memory.aget_all()) == ["hi", "hello"]
    _valid(llm)


@pytest.mark.parametrize("forms", ["blocks", "beside", "both"])
@pytest.mark.parametrize("numbers", [(1,), (0, 1, 2, 3)])
async def test_tools_in_parallel(url: str, numbers: tuple[int, ...], forms: str) -> None:
    """Calls made at once stay one message, each with its own result, whichever came first, and in
    whichever form the model writes them."""
    agent, llm = agent_of([calls(*numbers, forms=forms), "done", "sure"])
    memory = memory_of(url)
    ctx = Context(agent)
    await run(agent, "look", memory=memory, ctx=ctx)
    assert memory.log == [
        ("aput", "user"),
        ("aget", None),
        ("aget", "look"),
        ("aput_messages", ["assistant", *["tool"] * len(numbers), "assistant"]),
        ("aget", None),
    ]
    await run(agent, "sure?", ctx=ctx)
    asked = llm.requests[2]
    assert roles(asked) == ["user", "assistant", *["tool"] * len(numbers), "assistant", "user"]
    found = {one.additional_kwargs["tool_call_id"]: one.content for one in asked[2:-2]}
    assert found == {f"call_1_{place}": f"found {one}" for place, one in enumerate(numbers)}
    assert asked[1:-2] == llm.requests[1][1:]
    _valid(llm)


async def test_several_rounds_and_a_tool_that_fails(url: str) -> None:
    """Every round of a turn is kept, and the error text of a tool that failed is its result."""
    agent, llm = agent_of([calls(1), calls(9), "sorry", "bye"])
    memory = memory_of(url)
    await run(agent, "look twice", memory=memory)
    await run(agent, "bye", memory=memory)
    assert roles(llm.requests[3]) == [
        "user", "assistant", "tool", "assistant", "tool", "assistant", "user"
    ]  # fmt: skip
    assert "there is no 9" in str(llm.requests[3][4].content)
    _valid(llm)


async def test_a_tool_that_answers_itself(url: str) -> None:
    """The output of a tool that returns directly is kept as result and as the answer."""
    tool = FunctionTool.from_defaults(lambda: "it is 5 o'clock", name="clock", return_direct=True)
    llm = ScriptedLLM([Reply(calls=[Call("clock", {})]), "as I said"])
    agent = FunctionAgent(tools=[tool], llm=llm)
    memory = memory_of(url)
    await run(agent, "what time is it?", memory=memory)
    await run(agent, "really?", memory=memory)
    assert roles(llm.requests[1]) == ["user", "assistant", "tool", "assistant", "user"]
    assert llm.requests[1][3].content == "it is 5 o'clock"
    _valid(llm)


async def test_a_handoff(url: str) -> None:
    """After a handoff the other agent's model sees a valid history, and so does the next run."""
    first, first_llm = agent_of(
        [Reply(calls=[Call("handoff", {"to_agent": "second", "reason": "sums"})])],
        name="first", description="greets", system_prompt="Greet.", can_handoff_to=["second"],
    )  # fmt: skip
    second, second_llm = agent_of(
        [calls(2), "four", "five"], name="second", description="sums", system_prompt="Add."
    )
    workflow = AgentWorkflow(agents=[first, second], root_agent="first")
    memory = memory_of(url)
    ctx = Context(workflow)
    await run(workflow, "add", memory=memory, ctx=ctx)
    batches = [value for name, value in memory.log if name == "aput_messages"]
    assert batches == [["assistant", "tool"], ["assistant", "tool", "assistant"]]
    await run(workflow, "again", ctx=ctx)
    assert contents(second_llm.requests[2])[-2:] == ["four", "again"]
    _valid(first_llm)
    _valid(second_llm)


async def test_a_history_that_is_handed_over(url: str) -> None:
    """``chat_history=`` is the conversation from then on; what was there stays in the record."""
    agent, llm = agent_of(["one", "two", "three"])
    memory = memory_of(url)
    history = [
        ChatMessage(role="user", content="I am Ann"),
        ChatMessage(role="assistant", content="Hello Ann"),
    ]
    await run(agent, "who am I?", chat_history=history, memory=memory)
    assert contents(llm.requests[0]) == ["I am Ann", "Hello Ann", "who am I?"]
    told = [*history, *(await memory.aget_all())[2:]]
    await run(agent, "and you?", chat_history=told, memory=memory)
    assert contents(llm.requests[1]) == ["I am Ann", "Hello Ann", "who am I?", "one", "and you?"]
    assert contents(await memory.aget_all()) == [*contents(llm.requests[1]), "two"]
    await run(agent, "anew", chat_history=history[:1], memory=memory)
    assert contents(await memory.aget_all()) == ["I am Ann", "anew", "three"]
    assert [text_of(one.item) for one in await recorded(memory)] == [
        "I am Ann", "Hello Ann", "who am I?", "one", "and you?", "two", "anew", "three"
    ]  # fmt: skip


async def test_a_run_that_failed(url: str) -> None:
    """After a model error the next run on the same context is asked with a valid history."""
    agent, llm = agent_of([calls(1, 2), Reply(error=RuntimeError("no model")), "here again"])
    memory = memory_of(url)
    ctx = Context(agent)
    with pytest.raises(Exception, match="no model"):
        await run(agent, "look", memory=memory, ctx=ctx)
    cleared = await clear_failed_run(ctx)
    assert (cleared.scratchpad, cleared.recorded, cleared.unanswered) == (3, 2, 0)
    await run(agent, "hello?", ctx=ctx)
    assert roles(llm.requests[-1]) == ["user", "assistant", "tool", "tool", "user"]
    _valid(llm)


async def test_a_run_that_failed_at_once(url: str) -> None:
    """A question that nothing answers leaves the conversation, and stays in the record."""
    agent, llm = agent_of([Reply(error=RuntimeError("no model")), "here"])
    memory = memory_of(url)
    ctx = Context(agent)
    with pytest.raises(Exception, match="no model"):
        await run(agent, "lost?", memory=memory, ctx=ctx)
    assert (await clear_failed_run(ctx)).unanswered == 1
    await run(agent, "hello?", ctx=ctx)
    assert contents(llm.requests[-1]) == ["hello?"]
    assert [one.key.kind for one in await recorded(memory)] == ["message"] * 3


async def test_a_run_that_was_cancelled(url: str) -> None:
    """A run that is cancelled in its model's answer loses nothing that was recorded before."""
    agent, llm = agent_of([calls(1), Reply(text="late", delay_seconds=600), "next"])
    memory = memory_of(url)
    ctx = Context(agent)
    handler = start(agent, "look", memory=memory, ctx=ctx)
    while len(llm.requests) < 2:  # noqa: ASYNC110 - the model has no event to wait for
        await asyncio.sleep(0)
    await handler.cancel_run()
    with pytest.raises(BaseException):  # noqa: B017, PT011 - workflows has had several for it
        await handler
    assert (await clear_failed_run(ctx)).recorded == 1
    await run(agent, "go on", ctx=await context_after(agent, ctx))
    assert roles(llm.requests[-1]) == ["user", "assistant", "tool", "user"]
    _valid(llm)


async def test_too_many_iterations(url: str) -> None:
    """A run that ran out of iterations leaves a context on which the next one works, with its own
    limit."""
    agent, llm = agent_of([calls(1), calls(2), calls(3), calls(1), "done"])
    memory = memory_of(url)
    ctx = Context(agent)
    with pytest.raises(WorkflowRuntimeError, match="Max iterations"):
        await run(agent, "look", memory=memory, ctx=ctx, max_iterations=2)
    await clear_failed_run(ctx)
    await run(agent, "once more", ctx=ctx, max_iterations=10)
    assert contents(await memory.aget_all())[-1] == "done"
    _valid(llm)


async def test_early_stopping(url: str) -> None:
    """Where the framework stops early with an answer, that is stored, and the calls before it are
    kept by clearing the context."""
    if "early_stopping_method" not in FunctionAgent.model_fields:
        assert FunctionAgent.model_fields  # this release has no early stopping
        return
    agent, llm = agent_of([calls(1), calls(2), "that is all", "yes"])
    memory = memory_of(url)
    ctx = Context(agent)
    await run(
        agent, "look", memory=memory, ctx=ctx, max_iterations=2, early_stopping_method="generate"
    )
    assert contents(await memory.aget_all()) == ["look", "that is all"]
    assert (await clear_failed_run(ctx)).scratchpad == 3
    await run(agent, "sure?", ctx=ctx)
    _valid(llm)


async def test_structured_output(url: str) -> None:
    """The messages that structured output is made from are the whole turn."""
    seen: list[list[ChatMessage]] = []

    def read(messages: list[ChatMessage]) -> dict[str, str]:
        seen.append(messages)
        return {"city": "Oslo"}

    agent, llm = agent_of([calls(1), "Oslo"], structured_output_fn=read)
    result = await run(agent, "where?", memory=memory_of(url))
    assert result.structured_response == {"city": "Oslo"}
    assert roles(seen[0]) == ["user", "assistant", "tool", "assistant"]
    assert check_history(seen[0]) == []
    _valid(llm)


async def test_react_agent(url: str) -> None:
    """A ReAct agent's reasoning is stored as its one answer, and the next question follows it."""
    llm = ScriptedLLM(
        [
            'Thought: look\nAction: look_up\nAction Input: {"number": 3}',
            "Thought: I know\nAnswer: it is 3",
            "Thought: easy\nAnswer: bye",
        ]
    )
    agent = ReActAgent(tools=[look_up], llm=llm)
    memory = memory_of(url)
    ctx = Context(agent)
    await run(agent, "which?", memory=memory, ctx=ctx)
    await run(agent, "thanks", ctx=ctx)
    assert memory.log[:4] == [
        ("aput", "user"),
        ("aget", None),
        ("aget", "which?"),
        ("aput", "assistant"),
    ]
    kept = await memory.aget_all()
    assert roles(kept) == ["user", "assistant"] * 2
    assert "Observation: found 3" in str(kept[1].content)
    assert contents(llm.requests[2])[-1] == "thanks"
    _valid(llm)


async def test_code_act_agent(url: str) -> None:
    """What a CodeAct agent runs and what came of it stay between its question and its answer."""
    llm = ScriptedLLM(["<execute>1 + 1</execute>", "it is 2", "yes"])
    agent = CodeActAgent(code_execute_fn=_evaluate, tools=[], llm=llm)
    memory = memory_of(url)
    ctx = Context(agent)
    await run(agent, "add", memory=memory, ctx=ctx)
    await run(agent, "sure?", ctx=ctx)
    kept = await memory.aget_all()
    assert roles(kept) == ["user", "assistant", "user", "assistant", "user", "assistant"]
    assert str(kept[2].content).startswith("Result of executing")
    assert contents(llm.requests[2])[-2:] == ["it is 2", "sure?"]
    _valid(llm)


def _evaluate(code: str) -> str:
    return {"1 + 1": "2"}[code.strip()]


async def test_runs_at_once_keep_their_turns_whole(url: str) -> None:
    """Runs that overlap on one memory end as whole turns, and no model sees another's question."""
    memory = memory_of(url)
    agents = [agent_of([calls(number), f"answer {number}"]) for number in range(4)]
    await asyncio.gather(
        *(
            run(agent, f"question {number}", memory=memory)
            for number, (agent, _) in enumerate(agents)
        )
    )
    kept = await memory.aget_all()
    shown = await memory.aget()
    assert len(kept) == 16
    for number in range(4):
        start = contents(shown).index(f"question {number}")
        turn = shown[start : start + 4]
        assert roles(turn) == ["user", "assistant", "tool", "assistant"]
        assert contents(turn)[2:] == [f"found {number}", f"answer {number}"]
    for number, (_, llm) in enumerate(agents):
        _valid(llm)
        asked = [one for one in contents(llm.requests[0]) if str(one).startswith("question")]
        assert asked[-1] == f"question {number}"
    reopened = memory_of(url, summarise=False)
    assert contents(await reopened.aget()) == contents(shown)


async def test_initial_state_is_not_stored(url: str) -> None:
    """The state that an agent writes into its request is in no message of the conversation, and in
    none of the caller's."""
    agent, llm = agent_of(["hi Ann", "yes"], initial_state={"mood": "sunny"})
    memory = memory_of(url)
    mine = ChatMessage(role="user", content="I am Ann")
    await run(agent, mine, memory=memory)
    assert "sunny" in str(llm.requests[0][-1].content)
    assert mine.content == "I am Ann"
    assert "sunny" not in str(await memory.aget_all()) + str(await memory.aget())
    await run(agent, "and now?", memory=memory)
    assert contents(llm.requests[1])[:-1] == ["I am Ann", "hi Ann"]


async def test_initial_state_is_seen_by_all_of_a_run(url: str) -> None:
    """What an agent writes into its question stands in every request of the run, once, also with
    tools between them, and in none of the next run."""
    script = [calls(1, 2), calls(3), "done", "well"]
    agent, llm = agent_of(script, initial_state={"mood": "sunny"})
    memory = memory_of(url)
    await run(agent, "look", memory=memory)
    assert [str(one).count("sunny") for one in llm.requests] == [1, 1, 1]
    assert [one[0].content for one in llm.requests] == [llm.requests[0][0].content] * 3
    agent.initial_state = {}
    await run(agent, "and now?", memory=memory)
    assert "sunny" not in str(llm.requests[-1]) + str(await memory.aget_all())


async def test_a_system_prompt_is_sent_once(url: str) -> None:
    """The agent's own system prompt is not stored, so it stands once in each request."""
    agent, llm = agent_of(["a", "b"], system_prompt="Be brief.")
    memory = memory_of(url)
    ctx = Context(agent)
    await run(agent, "one", memory=memory, ctx=ctx)
    await run(agent, "two", ctx=ctx)
    assert [roles(one).count("system") for one in llm.requests] == [1, 1]
