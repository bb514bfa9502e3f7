"""Between LiveKit's chat items and what is recorded. Pure.

What memory puts into a chat context is marked: by ``extra["secondcall"]`` and by ids that begin
with ``memory_``, which survive ``to_dict``, handoffs and merges. Marked items are never recorded.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Literal, TypeAlias, cast, get_args

from livekit.agents import llm

from secondcall.context.render import fence, item_line
from secondcall.types import Item, JsonValue, Message, RecordedItem, Role, ToolCall

__all__ = [
    "EVENT",
    "LONGEST_CHARACTERS",
    "MemoryKind",
    "arguments_json",
    "chat_items_of",
    "is_memory",
    "item_of",
    "memory_kind",
    "memory_message",
]

MemoryKind: TypeAlias = Literal["brief", "lookup", "summary", "turn", "turns"]

_KINDS: Collection[str] = get_args(MemoryKind)
EVENT = "livekit_event"
"""The key in the metadata of what befell a call, which nobody said or did; see ``items``."""
_MARK = "secondcall"
_ID_PREFIX = "memory_"
_INSTRUCTIONS_ID = "lk.agent_task.instructions"
_PREFACE = "(Added by this agent's memory; the caller did not say it now.)"
_ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
_STEP_SECONDS = 1e-3
_LATEST_SECONDS = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
LONGEST_CHARACTERS = 2_000
"""Of one restored text; what was said in full is in the record."""


def item_of(
    item: llm.ChatItem, output: llm.FunctionCallOutput | None = None, *, speaker: str | None = None
) -> Item | None:
    """What is recorded of a chat item: its spoken or typed text, or a call with its ``output``.

    ``None`` for what is not said or done by anybody: memory's own items, the agent's instructions
    and running summaries, messages without words, outputs alone, handoffs, configuration updates.
    """
    if is_memory(item):
        return None
    if isinstance(item, llm.ChatMessage):
        return _message_of(item, speaker)
    if isinstance(item, llm.FunctionCall):
        return ToolCall(
            item.name,
            _arguments_of(item.arguments),
            call_id=item.call_id,
            output=None if output is None else output.output,
            is_error=output is not None and output.is_error,
            at=_time_of(item.created_at),
        )
    return None


def chat_items_of(
    items: Sequence[RecordedItem], *, before: float, tools: Collection[str] | None = None
) -> list[llm.ChatItem]:
    """The items as chat items of the past, in their order, all created before ``before`` (seconds
    since 1970); every tool call with its output right behind it.

    A call without output is left out, and so are handoffs, errors and system messages, which other
    providers than OpenAI's would read as instructions. With ``tools``, the names that an agent has,
    a call of another tool is told as quoted data: LiveKit drops it, and some providers refuse it.
    So is one with very long arguments, which cannot be cut and stay arguments. Ids are derived, so
    that giving the same items twice gives the same ids, and no provider's call ids of now can meet
    those of then.
    """
    found: list[llm.ChatItem] = []
    for recorded in items:
        found.extend(_chat_items(recorded, tools))
    latest = before
    for one in reversed(found):
        latest = min(one.created_at, latest - _STEP_SECONDS)
        one.created_at = latest
    return found


def memory_message(
    text: str, *, created_at: float, kind: MemoryKind, key: str = ""
) -> llm.ChatMessage:
    """Remembered text as a message of its own, marked as memory's.

    Its role is ``user``: the one that carries no more weight than what a caller says. A system
    message is turned into instructions by the formats of Anthropic, Google, AWS and Mistral, and
    what an assistant message holds a model takes for its own words and repeats. ``key`` tells apart
    several of a kind; the same kind and key give the same id.
    """
    return llm.ChatMessage(
        id=_id(kind, key),
        role="user",
        content=[f"{_PREFACE}\n{text}"],
        created_at=created_at,
        extra={_MARK: kind},
    )


def is_memory(item: llm.ChatItem) -> bool:
    """Whether memory put this item into the context, so that nobody said it in this call."""
    return memory_kind(item) is not None


def memory_kind(item: llm.ChatItem) -> MemoryKind | None:
    """What kind of memory an item is, ``None`` for what was said or done in this call."""
    if isinstance(item, llm.ChatMessage | llm.FunctionCall):
        kind = item.extra.get(_MARK)
        if kind in _KINDS:
            return cast("MemoryKind", kind)
    return "turn" if item.id.startswith(_ID_PREFIX) else None


def _message_of(item: llm.ChatMessage, speaker: str | None) -> Message | None:
    if item.id.startswith(_INSTRUCTIONS_ID) or item.extra.get("is_summary") is True:
        return None
    text = item.text_content or ""
    parts: list[JsonValue] = [one.type for one in item.content if not isinstance(one, str)]
    if not text.strip() and not parts:
        return None
    metadata: dict[str, JsonValue] = {"parts": parts} if parts else {}
    confidence = item.transcript_confidence
    if confidence is not None and math.isfinite(confidence):
        metadata["transcript_confidence"] = confidence
    return Message(
        _ROLES[item.role],
        text,
        id=item.id,
        speaker=speaker if item.role == "user" else None,
        at=_time_of(item.created_at),
        interrupted=item.interrupted,
        metadata=metadata,
    )


def _arguments_of(text: str) -> JsonValue:
    """The arguments as JSON, or the text that a model wrote in its place."""
    try:
        value: object = json.loads(text, parse_constant=str) if text.strip() else {}
    except (ValueError, RecursionError):
        return text
    return cast("JsonValue", value)


def _time_of(seconds: float) -> datetime | None:
    """A time that can be recorded, or ``None``: then the recorder's clock tells it."""
    if not math.isfinite(seconds) or not 0 < seconds < _LATEST_SECONDS:
        return None
    return datetime.fromtimestamp(seconds, tz=UTC)


