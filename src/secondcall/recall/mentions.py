"""The days that a message speaks of, seen from its own date. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from secondcall.recall.times import MONTHS, YEAR, time_hints

__all__ = ["Mention", "mentions"]

_DAY_US = 86_400_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_US = 253_402_300_800_000_000
_MAX_MENTIONS = 2
_MAX_WINDOWS = 6
_MAX_MENTION_DAYS = 62
_WINDOW = 48
_CLUES = ("day", "week", "month", "year", "night", "ago", "morrow", "20", "19", *MONTHS)
_CLUE = re.compile(
    rf"\b(?:(?:yester|to|sun|mon|tues|wednes|thurs|fri|satur)day|tonight|tomorrow|ago|{YEAR}|"
    r"(?:last|next|past|this|previous) (?:week(?:end)?|month|year|night|\w+ (?:day|week|month)s)|"
    rf"(?:{'|'.join(name for name in MONTHS if name != 'may')})|\d(?:st|nd|rd|th)? may|may \d)\b"
)


@dataclass(frozen=True, slots=True)
class Mention:
    """Days that a message speaks of: ``days`` from ``day`` on, counted from 1970, in UTC."""

    day: int
    days: int


def mentions(text: str, at_us: int) -> list[Mention]:
    """The days that a message speaks of, relative ones as seen from its own date; at most 2.

    Only what lies near a word of time is read, so that the cost does not grow with the text; spans
    of over two months, and the message's own day, are left out.
    """
    windows = _windows(text)
    if not windows or not 0 <= at_us < _MAX_US:
        return []
    at = _EPOCH + timedelta(microseconds=at_us)
    own = at_us // _DAY_US
    found: dict[Mention, None] = {}
    for window in windows:
        for hint in time_hints(window, at=at):
            first = hint.start_us // _DAY_US
            days = -(-hint.end_us // _DAY_US) - first
            if days <= _MAX_MENTION_DAYS and hint.worth == 1 and (first, days) != (own, 1):
                found[Mention(first, days)] = None
    return list(found)[:_MAX_MENTIONS]


def _windows(text: str) -> list[str]:
    """The pieces of a text around its first words of time."""
    lower = text.lower()
    if not any(word in lower for word in _CLUES):
        return []
    pieces: list[tuple[int, int]] = []
    for match in _CLUE.finditer(lower):
        begin, end = max(0, match.start() - _WINDOW), match.end() + _WINDOW // 2
        if pieces and begin <= pieces[-1][1]:
            pieces[-1] = (pieces[-1][0], end)
        else:
            pieces.append((begin, end))
        if len(pieces) == _MAX_WINDOWS:
            break
    return [text[begin:end] for begin, end in pieces]
