"""Message lists as OpenAI and many after it write them.

A file holds one list, ``{"messages": [...]}``, or one conversation (or one message) a line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from secondcall.record.formats.calls import Items, arguments_of
from secondcall.record.formats.fields import Fields, Place
from secondcall.record.formats.source import Source
from secondcall.record.formats.transcript import Transcript, derived_id
from secondcall.types import JsonValue, Message, Role

__all__ = ["read", "read_lines"]

_ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
_TOOL_ROLES = ("tool", "function")


def read(source: Source, default_session: str) -> Iterator[Transcript]:
    """The conversation of a file that is one JSON value. Raises: ``InvalidValue``."""
    document = source.document
    place = source.place
    if isinstance(document, dict):
        document = Fields(cast("object", document), place).entries("messages")
        place = place.inside("messages")
    elif not isinstance(document, list):
        place.refuse("expected a list of messages or an object with 'messages'")
    yield _conversation(cast("Sequence[object]", document), default_session, place)


def read_lines(source: Source, default_session: str) -> Iterator[Transcript]:
    """The conversations of a file with one a line; lines that are messages make one together.

    The sessions are numbered: ``chat-1``, ``chat-2``; a single one is ``chat``.
    """
    messages: list[tuple[Place, object]] = []
    conversations: list[tuple[Place, Sequence[object]]] = []
    for place, value in source.values():
        if isinstance(value, list):
            conversations.append((place, cast("list[object]", value)))
        elif isinstance(value, dict) and "messages" in value:
            line = Fields(cast("object", value), place)
            conversations.append((place.inside("messages"), line.entries("messages")))
        else:
            messages.append((place, cast("object", value)))
    if messages and conversations:
        messages[0][0].refuse("expected a conversation, as on the other lines")
    if messages:
        yield _read_messages(messages, default_session)
    for number, (place, values) in enumerate(conversations, 1):
        session_id = default_session if len(conversations) == 1 else f"{default_session}-{number}"
        yield _conversation(values, session_id, place)


def _conversation(values: Sequence[object], session_id: str, place: Place) -> Transcript:
    placed = [(place.inside(f"[{index}]"), value) for index, value in enumerate(values)]
    return _read_messages(placed, session_id)


def _read_messages(values: Sequence[tuple[Place, object]], session_id: str) -> Transcript:
    items = Items()
    for position, (place, value) in enumerate(values):
        message = Fields(value, place, what="a message (an object)")
        role = message.choice("role", (*_ROLES, *_TOOL_ROLES))
        if role in _TOOL_ROLES:
            _read_output(message, role, items, session_id, position)
            continue
        _read_message(message, _ROLES[role], items, session_id, position)
        _read_calls(message, items, session_id, position)
    return Transcript(session_id=session_id, items=items.finish())


def _read_message(
    message: Fields, role: Role, items: Items, session_id: str, position: int
) -> None:
    text, others = _content(message)
    if not text and not others:
        return
    metadata: dict[str, JsonValue] = {"parts": list(others)} if others else {}
    items.add(
        Message(
            role,
            text,
            id=message.optional_text("id") or derived_id(session_id, position, role, text),
            speaker=message.optional_text("name") or None,
            metadata=metadata,
        )
    )


def _content(message: Fields) -> tuple[str, Sequence[str]]:
    """The text of a message, and the types of its parts that are not text."""
    content = message.raw("content")
    if content is None:
        return message.optional_text("refusal") or "", ()
    if isinstance(content, str):
        return content, ()
    if not isinstance(content, list):
        message.refuse("content", "a string, a list of parts or null")
    texts: list[str] = []
    others: list[str] = []
    for index, value in enumerate(cast("list[object]", content)):
        if isinstance(value, str):
            texts.append(value)
            continue
        part = Fields(value, message.place.inside(f"content[{index}]"))
        kind = part.text("type")
        if kind in ("text", "input_text", "output_text"):
            texts.append(part.text("text"))
        elif kind == "refusal":
            texts.append(part.text("refusal"))
        else:
            others.append(kind)
    return "\n".join(texts), others


def _read_calls(message: Fields, items: Items, session_id: str, position: int) -> None:
    if "tool_calls" in message:
        for index, value in enumerate(message.entries("tool_calls")):
            place = message.place.inside(f"tool_calls[{index}]")
            _read_call(Fields(value, place), items)
    if "function_call" in message:
        place = message.place.inside("function_call")
        function = Fields(message.raw("function_call"), place)
        name = function.text("name")
        call_id = derived_id(session_id, position, "function_call", name)
        items.call(call_id, name, arguments_of(function.raw("arguments"), place))


def _read_call(call: Fields, items: Items) -> None:
    kind = call.optional_text("type") or "function"
    inner = Fields(call.raw(kind), call.place.inside(kind))
    field = "input" if kind == "custom" else "arguments"
    arguments = arguments_of(inner.raw(field), inner.place.inside(field))
    items.call(call.text("id"), inner.text("name"), arguments)


def _read_output(message: Fields, role: str, items: Items, session_id: str, position: int) -> None:
    text, _ = _content(message)
    name = message.optional_text("name")
    if role == "tool":
        call_id = message.text("tool_call_id")
    else:
        name = message.text("name")
        call_id = items.open_call(name) or derived_id(session_id, position, "function", name)
    items.output(call_id, text, name=name)
