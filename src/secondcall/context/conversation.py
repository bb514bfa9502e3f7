"""The conversation as it is held, and the window of it that fits into a limit. Pure.

The rules are those of ``ChatBuffer``: system messages always, otherwise whole turns, the newest
first, and a newest turn that is too long is shortened by the buffer's own rule or refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from secondcall.context.parts import LeftOut
from secondcall.errors import OverBudget
from secondcall.shortterm.buffer import ChatBuffer
from secondcall.shortterm.turns import group
from secondcall.types import Item, Message

if TYPE_CHECKING:
    from secondcall.abc import TokenCounter
    from secondcall.shortterm.report import BufferReport

__all__ = [
    "BufferedConversation",
    "Conversation",
    "Window",
    "newest_question",
    "newest_question_id",
]

_OLDER = "older than the newest turns that fit into the buffer's tokens"


@dataclass(frozen=True, slots=True)
class Window:
    """What of a conversation fits into a limit, with its tokens."""

    items: Sequence[Item]
    tokens: int
    left_out: Sequence[LeftOut] = ()


@dataclass(frozen=True, slots=True)
class _Unit:
    items: Sequence[Item]
    tokens: int


class Conversation:
    """Items in order, each with its ``sizes`` entry in tokens."""

    summary = ""
    summary_tokens = 0

    def __init__(
        self, items: Sequence[Item], sizes: Sequence[int], *, counter: TokenCounter
    ) -> None:
        self.items = items
        self._counter = counter
        self._tokens = sum(sizes)
        self._sizes = {id(item): size for item, size in zip(items, sizes, strict=True)}
        grouped = group(items)
        self._system = _unit(grouped.system, self._sizes)
        self._opening = grouped.opening
        opening = [grouped.opening] if grouped.opening else []
        self._units = [_unit(one, self._sizes) for one in (*opening, *grouped.turns)]

    @property
    def tokens(self) -> int:
        """What all of it takes."""
        return self._tokens

    def window(self, limit: int) -> Window:
        """What fits into ``limit`` tokens.

        Raises: ``OverBudget`` naming the part when the system text and the newest turn do not.
        """
        if self._tokens <= limit:
            return Window(self.items, self._tokens)
        left = limit - self._system.tokens
        units = self._units_within(left)
        kept: list[_Unit] = []
        for unit in reversed(units):
            if unit.tokens > left:
                break
            kept.insert(0, unit)
            left -= unit.tokens
        if not kept:
            return self._newest(limit)
        items = [*self._system.items, *(item for unit in kept for item in unit.items)]
        return Window(items, limit - left, self._cut(kept))

    def _units_within(self, room: int) -> Sequence[_Unit]:
        """The units, with no more of the opening than fitted before anybody spoke."""
        if not self._opening:
            return self._units
        opening = list(self._opening)
        tokens = sum(self._sizes[id(item)] for item in opening)
        while len(opening) > 1 and tokens > room:
            tokens -= self._sizes[id(opening.pop(0))]
        return [_Unit(opening, tokens), *self._units[1:]]

    def _newest(self, limit: int) -> Window:
        """The newest turn alone, as a buffer of this size shows it."""
        newest = self._units[-1] if self._units else _Unit((), 0)
        if limit < 1:
            raise OverBudget(
                "the newest turn",
                tokens=self._system.tokens + newest.tokens,
                limit=max(0, limit),
                advice="use a larger window or a larger share for the buffer",
            )
        buffer = ChatBuffer(limit, counter=self._counter)
        buffer.put(*self._system.items, *newest.items)
        shortened = self._system.tokens + newest.tokens - buffer.tokens
        left_out = self._cut([newest])
        if shortened > 0:
            left_out.append(_shortened(shortened))
        return Window(buffer.get(), buffer.tokens, left_out)

    def _cut(self, kept: Sequence[_Unit]) -> list[LeftOut]:
        """One entry for all that is older than what is ``kept``."""
        count = sum(len(unit.items) for unit in self._units)
        count -= sum(len(unit.items) for unit in kept)
        tokens = self._tokens - self._system.tokens - sum(unit.tokens for unit in kept)
        if not count:
            return []
        turns = max(1, len(self._units) - len(kept))
        what = f"{count} items of {turns} older turns"
        return [LeftOut(what=what, layer="buffer", tokens=tokens, reason=_OLDER)]


class BufferedConversation(Conversation):
    """The conversation as a buffer of the host's own shows it, which has cut it already."""

    def __init__(
        self,
        items: Sequence[Item],
        report: BufferReport,
        *,
        tokens: int,
        summary: str,
        counter: TokenCounter,
    ) -> None:
        super().__init__(items, [0] * len(items), counter=counter)
        self.summary = summary
        self.summary_tokens = report.reserved_tokens
        self._shown_tokens = tokens
        self._report = report

    @property
    def tokens(self) -> int:
        """What it takes with the summary."""
        return self._shown_tokens + self.summary_tokens

    def window(self, limit: int) -> Window:
        """All that the buffer shows; its own limit is within the ``limit``."""
        return Window(self.items, self._shown_tokens, self._left_out())

    def _left_out(self) -> list[LeftOut]:
        report = self._report
        found: list[LeftOut] = []
        count = report.counts.get("cut", 0)
        if count:
            what = f"{count} items of older turns"
            found.append(
                LeftOut(what=what, layer="buffer", tokens=report.cut_tokens, reason=_OLDER)
            )
        shortened = sum(
            one.tokens - one.shown_tokens for one in report.items if one.fate == "shortened"
        )
        if shortened:
            found.append(_shortened(shortened))
        return found


def _shortened(tokens: int) -> LeftOut:
    return LeftOut(
        what="parts of the newest turn's tool outputs",
        layer="buffer",
        tokens=tokens,
        reason="the turn alone is longer than the buffer's tokens",
        shortened=True,
    )


def _unit(items: Sequence[Item], sizes: Mapping[int, int]) -> _Unit:
    return _Unit(items, sum(sizes[id(item)] for item in items))


def newest_question(items: Sequence[Item]) -> str:
    """The words of the newest user message; empty when nobody has spoken."""
    for item in reversed(items):
        if isinstance(item, Message) and item.role == "user":
            return item.text
    return ""


def newest_question_id(items: Sequence[Item]) -> str:
    """The id of the newest user message; empty when nobody has spoken, or it has none."""
    for item in reversed(items):
        if isinstance(item, Message) and item.role == "user":
            return item.id or ""
    return ""
