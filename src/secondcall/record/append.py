"""Checks items, gives them their stored form and back, and appends them.

The body is JSON with a format number, so that a later release reads what this one wrote. The digest
covers everything that the host said about the item, and its time only where the host gave one: so
the same item recorded twice is one, whenever it arrives.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast, get_args

from secondcall.abc import EntryKey, NewEntry, StoredEntry, Written
from secondcall.checks import check_id, check_json, check_metadata, check_text, from_us, to_us
from secondcall.errors import InvalidValue, StoreCorrupt, TooLarge
from secondcall.types import (
    Item,
    ItemKey,
    JsonValue,
    Message,
    Metadata,
    Recorded,
    RecordedItem,
    Role,
    ToolCall,
)

__all__ = [
    "MAX_BATCH_ITEMS",
    "MAX_ITEM_BYTES",
    "decode_entry",
    "encode_item",
    "encode_items",
    "report",
    "text_of",
    "weight",
    "words_of",
]

MAX_ITEM_BYTES = 4 * 1024 * 1024
MAX_BATCH_ITEMS = 10_000
_FORMAT = 1
_ROLES = frozenset(get_args(Role))


def encode_items(session_id: str, items: Sequence[Item], *, now: datetime) -> list[NewEntry]:
    """The entries of a batch. Raises: ``InvalidValue``, ``TooLarge``, naming the item."""
    if len(items) > MAX_BATCH_ITEMS:
        raise TooLarge(
            f"record got {len(items):,} items, at most {MAX_BATCH_ITEMS:,} go into one batch"
        )
    now_us = to_us("now", now)
    return [
        encode_item(session_id, item, now_us=now_us, name=f"items[{index}]")
        for index, item in enumerate(items)
    ]


def encode_item(session_id: str, item: Item, *, now_us: int, name: str = "item") -> NewEntry:
    """The entry of one item; without an id it gets a random one, without a time ``now_us``."""
    if isinstance(item, Message):
        key = EntryKey(session_id, "message", _message_id(name, item))
        content = _message_content(name, item)
    elif isinstance(item, ToolCall):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
        key = EntryKey(session_id, "tool_call", check_id(f"{name}.call_id", item.call_id))
        content = _tool_call_content(name, item)
    else:
        raise InvalidValue(f"{name} must be a Message or a ToolCall, not {type(item).__name__}")
    at_us = now_us if item.at is None else to_us(f"{name}.at", item.at)
    body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    if len(body) > MAX_ITEM_BYTES:
        raise TooLarge(
            f"{name} has {len(body):,} bytes, at most {MAX_ITEM_BYTES:,} are accepted; record it "
            "in parts, or keep it elsewhere and record a reference"
        )
    said_at = "" if item.at is None else str(at_us)
    digest = hashlib.blake2b(body + b"\x00" + said_at.encode(), digest_size=16).digest()
    return NewEntry(key=key, at_us=at_us, body=body, digest=digest, keeps_time=item.at is None)


def decode_entry(user_id: str, entry: StoredEntry) -> RecordedItem:
    """The item of a stored entry. Raises: ``StoreCorrupt`` naming its key."""
    at = from_us(entry.at_us)
    try:
        content = cast("dict[str, Any]", json.loads(entry.body))
        item = _item(entry.key, content, at)
    except (ValueError, KeyError, TypeError) as error:
        raise _unreadable(entry, error) from None
    return RecordedItem(
        key=ItemKey(user_id, *entry.key),
        item=item,
        at=at,
        change=entry.change,
        position=entry.position,
        recorded_at=from_us(entry.recorded_us),
    )


def words_of(entry: StoredEntry) -> tuple[str, str | None, str, Metadata]:
    """Role (empty for a tool call), speaker, words and metadata of a stored entry: what an index
    needs, without making the item. Raises: ``StoreCorrupt`` naming its key."""
    try:
        content = cast("dict[str, Any]", json.loads(entry.body))
        metadata = content.get("metadata", {})
        if entry.key.kind == "message":
            return content["role"], content.get("speaker"), content["text"], metadata
        words = _call_words(content["name"], content["arguments"], content.get("output"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(entry, error) from None
    return "", None, words, metadata


def report(user_id: str, entries: Sequence[NewEntry], written: Written) -> Recorded:
    """What a write did, in the caller's terms."""
    outcomes = written.outcomes
    return Recorded(
        keys=tuple(ItemKey(user_id, *entry.key) for entry in entries),
        added=outcomes.count("added"),
        corrected=outcomes.count("corrected"),
        unchanged=outcomes.count("unchanged"),
        change=written.change,
    )


