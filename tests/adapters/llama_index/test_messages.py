"""Chat messages as items, and back."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from llama_index.core.base.llms import types as llms
from llama_index.core.base.llms.types import ChatMessage, TextBlock

from secondcall import Message, ToolCall, items_from_messages
from secondcall.adapters.llama_index.messages import ChatItems, chat_from_items, items_from_chat
from secondcall.adapters.llama_index.oversize import apart_of, restored, stored
from secondcall.record.append import encode_items
from secondcall.testing.llama_index import check_history

_PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)


def _block(kind: str, **fields: Any) -> Any:
    """A block of this kind, or a text block where the installed release has no such blocks."""
    made = getattr(llms, kind, None)
    return TextBlock(text=f"no {kind}") if made is None else made(**fields)


def _called(*calls: tuple[str, str, Any], text: str = "", beside: bool = False) -> ChatMessage:
    """An assistant message with calls (id, name, arguments)."""
    blocks: list[Any] = [TextBlock(text=text)] if text else []
    if beside or not hasattr(llms, "ToolCallBlock"):
        listed = [
            {"id": one, "type": "function", "function": {"name": name, "arguments": "{}"}}
            for one, name, _ in calls
        ]
        return ChatMessage(
            role="assistant", blocks=blocks, additional_kwargs={"tool_calls": listed}
        )
    blocks += [
        _block("ToolCallBlock", tool_call_id=one, tool_name=name, tool_kwargs=arguments)
        for one, name, arguments in calls
    ]
    return ChatMessage(role="assistant", blocks=blocks)


def _result(call_id: str, text: str, **more: Any) -> ChatMessage:
    return ChatMessage(
        role="tool", content=text, additional_kwargs={"tool_call_id": call_id, **more}
    )


_SINGLE = {
    "system": ChatMessage(role="system", content="S"),
    "developer": ChatMessage(role="developer", content="D"),
    "chatbot": ChatMessage(role="chatbot", content="C"),
    "model": ChatMessage(role="model", content="M"),
    "name": ChatMessage(role="user", content="hi", additional_kwargs={"name": "Ann"}),
    "empty text": ChatMessage(role="user", content=""),
    "no blocks": ChatMessage(role="user", blocks=[]),
    "several texts": ChatMessage(
        role="user", blocks=[TextBlock(text="a"), TextBlock(text=""), TextBlock(text="b\nc")]
    ),
    "picture between texts": ChatMessage(
        role="user",
        blocks=[
            TextBlock(text="a"),
            llms.ImageBlock(image=base64.b64decode(_PNG)),
            TextBlock(text="b"),
        ],
    ),
    "picture alone": ChatMessage(
        role="user", blocks=[llms.ImageBlock(url="https://example.org/a.png", detail="high")]
    ),
    "sound and document": ChatMessage(
        role="user",
        blocks=[
            llms.AudioBlock(audio=b"abcd", format="mp3"),
            llms.DocumentBlock(data=b"a document", document_mimetype="text/plain", title="t"),
        ],
    ),
    "film": ChatMessage(
        role="user", blocks=[_block("VideoBlock", video=b"abcd", video_mimetype="video/mp4")]
    ),
    "cache point": ChatMessage(
        role="user",
        blocks=[
            TextBlock(text="a"),
            llms.CachePoint(cache_control=llms.CacheControl(type="ephemeral")),
        ],
    ),
    "citable": ChatMessage(
        role="user",
        blocks=[llms.CitableBlock(title="t", source="s", content=[TextBlock(text="x")])],
    ),
    "citation": ChatMessage(
        role="assistant",
        blocks=[
            TextBlock(text="as is said"),
            llms.CitationBlock(
                cited_content=TextBlock(text="q"),
                source="s",
                title="t",
                additional_location_info={"page": 1},
            ),
        ],
    ),
    "thinking": ChatMessage(
        role="assistant",
        blocks=[
            _block(
                "ThinkingBlock",
                content="hm",
                num_tokens=3,
                additional_information={"signature": "x"},
            ),
            _block("ThinkingBlock"),
            TextBlock(text="so"),
        ],
    ),
    "kwargs": ChatMessage(
        role="assistant", content="a", additional_kwargs={"a": {"b": [1, None, 2.5, True]}}
    ),
    "answer of a tool": ChatMessage(
        role="assistant", content="5 o'clock", additional_kwargs={"tool_call_id": "c"}
    ),
}


@pytest.mark.parametrize("name", list(_SINGLE))
def test_every_field_and_block_comes_back(name: str) -> None:
    """A message comes back equal in every field, in a form that the record takes, and nothing of
    it is shared."""
    before = _SINGLE[name].model_copy(deep=True)
    items = items_from_chat([_SINGLE[name]])
    encode_items("s", items, now=datetime.now(UTC))
    (back,) = chat_from_items(items)
    assert back == before == _SINGLE[name]
    pairs = zip(back.blocks, _SINGLE[name].blocks, strict=True)
    assert all(mine is not theirs for mine, theirs in pairs)


def test_a_plain_message_takes_no_metadata() -> None:
    """Of a text message nothing is written but what was said and by whom."""
    (item,) = items_from_chat([ChatMessage(role="user", content="hello")])
    assert isinstance(item, Message)
    assert (item.role, item.text, item.metadata) == ("user", "hello", {})


@pytest.mark.parametrize("beside", [False, True])
def test_calls_are_paired_by_id_in_any_order(beside: bool) -> None:
    """Calls made at once become one item each with the output of their own result, and come back
    with the results in the order in which they came."""
    messages = [
        ChatMessage(role="user", content="look"),
        _called(("a", "one", {}), ("b", "two", {}), ("c", "three", {}), beside=beside),
        _result("c", "3"),
        _result("a", "1"),
        _result("b", "2", name="two"),
        ChatMessage(role="assistant", content="done"),
    ]
    items = items_from_chat(messages)
    calls = [item for item in items if isinstance(item, ToolCall)]
    assert [(call.name, call.output) for call in calls] == [
        ("one", "1"),
        ("two", "2"),
        ("three", "3"),
    ]
    assert chat_from_items(items) == messages
    assert chat_from_items(items, repaired=False) == messages


def test_a_call_in_both_forms_is_one_call() -> None:
    """A call that stands as a block and beside it is kept once, and comes back in both."""
    if not hasattr(llms, "ToolCallBlock"):
        assert items_from_chat([_called(("a", "one", {}))])  # this release has the one form only
        return
    message = _called(("a", "one", {"x": 1}), ("b", "two", {"y": [1, 2]}), text="calling")
    message.additional_kwargs["tool_calls"] = [
        {"id": "a", "type": "function", "function": {"name": "one", "arguments": '{"x":1}'}},
        {"id": "b", "type": "function", "function": {"name": "two", "arguments": '{"y": [1, 2]}'}},
    ]
    messages = [message, _result("a", "1"), _result("b", "2")]
    items = items_from_chat(messages)
    assert [type(item) for item in items] == [Message, ToolCall, ToolCall]
    assert chat_from_items(items) == messages


@pytest.mark.parametrize("arguments", ['{"a":1}', '{"a": 1}', '{"ä": "ö"}', '{"a":   1}', "{", ""])
def test_arguments_as_text_come_back_letter_by_letter(arguments: str) -> None:
    """Arguments beside the blocks come back as the text that they were, valid JSON or not."""
    call = {"id": "a", "type": "function", "function": {"name": "one", "arguments": arguments}}
    messages = [
        ChatMessage(role="assistant", blocks=[], additional_kwargs={"tool_calls": [call]}),
        _result("a", "1"),
    ]
    assert chat_from_items(items_from_chat(messages)) == messages


def test_the_oldest_form_of_calls() -> None:
    """A ``function_call`` and the function's message behind it come back as they were."""
    messages = [
        ChatMessage(
            role="assistant",
            content="",
            additional_kwargs={"function_call": {"name": "old", "arguments": "{}"}},
        ),
        ChatMessage(role="function", content="o", additional_kwargs={"name": "old"}),
    ]
    assert chat_from_items(items_from_chat(messages)) == messages


