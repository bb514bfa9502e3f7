"""Counts the tokens of items, once each, and shortens tool outputs.

A counter that fails loses nothing: its text is then taken to have one token for every two bytes,
which is more than any common vocabulary needs, and the report says so.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass

from secondcall.abc import TokenCounter
from secondcall.types import Item, JsonValue, Message

__all__ = ["BYTES_PER_TOKEN", "Measure", "SafeCounter", "Size", "cut_marker", "thinking_of"]

BYTES_PER_TOKEN = 2
"""What a failing counter is replaced by; vocabularies of today need 3 to 5 bytes for a token."""
_CHARACTERS_PER_TOKEN = 8
_SURELY_COUNTED = 4_096

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Size:
    """The tokens of one item. ``firm`` is everything but a tool's output, framing included.

    ``estimated`` when the counter failed, or a text was too long to be counted to its end.
    """

    firm: int
    output: int = 0
    estimated: bool = False

    @property
    def tokens(self) -> int:
        """All of it."""
        return self.firm + self.output


def thinking_of(item: Item) -> str:
    """The thinking that is kept with an item, as text; empty when there is none."""
    thinking = item.metadata.get("thinking")
    if thinking is None or isinstance(thinking, str):
        return thinking or ""
    return _as_text(thinking)


def beside_tokens_of(item: Item) -> int:
    """What the host says that the item takes beside its words, as for the pictures in a message:
    ``beside_tokens`` in its metadata."""
    tokens = item.metadata.get("beside_tokens")
    if not isinstance(tokens, int) or isinstance(tokens, bool):
        return 0
    return max(0, tokens)


def cut_marker(characters: int) -> str:
    """What stands at the end of a text of which so many characters were cut."""
    return f"(cut, {characters:,} characters more; the record has all of it)"


class SafeCounter(TokenCounter):
    """A counter that never fails: what the one it asks fails at is estimated, with a warning at the
    first time."""

    def __init__(self, counter: TokenCounter) -> None:
        self.id = getattr(counter, "id", type(counter).__name__)
        self.failure: str | None = None
        """The kind of the counter's last failure, or ``None``."""
        self._counter = counter

    @classmethod
    def of(cls, counter: TokenCounter) -> SafeCounter:
        """The counter itself, if it is a safe one; else one that asks it."""
        return counter if isinstance(counter, SafeCounter) else cls(counter)

    def count(self, text: str) -> int:
        """The tokens of a text."""
        return self.asked(text)[0]

    def asked(self, text: str) -> tuple[int, bool]:
        """The tokens of a text, and whether they are estimated."""
        try:
            tokens = self._counter.count(text)
            if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:  # pyright: ignore[reportUnnecessaryIsInstance] - somebody else's counter
                raise TypeError
        except Exception as error:  # a counter must not lose what was said
            self._failed(type(error).__name__)
            return _estimate(text), True
        return tokens, False

    def _failed(self, kind: str) -> None:
        if self.failure is None:
            _logger.warning(
                "a token counter failed; its texts are estimated",
                extra={"counter": type(self._counter).__name__, "error": kind},
            )
        self.failure = kind


class Measure:
    """Counts with one counter, for one token limit."""

    def __init__(self, counter: TokenCounter, *, token_limit: int, framing_tokens: int) -> None:
        self._counter = SafeCounter.of(counter)
        self._limit = token_limit
        self._framing = framing_tokens
        self._head = max(_CHARACTERS_PER_TOKEN * token_limit, _SURELY_COUNTED)

    @property
    def failure(self) -> str | None:
        """The kind of the counter's last failure, or ``None``."""
        return self._counter.failure

    def size(self, item: Item) -> Size:
        """The tokens of every kind of content of an item, and of the messages it is sent as."""
        thinking, beside = thinking_of(item), beside_tokens_of(item)
        if isinstance(item, Message):
            firm, guessed = self._sum(item.text, item.speaker or "", thinking)
            return Size(firm + beside + self._framing, estimated=guessed)
        firm, guessed = self._sum(item.name, _as_text(item.arguments), thinking)
        output, output_guessed = self._count(item.output or "")
        return Size(firm + beside + 2 * self._framing, output, guessed or output_guessed)

    def count(self, text: str) -> int:
        """The tokens of a text."""
        return self._count(text)[0]

    def head(self, text: str) -> str:
        """The beginning of a text over the limit that is enough to shorten it from."""
        head = text[: self._head]
        return head if self._counter.count(head) > self._limit else text

    def shorten(self, text: str, characters: int, tokens: int) -> tuple[str, int]:
        """The longest beginning of ``text`` that takes at most ``tokens`` with the marker behind
        it, and what it takes; the marker alone when nothing else fits.

        ``text`` may itself be the beginning of a text of so many ``characters``.
        """
        best, best_tokens = self._cut(text, 0, characters)
        low, high = 0, len(text)
        while low < high:
            middle = (low + high + 1) // 2
            tried, taken = self._cut(text, middle, characters)
            if taken <= tokens:
                low, best, best_tokens = middle, tried, taken
            else:
                high = middle - 1
        return best, best_tokens

    def _cut(self, text: str, keep: int, characters: int) -> tuple[str, int]:
        marker = cut_marker(characters - keep)
        cut = f"{text[:keep]} {marker}" if keep else marker
        return cut, self.count(cut)

    def _sum(self, *texts: str) -> tuple[int, bool]:
        counted = [self._count(text) for text in texts if text]
        return sum(tokens for tokens, _ in counted), any(guessed for _, guessed in counted)

    def _count(self, text: str) -> tuple[int, bool]:
        """Tokens, and whether they are estimated: of a text whose beginning alone is over the limit
        only that is counted, so that a megabyte costs no more than it must."""
        if not text:
            return 0, False
        head = self._head
        if len(text) > head:
            tokens, guessed = self._counter.asked(text[:head])
            if tokens > self._limit:
                return tokens * len(text) // head, True
            if guessed:
                return _estimate(text), True
        return self._counter.asked(text)


def _estimate(text: str) -> int:
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)


def _as_text(value: JsonValue) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