def text_of(item: Item) -> str:
    """The words of an item, as recall and the token count see them."""
    if isinstance(item, Message):
        return item.text
    return _call_words(item.name, item.arguments, item.output)


def _call_words(name: str, arguments: JsonValue, output: str | None) -> str:
    said = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return f"{name} {said} {output or ''}".rstrip()


def _unreadable(entry: StoredEntry, error: Exception) -> StoreCorrupt:
    return StoreCorrupt(
        f"the stored {entry.key.kind} {entry.key.id!r} of session {entry.key.session_id!r} "
        f"cannot be read ({type(error).__name__}); run 'secondcall doctor'"
    )


def weight(value: object) -> int:
    """About how many characters of text items or their parts hold, whatever their types."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Message):
        return weight(value.text) + weight(value.metadata)
    if isinstance(value, ToolCall):
        return weight(value.arguments) + weight(value.output) + weight(value.metadata)
    if isinstance(value, list | tuple):
        return sum(weight(part) for part in cast("Sequence[object]", value))
    if isinstance(value, dict):
        return sum(weight(part) for part in cast("dict[object, object]", value).values())
    return 8


def _message_id(name: str, item: Message) -> str:
    return secrets.token_hex(12) if item.id is None else check_id(f"{name}.id", item.id)


def _message_content(name: str, item: Message) -> dict[str, object]:
    if item.role not in _ROLES:
        raise InvalidValue(
            f"{name}.role is {item.role!r}, expected one of {', '.join(sorted(_ROLES))}"
        )
    _check_flag(f"{name}.interrupted", item.interrupted)
    content: dict[str, object] = {
        "v": _FORMAT,
        "role": item.role,
        "text": check_text(f"{name}.text", item.text, max_bytes=MAX_ITEM_BYTES),
    }
    if item.speaker is not None:
        content["speaker"] = check_id(f"{name}.speaker", item.speaker)
    if item.interrupted:
        content["interrupted"] = True
    if item.metadata:
        content["metadata"] = check_metadata(f"{name}.metadata", item.metadata)
    return content


def _tool_call_content(name: str, item: ToolCall) -> dict[str, object]:
    _check_flag(f"{name}.is_error", item.is_error)
    content: dict[str, object] = {
        "v": _FORMAT,
        "name": check_id(f"{name}.name", item.name),
        "arguments": check_json(f"{name}.arguments", item.arguments),
    }
    if item.output is not None:
        content["output"] = check_text(f"{name}.output", item.output, max_bytes=MAX_ITEM_BYTES)
    if item.is_error:
        content["is_error"] = True
    if item.metadata:
        content["metadata"] = check_metadata(f"{name}.metadata", item.metadata)
    return content


def _check_flag(field: str, value: object) -> None:
    if not isinstance(value, bool):
        raise InvalidValue(f"{field} must be True or False, not {type(value).__name__}")


def _item(key: EntryKey, content: dict[str, Any], at: datetime) -> Item:
    if key.kind == "message":
        return Message(
            content["role"],
            content["text"],
            id=key.id,
            speaker=content.get("speaker"),
            at=at,
            interrupted=content.get("interrupted", False),
            metadata=content.get("metadata", {}),
        )
    return ToolCall(
        content["name"],
        content["arguments"],
        call_id=key.id,
        output=content.get("output"),
        is_error=content.get("is_error", False),
        at=at,
        metadata=content.get("metadata", {}),
    )
