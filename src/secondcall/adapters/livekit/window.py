"""Keeps the running context of a long call within its budget, by whole turns.

A turn is cut with all that belongs to it, the oldest first; instructions, the brief and the newest
turn stay, and no tool call is parted from its output. What was cut stands in a summary and in key
facts; the session's history and the record have all of it. Pure, but for the buffer that it reads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from livekit.agents import llm

from secondcall.adapters.livekit.chat import is_memory, memory_message
from secondcall.checks import check_limit
from secondcall.errors import InvalidValue

if TYPE_CHECKING:
    from secondcall.abc import TokenCounter

__all__ = [
    "Tally",
    "WindowOptions",
    "begins_turn",
    "condensed",
    "is_summary",
    "is_summary_of",
    "tokens_of",
]

_FRAMING_TOKENS = 4
_MEDIA_TOKENS = 800
_JUST_BEFORE_SECONDS = 1e-6
_OF = "secondcall_of"
_COUNTED_CHARACTERS = 20_000
_PIECES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowOptions:
    """How large the context of a call may become: ``max_tokens``, by secondcall's own count.

    When a reply leaves it larger, the older turns are put into a summary, and what remains takes
    about ``keep`` of it, so that this happens once in many turns. A reply that would be asked for
    with more is asked for with fewer turns.

    Raises: ``InvalidValue`` naming the field.
    """

    max_tokens: int = 8_000
    keep: float = 0.5

    def __post_init__(self) -> None:
        check_limit("max_tokens", self.max_tokens, minimum=100)
        if not 0.1 <= self.keep <= 0.9:
            raise InvalidValue(f"keep is {self.keep!r}, expected 0.1 to 0.9")

    @property
    def kept_tokens(self) -> int:
        """What turns and summary take after older turns were put into it."""
        return int(self.max_tokens * self.keep)


def _count(text: str, counter: TokenCounter) -> int:
    """The tokens of a text; of a very long one as many as ten pieces of it have on average, since
    a reply waits for it."""
    if len(text) <= _COUNTED_CHARACTERS:
        return counter.count(text)
    step, piece = len(text) // _PIECES, _COUNTED_CHARACTERS // _PIECES
    counted = sum(counter.count(text[n * step : n * step + piece]) for n in range(_PIECES))
    return counted * len(text) // (piece * _PIECES)


def tokens_of(item: llm.ChatItem, counter: TokenCounter) -> int:
    """What an item takes; handoffs and configuration updates are not sent to a model."""
    if isinstance(item, llm.ChatMessage):
        texts = [one for one in item.content if isinstance(one, str)]
        media = len(item.content) - len(texts)
        counted = sum(_count(one, counter) for one in texts)
        return counted + media * _MEDIA_TOKENS + _FRAMING_TOKENS
    if isinstance(item, llm.FunctionCall):
        return counter.count(item.name) + _count(item.arguments, counter) + _FRAMING_TOKENS
    if isinstance(item, llm.FunctionCallOutput):
        return _count(item.output, counter) + _FRAMING_TOKENS
    return 0


def begins_turn(item: llm.ChatItem) -> bool:
    """Whether it is something that the caller said or typed."""
    return isinstance(item, llm.ChatMessage) and item.role == "user" and not _is_front(item)


@dataclass(slots=True)
class Tally:
    """The tokens of a context that grows at its end: what is new is counted, what is old is not."""

    _of: list[llm.ChatItem] | None = None
    _length: int = 0
    _tokens: int = 0

    def of(
        self, items: list[llm.ChatItem], counter: TokenCounter, *, at_most: int | None = None
    ) -> int:
        """The tokens of ``items``; of the list that was counted last only those behind, and of
        those ``at_most`` so many."""
        if items is not self._of or len(items) < self._length:
            self._of, self._length, self._tokens = items, 0, 0
        until = len(items) if at_most is None else min(len(items), self._length + at_most)
        for position in range(self._length, until):
            self._tokens += tokens_of(items[position], counter)
        self._length = until
        return self._tokens

    def behind(self, items: list[llm.ChatItem]) -> int:
        """How many of ``items`` are not counted yet."""
        known = items is self._of and len(items) >= self._length
        return len(items) - self._length if known else len(items)


@dataclass(slots=True)
class _Parts:
    """A context taken apart: what always stays, then turns, the opening first."""

    front: list[llm.ChatItem] = field(default_factory=list[llm.ChatItem])
    turns: list[list[llm.ChatItem]] = field(default_factory=lambda: [[]])


def condensed(
    items: Sequence[llm.ChatItem],
    *,
    max_tokens: int,
    counter: TokenCounter,
    summary: str = "",
    of: str = "",
    covered: Collection[str] | None = None,
) -> list[llm.ChatItem]:
    """The context within ``max_tokens``: instructions and brief, the summary, the newest turns.

    ``of`` is the mark of whose memory the summary is.
    ``covered`` are the ids of user messages that the summary does not stand for, so that the turns
    before the first of them go; ``None`` lets go only of what has no room. The newest turn stays
    even when it has none.
    """
    parts = _apart(items, drop_summary=bool(summary))
    first = 0 if covered is None else _first_of(parts.turns, covered)
    room = max_tokens - sum(tokens_of(one, counter) for one in parts.front)
    told = memory_message(summary, created_at=0.0, kind="summary") if summary else None
    if told is not None:
        told.extra[_OF] = of
        room -= tokens_of(told, counter)
    first = max(first, _fitting(parts.turns, room, counter))
    kept = [one for turn in parts.turns[first:] for one in turn]
    kept = [*_partners(parts.turns[:first], kept), *kept]
    if told is not None and kept:
        told.created_at = kept[0].created_at - _JUST_BEFORE_SECONDS
    return [*parts.front, *([] if told is None else [told]), *kept]


def is_summary(item: llm.ChatItem) -> bool:
    """Whether an item is the summary of older turns."""
    return _kind(item) == "summary"


def is_summary_of(item: llm.ChatItem, of: str) -> bool:
    """Whether it is the summary, and of the memory with this mark."""
    return is_summary(item) and isinstance(item, llm.ChatMessage) and item.extra.get(_OF) == of


def _apart(items: Iterable[llm.ChatItem], *, drop_summary: bool) -> _Parts:
    parts = _Parts()
    found: list[llm.ChatItem] = []
    for item in items:
        if _kind(item) == "summary" and drop_summary:
            continue
        if _kind(item) == "lookup":
            found.append(item)  # it stands before the words that it was looked up for
            continue
        if _is_front(item):
            parts.front.append(item)
            continue
        if begins_turn(item):
            parts.turns.append(found)
            found = []
        parts.turns[-1].append(item)
    parts.turns[-1].extend(found)
    return parts


def _is_front(item: llm.ChatItem) -> bool:
    """Instructions, and what memory told at the beginning; restored turns are turns."""
    if not isinstance(item, llm.ChatMessage):
        return False
    if item.role in ("system", "developer"):
        return True
    return is_memory(item) and _kind(item) not in ("turn", "turns")


def _kind(item: llm.ChatItem) -> object:
    return item.extra.get("secondcall") if isinstance(item, llm.ChatMessage) else None


def _first_of(turns: Sequence[Sequence[llm.ChatItem]], ids: Collection[str]) -> int:
    """The first turn whose user message is among ``ids``."""
    for position, turn in enumerate(turns):
        if any(begins_turn(one) and one.id in ids for one in turn):
            return position
    return 0


def _fitting(turns: Sequence[Sequence[llm.ChatItem]], room: int, counter: TokenCounter) -> int:
    """Where the newest turns begin that fit, the newest one in any case."""
    first = max(0, len(turns) - 1)
    left = room - sum(tokens_of(one, counter) for one in turns[first]) if turns else room
    for position in range(first - 1, -1, -1):
        left -= sum(tokens_of(one, counter) for one in turns[position])
        if left < 0:
            break
        first = position
    return first


def _partners(
    cut: Sequence[Sequence[llm.ChatItem]], kept: Sequence[llm.ChatItem]
) -> list[llm.ChatItem]:
    """Of what is cut the calls whose output came later and is kept."""
    needed = {one.call_id for one in kept if isinstance(one, llm.FunctionCallOutput)}
    return [
        one
        for turn in cut
        for one in turn
        if isinstance(one, llm.FunctionCall) and one.call_id in needed
    ]
