"""What of an item its place in the record has no room for: written beside it, and put back. Pure.

An item's metadata takes 16 KiB, and the whole item 4 MiB. Pictures given inline, long thinking and
longer outputs are more. Such an item is recorded in a small form, in which every large part is
replaced by its digest, and the whole of what it says is attached to it (``session.listed``): as
durable as the item, in every process, and gone when the item goes.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from secondcall.adapters.llama_index.outputs import text_tokens
from secondcall.memory.attached import MAX_ATTACHED_BYTES
from secondcall.record.append import MAX_ITEM_BYTES
from secondcall.types import Item, Message

if TYPE_CHECKING:
    from secondcall.types import ItemKind, JsonValue

    Key = tuple[ItemKind, str]

__all__ = [
    "KEY",
    "Stored",
    "apart_of",
    "digests",
    "is_apart",
    "is_small",
    "key_of",
    "restored",
    "stored",
    "whole",
]

KEY = "llama_index"
"""Where a message's form stands in an item's metadata."""
MAX_INLINE_BYTES = 1_500
"""A text of more in a block or in ``additional_kwargs`` stands apart."""
MAX_SHAPE_BYTES = 5_000
"""All that is written of one message; metadata has room for 16 KiB."""
MAX_THINKING_BYTES = 9_000
_MAX_OUTPUT_BYTES = MAX_ITEM_BYTES - 200_000
"""An item has room for that beside its arguments."""
_SURELY_RECORDED = 500_000
_APART = "held apart"
_FLAG = "apart"
_LARGE = ("kwargs", "blocks", "result", "shape")

_log = logging.getLogger("secondcall")


@dataclass(frozen=True, slots=True)
class Stored:
    """Items as they are recorded, and what is attached to them, by kind and id."""

    items: Sequence[Item]
    attached: Mapping[Key, bytes]

    def attached_to(self, items: Sequence[object]) -> dict[Key, bytes]:
        """What is attached to these of its items."""
        chosen = {id(one) for one in items}
        keys = [key_of(one) for one in self.items if id(one) in chosen]
        return {key: self.attached[key] for key in keys if key in self.attached}


def key_of(item: Item) -> Key:
    """The kind and the id of an item."""
    if isinstance(item, Message):
        return "message", item.id or ""
    return "tool_call", item.call_id


def stored(items: Sequence[Item]) -> Stored:
    """The items in a form that the record takes, whatever their size."""
    small: list[Item] = []
    attached: dict[Key, bytes] = {}
    for item in items:
        fitted, beside = _stored(item)
        if beside:
            data = json.dumps(beside).encode()
            if len(data) <= MAX_ATTACHED_BYTES:
                attached[key_of(item)] = data
            else:
                _log.warning(
                    "a part of a message is too large to be kept, and is named in words",
                    extra={"bytes": len(data), "most_bytes": MAX_ATTACHED_BYTES},
                )
        small.append(fitted)
    return Stored(small, attached)


def is_small(own: Mapping[str, JsonValue]) -> bool:
    """Whether a message's form is recorded as it is."""
    return _small(own) == own


def apart_of(items: Sequence[Item]) -> list[Key]:
    """Of which items something was attached."""
    return [key_of(item) for item in items if _own(item).get(_FLAG)]


def digests(items: Sequence[Item]) -> list[str]:
    """The digests of all that stands apart of these stored items, in order."""
    found: list[str] = []
    for item in items:
        own = _own(item)
        _collect([own[name] for name in _LARGE if name in own], found)
    return found


def restored(
    items: Sequence[Item], attached: Mapping[Key, bytes], *, outputs: bool = False
) -> list[Item]:
    """The items as they were before ``stored``, where what is attached to them is given. Outputs
    that were cut stay so, unless they are asked for: a model is shown what fits."""
    return [_restored(item, attached.get(key_of(item)), outputs=outputs) for item in items]


def is_apart(value: JsonValue) -> bool:
    """Whether this stands for what was attached."""
    return isinstance(value, Mapping) and isinstance(value.get(_APART), str) and len(value) <= 2


