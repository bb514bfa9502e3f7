"""What a session commits, as items of the record: words, tool calls, and what befell the call.

A handoff and an error are tool calls without words: all that they tell stands in their metadata,
under ``livekit_event``. So no question finds them, no summary takes them for something said, they
belong to the turn that they happened in, and whoever wants them asks for them with ``where``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from livekit.agents import llm

from secondcall.adapters.livekit.chat import EVENT, item_of
from secondcall.checks import check_json
from secondcall.errors import InvalidValue
from secondcall.types import Item, JsonValue, Message, ToolCall

__all__ = ["committed", "error_of", "handoff_of", "is_event", "with_output"]

_WORDLESS = "-"
_MAX_CHARACTERS = 500_000
"""More of one text is cut off, so that the rest of the call is not refused with it."""


def committed(item: llm.ChatItem, output: llm.FunctionCallOutput | None = None) -> Item | None:
    """What is recorded of a committed chat item: ``item_of`` it, of a size and form that the record
    takes; ``None`` also for system messages, which nobody said."""
    found = item_of(item, output)
    if isinstance(found, Message):
        return None if found.role == "system" else _short_message(found)
    if isinstance(found, ToolCall):
        return _short_call(found)
    return None


def with_output(call: ToolCall, output: str, *, is_error: bool) -> ToolCall:
    """The call with what came of it."""
    return _short_call(replace(call, output=output, is_error=is_error))


def handoff_of(handoff: llm.AgentHandoff) -> ToolCall | None:
    """A handoff from one agent to another; ``None`` for the first agent, who takes nothing over."""
    if handoff.old_agent_id is None:
        return None
    what = {"from_agent": handoff.old_agent_id, "to_agent": handoff.new_agent_id}
    return _event("handoff", handoff.id, handoff.created_at, what)


def error_of(
    error: object, source: object, *, event_id: str, at: float, repeats: int = 1
) -> ToolCall:
    """An error of the session: where, of which class, how often; never its text, which may quote
    the conversation."""
    inner = getattr(error, "error", None)
    what: dict[str, JsonValue] = {
        "source": type(source).__name__,
        "error": type(error if inner is None else inner).__name__,
        "recoverable": bool(getattr(error, "recoverable", False)),
        "repeats": repeats,
    }
    return _event("error", event_id, at, what)


def is_event(item: Item) -> bool:
    """Whether the item tells what befell the call, instead of something said or done."""
    return isinstance(item, ToolCall) and EVENT in item.metadata


def _event(kind: str, event_id: str, at: float, what: Mapping[str, JsonValue]) -> ToolCall:
    return ToolCall(
        _WORDLESS,
        {},
        call_id=event_id,
        output="",
        at=datetime.fromtimestamp(at, UTC),
        metadata={EVENT: kind, **what},
    )


def _short_message(message: Message) -> Message:
    if len(message.text) <= _MAX_CHARACTERS:
        return message
    return replace(
        message,
        text=message.text[:_MAX_CHARACTERS],
        metadata={**message.metadata, "characters": len(message.text)},
    )


def _short_call(call: ToolCall) -> ToolCall:
    metadata = dict(call.metadata)
    arguments = _accepted(call.arguments)
    output = call.output
    if output is not None and len(output) > _MAX_CHARACTERS:
        metadata["characters"] = len(output)
        output = output[:_MAX_CHARACTERS]
    return replace(call, arguments=arguments, output=output, metadata=metadata)


def _accepted(arguments: JsonValue) -> JsonValue:
    """The arguments as the record takes them: their text where they are too deep or too long."""
    try:
        check_json("arguments", arguments)
        text = json.dumps(arguments, ensure_ascii=False)
    except (InvalidValue, ValueError, TypeError, RecursionError):
        return "(these arguments are no JSON that can be recorded)"
    return arguments if len(text) <= _MAX_CHARACTERS else text[:_MAX_CHARACTERS]
