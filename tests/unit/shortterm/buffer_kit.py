"""What the tests of the chat buffer share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

from secondcall.abc import TokenCounter
from secondcall.shortterm.buffer import ChatBuffer
from secondcall.types import Item, JsonValue, Message, ToolCall

MARKER_WORDS = 10
"""Words of "(cut, 1,234 characters more; the record has all of it)"."""


class WordCounter(TokenCounter):
    """A token is a word; ``texts`` keeps what was counted."""

    id = "words"

    def __init__(self) -> None:
        self.texts: list[str] = []

    def count(self, text: str) -> int:
        """The words of ``text``."""
        self.texts.append(text)
        return len(text.split())


def buffer_of(token_limit: int, *items: Item, framing_tokens: int = 0) -> ChatBuffer:
    """A buffer that counts words, with ``items`` in it."""
    buffer = ChatBuffer(token_limit, counter=WordCounter(), framing_tokens=framing_tokens)
    buffer.put(*items)
    return buffer


def user(text: str, *, id: str | None = None) -> Message:
    """A user message."""
    return Message("user", text, id=id)


def reply(text: str) -> Message:
    """An assistant message."""
    return Message("assistant", text)


def call(call_id: str, output: str | None = "done", arguments: JsonValue = None) -> ToolCall:
    """A call of the tool ``look``, which alone is one word."""
    return ToolCall("look", arguments, call_id=call_id, output=output)


def said(items: list[Item]) -> list[str]:
    """The texts of messages, and tool calls as ``id: output``."""
    return [
        item.text if isinstance(item, Message) else f"{item.call_id}: {item.output}"
        for item in items
    ]


def calls_made(act: Callable[[], object]) -> int:
    """How many Python functions ran inside ``act``: a cost that no busy machine changes."""
    count = 0

    def watch(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(watch)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count
