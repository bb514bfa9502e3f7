"""The turns of a list that was put in order: its newest, within a number of tokens.

A session's buffer holds what was recorded last; a list that a host rearranged may end with what was
said long ago. So its end is taken from the list itself. Sizes are counted once for each item, and
what comes behind the list costs nothing for what stands before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from secondcall.adapters.llama_index.oversize import key_of
from secondcall.shortterm.buffer import ChatBuffer
from secondcall.shortterm.measure import Measure, Size
from secondcall.types import Item, ItemKey, Message, RecordedItem

if TYPE_CHECKING:
    from secondcall.abc import TokenCounter
    from secondcall.memory.listed import Listing
__all__ = ["ListedTurns"]

_FRAMING_TOKENS = 4
_FIRST_ITEMS = 20
"""So far into a list system messages are looked for, which are always shown."""
_MAX_SIZES = 10_000


class ListedTurns:
    """The end of one session's list, looked at again and again."""

    def __init__(self) -> None:
        self._listing: Listing | None = None
        self._last_keys = set[ItemKey]()
        self._sizes: dict[ItemKey, tuple[RecordedItem, Size]] = {}

    def take(self, listing: Listing) -> None:
        """Go on from the list as it is now."""
        self._listing = listing

    def question(self, own: str | None) -> str | None:
        """The words of the user message with the id ``own``, else of the newest."""
        active = () if self._listing is None else self._listing.active
        newest: str | None = None
        for one in reversed(active):
            item = one.item
            if not isinstance(item, Message) or item.role != "user":
                continue
            if own is None or item.id == own:
                return item.text
            newest = item.text if newest is None else newest
        return newest

    @property
    def last_keys(self) -> set[ItemKey]:
        """The keys of what the last ``within`` gave."""
        return self._last_keys

    def within(self, limit: int, counter: TokenCounter) -> list[Item]:
        """System messages and the newest whole turns that fit, in the list's order; what came after
        the list was put in order by time, so that a turn that ended late stands whole.

        Raises: ``OverBudget`` as ``ChatBuffer.get``.
        """
        measure = Measure(counter, token_limit=max(1, limit), framing_tokens=_FRAMING_TOKENS)
        chosen = self._ordered(self._chosen(limit, measure))
        buffer = ChatBuffer(max(1, limit), counter=counter, framing_tokens=_FRAMING_TOKENS)
        buffer.take([one.item for one in chosen], [self._size(one, measure) for one in chosen])
        items = buffer.get()
        shown = set(map(key_of, items))
        self._last_keys = {one.key for one in chosen if (one.key.kind, one.key.id) in shown}
        return items

    def _chosen(self, limit: int, measure: Measure) -> list[tuple[int, RecordedItem]]:
        """The end of the list that is more than fits, and the system messages at its beginning."""
        active = () if self._listing is None else self._listing.active
        first = len(active)
        tokens = 0
        for place in range(len(active) - 1, -1, -1):
            first = place
            item = active[place].item
            tokens += self._size(active[place], measure).tokens
            if tokens > limit and isinstance(item, Message) and item.role == "user":
                break
        system = [
            (place, one)
            for place, one in enumerate(active[: min(first, _FIRST_ITEMS)])
            if isinstance(one.item, Message) and one.item.role == "system"
        ]
        return [*system, *enumerate(active[first:], start=first)]

    def _ordered(self, chosen: Sequence[tuple[int, RecordedItem]]) -> list[RecordedItem]:
        placed = 0 if self._listing is None else self._listing.placed

        def order(pair: tuple[int, RecordedItem]) -> tuple[bool, float]:
            place, one = pair
            return (False, place) if place < placed else (True, one.at.timestamp())

        return [one for _, one in sorted(chosen, key=order)]

    def _size(self, one: RecordedItem, measure: Measure) -> Size:
        known = self._sizes.get(one.key)
        if known is None or known[0] is not one:
            if len(self._sizes) >= _MAX_SIZES:
                self._sizes.clear()
            known = self._sizes[one.key] = (one, measure.size(one.item))
        return known[1]
