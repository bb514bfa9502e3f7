"""A window of the conversation: whole turns, the newest first, and what was left out of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secondcall import ChatBuffer, Item, Message, OverBudget, ToolCall
from secondcall.abc import TokenCounter
from secondcall.context.conversation import Conversation, newest_question
from secondcall.shortterm.measure import Measure


class Words(TokenCounter):
    """A token for each word."""

    id = "words"

    def count(self, text: str) -> int:
        """How many words."""
        return len(text.split())


def _conversation(items: Sequence[Item]) -> Conversation:
    measure = Measure(Words(), token_limit=10_000, framing_tokens=4)
    return Conversation(items, [measure.size(one).tokens for one in items], counter=Words())


def _said(role: str, words: int, number: int) -> Message:
    text = " ".join(["word"] * words)
    return Message(role, text, id=f"{role}{number}")  # pyright: ignore[reportArgumentType] - one of three


@st.composite
def histories(draw: st.DrawFn) -> list[Item]:
    """System messages in front, then messages and answered calls in any order."""
    items: list[Item] = [
        _said("system", draw(st.integers(1, 5)), number)
        for number in range(draw(st.integers(0, 2)))
    ]
    for number in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(["user", "assistant", "tool"]))
        words = draw(st.integers(1, 30))
        if kind == "tool":
            output = " ".join(["out"] * words)
            items.append(ToolCall("do", {}, call_id=f"c{number}", output=output))
        else:
            items.append(_said(kind, words, number))
    return items


@given(items=histories(), limit=st.integers(1, 250))
def test_a_window_is_what_a_buffer_of_that_size_shows(items: list[Item], limit: int) -> None:
    """Cutting the held conversation to a limit gives the very items that a buffer with that limit
    would give, and takes no more than the limit."""
    buffer = ChatBuffer(limit, counter=Words())
    buffer.put(*items)
    try:
        expected = buffer.get()
    except OverBudget:
        with pytest.raises(OverBudget):
            _conversation(items).window(limit)
        return
    window = _conversation(items).window(limit)
    assert list(window.items) == expected
    assert window.tokens == buffer.tokens <= limit


def test_older_turns_are_counted_as_left_out() -> None:
    """What was cut is one entry with the number of its items, turns and tokens."""
    items = [_said("user", 10, 1), _said("assistant", 6, 1), _said("user", 10, 2)]
    window = _conversation(items).window(20)
    assert [item.text for item in window.items if isinstance(item, Message)] == [
        "word " * 9 + "word"
    ]
    assert [(one.what, one.tokens) for one in window.left_out] == [("2 items of 1 older turns", 24)]


def test_no_room_is_an_error_only_if_there_is_something() -> None:
    """An empty conversation fits into nothing; any other says what its newest turn takes."""
    assert _conversation([]).window(0).items == []
    older = [_said("user", 30, 1), _said("assistant", 30, 1)]
    with pytest.raises(OverBudget, match="the newest turn takes 5 tokens, 5 more than the 0"):
        _conversation([*older, _said("user", 1, 2)]).window(0)


def test_newest_question_is_the_last_user_message() -> None:
    """What came after it does not count; without one it is empty."""
    items = [Message("user", "first"), Message("user", "second"), Message("assistant", "so")]
    assert newest_question(items) == "second"
    assert newest_question([Message("assistant", "hello")]) == ""
