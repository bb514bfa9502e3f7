"""Conversations that a host put in another order: what a get gives of them, and what it costs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from adapters.llama_index.agents import (
    agent_of,
    calls,
    contents,
    memory_of,
    recorded,
    roles,
    run,
)
from llama_index.core.llms import ChatMessage
from llama_index.core.workflow import Context

from secondcall.adapters.llama_index.outputs import tokens_of
from secondcall.adapters.llama_index.places import close_places
from secondcall.adapters.llama_index.running import clear_failed_run
from secondcall.memory.listed import ListedSession
from secondcall.testing.llama_index import Reply, check_history

pytestmark = pytest.mark.anyio

_SUMMARY = "The earlier part of this conversation"


def _turn(question: str, answer: str) -> list[ChatMessage]:
    return [
        ChatMessage(role="user", content=question),
        ChatMessage(role="assistant", content=answer),
    ]


def _turns(first: int, last: int) -> list[ChatMessage]:
    return [one for number in range(first, last) for one in _turn(f"q{number}", f"a{number}")]


async def test_going_back_to_the_beginning(url: str) -> None:
    """A conversation that is set back to its first turns, far behind what was said last, is shown
    as it then is, here and in the next process, and goes on from there."""
    memory = memory_of(url, window=3_000, reserve=0)
    for number in range(60):
        await memory.aput_messages(_turn(f"q{number} " + "word " * 30, f"a{number}"))
    beginning = (await memory.aget_all())[:4]
    await memory.aset(beginning)
    assert [one for one in await memory.aget() if one in beginning] == beginning
    assert len(await recorded(memory)) == 120
    await memory.aput_messages(_turn("and now?", "well"))
    wanted = [*contents(beginning), "and now?", "well"]
    assert [one for one in contents(await memory.aget()) if "<memory" not in str(one)] == wanted
    close_places()
    shown = contents(await memory_of(url, window=3_000, reserve=0).aget())
    assert [one for one in shown if "<memory" not in str(one)] == wanted


async def test_the_order_is_the_lists(url: str) -> None:
    """Turns that were set in another order, with new ones among them, are shown in that order."""
    memory = memory_of(url, recall_limit=1)
    await memory.aput_messages(_turns(0, 3))
    wanted = [*_turns(2, 3), *_turn("new", "yes"), *_turns(0, 1)]
    await memory.aset(wanted)
    assert await memory.aget_all() == wanted
    shown = [one for one in await memory.aget() if "<memory" not in str(one.content)]
    assert shown == wanted


async def test_system_messages_of_a_list_stay(url: str) -> None:
    """The system messages at the beginning of a list that was set are shown however long it is, and
    all of it is within the window."""
    memory = memory_of(url, window=1_000, reserve=0)
    system = ChatMessage(role="system", content="Answer in rhyme.")
    await memory.aput_messages(_turns(0, 2))
    await memory.aset([system, *_turns(0, 1)])
    for number in range(50):
        await memory.aput_messages(_turn(f"question {number} " + "word " * 20, "yes"))
    shown = await memory.aget()
    assert shown[0] == system
    assert str(shown[-2].content).startswith("question 49")
    assert check_history(shown) == []
    assert sum(map(tokens_of, shown)) <= 1_000


async def test_runs_on_a_list_that_was_set(url: str) -> None:
    """Agents go on from ``chat_history=`` that left turns out, with tools, and see it in order."""
    memory = memory_of(url)
    await memory.aput_messages(_turns(0, 4))
    history = [*_turns(2, 3), *_turns(0, 1)]
    agent, llm = agent_of([calls(1, 2), "done", "again"])
    await run(agent, "look", chat_history=history, memory=memory)
    await run(agent, "more", memory=memory)
    sent = [one for one in llm.requests[-1] if "<memory" not in str(one.content)]
    assert contents(sent) == [
        "q2", "a2", "q0", "a0", "look", None, *contents(sent)[6:8], "done", "more"
    ]  # fmt: skip
    assert roles(sent)[5:8] == ["assistant", "tool", "tool"]
    assert [check_history(one) for one in llm.requests] == [[]] * 3


async def test_a_record_that_does_not_fit_any_more(url: str) -> None:
    """A question that was too large and is set away does not stand in the way of the next."""
    memory = memory_of(url, window=500, reserve=0)
    await memory.aput_messages([*_turn("hi", "ho"), *_turn("word " * 3_000, "too much")])
    await memory.aset(_turn("hi", "ho"))
    assert contents(await memory.aget()) == ["hi", "ho"]


async def test_a_get_does_not_read_the_list_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a list was set, gets and puts put it together once, not at each of them."""
    memory = memory_of(url)
    await memory.aput_messages(_turns(0, 50))
    await memory.aset(_turns(0, 40))
    await memory.aget()
    shown = ListedSession._shown  # pyright: ignore[reportPrivateUsage] - what costs with the list's length
    made: list[int] = []

    async def counted(self: ListedSession, items: Any) -> Any:
        made.append(len(items))
        return await shown(self, items)

    monkeypatch.setattr(ListedSession, "_shown", counted)
    for number in range(5):
        await memory.aput(ChatMessage(role="user", content=f"more {number}"))
        assert contents(await memory.aget())[-1] == f"more {number}"
        await memory.aget()
    assert made == []


async def test_setting_nothing(url: str) -> None:
    """An empty list is an empty conversation, and the next message begins it."""
    memory = memory_of(url)
    await memory.aput_messages(_turns(0, 2))
    await memory.aset([])
    assert await memory.aget_all() == await memory.aget() == []
    await memory.aput(ChatMessage(role="user", content="hello"))
    assert contents(await memory.aget())[-1] == "hello"


async def test_a_failed_run_costs_no_summary(url: str) -> None:
    """A question that was dropped after its run failed is in no list and no view, here and in
    another object; the summary of older turns is shown as before, and the record keeps it all."""
    memory = memory_of(url, window=1_200, reserve=0)
    for number in range(40):
        await memory.aput_messages(_turn(f"question {number} " + "word " * 20, f"answer {number}"))
    agent, _ = agent_of([Reply(error=RuntimeError("no model"))])
    ctx = Context(agent)
    with pytest.raises(Exception, match="no model"):
        await run(agent, "the lost one", memory=memory, ctx=ctx)
    async with asyncio.timeout(60):  # summaries are made in the background
        while _SUMMARY not in str((await memory.aget())[0].content):  # noqa: ASYNC110 - a summary in the background has no event to wait for
            await asyncio.sleep(0.01)
    assert (await clear_failed_run(ctx)).unanswered == 1
    assert (await clear_failed_run(ctx)).unanswered == 0
    assert len(await recorded(memory)) == 81
    for again in (memory, memory_of(url, window=1_200, reserve=0)):
        assert len(await again.aget_all()) == 80
        assert "the lost one" not in contents(await again.aget())
        await again.aset(await again.aget_all())
        assert len(await recorded(memory)) == 81
    assert _SUMMARY in str((await memory.aget())[0].content)
    await memory.aput_messages(_turn("the lost one", "well"))
    assert contents(await memory.aget())[-2:] == ["the lost one", "well"]
    assert check_history(await memory.aget()) == []
    await memory.aset(_turn("the lost one", "anew"))
    assert await memory.aget_all() == _turn("the lost one", "anew")
