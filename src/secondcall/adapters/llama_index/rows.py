"""Chat messages as the rows of a listed session: one message, one item, every field kept.

A chat store is asked for its list exactly as it was given, valid for a provider or not, and by
index. So here, other than in ``messages``, a message is never taken apart into calls and results:
what was said is a ``Message``, what a tool answered a ``ToolCall`` with its output, named after the
call that it answers where that is known. What an item has no place for (further blocks,
``additional_kwargs``, other roles) stands packed in its metadata. Where it is larger than metadata
may be, as pictures are, it stands in items of its own in front of the message: calls without an
output, which no prompt shows, and without words, which no recall finds.

Items that came from elsewhere, as through ``SecondCallMemory``, are read too: a call with its
output is then two messages, which go together when one of them is deleted.
"""

from __future__ import annotations

import base64
import json
import secrets
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock

from secondcall.adapters.llama_index.calls import answered_id, calls_of, host_id
from secondcall.adapters.llama_index.jsonable import jsonable
from secondcall.adapters.llama_index.messages import chat_from_items
from secondcall.errors import StoreCorrupt
from secondcall.types import Item, Message, RecordedItem, Role, ToolCall

if TYPE_CHECKING:
    from secondcall.types import ItemKey, JsonValue

__all__ = ["Row", "items_of_rows", "mark_of_message", "rows_from"]

_ROW = "llama_index_row"
_PART = "llama_index_part"
_PART_CHARACTERS = 15_000
"""So much of what is packed goes into one item; metadata has room for 16 KiB."""
_NO_WORDS = "_"
_ROLES: Mapping[MessageRole, Role] = {
    MessageRole.USER: "user",
    MessageRole.ASSISTANT: "assistant",
    MessageRole.CHATBOT: "assistant",
    MessageRole.MODEL: "assistant",
    MessageRole.SYSTEM: "system",
    MessageRole.DEVELOPER: "system",
}
_PLAIN = frozenset({MessageRole.USER, MessageRole.ASSISTANT, MessageRole.SYSTEM})
_TEXT_FIELDS = frozenset({"block_type", "text"})


@dataclass(frozen=True, slots=True)
class Row:
    """One message of a list, and the items that hold it."""

    message: ChatMessage
    items: Sequence[RecordedItem]

    @property
    def keys(self) -> list[ItemKey]:
        """The keys of the items."""
        return [one.key for one in self.items]


@dataclass(slots=True)
class _Packed:
    """A message as text and as what goes beside it; ``None`` for a plain one."""

    text: str
    beside: dict[str, JsonValue] | None


def items_of_rows(
    messages: Sequence[ChatMessage], before: Iterable[ChatMessage] = ()
) -> list[list[Item]]:
    """The items of each message. ``before`` are the messages in front of them, newest first: in
    them are the calls that results belong to. Nothing of a message is shared with its items."""
    calls: dict[str, ToolCall] = {}
    wanted = {answered_id(one) for one in messages if _is_result(one)} - {None}
    for message in before:
        if not wanted - calls.keys():
            break
        calls = {**_calls(message), **calls}
    found: list[list[Item]] = []
    for message in messages:
        found.append(_items(message, calls))
        calls |= _calls(message)
    return found


def rows_from(items: Iterable[RecordedItem]) -> list[Row]:
    """The messages of a listed session, in order, all of them new objects."""
    rows: list[Row] = []
    parts: dict[str, list[RecordedItem]] = {}
    for recorded in items:
        part = recorded.item.metadata.get(_PART)
        if isinstance(part, str):
            parts.setdefault(part, []).append(recorded)
            continue
        own = parts.pop(recorded.key.id, [])
        packed = recorded.item.metadata.get(_ROW)
        if packed is None:
            foreign = chat_from_items([recorded.item], repaired=False)
            rows += [Row(message, [recorded]) for message in foreign]
        else:
            rows.append(Row(_message(recorded, packed, own), [*own, recorded]))
    return rows


def mark_of_message(message: ChatMessage) -> str:
    """What two messages have in common exactly when they are equal in every field."""
    packed = _pack(message)
    return json.dumps([message.role.value, packed.text, packed.beside])


def _items(message: ChatMessage, calls: Mapping[str, ToolCall]) -> list[Item]:
    packed = _pack(message)
    row_id = secrets.token_hex(12)
    parts, metadata = _beside(packed, row_id)
    if not _is_result(message):
        role = _ROLES[message.role]
        return [*parts, Message(role, packed.text, id=row_id, metadata=metadata)]
    call = calls.get(answered_id(message) or "")
    name = call.name if call is not None else message.additional_kwargs.get("name")
    return [
        *parts,
        ToolCall(
            name[:1_024] if isinstance(name, str) and name.strip() else "tool",
            None if call is None else call.arguments,
            call_id=row_id,
            output=packed.text,
            metadata=metadata,
        ),
    ]


