"""The last messages, bounded by count and tokens, each with the time at which it runs out."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, get_args

from secondcall.checks import check_id, check_metadata, check_text, to_us
from secondcall.errors import InvalidValue
from secondcall.shortterm.copying import copied
from secondcall.types import Message, Role

if TYPE_CHECKING:
    from secondcall.abc import TokenCounter

__all__ = ["Fitted", "Kept", "Recent", "checked_message", "fitted"]

_MAX_MESSAGE_BYTES = 4 * 1024 * 1024
_ROLES = frozenset(get_args(Role))


class Kept(NamedTuple):
    """A message with its tokens and the monotonic second at which it runs out."""

    message: Message
    tokens: int
    ends_at: float


class Fitted(NamedTuple):
    """A checked message with its tokens, and whether it had to be cut."""

    message: Message
    tokens: int
    cut: bool


class Recent:
    """The newest messages, oldest first: at most ``limit`` of them and ``max_tokens`` together."""

    def __init__(self, *, limit: int, max_tokens: int) -> None:
        self.limit = limit
        self.max_tokens = max_tokens
        self.tokens = 0
        self._kept: deque[Kept] = deque()

    def add(self, kept: Kept) -> int:
        """Take a message in; how many older ones had to go for it."""
        self._kept.append(kept)
        self.tokens += kept.tokens
        before = len(self._kept)
        while len(self._kept) > self.limit or self.tokens > self.max_tokens:
            self._pop()
        return before - len(self._kept)

    def expire(self, now: float) -> None:
        """Let go of what has run out."""
        alive = [one for one in self._kept if one.ends_at > now]
        if len(alive) < len(self._kept):
            self.replace(alive)

    def replace(self, kept: Sequence[Kept]) -> None:
        """Hold these messages and no others."""
        self._kept = deque(kept)
        self.tokens = sum(one.tokens for one in kept)

    def kept(self) -> list[Kept]:
        """What is held, oldest first."""
        return list(self._kept)

    def _pop(self) -> None:
        self.tokens -= self._kept.popleft().tokens


def checked_message(field: str, message: object) -> Message:
    """A copy of a message, every part of it checked. Raises: ``InvalidValue``, ``TooLarge``."""
    if not isinstance(message, Message):
        raise InvalidValue(f"{field} must be a Message, not {type(message).__name__}")
    if message.role not in _ROLES:
        known = ", ".join(sorted(_ROLES))
        raise InvalidValue(f"{field}.role is {message.role!r}, expected one of {known}")
    if message.id is not None:
        check_id(f"{field}.id", message.id)
    if message.speaker is not None:
        check_id(f"{field}.speaker", message.speaker)
    if message.at is not None:
        to_us(f"{field}.at", message.at)
    if not isinstance(message.interrupted, bool):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
        raise InvalidValue(f"{field}.interrupted must be True or False")
    text = check_text(f"{field}.text", message.text, max_bytes=_MAX_MESSAGE_BYTES)
    metadata = copied(check_metadata(f"{field}.metadata", message.metadata))
    return replace(message, text=text, metadata=metadata)


def fitted(
    field: str, message: object, *, max_tokens: int, max_characters: int, counter: TokenCounter
) -> Fitted:
    """A message that is no larger than it may be. Raises: ``InvalidValue``, ``TooLarge``."""
    checked = checked_message(field, message)
    text = _shortened(checked.text, max_tokens, max_characters, counter)
    return Fitted(replace(checked, text=text), counter.count(text), text != checked.text)


def _shortened(text: str, max_tokens: int, max_characters: int, counter: TokenCounter) -> str:
    """As much of the beginning as fits, with a mark that says how much was cut; ``text`` itself if
    all of it fits, and nothing when not even the mark does."""
    if len(text) <= max_characters and counter.count(text) <= max_tokens:
        return text
    low, high = 0, min(len(text), max_characters)
    while low < high:
        middle = (low + high + 1) // 2
        if counter.count(_cut(text, middle)) <= max_tokens:
            low = middle
        else:
            high = middle - 1
    cut = _cut(text, low)
    return cut if counter.count(cut) <= max_tokens else ""


def _cut(text: str, length: int) -> str:
    return f"{text[:length].rstrip()} (cut, {len(text) - length:,} characters more)".lstrip()