def _chat_items(recorded: RecordedItem, tools: Collection[str] | None) -> list[llm.ChatItem]:
    item, at = recorded.item, recorded.at.timestamp()
    key = "\x1f".join(recorded.key)
    if isinstance(item, ToolCall):
        if item.output is None or EVENT in item.metadata:
            return []
        unknown = tools is not None and item.name not in tools
        if unknown or len(arguments_json(item)) > LONGEST_CHARACTERS:
            told = fence([item_line(item, recorded.at)])
            return [memory_message(told, created_at=at, kind="turn", key=key)]
        return _call_pair(item, item.output, at, key)
    if item.role == "system" or not item.text.strip():
        return []
    return [
        llm.ChatMessage(
            id=_id("turn", key),
            role=item.role,
            content=[_shortened(item.text)],
            interrupted=item.interrupted,
            created_at=at,
            extra={_MARK: "turn"},
        )
    ]


def _call_pair(item: ToolCall, output: str, at: float, key: str) -> list[llm.ChatItem]:
    # Nine letters or digits are what every provider takes for the id of a call.
    call_id = hashlib.blake2b(key.encode("utf-8", "replace"), digest_size=5).hexdigest()[:9]
    return [
        llm.FunctionCall(
            id=_id("call", key),
            call_id=call_id,
            name=item.name,
            arguments=arguments_json(item),
            created_at=at,
            extra={_MARK: "turn"},
        ),
        llm.FunctionCallOutput(
            id=_id("output", key),
            call_id=call_id,
            name=item.name,
            output=_shortened(output),
            is_error=item.is_error,
            created_at=at,
        ),
    ]


def arguments_json(item: ToolCall) -> str:
    """A call's arguments as the JSON object that a model would have written."""
    given = item.arguments
    arguments = given if isinstance(given, dict) else {"arguments": given} if given else {}
    return json.dumps(arguments, ensure_ascii=False)


def _id(kind: str, key: str) -> str:
    """At most 32 characters, which is what OpenAI's realtime models take."""
    if not key:
        return f"{_ID_PREFIX}{kind}"
    digest = hashlib.blake2b(f"{kind}\x1f{key}".encode("utf-8", "replace"), digest_size=10)
    return f"{_ID_PREFIX}{digest.hexdigest()}"


def _shortened(text: str) -> str:
    if len(text) <= LONGEST_CHARACTERS:
        return text
    return f"{text[:LONGEST_CHARACTERS]} (cut, {len(text) - LONGEST_CHARACTERS:,} characters more)"
