"""Items become lists that providers accept, and come back from them."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secondcall import items_from_messages, messages_from_items, system_text
from secondcall.errors import InvalidValue
from secondcall.types import Item, Message, ToolCall

FORMS: tuple[Literal["openai", "anthropic"], ...] = ("openai", "anthropic")

TALK = [
    Message("system", "Be kind."),
    Message("user", "Is there rain?", speaker="Ada"),
    Message("assistant", "Let me look."),
    ToolCall("rain", {"city": "Bern"}, call_id="a", output="yes"),
    ToolCall("rain", {"city": "Basel"}, call_id="b", output="no", is_error=True),
    ToolCall("rain", {"city": "Zug"}, call_id="c"),
    Message("assistant", "In Bern."),
]


def test_openai_form() -> None:
    """Calls stand in the message before them, each followed by its output."""
    messages = messages_from_items(TALK, system="You are short.")
    assert [(one["role"], one.get("content")) for one in messages] == [
        ("system", "You are short."),
        ("system", "Be kind."),
        ("user", "Is there rain?"),
        ("assistant", "Let me look."),
        ("tool", "yes"),
        ("assistant", None),
        ("tool", "no"),
        ("assistant", "In Bern."),
    ]
    assert messages[2]["name"] == "Ada"
    assert messages[3]["tool_calls"] == [
        {
            "id": "a",
            "type": "function",
            "function": {"name": "rain", "arguments": '{"city": "Bern"}'},
        }
    ]


def test_anthropic_form() -> None:
    """Roles alternate, outputs stand first in the user message after their call."""
    asked = [*TALK, Message("user", "Thanks"), Message("user", "Bye")]
    assert messages_from_items(asked, form="anthropic") == [
        {"role": "user", "content": [{"type": "text", "text": "Is there rain?"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "a", "name": "rain", "input": {"city": "Bern"}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "a", "content": "yes"}],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "b", "name": "rain", "input": {"city": "Basel"}}
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "b", "content": "no", "is_error": True}
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "In Bern."}]},
        {
            "role": "user",
            "content": [{"type": "text", "text": "Thanks"}, {"type": "text", "text": "Bye"}],
        },
    ]
    assert system_text(asked, "You are short.") == "You are short.\n\nBe kind."


def test_greeting_in_anthropic_form() -> None:
    """A list that begins with the assistant gets a user message in front that says so."""
    first, second = messages_from_items([Message("assistant", "Welcome!")], form="anthropic")
    assert first["content"] == [{"type": "text", "text": "(The conversation begins.)"}]
    assert (first["role"], second["role"]) == ("user", "assistant")


def test_system_beside_anthropic_messages() -> None:
    """System text would be refused in the list, so giving it there is refused here."""
    with pytest.raises(InvalidValue, match=r"system_text\(items, system\)"):
        messages_from_items(TALK, form="anthropic", system="You are short.")
    with pytest.raises(InvalidValue, match="form is 'gemini'"):
        messages_from_items(TALK, form="gemini")  # pyright: ignore[reportArgumentType] - a form that is none


def test_names_and_ids_that_providers_refuse() -> None:
    """Names and ids come in the characters and lengths that are accepted, ids distinct."""
    calls = [
        ToolCall("mail.send to", {}, call_id=call_id, output="ok")
        for call_id in ("c#2", "c 2", "c_2", "x" * 900, "x" * 901, "c_2")
    ]
    for form in FORMS:
        text = json.dumps(messages_from_items(calls, form=form))
        ids = re.findall(r'"(?:id)": "([^"]+)"', text)
        assert len(ids) == len(set(ids)) == 6
        assert all(re.fullmatch("[a-zA-Z0-9_-]{1,40}", one) for one in ids)
        assert set(re.findall(r'"name": "([^"]+)"', text)) == {"mail_send_to"}
        assert text == json.dumps(messages_from_items(calls, form=form))


@pytest.mark.parametrize("arguments", [None, "no object", ["a"], 3, '{"k": 1}'])
def test_arguments_are_always_an_object(arguments: Any) -> None:
    """Providers insist on an object: other arguments are put into one."""
    item = ToolCall("t", arguments, call_id="a", output="")
    (message, _) = messages_from_items([item])
    calls: Any = message["tool_calls"]
    found = json.loads(calls[0]["function"]["arguments"])
    expected = {None: {}, '{"k": 1}': {"k": 1}}.get(str(arguments) if arguments else None)
    assert found == (expected if expected is not None else {"arguments": arguments})


def test_messages_without_words() -> None:
    """A picture is named in brackets, silence is left out."""
    picture = Message("user", "", metadata={"parts": ["image_url"]})
    items = [Message("user", ""), picture, Message("assistant", "")]
    assert messages_from_items(items) == [{"role": "user", "content": "(image_url)"}]
    (message,) = messages_from_items(items, form="anthropic")
    assert message["content"] == [{"type": "text", "text": "(image_url)"}]


def test_signed_thinking() -> None:
    """Thinking goes back to Anthropic with its signature, unsigned thinking does not."""
    metadata = {"thinking": "Hm.", "thinking_signature": "s"}
    items = [
        Message("user", "hi"),
        ToolCall("t", {}, call_id="a", output="", metadata=metadata),
        Message("assistant", "yes", metadata={"thinking": "Hm."}),
    ]
    messages = messages_from_items(items, form="anthropic")
    blocks: Any = messages[1]["content"]
    assert [block["type"] for block in blocks] == ["thinking", "tool_use"]
    assert "Hm." not in json.dumps(messages[2:])
    assert items_from_messages(messages)[1].metadata == metadata


WORDS = st.text("abc \n\u00e9\U0001f600", min_size=1, max_size=20).filter(str.strip)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=5,
)
MESSAGE = st.builds(Message, st.sampled_from(["user", "assistant", "system"]), WORDS)


@st.composite
def talks(draw: st.DrawFn) -> list[Item]:
    """Items with distinct call ids."""
    items: list[Item] = []
    for number in range(draw(st.integers(0, 12))):
        call = st.builds(
            ToolCall,
            st.sampled_from(["look", "book"]),
            st.dictionaries(WORDS, JSON, max_size=3),
            call_id=st.just(f"call-{number}"),
            output=WORDS | st.none() | st.just(""),
        )
        items.append(draw(MESSAGE | call))
    return items


def _content(items: list[Item], *, system: bool) -> list[tuple[Any, ...]]:
    """What was said and done: words of one role in a row run together."""
    found: list[tuple[Any, ...]] = []
    for item in items:
        if isinstance(item, ToolCall):
            if item.output is not None:
                found.append((item.name, item.arguments, item.call_id, item.output))
        elif system or item.role != "system":
            if found and found[-1][0] == item.role:
                found[-1] = (item.role, f"{found[-1][1]}\n{item.text}")
            else:
                found.append((item.role, item.text))
    return found


@given(talks())
def test_round_trip_in_openai_form(items: list[Item]) -> None:
    """Items to messages to items keeps every text, call and output, and the order."""
    back = items_from_messages(messages_from_items(items))
    assert _content(back, system=True) == _content(items, system=True)


@given(talks())
def test_round_trip_in_anthropic_form(items: list[Item]) -> None:
    """The same with blocks, where system text stands beside the list."""
    back = items_from_messages(messages_from_items(items, form="anthropic"))
    if back and isinstance(back[0], Message) and back[0].text == "(The conversation begins.)":
        back = back[1:]
    assert _content(back, system=False) == _content(items, system=False)


@given(talks())
def test_anthropic_lists_are_accepted(items: list[Item]) -> None:
    """Roles alternate from the user on, and each call is answered first in the next message."""
    messages: list[Any] = list(messages_from_items(items, form="anthropic"))
    after: Any = {"content": []}
    roles = [one["role"] for one in messages]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"] * (len(roles) % 2)
    for message, following in pairwise([*messages, after]):
        asked = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        first = following["content"][: len(asked)]
        assert [block.get("tool_use_id") for block in first] == asked
        assert all(block.get("text", "x").strip() for block in message["content"])
