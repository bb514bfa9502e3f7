"""The ids of tool calls in a session: a second, different call with a used one gets a name."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from secondcall.types import Item, ToolCall

__all__ = ["CallIds"]

MAX_CALLS = 1_000


class CallIds:
    """The newest 1,000 calls that were seen, each with what it asked for and whether it has its
    output.

    Some providers and models count their calls anew in each turn. In the record an item with a
    known id is a correction: the second call would mask the first.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[bytes, bool]] = OrderedDict()

    def learn(self, items: Iterable[Item]) -> None:
        """Know the tool calls among these items, which are in the record."""
        for item in items:
            asked = _asked(item)
            if asked is not None and isinstance(item, ToolCall):
                self._keep(item.call_id, asked, item)

    def absorb(self, other: CallIds) -> None:
        """Know what the other one knows, who has seen all that is in the record of both."""
        for call_id, (asked, is_answered) in other._known.items():
            mine = self._known.get(call_id)
            if mine is not None and mine[0] == asked:
                is_answered = is_answered or mine[1]
            self._known[call_id] = (asked, is_answered)
        self._trim()

    def named(self, items: Sequence[Item]) -> list[Item]:
        """The items, each different call with the id of an answered one under that id with ``#2``,
        ``#3`` … behind it; they are known from now on."""
        found: list[Item] = []
        for item in items:
            asked = _asked(item)
            if asked is not None and isinstance(item, ToolCall):
                call_id = self._id_for(item.call_id, asked)
                if call_id != item.call_id:
                    item = replace(item, call_id=call_id)
                self._keep(call_id, asked, item)
            found.append(item)
        return found

    def _id_for(self, call_id: str, asked: bytes) -> str:
        """The id of the same call, or of one that has no output yet; else one that is free."""
        uses: list[str] = []
        free = call_id
        while free in self._known:
            uses.append(free)
            self._known.move_to_end(free)
            free = f"{call_id}#{len(uses) + 1}"
        for use in reversed(uses):
            if self._known[use][0] == asked:
                return use
        is_waiting = bool(uses) and not self._known[uses[-1]][1]
        return uses[-1] if is_waiting else free

    def _keep(self, call_id: str, asked: bytes, call: ToolCall) -> None:
        self._known[call_id] = (asked, call.output is not None)
        self._known.move_to_end(call_id)
        self._trim()

    def _trim(self) -> None:
        while len(self._known) > MAX_CALLS:
            self._known.popitem(last=False)


def _asked(item: Item) -> bytes | None:
    """A digest of a call's name and arguments; ``None`` for other items, and for what cannot be
    recorded."""
    if not isinstance(item, ToolCall):
        return None
    try:
        text = json.dumps([item.name, item.arguments], sort_keys=True, allow_nan=False)
        hash(item.call_id)
    except (TypeError, ValueError, RecursionError):
        return None
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
