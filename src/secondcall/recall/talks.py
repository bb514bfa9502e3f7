"""Times named by what happened: conversations by their place, events, first and last. Pure.

What they are is for the record to say, in ``recall/when.py``. English only.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from secondcall.recall.times import (
    MONTH,
    NUMBER,
    UNIT,
    WEEKDAY,
    YEAR,
    count_of,
    pattern,
    read,
    time_hints,
    to_us,
)

__all__ = ["Anchor", "Talk", "anchors", "names_the_past", "order", "talk", "without_times"]

_TALKED = r"(?:spoke|talked|chatted|met|called|phoned|rang|were in touch)"
_CALL = r"(?:call|chat|conversation|session|talk|phone call|meeting)"
_SINCE_TALK = pattern(
    rf"\bsince (?:we|I|you) last {_TALKED}\b|\bsince (?:our|my|the) last {_CALL}\b|"
    rf"\bsince (?:the )?last time (?:we|I|you) {_TALKED}\b"
)
_TALKS_AGO = pattern(rf"\b({NUMBER})(?: of)? {_CALL}s? (?:ago|back|earlier)\b")
_LAST_BUT_ONE = pattern(
    rf"\b(?:{_CALL}|time|one) before (?:the )?last\b|\b(?:last but one|second to last|"
    rf"second last|penultimate) {_CALL}\b"
)
_LAST_TALK = pattern(
    rf"\b(?:our|my|the|your) last {_CALL}\b(?! for)|\bin (?:the )?last {_CALL}\b|"
    rf"\blast time (?:we|I|you) {_TALKED}\b|\bwhen (?:we|I|you) last {_TALKED}\b"
)
_FIRST_TALK = pattern(
    rf"\b(?:our|my|the|your) (?:very )?first {_CALL}\b|\bfirst time (?:we|I|you) {_TALKED}\b|"
    rf"\bwhen (?:we|I|you) first {_TALKED}\b"
)
_ANCHOR = pattern(
    r"\b(before|after|since|until|till|prior to|following) ((?:the|my|our|his|her|their|its|your|"
    r"this|that|we|I|you|they|he|she|moving|starting|going|getting|leaving|buying)\b[^,.?!;]{2,60})"
)
_QUESTION = pattern(
    r"\b(?:did|do|does|was|were|had|have|has|what|which|who|whom|how|when|where|why|is|are|and)\b"
)
_HOW_LONG = pattern(r"\bhow (?:long|soon|(?:many|much) (?:\w+ )?(?:day|week|month|year|hour|time))")
_CALENDAR = pattern(
    rf"\b(?:{UNIT}s?|weekend|today|yesterday|tomorrow|last|call|chat|conversation|session|"
    rf"{WEEKDAY}|{MONTH}|{YEAR})\b"
)
_LATEST = pattern(
    r"\b(?:most recent(?:ly)?|latest|newest|last time|currently|at the moment|right now|these days|"
    r"nowadays|up to date|as of (?:now|today))\b"
)
_EARLIEST = pattern(
    r"\b(?:earliest|very first|first time|originally|initially|at first|to begin with|"
    r"in the beginning)\b"
)


@dataclass(frozen=True, slots=True)
class Talk:
    """A conversation that is named by its place: the ``back``-th before now (1 is the last one), or
    the very first (``back`` 0). ``since``: everything after its end."""

    back: int
    since: bool = False


@dataclass(frozen=True, slots=True)
class Anchor:
    """An event of the record that a time is measured from: "before the move"."""

    side: Literal["before", "after"]
    words: str


def talk(text: str) -> Talk | None:
    """The conversation that a text names by its place: "two calls ago", "since we last spoke"."""
    since = _SINCE_TALK.search(text)
    if since is not None:
        return Talk(1, since=True)
    ago = _TALKS_AGO.search(text)
    if ago is not None:
        return Talk(max(1, count_of(ago.group(1))))
    if _LAST_BUT_ONE.search(text):
        return Talk(2)
    if _LAST_TALK.search(text):
        return Talk(1)
    return Talk(0) if _FIRST_TALK.search(text) else None


def anchors(text: str) -> list[Anchor]:
    """The events that a text measures from: "before the move", "after my surgery"; at most 2.

    Where the distance itself is asked for ("how many days before ...") both ends are wanted, and
    nothing is measured.
    """
    if _HOW_LONG.search(text):
        return []
    found: list[Anchor] = []
    for match in _ANCHOR.finditer(text):
        side = "after" if match.group(1).lower() in ("after", "since", "following") else "before"
        words = _QUESTION.split(match.group(2), maxsplit=1)[0].strip()
        if words and not _CALENDAR.search(words):
            found.append(Anchor(side, words))
    return found[:2]


def order(text: str) -> Literal["first", "last"] | None:
    """Whether the first or the last of several is asked for: "the most recent", "originally"."""
    if _LATEST.search(text):
        return "last"
    return "first" if _EARLIEST.search(text) else None


def names_the_past(text: str, *, at: datetime) -> bool:
    """Whether a text names a time that was over at ``at``: then it does not ask for what is."""
    spoken = talk(text)
    if anchors(text) or (spoken is not None and not spoken.since):
        return True
    return any(hint.end_us < to_us(at) for hint in time_hints(text, at=at))


def without_times(text: str, *, at: datetime) -> str:
    """A text without the words that name a time or a conversation."""
    _, rest = read(text, at)
    for named in (_SINCE_TALK, _TALKS_AGO, _LAST_BUT_ONE, _LAST_TALK, _FIRST_TALK):
        rest = named.sub(" ", rest)
    return rest.replace("|", " ")
