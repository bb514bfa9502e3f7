"""Message lists as OpenAI and many after it write them, with calls beside the content or, as
Anthropic and LlamaIndex do, as blocks in it.

A file holds one list, ``{"messages": [...]}``, or one conversation (or one message) a line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from secondcall.record.formats.blocks import Content, UsedTool, read_content
from secondcall.record.formats.calls import Items, arguments_of
from secondcall.record.formats.fields import Fields, Place
from secondcall.record.formats.source import Source
from secondcall.record.formats.transcript import Transcript, derived_id
from secondcall.types import Item, JsonValue, Message, Role

__all__ = ["read", "read_lines", "read_list"]

_ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
    "chatbot": "assistant",
    "model": "assistant",
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


def read_list(values: Sequence[object], session_id: str, place: Place) -> Sequence[Item]:
    """The items of a list of messages. Raises: ``InvalidValue``."""
    return _conversation(values, session_id, place).items


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
        content = read_content(message)
        for output in content.outputs:
            items.output(output.call_id, output.output, is_error=output.is_error)
        calls = _calls(message, content, session_id, position)
        thinking = content.thinking_metadata()
        if _add_message(message, _ROLES[role], content, items, session_id, position, bool(calls)):
            thinking = {}
        for index, call in enumerate(calls):
            assert call.call_id is not None
            metadata = thinking if index == 0 else None
            items.call(call.call_id, call.name, call.arguments, metadata=metadata)
    return Transcript(session_id=session_id, items=items.finish())


def _add_message(
    message: Fields,
    role: Role,
    content: Content,
    items: Items,
    session_id: str,
    position: int,
    calls: bool,
) -> bool:
    """Whether there was something to add. Thinking alone goes with the first call, if any."""
    text = content.text
    metadata: dict[str, JsonValue] = {"parts": list(content.others)} if content.others else {}
    if not text and not metadata and (calls or not content.thinking):
        return False
    metadata |= content.thinking_metadata()
    items.add(
        Message(
            role,
            text,
            id=message.optional_text("id") or derived_id(session_id, position, role, text),
            speaker=message.optional_text("name") or None,
            metadata=metadata,
        )
    )
    return True


def _calls(message: Fields, content: Content, session_id: str, position: int) -> Sequence[UsedTool]:
    """The calls of a message, each once: some hosts write them as blocks and beside them too."""
    found = [*content.calls, *_calls_beside(message)]
    if "additional_kwargs" in message:
        place = message.place.inside("additional_kwargs")
        found += _calls_beside(Fields(message.raw("additional_kwargs"), place))
    once: dict[str, UsedTool] = {}
    for index, call in enumerate(found):
        call_id = call.call_id or _unnamed(found[:index], call, session_id, position)
        once.setdefault(call_id, UsedTool(call_id, call.name, call.arguments))
    return tuple(once.values())


def _unnamed(before: Sequence[UsedTool], call: UsedTool, session_id: str, position: int) -> str:
    """The id of a call without one; the second of a name in one message gets another."""
    uses = sum(one.call_id is None and one.name == call.name for one in before)
    number = (str(uses),) if uses else ()
    return derived_id(session_id, position, "function_call", call.name, *number)


def _calls_beside(message: Fields) -> list[UsedTool]:
    calls: list[UsedTool] = []
    if "tool_calls" in message:
        for index, value in enumerate(message.entries("tool_calls")):
            place = message.place.inside(f"tool_calls[{index}]")
            calls.append(_read_call(Fields(value, place)))
    if "function_call" in message:
        place = message.place.inside("function_call")
        function = Fields(message.raw("function_call"), place)
        arguments = arguments_of(function.raw("arguments"), place)
        calls.append(UsedTool(None, function.text("name"), arguments))
    return calls


def _read_call(call: Fields) -> UsedTool:
    kind = call.optional_text("type") or "function"
    inner = Fields(call.raw(kind), call.place.inside(kind))
    field = "input" if kind == "custom" else "arguments"
    arguments = arguments_of(inner.raw(field), inner.place.inside(field))
    return UsedTool(call.text("id"), inner.text("name"), arguments)


def _read_output(message: Fields, role: str, items: Items, session_id: str, position: int) -> None:
    text = read_content(message).text
    name = message.optional_text("name")
    if role == "tool":
        call_id = _answered_id(message)
    else:
        name = message.text("name")
        call_id = items.open_call(name) or derived_id(session_id, position, "function", name)
    items.output(call_id, text, name=name)


def _answered_id(message: Fields) -> str:
    if "tool_call_id" not in message and "additional_kwargs" in message:
        place = message.place.inside("additional_kwargs")
        beside = Fields(message.raw("additional_kwargs"), place)
        if "tool_call_id" in beside:
            return beside.text("tool_call_id")
    return message.text("tool_call_id")
