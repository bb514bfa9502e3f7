"""Items as a buffer takes them over: checked, copied so that nobody else can change them, and not
after their time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast, get_args

from secondcall.checks import check_id, check_json, check_metadata, check_text, to_us
from secondcall.errors import InvalidValue
from secondcall.types import Item, ItemKind, JsonValue, Message, Metadata, Role, ToolCall

__all__ = ["checked", "copied", "has_run_out"]

_MAX_BYTES = 4 * 1024 * 1024
_ROLES = frozenset(get_args(Role))


def checked(name: str, item: object) -> Item:
    """A copy of an item that could be recorded. Raises: ``InvalidValue``, ``TooLarge``."""
    if isinstance(item, Message):
        return _checked_message(name, item)
    if isinstance(item, ToolCall):
        return _checked_call(name, item)
    raise InvalidValue(f"{name} must be a Message or a ToolCall, not {type(item).__name__}")


def copied(item: Item) -> Item:
    """A copy that shares nothing that can be changed."""
    metadata = cast("Metadata", _copy(item.metadata))
    if isinstance(item, Message):
        return replace(item, metadata=metadata)
    return replace(item, arguments=_copy(item.arguments), metadata=metadata)


def has_run_out(item: Item, cutoffs: Mapping[ItemKind, int]) -> bool:
    """Whether an item is from before the time (microseconds) of its kind."""
    cutoff = cutoffs.get("message" if isinstance(item, Message) else "tool_call")
    return cutoff is not None and item.at is not None and to_us("at", item.at) < cutoff


def _checked_message(name: str, item: Message) -> Message:
    if item.role not in _ROLES:
        raise InvalidValue(
            f"{name}.role is {item.role!r}, expected one of {', '.join(sorted(_ROLES))}"
        )
    if item.id is not None:
        check_id(f"{name}.id", item.id)
    if item.speaker is not None:
        check_id(f"{name}.speaker", item.speaker)
    text = check_text(f"{name}.text", item.text, max_bytes=_MAX_BYTES)
    metadata = check_metadata(f"{name}.metadata", item.metadata)
    return replace(item, text=text, metadata=cast("Metadata", _copy(metadata)))


def _checked_call(name: str, item: ToolCall) -> ToolCall:
    check_id(f"{name}.name", item.name)
    check_id(f"{name}.call_id", item.call_id)
    output = item.output
    if output is not None:
        output = check_text(f"{name}.output", output, max_bytes=_MAX_BYTES)
    arguments = check_json(f"{name}.arguments", item.arguments)
    metadata = check_metadata(f"{name}.metadata", item.metadata)
    return replace(
        item,
        output=output,
        arguments=_copy(arguments),
        metadata=cast("Metadata", _copy(metadata)),
    )


def _copy(value: JsonValue) -> JsonValue:
    if isinstance(value, Mapping):
        return {key: _copy(part) for key, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_copy(part) for part in value]
    return value
