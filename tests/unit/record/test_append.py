"""Items to entries and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secondcall.abc import NewEntry, StoredEntry
from secondcall.errors import InvalidValue, StoreCorrupt, TooLarge
from secondcall.record.append import (
    MAX_BATCH_ITEMS,
    MAX_ITEM_BYTES,
    decode_entry,
    encode_item,
    encode_items,
    text_of,
)
from secondcall.types import Item, JsonValue, Message, Role, ToolCall

NOW = datetime(2026, 5, 3, 14, 2, tzinfo=UTC)
NOW_US = 1_777_816_920_000_000

_json = cast(
    "st.SearchStrategy[JsonValue]",
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc"), inner),
        max_leaves=8,
    ),
)


def _stored(entry: NewEntry) -> StoredEntry:
    return StoredEntry(
        key=entry.key, at_us=entry.at_us, body=entry.body, change=1, position=1, recorded_us=0
    )


@given(
    st.sampled_from(["user", "assistant", "system"]),
    st.text(st.characters(codec="utf-8"), max_size=50),
    st.booleans(),
    st.dictionaries(st.text("abc", min_size=1), _json, max_size=3),
)
def test_messages_come_back_word_for_word(
    role: Role, text: str, interrupted: bool, metadata: dict[str, JsonValue]
) -> None:
    """A message that is stored and read again is the same message."""
    item = Message(role, text, id="m", at=NOW, interrupted=interrupted, metadata=metadata)
    assert decode_entry("u", _stored(encode_item("s", item, now_us=0))).item == item


@given(_json, st.none() | st.text(st.characters(codec="utf-8"), max_size=50))
def test_tool_calls_come_back_as_they_were(arguments: JsonValue, output: str | None) -> None:
    """A tool call that is stored and read again is the same call."""
    item = ToolCall("tool", arguments, call_id="c", output=output, at=NOW)
    assert decode_entry("u", _stored(encode_item("s", item, now_us=0))).item == item


def test_the_digest_leaves_out_a_time_that_nobody_gave() -> None:
    """The same item recorded a minute later without a time of its own is the same item."""
    item = Message("user", "Hello", id="m")
    early = encode_item("s", item, now_us=NOW_US)
    late = encode_item("s", item, now_us=NOW_US + 60_000_000)
    assert early.digest == late.digest
    assert early.keeps_time


def test_the_digest_holds_a_time_that_was_given() -> None:
    """The same words at another stated time are a correction."""
    first = encode_item("s", Message("user", "Hello", id="m", at=NOW), now_us=0)
    second = encode_item("s", Message("user", "Hello", id="m", at=NOW + timedelta(1)), now_us=0)
    assert first.digest != second.digest


def test_times_are_kept_in_utc() -> None:
    """A time in another zone is the same moment in UTC."""
    local = NOW.astimezone(timezone(timedelta(hours=-7)))
    assert encode_item("s", Message("user", "x", id="m", at=local), now_us=0).at_us == NOW_US


def test_messages_without_an_id_are_different_items() -> None:
    """Two messages without ids get two keys."""
    first, second = encode_items("s", [Message("user", "x"), Message("user", "x")], now=NOW)
    assert first.key != second.key


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (Message("user", cast("str", None)), r"items\[0\]\.text must be text"),
        (Message(cast("Role", "robot"), "x"), r"items\[0\]\.role is 'robot'"),
        (Message("user", "x", id=""), r"items\[0\]\.id must not be empty"),
        (Message("user", "x", at=NOW.replace(tzinfo=None)), r"items\[0\]\.at is a naive"),
        (Message("user", "x", metadata={"a": float("nan")}), r"items\[0\]\.metadata\.a is nan"),
        (ToolCall("", {}, call_id="c"), r"items\[0\]\.name must not be empty"),
        (ToolCall("t", {}, call_id="a\x00"), r"items\[0\]\.call_id holds a NUL"),
        (cast("Item", "hello"), r"items\[0\] must be a Message or a ToolCall, not str"),
    ],
)
def test_bad_items_are_named_by_place_and_field(item: Item, words: str) -> None:
    """A refused item's error says which one and which field."""
    with pytest.raises(InvalidValue, match=words):
        encode_items("s", [item], now=NOW)


def test_a_message_over_the_limit_is_refused_with_both_sizes() -> None:
    """Ten megabytes of text are refused, saying how much is accepted."""
    with pytest.raises(TooLarge, match=r"has 10,000,000 bytes, at most 4,194,304"):
        encode_items("s", [Message("user", "x" * 10_000_000)], now=NOW)


def test_an_item_at_the_limit_with_what_surrounds_it_is_refused() -> None:
    """The limit holds for the whole stored item, not for one field alone."""
    with pytest.raises(TooLarge, match=r"items\[0\] has"):
        encode_items("s", [Message("user", '"' * MAX_ITEM_BYTES)], now=NOW)


def test_too_many_items_are_refused_before_anything_is_written() -> None:
    """A batch over the limit is refused with its size."""
    items = [Message("user", "x")] * (MAX_BATCH_ITEMS + 1)
    with pytest.raises(TooLarge, match=r"record got 10,001 items"):
        encode_items("s", items, now=NOW)


def test_damaged_entries_name_the_item_but_not_its_text() -> None:
    """An entry that cannot be read raises StoreCorrupt with its key."""
    entry = encode_item("s", Message("user", "secret", id="m"), now_us=0)
    damaged = StoredEntry(
        key=entry.key, at_us=0, body=entry.body[:-4], change=1, position=1, recorded_us=0
    )
    with pytest.raises(StoreCorrupt, match=r"message 'm' of session 's'") as caught:
        decode_entry("u", damaged)
    assert "secret" not in str(caught.value)


def test_the_words_of_a_tool_call_are_name_arguments_and_output() -> None:
    """Recall sees a tool call as its name, its arguments and its output."""
    assert text_of(ToolCall("find", {"q": "ß"}, call_id="c", output="ok")) == 'find {"q": "ß"} ok'
