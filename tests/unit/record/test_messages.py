"""Message lists of other libraries become items, blocks included."""

from __future__ import annotations

import json
from typing import Any

import pytest

from secondcall import items_from_messages
from secondcall.errors import InvalidValue
from secondcall.record.append import encode_item
from secondcall.types import Message, ToolCall


def _kept(messages: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (item.role, item.text)
        if isinstance(item, Message)
        else (item.name, item.arguments, item.call_id, item.output)
        for item in items_from_messages(messages)
    ]


def test_anthropic_blocks() -> None:
    """``tool_use`` and ``tool_result`` blocks become one call; text around them stays."""
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Rain in Bern and Basel?"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "a", "name": "rain", "input": {"city": "Bern"}},
                {"type": "tool_use", "id": "b", "name": "rain", "input": {"city": "Basel"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "b", "content": "no", "is_error": True},
                {
                    "type": "tool_result",
                    "tool_use_id": "a",
                    "content": [{"type": "text", "text": "yes,"}, {"type": "text", "text": "much"}],
                },
                {"type": "text", "text": "And Zug?"},
            ],
        },
    ]
    assert _kept(messages) == [
        ("user", "Rain in Bern and Basel?"),
        ("assistant", "Let me look."),
        ("rain", {"city": "Bern"}, "a", "yes,\nmuch"),
        ("rain", {"city": "Basel"}, "b", "no"),
        ("user", "And Zug?"),
    ]
    failed = items_from_messages(messages)[3]
    assert isinstance(failed, ToolCall)
    assert failed.is_error


def test_llamaindex_blocks() -> None:
    """LlamaIndex's blocks are read, and a call that stands in two places is one call."""
    function = {"name": "rain", "arguments": '{"city": "Bern"}'}
    messages: list[dict[str, Any]] = [
        {"role": "system", "blocks": [{"block_type": "text", "text": "Be kind."}]},
        {
            "role": "assistant",
            "additional_kwargs": {
                "tool_calls": [{"id": "a", "type": "function", "function": function}]
            },
            "blocks": [
                {"block_type": "thinking", "content": "I wonder."},
                {
                    "block_type": "tool_call",
                    "tool_call_id": "a",
                    "tool_name": "rain",
                    "tool_kwargs": {"city": "Bern"},
                },
            ],
        },
        {
            "role": "tool",
            "additional_kwargs": {"tool_call_id": "a"},
            "blocks": [{"block_type": "text", "text": "yes"}],
        },
        {"role": "chatbot", "blocks": [{"block_type": "text", "text": "It rains."}]},
    ]
    assert _kept(messages) == [
        ("system", "Be kind."),
        ("rain", {"city": "Bern"}, "a", "yes"),
        ("assistant", "It rains."),
    ]
    assert items_from_messages(messages)[1].metadata == {"thinking": "I wonder."}


def test_calls_without_an_id() -> None:
    """LlamaIndex's calls may lack an id: each gets one of its own, always the same."""
    block: dict[str, Any] = {"block_type": "tool_call", "tool_name": "rain", "tool_kwargs": {}}
    messages: list[dict[str, Any]] = [{"role": "assistant", "blocks": [block, block]}]
    ids = [item.call_id for item in items_from_messages(messages) if isinstance(item, ToolCall)]
    assert len(set(ids)) == 2
    assert items_from_messages(messages) == items_from_messages(messages)


