"""What LiveKit Agents writes: ``ChatContext.to_dict()`` and ``SessionReport.to_dict()``.

Instructions never enter the record: configuration updates, handoffs, the agent's reserved system
messages and its running summaries are left out and counted. Pass ``exclude_timestamp=False`` when
writing the file, or every item gets the time of the import.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from secondcall.record.formats.calls import Items, arguments_of
from secondcall.record.formats.fields import Fields
from secondcall.record.formats.source import Source
from secondcall.record.formats.transcript import Transcript, derived_id
from secondcall.types import JsonValue, Message, Role

__all__ = ["read"]

_ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
_LEFT_OUT = ("agent_config_update", "agent_handoff")
_INSTRUCTIONS_ID = "lk.agent_task.instructions"
_KEPT_METADATA = ("transcript_confidence",)


def read(
    source: Source, default_session: str, *, session_id: str | None = None
) -> Iterator[Transcript]:
    """The call of a file; without ``session_id`` a report's job id names the session.

    Raises: ``InvalidValue``.
    """
    document = Fields(source.document, source.place)
    if "chat_history" in document:
        name = session_id or document.optional_text("job_id") or default_session
        history = Fields(document.raw("chat_history"), source.place.inside("chat_history"))
        yield _read_context(history, name)
    else:
        yield _read_context(document, session_id or default_session)


def _read_context(context: Fields, session_id: str) -> Transcript:
    items = Items()
    left_out = 0
    for position, value in enumerate(context.entries("items")):
        place = context.place.inside(f"items[{position}]")
        entry = Fields(value, place, what="an item (an object)")
        kind = entry.choice(
            "type", ("message", "function_call", "function_call_output", *_LEFT_OUT)
        )
        if kind in _LEFT_OUT or (kind == "message" and _is_instructions(entry)):
            left_out += 1
        elif kind == "message":
            _read_message(entry, items, session_id, position)
        elif kind == "function_call":
            arguments = arguments_of(entry.raw("arguments"), place.inside("arguments"))
            at = entry.unix_time("created_at")
            items.call(entry.text("call_id"), entry.text("name"), arguments, at=at)
        else:
            items.output(
                entry.text("call_id"),
                entry.text("output"),
                name=entry.optional_text("name"),
                is_error=entry.flag("is_error"),
                at=entry.unix_time("created_at"),
            )
    return Transcript(session_id=session_id, items=items.finish(), left_out=left_out)


def _is_instructions(message: Fields) -> bool:
    if (message.optional_text("id") or "").startswith(_INSTRUCTIONS_ID):
        return True
    return message.metadata("extra").get("is_summary") is True


def _read_message(message: Fields, items: Items, session_id: str, position: int) -> None:
    role = _ROLES[message.choice("role", tuple(_ROLES))]
    texts: list[str] = []
    others: list[JsonValue] = []
    content = message.raw("content")
    parts = [content] if isinstance(content, str) else message.entries("content")
    for index, part in enumerate(parts):
        if isinstance(part, str):
            texts.append(part)
        else:
            place = message.place.inside(f"content[{index}]")
            others.append(Fields(part, place, what="a string or an object").text("type"))
    text = "\n".join(texts)
    if not text and not others:
        return
    metadata: dict[str, JsonValue] = {"parts": others} if others else {}
    for name in _KEPT_METADATA:
        if name in message:
            metadata[name] = cast("JsonValue", message.raw(name))
    items.add(
        Message(
            role,
            text,
            id=message.optional_text("id") or derived_id(session_id, position, role, text),
            at=message.unix_time("created_at"),
            interrupted=message.flag("interrupted"),
            metadata=metadata,
        )
    )
