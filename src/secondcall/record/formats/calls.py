"""Pairs tool calls with their outputs while a transcript is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import cast

from secondcall.errors import InvalidValue
from secondcall.record.formats.fields import Place, parse_json
from secondcall.types import Item, JsonValue, Message, Metadata, ToolCall

__all__ = ["Items", "arguments_of"]


@dataclass(frozen=True, slots=True)
class _Open:
    index: int
    name: str


class Items:
    """The items of one session in order; an output joins its call, wherever that stands.

    Some hosts use a call id again in the same session: the second gets ``#2`` behind it. An output
    without a call is kept as a call of which only the output is known.
    """

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._open: dict[str, _Open] = {}
        self._uses: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._items)

    def add(self, message: Message) -> None:
        """Append a message."""
        self._items.append(message)

    def call(
        self,
        call_id: str,
        name: str,
        arguments: JsonValue,
        *,
        at: datetime | None = None,
        metadata: Metadata | None = None,
    ) -> None:
        """Append a tool call whose output is not known yet."""
        self._open[call_id] = _Open(len(self._items), name)
        self._append(ToolCall(name, arguments, call_id=call_id, at=at, metadata=metadata or {}))

    def output(
        self,
        call_id: str,
        output: str,
        *,
        name: str | None = None,
        is_error: bool = False,
        at: datetime | None = None,
    ) -> None:
        """Give the output of a call."""
        call = self._open.pop(call_id, None)
        if call is not None:
            item = self._items[call.index]
            if isinstance(item, ToolCall):
                self._items[call.index] = replace(item, output=output, is_error=is_error)
            return
        note: Metadata = {"call": "missing"}
        self._append(
            ToolCall(
                name or "unknown",
                None,
                call_id=call_id,
                output=output,
                is_error=is_error,
                at=at,
                metadata=note,
            )
        )

    def open_call(self, name: str) -> str | None:
        """The id of the last call of a tool that still waits for its output."""
        waiting = [call_id for call_id, call in self._open.items() if call.name == name]
        return waiting[-1] if waiting else None

    def finish(self) -> Sequence[Item]:
        """All items. One without a time takes that of the item before it, if any has one."""
        known = next((item.at for item in self._items if item.at is not None), None)
        if known is None:
            return tuple(self._items)
        timed: list[Item] = []
        for item in self._items:
            known = item.at or known
            timed.append(item if item.at is not None else replace(item, at=known))
        return tuple(timed)

    def _append(self, call: ToolCall) -> None:
        uses = self._uses.get(call.call_id, 0) + 1
        self._uses[call.call_id] = uses
        if uses > 1:
            call = replace(call, call_id=f"{call.call_id}#{uses}")
        self._items.append(call)


def arguments_of(value: object, place: Place) -> JsonValue:
    """Tool arguments: JSON text is read, other text is kept as it is."""
    if isinstance(value, str):
        return _read(value)
    if value is None or isinstance(value, dict):
        return cast("JsonValue", value)
    return place.refuse("expected arguments as JSON text or an object")


def _read(text: str) -> JsonValue:
    try:
        value = parse_json(text, Place("arguments"))
    except InvalidValue:
        return text
    return cast("JsonValue", value) if isinstance(value, dict) else text
