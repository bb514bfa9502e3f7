"""Message lists of other libraries as items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from secondcall.checks import check_id
from secondcall.record.formats.fields import Place
from secondcall.record.formats.openai import read_list
from secondcall.types import Item

__all__ = ["items_from_messages"]


def items_from_messages(
    messages: Sequence[Mapping[str, object]], *, session_id: str = "chat"
) -> list[Item]:
    """The items of a list of messages as OpenAI, Anthropic or LlamaIndex (``model_dump()``) write
    them: roles ``user``, ``assistant``, ``system``, ``developer``, ``tool``; ``tool_calls``,
    ``function_call`` and blocks.

    A tool's output joins its call, wherever it stands; one without a call is kept as a call of
    which only the output is known, with ``{"call": "missing"}`` in its metadata. Thinking is kept
    as ``metadata["thinking"]`` of its message, or of its first call where it says nothing else;
    over 10,000 bytes it is cut. Of pictures and the like only the kind is kept. An item without an
    id gets one derived from ``session_id``, its place and its content, so the same list always
    gives the same items.

    Raises: ``InvalidValue`` naming the message and the field.
    """
    check_id("session_id", session_id)
    place = Place("messages")
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
        place.refuse(f"expected a list of messages, found {type(messages).__name__}")
    values = [dict(one) if isinstance(one, Mapping) else one for one in messages]  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
    return list(read_list(values, session_id, place))
