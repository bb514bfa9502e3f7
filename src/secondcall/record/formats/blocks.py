"""The content of one message: plain text, parts or blocks, as OpenAI, Anthropic and LlamaIndex
write them.

Blocks name their kind as ``type`` or ``block_type``: text, refusal, thinking or reasoning,
tool_use or tool_call, tool_result. Of any other only the kind is kept.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from secondcall.record.formats.calls import arguments_of
from secondcall.record.formats.fields import Fields
from secondcall.types import JsonValue

__all__ = ["Content", "UsedTool", "UsedToolOutput", "read_content"]

MAX_THINKING_BYTES = 10_000
MAX_SIGNATURE_CHARACTERS = 4_000
"""Thinking is kept in an item's metadata, which has room for 16 KiB."""

_TEXTS = ("text", "input_text", "output_text")
_THINKING = ("thinking", "reasoning")
_TOOL_USES = ("tool_use", "tool_call")


@dataclass(frozen=True, slots=True)
class UsedTool:
    """A block that calls a tool; LlamaIndex has calls without an id."""

    call_id: str | None
    name: str
    arguments: JsonValue


@dataclass(frozen=True, slots=True)
class UsedToolOutput:
    """A block that gives a tool's output."""

    call_id: str
    output: str
    is_error: bool


@dataclass(slots=True)
class Content:
    """What stands in one message. ``others`` are the kinds of blocks that are not kept."""

    texts: list[str] = field(default_factory=list[str])
    others: list[str] = field(default_factory=list[str])
    thinking: list[str] = field(default_factory=list[str])
    signature: str | None = None
    calls: list[UsedTool] = field(default_factory=list[UsedTool])
    outputs: list[UsedToolOutput] = field(default_factory=list[UsedToolOutput])

    @property
    def text(self) -> str:
        """The text blocks, one below the other."""
        return "\n".join(self.texts)

    def thinking_metadata(self) -> dict[str, JsonValue]:
        """The thinking as metadata, cut where it is too long; its signature only where it stands
        for the whole of it."""
        whole = "\n".join(self.thinking)
        if not whole:
            return {}
        kept = _cut_thinking(whole)
        metadata: dict[str, JsonValue] = {"thinking": kept}
        signature = self.signature or ""
        if (
            kept == whole
            and len(self.thinking) == 1
            and 0 < len(signature) <= (MAX_SIGNATURE_CHARACTERS)
        ):
            metadata["thinking_signature"] = signature
        return metadata


def read_content(message: Fields) -> Content:
    """The content of a message. Raises: ``InvalidValue`` naming the block."""
    found = Content()
    if "reasoning_content" in message:
        found.thinking.append(message.text("reasoning_content"))
    name = "blocks" if "blocks" in message else "content"
    value = message.raw(name)
    if value is None:
        found.texts.append(message.optional_text("refusal") or "")
    elif isinstance(value, str):
        found.texts.append(value)
    elif isinstance(value, list):
        _read_blocks(cast("list[object]", value), message, name, found)
    else:
        message.refuse(name, "a string, a list of parts or null")
    return found


def _read_blocks(values: Sequence[object], message: Fields, name: str, found: Content) -> None:
    for index, value in enumerate(values):
        if isinstance(value, str):
            found.texts.append(value)
            continue
        block = Fields(value, message.place.inside(f"{name}[{index}]"))
        kind = block.text("block_type" if "block_type" in block else "type")
        _read_block(kind, block, found)


def _read_block(kind: str, block: Fields, found: Content) -> None:
    if kind in _TEXTS:
        found.texts.append(block.text("text"))
    elif kind == "refusal":
        found.texts.append(block.text("refusal"))
    elif kind in _THINKING:
        _read_thinking(block, found)
    elif kind in _TOOL_USES:
        found.calls.append(_tool_use(block))
    elif kind == "tool_result":
        found.outputs.append(
            UsedToolOutput(
                block.text("tool_use_id"),
                "\n".join(read_content(block).texts),
                block.flag("is_error"),
            )
        )
    else:
        found.others.append(kind)


def _read_thinking(block: Fields, found: Content) -> None:
    for name in ("thinking", "reasoning", "content", "text"):
        if isinstance(block.raw(name), str):
            found.thinking.append(block.text(name))
            break
    signature = block.raw("signature") or block.metadata("additional_information").get("signature")
    if isinstance(signature, str):
        found.signature = signature


def _tool_use(block: Fields) -> UsedTool:
    field_name = "input" if "input" in block else "tool_kwargs"
    arguments = arguments_of(block.raw(field_name), block.place.inside(field_name))
    if "tool_name" in block:
        return UsedTool(block.optional_text("tool_call_id"), block.text("tool_name"), arguments)
    return UsedTool(block.text("id"), block.text("name"), arguments)


def _cut_thinking(text: str) -> str:
    kept = len(text)
    while size := len(json.dumps(text[:kept], ensure_ascii=False).encode()):
        if size <= MAX_THINKING_BYTES:
            break
        kept = kept * MAX_THINKING_BYTES // (size + 1)
    if kept == len(text):
        return text
    return f"{text[:kept]} (cut, {len(text) - kept:,} characters more)"
