"""The tool calls of a chat message, in both of the forms that they come in.

A call is a ``ToolCallBlock``, or stands in ``additional_kwargs["tool_calls"]`` (objects of a
provider's library, or dicts), or in both at once; the oldest have one ``function_call``. Here each
is one ``ToolCall``, whose mark in the metadata says which forms it had.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from llama_index.core.base.llms import types as llms

from secondcall.adapters.llama_index.jsonable import jsonable
from secondcall.adapters.llama_index.oversize import KEY
from secondcall.types import ToolCall

if TYPE_CHECKING:
    from secondcall.types import JsonValue

__all__ = [
    "HAS_CALL_BLOCKS",
    "answered_id",
    "beside_from",
    "block_from",
    "calls_of",
    "host_id",
    "mark_of",
    "record_id",
]

HAS_CALL_BLOCKS = hasattr(llms, "ToolCallBlock")
"""In the first releases of 0.14 calls stand beside the blocks only."""

_ARGUMENTS = (("function", "arguments"), ("arguments",), ("tool_kwargs",), ("input",))
_NAMES = (("function", "name"), ("name",), ("tool_name",))
_IDS = (("id",), ("tool_id",), ("tool_call_id",), ("call_id",))
_STYLES: tuple[dict[str, Any], ...] = (
    {},
    {"separators": (",", ":")},
    {"ensure_ascii": False},
    {"separators": (",", ":"), "ensure_ascii": False},
)
"""How providers write arguments as text: one of these gives the very same text back."""
_MAX_NAME = 1_024
_MAX_BESIDE_BYTES = 2_000
_UNNAMED = "tool"


def record_id(given: str | None) -> str:
    """An id for a call's item that no other has: some providers use an id again."""
    return f"{(given or 'call')[:900]}~{secrets.token_hex(6)}".replace("\x00", "")


def mark_of(call: ToolCall) -> Mapping[str, JsonValue]:
    """What this adapter wrote about a call; empty for one that another host recorded."""
    mark = call.metadata.get(KEY)
    return mark if isinstance(mark, Mapping) else {}


def host_id(call: ToolCall) -> str | None:
    """The id that the model gave the call, if it gave one."""
    mark = mark_of(call)
    if not mark:
        return call.call_id
    given = mark.get("id")
    return given if isinstance(given, str) and given else None


def answered_id(message: llms.ChatMessage) -> str | None:
    """The id of the call that a tool's message answers, if it names one."""
    for name in ("tool_call_id", "call_id"):
        given = message.additional_kwargs.get(name)
        if isinstance(given, str) and given:
            return given
    return None


def calls_of(message: llms.ChatMessage, group: str) -> list[ToolCall]:
    """The calls of a message, each once, in order: as blocks first, then those only beside."""
    marks: list[dict[str, JsonValue]] = []
    calls: list[tuple[str, JsonValue]] = []
    for block in message.blocks:
        if block.block_type == "tool_call":
            dump = cast("dict[str, Any]", jsonable(block))
            marks.append({"of": group, "n": len(marks), **_given(dump["tool_call_id"])})
            calls.append((dump["tool_name"], dump["tool_kwargs"]))
    blocks = len(marks)
    for source, place, value in _beside(message):
        number = _same(value, place, marks[:blocks], calls)
        if number is None:
            number = len(marks)
            given = _at(value, _IDS)
            given_id = _given(given if isinstance(given, str) else None)
            marks.append({"of": group, "n": number, "bare": True, **given_id})
            calls.append((_name(_at(value, _NAMES)), _parsed(_at(value, _ARGUMENTS))))
        marks[number][source] = _without_arguments(value, calls[number][1])
    return [
        ToolCall(
            _name(name),
            arguments,
            call_id=record_id(cast("str | None", mark.get("id"))),
            metadata={KEY: mark},
        )
        for mark, (name, arguments) in zip(marks, calls, strict=True)
    ]


def block_from(call: ToolCall, call_id: str | None) -> llms.ToolCallBlock:
    """The call as a block, under this id; only where there are such blocks."""
    arguments = call.arguments
    if isinstance(arguments, Mapping):
        arguments = dict(arguments)
    elif not isinstance(arguments, str):
        arguments = {} if arguments is None else {"arguments": arguments}
    return llms.ToolCallBlock(
        tool_call_id=call_id, tool_name=call.name, tool_kwargs=cast("Any", arguments)
    )


def beside_from(calls: Sequence[ToolCall], ids: Mapping[str, str | None]) -> dict[str, Any]:
    """``tool_calls`` and ``function_call`` of ``additional_kwargs`` again, of calls that had them;
    ``ids`` are theirs by the ids of the items."""
    found: dict[str, Any] = {}
    listed: list[Any] = []
    for call in calls:
        mark = mark_of(call)
        if "tool_calls" in mark or not (HAS_CALL_BLOCKS or "function_call" in mark):
            listed.append(_with_arguments(mark.get("tool_calls"), call, ids[call.call_id]))
        if "function_call" in mark:
            found["function_call"] = _with_arguments(mark["function_call"], call, None)
    if listed:
        found["tool_calls"] = listed
    return found