def whole(value: JsonValue) -> JsonValue:
    """The value; ``None`` where a part of it was attached, and was not put back."""
    if is_apart(value):
        return None
    if isinstance(value, Mapping):
        found = {name: whole(one) for name, one in value.items()}
        gone = any(found[name] is None and one is not None for name, one in value.items())
        return None if gone else found
    if isinstance(value, list | tuple):
        return [whole(one) for one in cast("list[JsonValue]", value)]
    return value


def _stored(item: Item) -> tuple[Item, dict[str, JsonValue]]:
    """The item as it is recorded, and all of what was too large in it."""
    beside: dict[str, JsonValue] = {}
    metadata: dict[str, JsonValue] = dict(item.metadata)
    own = _own(item)
    small = _small(own)
    if small != own:
        beside[KEY] = own
    thinking = metadata.get("thinking")
    if isinstance(thinking, str) and (cut := _cut(thinking, MAX_THINKING_BYTES)) != thinking:
        beside["thinking"] = thinking
        metadata["thinking"] = cut
        more = cast("int", metadata.get("beside_tokens", 0))
        metadata["beside_tokens"] = more + max(0, text_tokens(thinking) - text_tokens(cut))
    if not isinstance(item, Message) and item.output is not None:
        surely = len(item.output) <= _SURELY_RECORDED
        output = item.output if surely else _cut(item.output, _MAX_OUTPUT_BYTES)
        if output != item.output:
            beside["output"] = item.output
            item = replace(item, output=output)
    if beside:
        metadata[KEY] = {**small, _FLAG: True}
        item = replace(item, metadata=metadata)
    return item, beside


def _restored(item: Item, data: bytes | None, *, outputs: bool) -> Item:
    if data is None:
        return item
    beside = cast("dict[str, Any]", json.loads(data))
    metadata: dict[str, JsonValue] = {**item.metadata, **beside}
    output = metadata.pop("output", None)
    if KEY not in beside:
        own = {name: one for name, one in _own(item).items() if name != _FLAG}
        metadata = {name: one for name, one in metadata.items() if name != KEY}
        metadata |= {KEY: own} if own else {}
    item = replace(item, metadata=metadata)
    if outputs and isinstance(output, str) and not isinstance(item, Message):
        item = replace(item, output=output)
    return item


def _own(item: Item) -> Mapping[str, JsonValue]:
    own = item.metadata.get(KEY)
    return own if isinstance(own, Mapping) else {}


def _small(own: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """What is written of a message, within ``MAX_SHAPE_BYTES``."""
    found = cast("dict[str, JsonValue]", _without_large(own))
    for name in _LARGE:
        if name in own and _size(found) > MAX_SHAPE_BYTES:
            found[name] = _apart(own[name])
    return found


def _without_large(value: JsonValue) -> JsonValue:
    if isinstance(value, Mapping):
        return {name: _without_large(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_large(one) for one in cast("list[JsonValue]", value)]
    if isinstance(value, str) and len(value.encode("utf-8", "replace")) > MAX_INLINE_BYTES:
        return _apart(value)
    return value


def _apart(value: JsonValue) -> JsonValue:
    text = json.dumps(value, ensure_ascii=True)
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return {_APART: digest, "bytes": len(text)}


def _cut(text: str, most_bytes: int) -> str:
    kept = len(text)
    while (size := _size(text[:kept])) > most_bytes:
        kept = kept * most_bytes // (size + 1)
    if kept == len(text):
        return text
    return f"{text[:kept]} (cut, {len(text) - kept:,} characters more)"


def _collect(value: JsonValue, found: list[str]) -> None:
    if isinstance(value, Mapping):
        digest = value.get(_APART)
        if isinstance(digest, str):
            found.append(digest)
            return
        value = list(value.values())
    if isinstance(value, list | tuple):
        for one in cast("list[JsonValue]", value):
            _collect(one, found)


def _size(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
