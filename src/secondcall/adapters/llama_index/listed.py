"""The turns of a list that was put in order: its newest, within a number of tokens, and a summary.

A session's buffer holds what was recorded last; a list that a host rearranged may end with what was
said long ago. So its end is taken from the list itself. Sizes are counted once for each item, and
what comes behind the list costs nothing for what stands before it.

The summary is of the list too, not of the record, which has what the host set away. It is made in
this process and kept nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from secondcall.adapters.llama_index.listing import without_dropped
from secondcall.adapters.llama_index.messages import group_of, is_missing
from secondcall.adapters.llama_index.oversize import key_of
from secondcall.shortterm.buffer import ChatBuffer
from secondcall.shortterm.measure import Measure, Size
from secondcall.shortterm.turns import begins_turn, is_system, is_waiting
from secondcall.types import Item, ItemKey, Message, RecordedItem

if TYPE_CHECKING:
    from secondcall.abc import TokenCounter
    from secondcall.memory.listed import ListedSession, Listing
    from secondcall.shortterm.summary import SummarizingBuffer

__all__ = ["ListedTurns", "Summarised"]

_FRAMING_TOKENS = 4
_MAX_SIZES = 10_000
_MAX_SUMMARISED = 16
"""So many token limits of a list are summarised, as of a session that a process takes up."""


@dataclass(frozen=True, slots=True)
class Summarised:
    """The newest turns of a list, and a summary of those before them."""

    items: Sequence[Item]
    summary: str


class ListedTurns:
    """The end of one session's list, looked at again and again."""

    def __init__(self) -> None:
        self._listing: Listing | None = None
        self._active: Sequence[RecordedItem] = ()
        self._placed = 0
        self._system: Sequence[int] = ()
        self._last_keys = set[ItemKey]()
        self._sizes: dict[ItemKey, tuple[RecordedItem, Size]] = {}
        self._buffer: SummarizingBuffer | None = None
        self._put: list[RecordedItem] = []
        self._begin = 0

    def take(self, listing: Listing) -> None:
        """Go on from the list as it is now."""
        if listing is self._listing:
            return
        self._listing = listing
        shown = set(map(id, without_dropped(one.item for one in listing.active)))
        kept = [id(one.item) in shown and not is_missing(one.item) for one in listing.active]
        self._active = [one for one, stays in zip(listing.active, kept, strict=True) if stays]
        self._placed = sum(kept[: listing.placed])
        self._system = [n for n, one in enumerate(self._active) if is_system(one.item)]

    def question(self, own: str | None) -> str | None:
        """The words of the user message with the id ``own``, else of the newest."""
        newest: str | None = None
        for one in reversed(self._active):
            item = one.item
            if not isinstance(item, Message) or item.role != "user":
                continue
            if own is None or item.id == own:
                return item.text
            newest = item.text if newest is None else newest
        return newest

    @property
    def last_keys(self) -> set[ItemKey]:
        """The keys of what the last ``within`` or ``summarised`` gave."""
        return self._last_keys

    @property
    def is_whole(self) -> bool:
        """Whether the last ``within`` gave all of the list that can be shown."""
        return len(self._last_keys) >= sum(not is_waiting(one.item) for one in self._active)

    def within(self, limit: int, counter: TokenCounter) -> list[Item]:
        """System messages and the newest whole turns that fit, in the list's order; what came after
        the list was put in order by time, so that a turn that ended late stands whole.

        Raises: ``OverBudget`` as ``ChatBuffer.get``.
        """
        measure = Measure(counter, token_limit=max(1, limit), framing_tokens=_FRAMING_TOKENS)
        chosen = self._ordered(self._first(limit, measure))
        buffer = ChatBuffer(max(1, limit), counter=counter, framing_tokens=_FRAMING_TOKENS)
        buffer.take([one.item for one in chosen], self._sizes_of(chosen, measure))
        return self._given(buffer.get(), chosen)

    def summarised(
        self, listed: ListedSession, token_limit: int, limit: int, counter: TokenCounter
    ) -> Summarised | None:
        """The newest turns beside a summary of the others, within ``limit``: what is due is
        summarised in the background. ``None`` while there is no summary.

        Raises: ``OverBudget`` as ``ChatBuffer.get``.
        """
        measure = Measure(counter, token_limit=token_limit, framing_tokens=_FRAMING_TOKENS)
        buffer = self._filled(listed, token_limit, measure)
        listed.settle(buffer)
        summary = buffer.summary()
        if not summary:
            return None
        items, taken = buffer.get(), buffer.tokens
        if taken > limit:
            left = limit - counter.count(summary) - _FRAMING_TOKENS
            return Summarised(self.within(left, counter), summary)
        return Summarised(self._given(items, self._put), summary)

    def _filled(
        self, listed: ListedSession, token_limit: int, measure: Measure
    ) -> SummarizingBuffer:
        """The buffer with the list in it: what came behind it is put in, else all of it anew."""
        buffer, known = self._buffer, self._put
        if buffer is not None and buffer.token_limit == token_limit:
            chosen = self._ordered(self._begin)
            held = {(key.kind, key.id) for key in buffer.held()}
            pairs = list(zip(known, chosen, strict=False))
            changed = [new for old, new in pairs if old is not new]
            grows = len(known) <= len(chosen) and all(old.key == new.key for old, new in pairs)
            if grows and all(key_of(one.item) in held for one in changed):
                buffer.put(*(one.item for one in [*changed, *chosen[len(known) :]]))
                self._put = chosen
                return buffer
        self._begin = self._first(_MAX_SUMMARISED * token_limit, measure)
        self._put = self._ordered(self._begin)
        buffer = self._buffer = listed.buffer(token_limit)
        buffer.put(*(one.item for one in self._put))
        return buffer

    def _given(self, items: list[Item], chosen: Sequence[RecordedItem]) -> list[Item]:
        shown = set(map(key_of, items))
        self._last_keys = {one.key for one in chosen if (one.key.kind, one.key.id) in shown}
        return items

    def _first(self, limit: int, measure: Measure) -> int:
        """The place of the user message from which on there is more than fits."""
        tokens = 0
        for place in range(len(self._active) - 1, -1, -1):
            item = self._active[place].item
            tokens += self._size(self._active[place], measure).tokens
            if tokens > limit and isinstance(item, Message) and item.role == "user":
                return place
        return 0

    def _ordered(self, first: int) -> list[RecordedItem]:
        """The list from a place on in reading order, and all system messages before it."""
        system = [(place, self._active[place]) for place in self._system if place < first]

        def order(pair: tuple[int, RecordedItem]) -> tuple[bool, float]:
            place, one = pair
            return (False, place) if place < self._placed else (True, one.at.timestamp())

        chosen = [*system, *enumerate(self._active[first:], start=first)]
        return [one for _, one in sorted(chosen, key=order)]

    def _sizes_of(self, chosen: Sequence[RecordedItem], measure: Measure) -> list[Size]:
        """What each takes as it is sent: calls that were made together are one message. Before the
        first user message each counts by itself, since there they may be cut apart."""
        found: list[Size] = []
        before: str | None = None
        asked = False
        for one in chosen:
            size, name = self._size(one, measure), group_of(one.item)
            asked = asked or begins_turn(one.item)
            joins = name is not None and name == before and not isinstance(one.item, Message)
            if asked and joins:
                size = replace(size, firm=size.firm - _FRAMING_TOKENS)
            found.append(size)
            if not is_waiting(one.item):
                before = name
        return found

    def _size(self, one: RecordedItem, measure: Measure) -> Size:
        known = self._sizes.get(one.key)
        if known is None or known[0] is not one:
            if len(self._sizes) >= _MAX_SIZES:
                self._sizes.clear()
            known = self._sizes[one.key] = (one, measure.size(one.item))
        return known[1]