def test_thinking_is_kept_beside() -> None:
    """Thinking goes with its message, with its signature where that stands for all of it."""
    block = {"type": "thinking", "thinking": "Hm.", "signature": "s1"}
    said = {"type": "text", "text": "Yes."}
    (message,) = items_from_messages([{"role": "assistant", "content": [block, said]}])
    assert message.metadata == {"thinking": "Hm.", "thinking_signature": "s1"}
    (message,) = items_from_messages([{"role": "assistant", "content": [block, block, said]}])
    assert message.metadata == {"thinking": "Hm.\nHm."}
    (message,) = items_from_messages(
        [{"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}]
    )
    assert message.metadata == {"thinking": "Hm."}
    (message,) = items_from_messages([{"role": "assistant", "content": [block]}])
    assert isinstance(message, Message)
    assert (message.text, message.metadata["thinking"]) == ("", "Hm.")


@pytest.mark.parametrize("text", ["word " * 10_000, "\x00" * 20_000, "思" * 20_000])
def test_long_thinking_can_be_recorded(text: str) -> None:
    """Thinking too long for metadata is cut with a marker that says by how much."""
    block = {"type": "thinking", "thinking": text, "signature": "s1"}
    (message,) = items_from_messages([{"role": "assistant", "content": [block]}])
    kept = message.metadata["thinking"]
    assert isinstance(kept, str)
    assert kept.endswith(" characters more)")
    assert "thinking_signature" not in message.metadata
    encode_item("chat", message, now_us=0)


def test_orphans_and_reused_ids() -> None:
    """An output without a call is kept and marked; a call id used again gets a number."""
    call: dict[str, Any] = {"type": "tool_use", "id": "a", "name": "rain", "input": {}}
    output = {"type": "tool_result", "tool_use_id": "a"}
    orphan: dict[str, Any] = {"role": "user", "content": [{**output, "content": "what?"}]}
    once: list[dict[str, Any]] = [
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [{**output, "content": None}]},
    ]
    assert _kept([orphan]) == [("unknown", None, "a", "what?")]
    assert items_from_messages([orphan])[0].metadata == {"call": "missing"}
    assert _kept([*once, *once]) == [("rain", {}, "a", ""), ("rain", {}, "a#2", "")]


def test_empty_and_silent_lists() -> None:
    """An empty list gives nothing, nor do messages without content."""
    assert items_from_messages([]) == []
    silent: list[dict[str, Any]] = [
        {"role": "user", "content": None},
        {"role": "assistant", "content": []},
    ]
    assert items_from_messages(silent) == []


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ({"role": "user"}, "messages: expected a list of messages, found dict"),
        ("hello", "messages: expected a list of messages, found str"),
        ([None], "messages, [0]: expected a message (an object), found null"),
        ([{"content": "x"}], "messages, [0].role: expected one of"),
        (
            [{"role": "user", "content": [{"text": "x"}]}],
            "messages, [0].content[0].type: expected a string, found nothing",
        ),
        (
            [{"role": "assistant", "content": [{"type": "tool_use", "name": "t"}]}],
            "messages, [0].content[0].id: expected a string, found nothing",
        ),
        (
            [{"role": "assistant", "blocks": [{"block_type": "text"}]}],
            "messages, [0].blocks[0].text: expected a string, found nothing",
        ),
        ([{"role": "tool", "content": "x"}], "messages, [0].tool_call_id: expected a string"),
    ],
)
def test_bad_messages(messages: Any, problem: str) -> None:
    """A mistake names the message and the field, never what stands there."""
    with pytest.raises(InvalidValue) as raised:
        items_from_messages(messages)
    assert str(raised.value).startswith(problem)


def test_ids_depend_on_the_session() -> None:
    """The ids that are derived differ from session to session."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "hello"}]
    first, second = (items_from_messages(messages, session_id=name)[0] for name in ("a", "b"))
    assert isinstance(first, Message)
    assert isinstance(second, Message)
    assert first.id != second.id
    with pytest.raises(InvalidValue, match="session_id"):
        items_from_messages(messages, session_id="")


def test_json_text_of_arguments_is_read() -> None:
    """Arguments given as JSON text, as OpenAI does, are read in both forms."""
    use = {"type": "tool_use", "id": "a", "name": "t", "input": json.dumps({"k": 1})}
    (item,) = items_from_messages([{"role": "assistant", "content": [use]}])
    assert isinstance(item, ToolCall)
    assert item.arguments == {"k": 1}
