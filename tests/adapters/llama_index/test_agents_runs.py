"""Runs that overlap, fail, are cancelled or change things while they go on."""

from __future__ import annotations

import asyncio
from typing import Any

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
    user_of,
)
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.bridge.pydantic import BaseModel
from llama_index.core.llms import ChatMessage
from llama_index.core.workflow import Context

from secondcall import Memory, Step, UserErased, UserMemory, Workflow
from secondcall.abc import TokenCounter
from secondcall.adapters.llama_index.memory import SecondCallMemory
from secondcall.adapters.llama_index.running import (
    bound_running_turn,
    clear_failed_run,
    context_after,
)
from secondcall.testing.llama_index import Call, Reply, ScriptedLLM, check_history

pytestmark = pytest.mark.anyio

_ORDER = Workflow(
    "order", {"choosing": Step(), "paying": Step(terminal=True)}, {"choosing": "paying"}
)


async def _asked(llm: ScriptedLLM, count: int) -> None:
    while len(llm.requests) < count:  # noqa: ASYNC110 - the model has no event to wait for
        await asyncio.sleep(0)


async def _cancelled(handler: Any) -> None:
    await handler.cancel_run()
    with pytest.raises(BaseException):  # noqa: B017, PT011 - workflows has had several for it
        await handler


async def test_a_question_that_failed_is_seen_at_once(url: str) -> None:
    """A retry right after a run failed sees the question that nothing answered, and a run that is
    still going on is not shown to others, however long it takes."""
    memory = memory_of(url)
    slow, slow_llm = agent_of([Reply(text="late", delay_seconds=600)])
    handler = start(slow, "the slow one", memory=memory)
    await _asked(slow_llm, 1)
    failing, _ = agent_of([Reply(error=RuntimeError("no model"))])
    with pytest.raises(Exception, match="no model"):
        await run(failing, "I am Ann", memory=memory)
    again, llm = agent_of(["hello Ann"])
    await run(again, "are you there?", memory=memory)
    assert contents(llm.requests[0]) == ["I am Ann", "are you there?"]
    await _cancelled(handler)
    assert contents(await memory.aget())[0] == "the slow one"


async def test_a_turn_is_seen_as_soon_as_it_is_answered(url: str) -> None:
    """A run begun while another one streams its end sees what that one answered."""
    memory = memory_of(url)
    agent, _ = agent_of([calls(1), "one"])
    handler = start(agent, "first", memory=memory)
    async for _ in handler.stream_events():
        pass
    second, llm = agent_of(["two"])
    await run(second, "second", memory=memory)
    assert contents(llm.requests[0]) == ["first", None, "found 1", "one", "second"]
    await handler


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("fails", [False, True])
async def test_a_run_that_ends_at_any_step(url: str, at: int, fails: bool) -> None:
    """Cancelled or failed at its first, second or third request, a run leaves a valid history for
    the next one, with every call that was finished, and no part twice."""
    script = [calls(1), calls(2, 3), "done"]
    ending: Any = Reply(error=RuntimeError("no")) if fails else Reply(delay_seconds=600)
    agent, llm = agent_of([*script[: at - 1], ending, "here again"])
    memory = memory_of(url)
    ctx = Context(agent)
    handler = start(agent, "look", memory=memory, ctx=ctx)
    await _asked(llm, at)
    if fails:
        with pytest.raises(Exception, match="no"):
            await handler
    else:
        await _cancelled(handler)
    cleared = await clear_failed_run(ctx)
    assert cleared.recorded == (0, 1, 3)[at - 1]
    assert cleared.unanswered == (1 if at == 1 else 0)
    await run(agent, "hello?", ctx=ctx if fails else await context_after(agent, ctx))
    assert [check_history(one) for one in llm.requests] == [[]] * len(llm.requests)
    shown = contents(llm.requests[-1])
    assert [one for one in shown if str(one).startswith("found")] == [
        f"found {number}" for number in range(1, cleared.recorded + 1)
    ]
    assert shown[-1] == "hello?"


async def test_a_run_that_is_cancelled_in_its_tool(url: str) -> None:
    """A run that is cancelled while its tool works leaves no unanswered call for the next one."""
    began = asyncio.Event()

    async def wait() -> str:
        """Wait."""
        began.set()
        await asyncio.sleep(600)
        return "never"

    agent, llm = agent_of([Reply(calls=[Call("wait", {})]), "here"], tools=[wait])
    memory = memory_of(url)
    ctx = Context(agent)
    handler = start(agent, "wait", memory=memory, ctx=ctx)
    await began.wait()
    await _cancelled(handler)
    await clear_failed_run(ctx)
    await run(agent, "hello?", ctx=await context_after(agent, ctx))
    assert check_history(llm.requests[-1]) == []
    assert contents(llm.requests[-1])[-1] == "hello?"


async def test_a_tool_that_moves_the_workflow(url: str) -> None:
    """The state that a tool changes is read anew for the model's next answer in the same run, and
    stands in no message of the conversation."""
    memory = memory_of(url)

    async def pay() -> str:
        """Pay."""

        async def move(user: UserMemory) -> None:
            session = await user.session(memory.session_id)
            await session.state.update(lambda one: one.advance("paying"))

        await user_of(memory, move)
        return "paid"

    async def begin(user: UserMemory) -> None:
        session = await user.session(memory.session_id)
        await session.state.update(lambda one: one.start(_ORDER))

    await user_of(memory, begin)
    agent, llm = agent_of([Reply(calls=[Call("pay", {})]), "done"], tools=[pay])
    await run(agent, "pay it", memory=memory)
    before, after = (str(contents(one)) for one in llm.requests)
    assert "choosing" in before
    assert "paying" in after
    assert contents(await memory.aget_all()) == ["pay it", None, "paid", "done"]


