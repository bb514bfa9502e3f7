"""What of a chat message an item has no place for, as small JSON, and the message's blocks from it.

A block list is written as entries: ``["text", n]`` and ``["thinking", n, rest]`` are the next ``n``
characters of the item's words or thinking, ``["call", n]`` the message's call number ``n``, and
``["block", dump]`` anything else. What equals the plain form is not written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from llama_index.core.base.llms.types import ChatMessage, ContentBlock, TextBlock
from llama_index.core.bridge.pydantic import TypeAdapter, ValidationError

from secondcall.adapters.llama_index.jsonable import jsonable
from secondcall.adapters.llama_index.outputs import block_tokens
from secondcall.adapters.llama_index.oversize import is_apart, whole

if TYPE_CHECKING:
    from secondcall.types import JsonValue

__all__ = ["Shape", "blocks_from", "kwargs_from", "shape_of"]

_BLOCK: TypeAdapter[Any] = TypeAdapter(ContentBlock)
_MAX_PARTS = 50
_BESIDE = ("tool_calls", "function_call", "images")
"""Kept with the calls, or as blocks already."""


@dataclass(slots=True)
class Shape:
    """One message, taken apart: words, thinking, and how they and the rest stood in it.

    ``media`` are the kinds of the blocks that are neither text, thinking nor call, ``media_tokens``
    what they are taken for.
    """

    role: str
    text: str = ""
    thinking: str = ""
    media: list[str] = field(default_factory=list[str])
    media_tokens: int = 0
    entries: list[JsonValue] = field(default_factory=list["JsonValue"])
    kwargs: dict[str, JsonValue] = field(default_factory=dict[str, "JsonValue"])

    @property
    def says_something(self) -> bool:
        """Whether there is more to it than calls."""
        return bool(self.text or self.thinking or self.media)

    def written(
        self, *, role: str, kwargs: Mapping[str, JsonValue], calls: int = 0
    ) -> dict[str, JsonValue]:
        """What differs from a plain message of this role, with these kwargs and so many calls."""
        own: dict[str, JsonValue] = {}
        if self.role != role:
            own["role"] = self.role
        if self.kwargs != kwargs:
            own["kwargs"] = self.kwargs
        if self.entries != self._plain(calls):
            own["blocks"] = self.entries
        return own

    def metadata(self) -> dict[str, JsonValue]:
        """Thinking, the kinds of media and their tokens, as the record knows them."""
        found: dict[str, JsonValue] = {}
        if self.thinking:
            found["thinking"] = self.thinking
        if self.media:
            found["parts"] = self.media[:_MAX_PARTS]
        if self.media_tokens:
            found["beside_tokens"] = self.media_tokens
        return found

    def _plain(self, calls: int) -> list[JsonValue]:
        text: list[JsonValue] = [["text", len(self.text)]] if self.text or not calls else []
        return [*text, *(["call", number] for number in range(calls))]


def shape_of(message: ChatMessage, *, with_calls: bool = False) -> Shape:
    """A message taken apart; its tool call blocks stand apart only ``with_calls``."""
    shape = Shape(message.role.value)
    texts: list[str] = []
    thoughts: list[str] = []
    calls = 0
    for block in message.blocks:
        if isinstance(block, TextBlock):
            texts.append(block.text)
            shape.entries.append(["text", len(block.text)])
            continue
        dump = cast("dict[str, JsonValue]", jsonable(block))
        thought = dump.get("content") if block.block_type == "thinking" else None
        if isinstance(thought, str) and thought:
            thoughts.append(thought)
            del dump["content"]
            shape.entries.append(["thinking", len(thought), dump])
        elif with_calls and block.block_type == "tool_call":
            shape.entries.append(["call", calls])
            calls += 1
        else:
            shape.media.append(block.block_type)
            shape.media_tokens += block_tokens(block)
            shape.entries.append(["block", dump])
    shape.text, shape.thinking = "\n".join(texts), "\n".join(thoughts)
    shape.kwargs = {
        name: jsonable(value)
        for name, value in message.additional_kwargs.items()
        if name not in (_BESIDE if with_calls else ("images",))
    }
    return shape


def blocks_from(
    own: Mapping[str, JsonValue],
    text: str,
    thinking: str,
    calls: Mapping[int, object],
    *,
    spoken: bool,
) -> list[Any]:
    """The blocks of a message again; calls that are not in ``calls`` are left out, and a plain one
    has a text block where it is ``spoken``.

    Where the words are not those that were written, as when they were shortened or corrected, they
    stand in one text block.
    """
    given = own.get("blocks")
    if not isinstance(given, list):
        return [*([TextBlock(text=text)] if spoken else []), *calls.values()]
    entries = [cast("Sequence[Any]", entry) for entry in given if isinstance(entry, list | tuple)]
    texts = _slices(text, [entry[1] for entry in entries if entry[0] == "text"])
    thoughts = _slices(thinking, [entry[1] for entry in entries if entry[0] == "thinking"])
    if texts is None:
        texts = [text]
    blocks: list[Any] = []
    for entry in entries:
        kind = entry[0]
        if kind == "text" and texts:
            blocks.append(TextBlock(text=texts.pop(0)))
        elif kind == "thinking" and thoughts:
            rest = cast("dict[str, Any]", whole(entry[2]) or {})
            block = _block_of({**rest, "content": thoughts.pop(0)})
            blocks += [] if block is None else [block]
        elif kind == "call" and entry[1] in calls:
            blocks.append(calls[entry[1]])
        elif kind == "block":
            blocks.append(_block_from(entry[1]))
    if texts and any(texts):
        blocks.insert(0, TextBlock(text="\n".join(texts)))
    return blocks


def kwargs_from(
    own: Mapping[str, JsonValue], plain: Mapping[str, JsonValue] | None = None
) -> dict[str, Any]:
    """The ``additional_kwargs`` of a message again, without what is not held any more."""
    values: Any = own.get("kwargs", plain or {})
    if not isinstance(values, Mapping) or is_apart(cast("JsonValue", values)):
        return dict(plain or {})
    values = cast("Mapping[str, Any]", values)
    found = {name: whole(value) for name, value in values.items()}
    return {name: value for name, value in found.items() if value is not None or not values[name]}


def _slices(text: str, lengths: Sequence[int]) -> list[str] | None:
    """The parts that a text was joined of; ``None`` when it is another text."""
    if sum(lengths) + max(0, len(lengths) - 1) != len(text):
        return None
    parts: list[str] = []
    start = 0
    for length in lengths:
        parts.append(text[start : start + length])
        start += length + 1
    return parts


def _block_from(dump: object) -> Any:
    """A block from its dump. One that is not held any more, or that this release does not know, is
    named in words."""
    kind = cast("dict[str, Any]", dump).get("block_type") if isinstance(dump, dict) else None
    block = _block_of(whole(cast("JsonValue", dump)))
    if block is None:
        return TextBlock(text=f"({kind or 'a part'} of this message is not here any more)")
    return block


def _block_of(dump: object) -> Any:
    """The block of a whole dump; ``None`` for one that this release cannot make."""
    if not isinstance(dump, dict):
        return None
    try:
        return _BLOCK.validate_python(_said(cast("object", dump)))
    except (ValidationError, ValueError, OSError):
        return None


def _said(dump: object) -> object:
    """A block's dump without absent fields: some releases refuse their own ``None``."""
    if isinstance(dump, list):
        return [_said(one) for one in cast("list[object]", dump)]
    if not isinstance(dump, dict) or "block_type" not in dump:
        return cast("object", dump)
    fields = cast("dict[str, object]", dump)
    return {name: _said(one) for name, one in fields.items() if one is not None}