def test_a_result_that_comes_later() -> None:
    """A result that is put after its call gives the same item again, with the output."""
    pairing = ChatItems()
    (asked,) = pairing.items([_called(("a", "one", {"x": 1}))])
    assert pairing.waiting == (asked,)
    (answered,) = pairing.items([_result("a", "1")])
    assert isinstance(asked, ToolCall)
    assert isinstance(answered, ToolCall)
    assert (answered.call_id, answered.output) == (asked.call_id, "1")
    assert pairing.waiting == ()


def test_an_id_that_is_used_again() -> None:
    """A provider that counts its calls anew in each turn gives different items for them."""
    turn = [_called(("call_1", "one", {"x": 1})), _result("call_1", "1")]
    items = items_from_chat([*turn, *turn])
    assert len({item.call_id for item in items if isinstance(item, ToolCall)}) == 2
    assert chat_from_items(items) == [*turn, *turn]


def test_calls_without_ids_get_some() -> None:
    """Calls and results without ids are paired in order, and get ids that a provider can pair."""
    messages = [_called(("", "one", {}), ("", "two", {})), _result("", "1"), _result("", "2")]
    back = chat_from_items(items_from_chat([ChatMessage(role="user", content="x"), *messages]))
    assert check_history(back) == []
    assert [one.content for one in back[2:]] == ["1", "2"]


def test_what_providers_refuse_is_left_out() -> None:
    """Calls without a result, and results without a call, are in the items but not in what a model
    is sent; a message that has words keeps them."""
    messages = [
        ChatMessage(role="user", content="look"),
        _result("lost", "nobody asked"),
        _called(("a", "one", {}), ("b", "two", {}), text="looking"),
        _result("b", "2"),
    ]
    items = items_from_chat(messages)
    assert len(items) == 5
    shown = chat_from_items(items)
    assert check_history(shown) == []
    assert [one.content for one in shown] == ["look", "looking", "2"]
    whole = chat_from_items(items, repaired=False)
    assert [one.role.value for one in whole] == ["user", "tool", "assistant", "tool"]


