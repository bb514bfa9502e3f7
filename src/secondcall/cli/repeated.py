"""Items that a file holds more than once: the last line counts, in the place of the first."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from secondcall.record.transfer import Transcript
from secondcall.types import Item, Message

__all__ = ["ItemId", "Repeated", "item_id"]


class ItemId(NamedTuple):
    """What names an item within its session."""

    kind: str
    id: str


def item_id(item: Item) -> ItemId:
    """The name of an item within its session; a reader gives every item an id."""
    if isinstance(item, Message):
        return ItemId("message", item.id or "")
    return ItemId("tool_call", item.call_id)


class Repeated:
    """Finds repeated items in a first reading of the file and settles them in a second.

    So importing a file again finds every item as its last line says, and corrects none.
    """

    def __init__(self) -> None:
        self.items = 0
        self._seen: dict[tuple[str, str], set[ItemId]] = {}
        self._last: dict[tuple[str, str, ItemId], Item] = {}
        self._settled: set[tuple[str, str, ItemId]] = set()

    def see(self, user_id: str, part: Transcript) -> None:
        """Take note of a part; ``items`` counts each item once."""
        seen = self._seen.setdefault((user_id, part.session_id), set())
        for item in part.items:
            name = item_id(item)
            if name in seen:
                self._last[user_id, part.session_id, name] = item
            else:
                self.items += 1
                seen.add(name)

    def end(self) -> None:
        """End the first reading."""
        self._seen.clear()

    def settle(self, user_id: str, part: Transcript) -> Transcript:
        """The part with each repeated item as it is at last, where it stands first; a last one
        without a time keeps that of the first."""
        if not self._last:
            return part
        items: list[Item] = []
        for item in part.items:
            key = (user_id, part.session_id, item_id(item))
            last = self._last.get(key)
            if last is None:
                items.append(item)
            elif key not in self._settled:
                self._settled.add(key)
                items.append(last if last.at is not None else replace(last, at=item.at))
        return replace(part, items=items)
