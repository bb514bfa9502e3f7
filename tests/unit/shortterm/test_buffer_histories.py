"""Thousands of random conversations: what comes out is always right, and judged from outside."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from buffer_kit import WordCounter
from hypothesis import given
from hypothesis import strategies as st

from secondcall.context.chat import messages_from_items
from secondcall.errors import OverBudget
from secondcall.record.messages import items_from_messages
from secondcall.shortterm.buffer import ChatBuffer
from secondcall.types import Item, Message, ToolCall

sys.path.append(str(Path(__file__).parents[3] / "bench"))

histories: Any = import_module("chat_histories")
judging: Any = import_module("chat_judge")

SEEDS = [range(start, start + 250) for start in range(0, 2_000, 250)]


def _buffer(history: Any, framing_tokens: int) -> ChatBuffer:
    buffer = ChatBuffer(history.token_limit, counter=WordCounter(), framing_tokens=framing_tokens)
    for item in items_from_messages(history.messages):
        buffer.put(item)
    return buffer


def _turns_that_fit(history: Any) -> list[str]:
    """The user messages of the newest turns that fit, worked out from the messages alone."""
    answered = {one["tool_call_id"] for one in history.messages if one["role"] == "tool"}
    room = history.token_limit
    turns: list[tuple[str, int]] = []
    for one in history.messages:
        calls = [call for call in one.get("tool_calls") or () if call["id"] in answered]
        size: int = judging.words_of([{**one, "tool_calls": calls}])
        if one["role"] == "system":
            room -= size
        elif one["role"] == "user":
            turns.append((one["content"], size))
        elif turns:
            turns[-1] = (turns[-1][0], turns[-1][1] + size)
    kept: list[str] = []
    for text, size in reversed(turns):
        if size > room and kept:
            break
        kept.insert(0, text)
        room -= size
    return kept


@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: f"from {seeds.start}")
def test_random_histories(seeds: range) -> None:
    """No list is invalid or over the limit, none lacks a system message or the newest user message;
    as many turns are kept as fit; what is refused truly cannot fit."""
    for seed in seeds:
        history = histories.make(seed, unanswered=True)
        least = judging.least_words(history)
        buffer = _buffer(history, 0)
        if least > history.token_limit:
            with pytest.raises(OverBudget):
                buffer.get()
            continue
        messages = messages_from_items(buffer.get())
        verdict = judging.judge(history, messages)
        assert verdict.right, (seed, verdict)
        kept = [one["content"] for one in messages if one["role"] == "user"]
        assert kept == _turns_that_fit(history), seed


def test_framing_is_within_the_limit() -> None:
    """With four tokens for each message that is sent, a list is within its limit too."""
    given_lists = 0
    for seed in range(300):
        history = histories.make(seed)
        try:
            messages = messages_from_items(_buffer(history, 4).get())
        except OverBudget:
            continue
        given_lists += 1
        assert judging.words_of(messages) + 4 * len(messages) <= history.token_limit, seed
    assert given_lists > 100


def test_judge_sees_what_is_wrong() -> None:
    """The judge finds each kind of fault in a list that has it."""
    history = next(
        one
        for one in map(histories.make, range(500))
        if one.messages[0]["role"] == "system"
        and one.messages[-1]["role"] == "assistant"
        and any(message.get("tool_calls") for message in one.messages)
    )
    whole = [dict(one) for one in history.messages]
    roomy = histories.History(whole, 100_000, history.ends_in_turn)
    assert judging.judge(roomy, whole).right
    assert judging.judge(histories.History(whole, 3, False), whole).over
    assert judging.judge(roomy, whole[1:]).lost_system
    newest = max(place for place, one in enumerate(whole) if one["role"] == "user")
    assert judging.judge(roomy, whole[:newest]).lost_newest_user
    first_call = next(place for place, one in enumerate(whole) if one.get("tool_calls"))
    without_call = whole[:first_call] + whole[first_call + 1 :]
    assert "without its call" in judging.judge(roomy, without_call).invalid
    without_output = whole[: first_call + 1] + whole[first_call + 2 :]
    assert "without its output" in judging.judge(roomy, without_output).invalid
    assert judging.judge(roomy, [whole[0]]).invalid == "nothing but system text"


TEXT = st.integers(0, 9).map(lambda words: "w " * words)
NAME = st.integers(0, 5).map(str)
MESSAGE = st.builds(
    Message, st.sampled_from(["user", "assistant", "system"]), TEXT, id=st.none() | NAME
)
CALL = st.builds(
    ToolCall,
    st.sampled_from(["look", "book"]),
    st.sampled_from([None, "x", {"k": "v"}]),
    call_id=NAME,
    output=st.none() | TEXT | st.just("long " * 200),
)


def _size(item: Item) -> int:
    if isinstance(item, Message):
        return len(item.text.split())
    arguments = 0 if item.arguments is None else 1 if item.arguments == "x" else 2
    return 1 + arguments + len((item.output or "").split())


@given(st.integers(1, 60), st.lists(st.lists(MESSAGE | CALL, max_size=6), max_size=12))
def test_any_items(limit: int, batches: list[list[Item]]) -> None:
    """Whatever comes in, corrections and repeated ids included: what comes out is within the limit,
    counted right, whole in its turns, and valid; else it is refused and said so."""
    buffer = ChatBuffer(limit, counter=WordCounter(), framing_tokens=0)
    for batch in batches:
        buffer.put(*batch)
        report = buffer.explain()
        if report.problem is not None:
            with pytest.raises(OverBudget) as raised:
                buffer.get()
            assert report.problem == str(raised.value)
            assert raised.value.tokens > raised.value.limit
            continue
        items = buffer.get()
        assert sum(map(_size, items)) == buffer.tokens == report.tokens <= limit
        calls = [item for item in items if isinstance(item, ToolCall)]
        assert all(item.output is not None for item in calls)
        assert len({item.call_id for item in calls}) == len(calls)
        roles = [item.role if isinstance(item, Message) else "tool" for item in items]
        assert roles == sorted(roles, key=lambda role: role != "system")