def test_a_shortened_output_comes_back_as_it_is() -> None:
    """Where an output was cut or words corrected, the message says what the item says."""
    items = items_from_chat(
        [
            _called(("a", "one", {})),
            ChatMessage(
                role="tool",
                blocks=[TextBlock(text="long "), TextBlock(text="output")],
                additional_kwargs={"tool_call_id": "a"},
            ),
        ]
    )
    assert isinstance(items[0], ToolCall)
    (_, result) = chat_from_items([replace(items[0], output="lo (cut)")])
    assert result.content == "lo (cut)"


def test_items_of_other_hosts() -> None:
    """Items that were recorded without LlamaIndex are messages too."""
    items = [
        Message("user", "hi", id="1"),
        ToolCall("one", {"x": 1}, call_id="c-1", output="1"),
        ToolCall("two", None, call_id="c-2"),
        Message("assistant", "ho", id="2"),
    ]
    found = chat_from_items(items)
    assert [one.role.value for one in found] == ["user", "assistant", "tool", "assistant"]
    assert check_history(found) == []
    assert found[2].additional_kwargs == {"tool_call_id": "c-1"}


def test_the_importer_reads_the_same_words() -> None:
    """What ``items_from_messages`` reads of a dumped list has the same words and outputs."""
    messages = [
        ChatMessage(role="user", content="look"),
        _called(("a", "one", {}), text="looking"),
        _result("a", "1"),
    ]
    ours = items_from_chat(messages)
    theirs = items_from_messages([one.model_dump() for one in messages])
    assert [_words(one) for one in ours] == [_words(one) for one in theirs]


def _words(item: object) -> object:
    return item.text if isinstance(item, Message) else getattr(item, "output", None)


@pytest.mark.parametrize("size", [2_000, 40_000, 3_000_000])
def test_large_parts(size: int) -> None:
    """A picture of any size given inline comes back whole from an item that the record takes and
    what is attached to it; without that it is named in words."""
    picture = base64.b64encode(b"\x00\xff" * (size // 2))
    message = ChatMessage(
        role="user",
        blocks=[TextBlock(text="see"), llms.ImageBlock(image=picture, image_mimetype="image/png")],
        additional_kwargs={"note": "n" * size},
    )
    made = stored(items_from_chat([message]))
    encode_items("s", made.items, now=datetime.now(UTC))
    (back,) = chat_from_items(restored(made.items, made.attached))
    assert back == message
    assert bool(made.attached) == (apart_of(made.items) != [])
    if made.attached:
        (alone,) = chat_from_items(made.items)
        assert alone.content == "see\n(image of this message is not here any more)"


def test_many_large_parts() -> None:
    """A message of thousands of blocks, long thinking and large kwargs is one item that the record
    takes, and comes back."""
    blocks: list[Any] = [llms.ImageBlock(url=f"https://example.org/{n}.png") for n in range(3_000)]
    blocks += [_block("ThinkingBlock", content="hm " * 9_000), TextBlock(text="so")]
    message = ChatMessage(
        role="assistant", blocks=blocks, additional_kwargs={f"k{n}": "v" * 900 for n in range(40)}
    )
    made = stored(items_from_chat([message]))
    encode_items("s", made.items, now=datetime.now(UTC))
    assert chat_from_items(restored(made.items, made.attached)) == [message]


def test_strange_values_become_text() -> None:
    """What JSON has no word for is kept as its text, and no message is refused for it."""
    deep: dict[str, Any] = {}
    inner = deep
    for _ in range(60):
        inner["x"] = {}
        inner = inner["x"]
    message = ChatMessage(
        role="assistant",
        content="a",
        additional_kwargs={
            "at": datetime(2026, 1, 1, tzinfo=UTC),
            "nan": float("nan"),
            "raw": b"\xff",
            "set": {1},
            "keys": {1: "one"},
            "deep": deep,
        },
    )
    items = items_from_chat([message])
    encode_items("s", items, now=datetime.now(UTC))
    (back,) = chat_from_items(items)
    assert back.content == "a"
    assert back.additional_kwargs["nan"] == "nan"
    assert back.additional_kwargs["at"].startswith("2026-01-01")


def test_what_a_later_release_wrote() -> None:
    """Roles, blocks and forms that this release does not know lose no words."""
    item = Message(
        "user",
        "hello",
        id="1",
        metadata={
            "llama_index": {
                "role": "robot",
                "blocks": [["text", 5], ["smell", 3], ["block", {"block_type": "smell"}]],
            }
        },
    )
    (back,) = chat_from_items([item])
    assert back.role.value == "user"
    assert str(back.content).startswith("hello")
