"""Conversations that a host put in another order: what a get gives of them, and what it costs."""

from __future__ import annotations

import asyncio
import json
import random
import re
from contextlib import suppress
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

from secondcall import OverBudget, ToolCall
from secondcall.adapters.llama_index.memory import SecondCallMemory
from secondcall.adapters.llama_index.messages import items_from_chat
from secondcall.adapters.llama_index.outputs import text_tokens, tokens_of
from secondcall.adapters.llama_index.places import close_places
from secondcall.adapters.llama_index.running import clear_failed_run
from secondcall.memory.listed import ListedSession
from secondcall.shortterm.summary import SummarizingBuffer
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


def _long(first: int, last: int) -> list[ChatMessage]:
    return [
        one
        for number in range(first, last)
        for one in _turn(f"The code of room {number} is {number * 7}. " + "word " * 15, "noted")
    ]


async def _with_summary(memory: SecondCallMemory) -> list[ChatMessage]:
    async with asyncio.timeout(60):  # summaries are made in the background
        while _SUMMARY not in str((await memory.aget())[0].content):  # noqa: ASYNC110 - a summary in the background has no event to wait for
            await asyncio.sleep(0.01)
    return await memory.aget()


async def test_a_list_that_was_set_has_a_summary(url: str) -> None:
    """What no longer fits of a conversation that was put in order is told in its summary, within
    the window, as it grows and in another object; what was set away is not told of."""
    memory = memory_of(url, window=1_500, reserve=0, recall_limit=1)
    gone = _turn("My secret is a blue whale, remember 4711.", "noted")
    await memory.aput_messages([*gone, *_long(0, 2)])
    await memory.aset(_long(0, 2))
    for number in range(2, 60):
        await memory.aput_messages(_long(number, number + 1))
        assert sum(map(tokens_of, await memory.aget())) <= 1_500
    for again in (memory, memory_of(url, window=1_500, reserve=0, recall_limit=1)):
        shown = await _with_summary(again)
        assert sum(map(tokens_of, shown)) <= 1_500
        assert check_history(shown) == []
        assert str(shown[-2].content).startswith("The code of room 59")
        assert "whale" not in str(shown[0].content)
        assert "The code of room" in str(shown[0].content)
    plain = memory_of(url, window=1_500, reserve=0, summarise=False)
    assert _SUMMARY not in str((await plain.aget())[0].content)


async def test_the_summary_of_a_list_goes_with_what_it_is_of(url: str) -> None:
    """After a list was set to less, its summary tells nothing of what is no longer in it."""
    memory = memory_of(url, window=1_500, reserve=0, recall_limit=1)
    await memory.aput_messages([*_long(0, 1), *_turn("hi", "ho")])
    await memory.aset([*_turn("hi", "ho"), *_long(1, 50)])
    await _with_summary(memory)
    await memory.aset([*_turn("hi", "ho"), *_long(40, 90)])
    shown = await _with_summary(memory)
    told = {int(room) for room in re.findall(r"room (\d+)", str(shown[0].content))}
    assert told
    assert told <= set(range(40, 90))


async def test_a_list_is_summarised_once(url: str) -> None:
    """As a conversation that was put in order grows, each message goes into its buffer once."""
    memory = memory_of(url, window=1_500, reserve=0)
    await memory.aput_messages(_long(0, 3))
    await memory.aset(_long(1, 3))
    put: list[Any] = []
    original = SummarizingBuffer.put
    with pytest.MonkeyPatch.context() as patch:

        def counted(self: SummarizingBuffer, *items: Any) -> None:
            put.extend(items)
            original(self, *items)

        patch.setattr(SummarizingBuffer, "put", counted)
        for number in range(3, 60):
            await memory.aput_messages(_long(number, number + 1))
            await memory.aget()
            await memory.aget()
    assert len(put) == 2 * 59