def _given(call_id: str | None) -> dict[str, JsonValue]:
    return {} if call_id is None else {"id": call_id}


def _beside(message: llms.ChatMessage) -> list[tuple[str, int, dict[str, JsonValue]]]:
    """Calls that stand beside the blocks: where, how manieth, and as JSON."""
    found: list[tuple[str, int, dict[str, JsonValue]]] = []
    listed: object = message.additional_kwargs.get("tool_calls")
    if isinstance(listed, list | tuple):
        values = [jsonable(one) for one in cast("list[object]", listed)]
        found += [
            ("tool_calls", place, dict(value))
            for place, value in enumerate(values)
            if isinstance(value, Mapping)
        ]
    single = jsonable(message.additional_kwargs.get("function_call"))
    if isinstance(single, Mapping):
        found.append(("function_call", 0, dict(single)))
    return found


def _same(
    value: Mapping[str, JsonValue],
    place: int,
    marks: Sequence[Mapping[str, JsonValue]],
    calls: Sequence[tuple[str, JsonValue]],
) -> int | None:
    """The number of the block that is the same call: by id, without one by place and name."""
    given = _at(value, _IDS)
    if given:
        return next((n for n, mark in enumerate(marks) if mark.get("id") == given), None)
    if place < len(marks) and calls[place][0] == _at(value, _NAMES):
        return place
    return None


def _at(value: Mapping[str, JsonValue], paths: Sequence[Sequence[str]]) -> JsonValue:
    """What stands at the first of these paths that is there."""
    path = _path(value, paths)
    found: JsonValue = value if path is not None else None
    for name in path or ():
        found = cast("Mapping[str, JsonValue]", found)[name]
    return found


def _path(value: Mapping[str, JsonValue], paths: Sequence[Sequence[str]]) -> Sequence[str] | None:
    for path in paths:
        inner: JsonValue = value
        for name in path:
            inner = inner.get(name) if isinstance(inner, Mapping) else None
        if inner is not None:
            return path
    return None


def _name(value: JsonValue) -> str:
    return value[:_MAX_NAME] if isinstance(value, str) and value else _UNNAMED


def _parsed(value: JsonValue) -> JsonValue:
    """Arguments as an object where their text can be had back from it, else the text."""
    if not isinstance(value, str):
        return value
    return _object(value) if _style(value) is not None else value


def _object(text: str) -> JsonValue:
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return jsonable(cast("object", found)) if isinstance(found, dict) else None


def _style(text: str) -> int | None:
    found = _object(text)
    if found is None:
        return None
    styles = (n for n, style in enumerate(_STYLES) if json.dumps(found, **style) == text)
    return next(styles, None)


def _without_arguments(value: Mapping[str, JsonValue], arguments: JsonValue) -> JsonValue:
    """A call as it stood beside the blocks, less the arguments that its item has."""
    path = _path(value, _ARGUMENTS)
    given = _at(value, _ARGUMENTS)
    form: JsonValue = None
    if given == arguments:
        form = "same"
    elif isinstance(given, str) and _style(given) is not None and _object(given) == arguments:
        form = _style(given)
    kept = dict(value) if path is None or form is None else _put(value, path, None)
    if len(json.dumps(kept)) > _MAX_BESIDE_BYTES:
        return {}
    return {"path": [] if form is None else list(path or ()), "form": form, "call": kept}


def _with_arguments(kept: JsonValue, call: ToolCall, call_id: str | None) -> Any:
    mark = cast("dict[str, Any]", kept or {})
    if "call" not in mark:  # it stood in a block, or was too large to be kept twice
        mark: dict[str, Any] = {
            "path": ["function", "arguments"],
            "form": "same" if isinstance(call.arguments, str) else 0,
            "call": {"type": "function", "function": {"name": call.name}, "id": call_id},
        }
    value = cast("dict[str, Any]", dict(mark["call"]))
    path = _path(value, _IDS)
    if call_id is not None and (path is not None or "id" in value):
        value = cast("dict[str, Any]", _put(value, path or ("id",), call_id))
    if not mark["path"]:
        return value
    form, arguments = mark["form"], call.arguments
    given = arguments if form == "same" else json.dumps(arguments, **_STYLES[int(form)])
    return _put(value, cast("Sequence[str]", mark["path"]), given)


def _put(
    value: Mapping[str, JsonValue], path: Sequence[str], new: JsonValue
) -> dict[str, JsonValue]:
    """A copy with ``new`` at the path."""
    found = dict(value)
    if len(path) == 1:
        found[path[0]] = new
    else:
        inner = found.get(path[0])
        found[path[0]] = _put(inner if isinstance(inner, Mapping) else {}, path[1:], new)
    return found