class City(BaseModel):
    """A city."""

    name: str


async def test_output_of_a_class(url: str) -> None:
    """An agent with ``output_cls`` is asked for its object with the whole turn, and the history is
    valid for the next run."""
    script = [calls(1), "Oslo", Reply(calls=[Call("City", {"name": "Oslo"})]), "yes"]
    llm = ScriptedLLM(script)
    agent = FunctionAgent(tools=[look_up], llm=llm, output_cls=City)
    memory = memory_of(url)
    result = await run(agent, "where?", memory=memory)
    assert result.structured_response == {"name": "Oslo"}
    assert contents(await memory.aget_all()) == ["where?", None, "found 1", "Oslo"]
    llm.script(["yes", Reply(calls=[Call("City", {"name": "Oslo"})])])
    await run(agent, "sure?", memory=memory)
    assert check_history(llm.requests[0]) == []
    assert roles(llm.requests[0]) == ["user", "assistant", "tool", "assistant", "user"]


async def test_a_user_who_is_forgotten_in_a_run(url: str) -> None:
    """A run whose user is forgotten meanwhile fails, nothing of it stays, and the next run begins
    with a new user."""
    memory = memory_of(url)
    await memory.aput_messages(
        [
            ChatMessage(role="user", content="my pin is 4711"),
            ChatMessage(role="assistant", content="ok"),
        ]
    )

    async def forget() -> str:
        """Forget."""
        await user_of(memory, UserMemory.forget)
        return "forgotten"

    agent, _ = agent_of([Reply(calls=[Call("forget", {})]), "done"], tools=[forget])
    with pytest.raises(Exception, match=r"erased|forgotten") as caught:
        await run(agent, "forget me", memory=memory)
    assert isinstance(caught.value, UserErased) or "Erased" in repr(caught.value)
    assert await recorded(memory) == []
    again, llm = agent_of(["who are you?"])
    await run(again, "hello", memory=memory)
    assert contents(llm.requests[0]) == ["hello"]
    assert len(await recorded(memory)) == 2


async def test_two_memories_of_one_session(url: str) -> None:
    """Two objects for one session, as two servers have them, are one conversation: each sees what
    the other's runs put, and calls and results stay paired."""
    ours, theirs = memory_of(url), memory_of(url)
    assert ours is not theirs
    for number in range(3):
        for memory in (ours, theirs):
            agent, llm = agent_of([calls(number), f"answer {number}"])
            await run(agent, f"question {number}", memory=memory)
            assert check_history(llm.requests[-1]) == []
    assert contents(await ours.aget_all()) == contents(await theirs.aget_all())
    assert len(await theirs.aget_all()) == 24
    assert contents(await ours.aget())[-1] == "answer 2"


async def test_runs_at_once_with_tools_and_failures(url: str) -> None:
    """Of twelve runs at once, some of which fail, every answered turn stands whole, and what every
    model was sent is valid."""
    memory = memory_of(url, window=60_000)
    agents = [
        agent_of(
            [
                calls(*range(number % 4)) if number % 4 else "short",
                Reply(error=RuntimeError("no model")) if number % 3 == 2 else f"answer {number}",
            ]
        )
        for number in range(12)
    ]
    await asyncio.gather(
        *(
            run(agent, f"question {number}", memory=memory)
            for number, (agent, _) in enumerate(agents)
        ),
        return_exceptions=True,
    )
    for _, llm in agents:
        assert [check_history(one) for one in llm.requests] == [[]] * len(llm.requests)
    shown = await memory.aget()
    assert check_history(shown) == []
    for number in range(12):
        place = contents(shown).index(f"question {number}")
        if number % 4 and number % 3 != 2:
            wanted = ["user", "assistant", *["tool"] * (number % 4), "assistant"]
            assert roles(shown[place : place + len(wanted)]) == wanted
            assert contents(shown)[place + len(wanted) - 1] == f"answer {number}"


class _Words(TokenCounter):
    """One token for each word."""

    id = "words"

    def count(self, text: str) -> int:
        """The words."""
        return len(text.split())


async def test_a_counter_of_the_hosts_own(url: str) -> None:
    """A counter that the memory was opened with counts prompt, messages and the running turn."""
    async with Memory.open(url, counter=_Words()) as opened:
        memory = SecondCallMemory.from_defaults(
            user_id="u",
            session_id="s",
            memory=opened,
            window=400,
            reserve=0,
            system_prompt="x" * 50_000,
        )
        assert memory.reserve == 5
        llm = ScriptedLLM(
            [Reply(calls=[Call("pages", {})]), "done"], context_window=400, num_output=50
        )

        def pages() -> str:
            """Read."""
            return " ".join("w" * 300 for _ in range(150))

        agent = bound_running_turn(FunctionAgent(tools=[pages], llm=llm))
        await run(agent, "read", memory=memory)
        assert contents(llm.requests[1])[-1] == pages()
