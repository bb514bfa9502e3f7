"""Chat messages as the rows of a listed session: one message, one item, every field kept.

A chat store is asked for its list exactly as it was given, valid for a provider or not, and by
index. So here, other than in ``messages``, a message is never taken apart into calls and results:
what was said is a ``Message``, what a tool answered a ``ToolCall`` with its output, named after the
call that it answers where that is known. What an item has no place for (further blocks,
``additional_kwargs``, other roles) stands packed in its metadata. Where it is larger than metadata
may be, as pictures are, it is attached to the item (``session.listed``), and the metadata has its
digest. Rows of before that have it in items of their own in front of the message: calls without an
output. They are read, and go with their message.

Items that came from elsewhere, as through ``SecondCallMemory``, are read too: a call with its
output is then two messages, which go together when one of them is deleted.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock

from secondcall.adapters.llama_index.calls import answered_id, calls_of, host_id
from secondcall.adapters.llama_index.jsonable import jsonable
from secondcall.adapters.llama_index.messages import chat_from_items
from secondcall.adapters.llama_index.oversize import key_of
from secondcall.errors import StoreCorrupt
from secondcall.types import Item, Message, RecordedItem, Role, ToolCall

if TYPE_CHECKING:
    from secondcall.types import ItemKey, ItemKind, JsonValue

    Attached = Mapping[tuple[ItemKind, str], bytes]

__all__ = ["Row", "RowItem", "apart_of_rows", "items_of_rows", "mark_of_message", "rows_from"]

_ROW = "llama_index_row"
_PART = "llama_index_part"
_DIGEST = "llama_index_digest"
_APART = -1
"""Stands for what is packed where that is attached; a release that knows no attachments gives the
words."""
_PACKED_CHARACTERS = 15_000
"""So much of what is packed goes into the item; metadata has room for 16 KiB."""
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
    digest: str | None = None
    """Of what is attached to the item."""

    @property
    def mark(self) -> str:
        """That of the message, whether what is attached was read or not."""
        if self.digest is None:
            return mark_of_message(self.message)
        item = self.items[-1].item
        if isinstance(item, Message):
            return json.dumps([item.role, item.text, self.digest])
        return json.dumps(["tool", item.output or "", self.digest])

    @property
    def keys(self) -> list[ItemKey]:
        """The keys of the items."""
        return [one.key for one in self.items]


@dataclass(frozen=True, slots=True)
class RowItem:
    """The item that a message becomes, and what is attached to it."""

    item: Item
    data: bytes | None = None
    attached: Attached = field(init=False)

    def __post_init__(self) -> None:
        attached = {} if self.data is None else {key_of(self.item): self.data}
        object.__setattr__(self, "attached", attached)


@dataclass(slots=True)
class _Packed:
    """A message as text and as what goes beside it as JSON; ``None`` for a plain one."""

    text: str
    beside: bytes | None

    @property
    def digest(self) -> str | None:
        """What names what goes beside it."""
        return None if self.beside is None else _digest(self.beside)


def items_of_rows(
    messages: Sequence[ChatMessage], before: Iterable[ChatMessage] = ()
) -> list[RowItem]:
    """The item of each message. ``before`` are the messages in front of them, newest first: in
    them are the calls that results belong to. Nothing of a message is shared with its items."""
    calls: dict[str, ToolCall] = {}
    wanted = {answered_id(one) for one in messages if _is_result(one)} - {None}
    for message in before:
        if not wanted - calls.keys():
            break
        calls = {**_calls(message), **calls}
    found: list[RowItem] = []
    for message in messages:
        found.append(_item(message, calls))
        calls |= _calls(message)
    return found


def apart_of_rows(items: Iterable[RecordedItem]) -> list[tuple[ItemKind, str]]:
    """Of which items something was attached, which ``rows_from`` needs."""
    return [key_of(one.item) for one in items if one.item.metadata.get(_ROW) == _APART]


def rows_from(items: Iterable[RecordedItem], attached: Attached | None = None) -> list[Row]:
    """The messages of a listed session, in order, all of them new objects. Where what is attached
    is not given, they have words only; their marks are whole."""
    rows: list[Row] = []
    parts: dict[str, list[RecordedItem]] = {}
    for recorded in items:
        part = recorded.item.metadata.get(_PART)
        if isinstance(part, str):
            parts.setdefault(part, []).append(recorded)
            continue
        own = parts.pop(recorded.key.id, [])
        if _ROW not in recorded.item.metadata:
            foreign = chat_from_items([recorded.item], repaired=False)
            rows += [Row(one, [recorded]) for one in foreign]
            continue
        data = _data_of(recorded, own, attached or {})
        digest = recorded.item.metadata.get(_DIGEST)
        named = digest if isinstance(digest, str) else None
        rows.append(Row(_message(recorded, data), [*own, recorded], named))
    return rows


def mark_of_message(message: ChatMessage) -> str:
    """What two messages have in common exactly when they are equal in every field."""
    packed = _pack(message)
    role = "tool" if _is_result(message) else _ROLES[message.role]
    return json.dumps([role, packed.text, packed.digest])


def _item(message: ChatMessage, calls: Mapping[str, ToolCall]) -> RowItem:
    packed = _pack(message)
    row_id = secrets.token_hex(12)
    metadata, data = _beside(packed)
    if not _is_result(message):
        role = _ROLES[message.role]
        return RowItem(Message(role, packed.text, id=row_id, metadata=metadata), data)
    call = calls.get(answered_id(message) or "")
    name = call.name if call is not None else message.additional_kwargs.get("name")
    result = ToolCall(
        name[:1_024] if isinstance(name, str) and name.strip() else "tool",
        None if call is None else call.arguments,
        call_id=row_id,
        output=packed.text,
        metadata=metadata,
    )
    return RowItem(result, data)


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
    beside = {"role": message.role.value, "kwargs": kwargs, "blocks": blocks}
    return _Packed(joined, json.dumps(beside, separators=(",", ":")).encode())


def _clean(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _beside(packed: _Packed) -> tuple[dict[str, JsonValue], bytes | None]:
    """The metadata of a message's item, and what is attached to it."""
    if packed.beside is None:
        return {}, None
    data = zlib.compress(packed.beside)
    text = base64.b85encode(data).decode("ascii")
    if len(text) <= _PACKED_CHARACTERS and len(json.dumps(text)) <= _PACKED_CHARACTERS:
        return {_ROW: text}, None
    return {_ROW: _APART, _DIGEST: packed.digest}, data


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _data_of(
    recorded: RecordedItem, parts: Sequence[RecordedItem], attached: Attached
) -> bytes | None:
    """What is packed of a message; ``None`` where it is not there, or not any more.

    Raises: ``StoreCorrupt``.
    """
    packed = recorded.item.metadata[_ROW]
    try:
        if packed == _APART:
            return attached.get(key_of(recorded.item))
        if not isinstance(packed, int):
            return base64.b85decode(str(packed))
        if len(parts) != packed:  # some ran out before their message did
            return None
        ordered = sorted(parts, key=lambda one: cast("int", one.item.metadata["n"]))
        return base64.b64decode("".join(str(one.item.metadata["data"]) for one in ordered))
    except (ValueError, KeyError, TypeError) as error:
        raise _unreadable(recorded, error) from None


def _message(recorded: RecordedItem, data: bytes | None) -> ChatMessage:
    item = recorded.item
    text = item.text if isinstance(item, Message) else item.output or ""
    if data is None:
        role = MessageRole(item.role) if isinstance(item, Message) else MessageRole.TOOL
        return ChatMessage(role=role, blocks=[TextBlock(text=text)])
    try:
        return _unpacked(cast("dict[str, Any]", json.loads(zlib.decompress(data))), text)
    except (ValueError, KeyError, TypeError, zlib.error) as error:
        raise _unreadable(recorded, error) from None


def _unreadable(recorded: RecordedItem, error: Exception) -> StoreCorrupt:
    return StoreCorrupt(
        f"the stored chat message {recorded.key.id!r} of session {recorded.key.session_id!r} "
        f"cannot be read ({type(error).__name__})"
    )


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