async def test_parallel_calls_fill_the_window(url: str) -> None:
    """A turn of four calls that were made at once is shown where its messages fit: the one message
    that makes them counts once."""
    agent, _ = agent_of([calls(1, 2, 3, 4), "done"])
    await run(agent, "look", memory=memory_of(url))
    whole = await memory_of(url).aget()
    assert roles(whole) == ["user", "assistant", "tool", "tool", "tool", "tool", "assistant"]
    words = [str(one.content) for one in whole if one.content]
    asked = ["look_up", json.dumps({"number": 1})] * 4
    least = 4 * len(whole) + sum(map(text_tokens, [*words, *asked]))
    assert roles(await memory_of(url, token_limit=least).aget()) == roles(whole)
    with pytest.raises(OverBudget, match="the newest turn"):
        await memory_of(url, token_limit=least // 2).aget()


async def test_a_dropped_question_takes_no_room(url: str) -> None:
    """After a question was dropped, the turn before it is shown, though both would not fit."""
    memory = memory_of(url, window=300, reserve=0)
    await memory.aput_messages(_turn("first " + "word " * 100, "yes"))
    await memory.aput(ChatMessage(role="user", content="second " + "word " * 200))
    assert str((await memory.aget())[-1].content).startswith("second")
    assert await memory.adrop_unanswered() == 1
    assert contents(await memory.aget())[-1] == "yes"
    assert roles(await memory.aget())[-2:] == ["user", "assistant"]


async def test_system_messages_anywhere_in_a_list_stay(url: str) -> None:
    """A system message in the middle of a list that was set is shown when its turn is not."""
    memory, system = memory_of(url, window=1_000, reserve=0), "Answer in rhyme."
    await memory.aput_messages(_long(0, 2))
    middle = ChatMessage(role="system", content=system)
    await memory.aset([*_long(1, 30), middle, *_long(30, 60)])
    for _ in range(2):
        shown = await memory.aget()
        assert shown[0] == middle
        assert check_history(shown) == []
        await memory.aput_messages(_long(60, 80))


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_order_a_host_makes(url: str, seed: int) -> None:
    """Conversations that are put, set to parts of themselves, dropped from and opened anew, at
    random and in windows of any size, are got as lists that providers take, with every system
    message and the newest question in them, within the window; or refused by ``OverBudget``."""
    dice = random.Random(seed)
    window, seen = dice.choice((150, 400, 1_000, 1_500)), 0
    memory = memory_of(url, window=window, reserve=0)
    for number in range(30):
        await _changed(memory, dice, number)
        if dice.random() < 0.2:
            memory = memory_of(url, window=window, reserve=0, summarise=dice.random() < 0.7)
        given = await memory.aget_all()
        try:
            shown = await memory.aget()
        except OverBudget:
            continue
        seen += 1
        assert check_history(shown) == []
        assert sum(map(_taken, shown)) <= window
        wanted = [one.content for one in given if one.role == "system"]
        wanted += [one.content for one in given if one.role == "user"][-1:]
        assert set(wanted) <= set(contents(shown))
    assert seen


async def _changed(memory: SecondCallMemory, dice: random.Random, number: int) -> None:
    action = dice.random()
    if action < 0.65:
        question = f"q{number} " + "word " * dice.choice((1, 5, 40, 200))
        agent, _ = agent_of([calls(*range(1, dice.choice((2, 3, 5)))), "x " * dice.choice((1, 99))])
        await memory.aput(ChatMessage(role="user", content=question))
        if dice.random() < 0.3:
            with suppress(OverBudget):
                await run(agent, f"more {number}", memory=memory)
        elif dice.random() < 0.8:
            await memory.aput(ChatMessage(role="assistant", content="x " * dice.choice((1, 99))))
    elif action < 0.9:
        given = await memory.aget_all()
        users = [n for n, one in enumerate(given) if one.role == "user"]
        first = dice.choice([*users, len(given)])
        rhyme = [ChatMessage(role="system", content=f"rule {number}")]
        await memory.aset([*(rhyme if dice.random() < 0.4 else []), *given[first:]])
    else:
        await memory.adrop_unanswered()


def _taken(message: ChatMessage) -> int:
    """What a message takes as the budget counts: words, names and arguments of calls, framing."""
    made = [one for one in items_from_chat([message]) if isinstance(one, ToolCall)]
    texts = [text for one in made for text in (one.name, json.dumps(one.arguments))]
    return 4 + sum(map(text_tokens, [message.content or "", *(() if _answers(message) else texts)]))


def _answers(message: ChatMessage) -> bool:
    return message.role == "tool"
