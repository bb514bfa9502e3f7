"""What an item takes, as its measure counts it."""

from __future__ import annotations

import pytest

from secondcall import Message, ToolCall
from secondcall.registry import default_counter
from secondcall.shortterm.measure import Measure


def _tokens(item: Message | ToolCall) -> int:
    measure = Measure(default_counter(), token_limit=10_000, framing_tokens=4)
    return measure.size(item).tokens


def test_what_goes_beside_the_words_counts_once() -> None:
    """The tokens that a host says an item takes beside its words are counted with them, of messages
    and of tool calls."""
    for item, with_more in (
        (Message("user", "see"), Message("user", "see", metadata={"beside_tokens": 2_125})),
        (
            ToolCall("draw", None, call_id="c", output="drawn"),
            ToolCall("draw", None, call_id="c", output="drawn", metadata={"beside_tokens": 2_125}),
        ),
    ):
        assert _tokens(with_more) == _tokens(item) + 2_125


@pytest.mark.parametrize("said", [-5, True, "many", 2.5, None])
def test_what_is_no_number_of_tokens_counts_nothing(said: object) -> None:
    """Metadata of that name that is no whole number above nothing changes no count."""
    item = Message("user", "see", metadata={"beside_tokens": said})  # pyright: ignore[reportArgumentType] - any JSON may come
    assert _tokens(item) == _tokens(Message("user", "see"))