def _is_result(message: ChatMessage) -> bool:
    return message.role in (MessageRole.TOOL, MessageRole.FUNCTION)


def _calls(message: ChatMessage) -> dict[str, ToolCall]:
    if message.role not in (MessageRole.ASSISTANT, MessageRole.CHATBOT, MessageRole.MODEL):
        return {}
    return {called: one for one in calls_of(message, "") if (called := host_id(one)) is not None}


def _pack(message: ChatMessage) -> _Packed:
    texts: list[str] = []
    blocks: list[JsonValue] = []
    for block in message.blocks:
        dump = cast("dict[str, JsonValue]", jsonable(block))
        text = getattr(block, "text", None) if block.block_type == "text" else None
        if not isinstance(text, str) or dump.keys() != _TEXT_FIELDS:
            blocks.append(["block", dump])
            continue
        clean = _clean(text)
        texts.append(clean)
        # Half characters are kept beside the words: the record has only whole ones.
        blocks.append(["text", len(clean)] if clean == text else ["text", len(clean), text])
    joined = "\n".join(texts)
    kwargs = jsonable(message.additional_kwargs)
    if message.role in _PLAIN and not kwargs and blocks == [["text", len(joined)]]:
        return _Packed(joined, None)
    return _Packed(joined, {"role": message.role.value, "kwargs": kwargs, "blocks": blocks})


def _clean(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _beside(packed: _Packed, row_id: str) -> tuple[list[Item], dict[str, JsonValue]]:
    """The items that go in front of a message's own, and the metadata of its own."""
    if packed.beside is None:
        return [], {}
    data = json.dumps(packed.beside, separators=(",", ":")).encode()
    text = base64.b85encode(zlib.compress(data)).decode("ascii")
    if len(text) <= _PART_CHARACTERS and len(json.dumps(text)) <= _PART_CHARACTERS:
        return [], {_ROW: text}
    text = base64.b64encode(zlib.compress(data)).decode("ascii")
    chunks = [
        text[start : start + _PART_CHARACTERS] for start in range(0, len(text), _PART_CHARACTERS)
    ]
    parts: list[Item] = [
        ToolCall(
            _NO_WORDS,
            "",
            call_id=f"{row_id}.{number}",
            metadata={_PART: row_id, "n": number, "data": chunk},
        )
        for number, chunk in enumerate(chunks)
    ]
    return parts, {_ROW: len(chunks)}


def _message(
    recorded: RecordedItem, packed: JsonValue, parts: Sequence[RecordedItem]
) -> ChatMessage:
    item = recorded.item
    text = item.text if isinstance(item, Message) else item.output or ""
    if isinstance(packed, int) and len(parts) != packed:
        # What stood in front of it ran out before it did: the words are left.
        role = MessageRole(item.role) if isinstance(item, Message) else MessageRole.TOOL
        return ChatMessage(role=role, blocks=[TextBlock(text=text)])
    try:
        if isinstance(packed, int):
            ordered = sorted(parts, key=lambda one: cast("int", one.item.metadata["n"]))
            data = base64.b64decode("".join(str(one.item.metadata["data"]) for one in ordered))
        else:
            data = base64.b85decode(str(packed))
        beside = cast("dict[str, Any]", json.loads(zlib.decompress(data)))
        return _unpacked(beside, text)
    except (ValueError, KeyError, TypeError, zlib.error) as error:
        raise StoreCorrupt(
            f"the stored chat message {recorded.key.id!r} of session {recorded.key.session_id!r} "
            f"cannot be read ({type(error).__name__})"
        ) from None


def _unpacked(beside: dict[str, Any], text: str) -> ChatMessage:
    blocks: list[Any] = []
    start = 0
    for entry in beside["blocks"]:
        if entry[0] == "block":
            # core 0.14.0 refuses the ``None`` that it wrote for an absent url
            given = cast("dict[str, Any]", entry[1])
            blocks.append({name: value for name, value in given.items() if value is not None})
            continue
        part = text[start : start + entry[1]]
        blocks.append(TextBlock(text=entry[2] if len(entry) == 3 else part))
        start += entry[1] + 1
    # ``images`` would be made into blocks once more, which are there already
    message = ChatMessage(role=MessageRole(beside["role"]), blocks=blocks)
    message.additional_kwargs = beside["kwargs"]
    return message
