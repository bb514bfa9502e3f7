"""What a question asks for: words, who said it, and when.

Everything here is a hint that moves scores a little; nothing is filtered out by it. English only
for now: in other languages the words still work and the hints stay silent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from secondcall.recall.analyze import Analyzer, term_hash, terms
from secondcall.recall.related import related

__all__ = ["Query", "TimeHint", "parse"]

_MAX_CHARACTERS = 16_384
_MAX_RELATED = 64
"""Of a long question so many terms are looked up for others near to them."""
_DAY_US = 86_400_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january jan",
            "february feb",
            "march mar",
            "april apr",
            "may",
            "june jun",
            "july jul",
            "august aug",
            "september sep sept",
            "october oct",
            "november nov",
            "december dec",
        ),
        start=1,
    )
    for name in names.split()
}
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NUMBERS = {
    "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "couple": 2, "few": 3,
}  # fmt: skip
_UNIT_DAYS = {"day": 1.0, "week": 7.0, "month": 30.4, "year": 365.25}

_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_YEAR = r"(?:19|20)\d\d"
_ISO = re.compile(rf"\b({_YEAR})[-/.](\d{{1,2}})[-/.](\d{{1,2}})\b")
_DAY_MONTH = re.compile(
    rf"\b(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? ({_MONTH})\b\.?,?(?: ({_YEAR}))?", re.IGNORECASE
)
_MONTH_DAY = re.compile(
    rf"\b({_MONTH})\b\.? (\d{{1,2}})(?:st|nd|rd|th)?\b(?:,? ({_YEAR}))?", re.IGNORECASE
)
_MONTH_YEAR = re.compile(rf"\b({_MONTH})\b\.?,?(?: of)? ({_YEAR})\b", re.IGNORECASE)
_MONTH_ONLY = re.compile(
    r"\b(?:in|of|since|during|until|till|by|before|after|from|late|early|mid|last|this|next|and)"
    rf"[ -]({_MONTH})\b",
    re.IGNORECASE,
)
_YEAR_ONLY = re.compile(rf"\b(?:in|of|since|during|year|from|by|before|after) ({_YEAR})\b", re.I)
_AGO = re.compile(
    rf"\b(\d{{1,3}}|{'|'.join(_NUMBERS)})(?: of)? (day|week|month|year)s? (?:ago|back|earlier)\b",
    re.I,
)
_PAST = re.compile(
    rf"\b(?:past|last) (?:(\d{{1,3}}|{'|'.join(_NUMBERS)})(?: of)? )(day|week|month|year)s?\b",
    re.IGNORECASE,
)
_LAST = re.compile(
    rf"\b(last|this|past|previous) (week(?:end)?|month|year|night|{'|'.join(_WEEKDAYS)})\b", re.I
)
_NEAR_DAY = re.compile(
    r"(?<!before )(?<!until )\b(day before yesterday|yesterday|today|this morning|tonight)\b", re.I
)

_SAYING = (
    r"(?:said|say|told|tell|suggest|recommend|mention|gave|give|provid|list|explain|describ|advis|"
    r"propos|wrote|write|offer|share|outlin|creat|made|come up|came up|help|quot|promis)"
)
_ASSISTANT = re.compile(
    rf"\byou(?:'ve|'d)?(?: \w+){{0,2}}? {_SAYING}\w*|\byour (?:\w+ )?(?:suggest|recommend|advice|"
    rf"answer|response|list|tip|explanation|promise)\w*|\bour (?:previous|last|earlier|past) "
    rf"(?:chat|conversation|discussion)|\bremind me\b",
    re.IGNORECASE,
)
_USER = re.compile(r"\b(?:I|me|my|mine|myself|I'm|I've|I'd|we|our|us)\b", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True, slots=True)
class TimeHint:
    """A time that a question names: the span ``[start_us, end_us)``, or a month of any year."""

    start_us: int = 0
    end_us: int = 0
    month: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A question taken apart. ``hashes`` are its distinct terms without the speakers' names,
    ``related`` the terms near to one of them, with how near (0.5 to 1)."""

    text: str
    hashes: Sequence[int]
    related: Mapping[int, Sequence[tuple[int, float]]]
    role: Literal["user", "assistant"] | None
    speakers: frozenset[str]
    times: Sequence[TimeHint]

    @property
    def all_hashes(self) -> Sequence[int]:
        """The terms to look up: its own, then those that are only near."""
        near = (other for several in self.related.values() for other, _ in several)
        return list(dict.fromkeys((*self.hashes, *near)))


def parse(text: str, *, at: datetime, speakers: Sequence[str], analyzer: Analyzer) -> Query:
    """Takes a question apart, as asked at ``at`` about a record in which ``speakers`` talk.

    Of a text over 16,384 characters the beginning and the end count, half each.
    """
    clamped = _clamp(text)
    named, cut = _named(clamped, speakers)
    hashes = dict.fromkeys(analyzer.hashes(clamped))
    kept = [name for name in hashes if name not in cut] or list(hashes)
    return Query(
        text=clamped,
        hashes=kept,
        related=related(kept[:_MAX_RELATED]),
        role=_role(clamped),
        speakers=named,
        times=time_hints(clamped, at=at),
    )


def _clamp(text: str) -> str:
    if len(text) <= _MAX_CHARACTERS:
        return text
    half = _MAX_CHARACTERS // 2
    return f"{text[:half]} {text[-half:]}"


def _role(text: str) -> Literal["user", "assistant"] | None:
    if _ASSISTANT.search(text):
        return "assistant"
    return "user" if _USER.search(text) else None


def _named(text: str, speakers: Sequence[str]) -> tuple[frozenset[str], frozenset[int]]:
    words = set(_WORD.findall(text.casefold()))
    found = {name for name in speakers if words & set(_WORD.findall(name.casefold()))}
    names = " ".join(found)
    return frozenset(found), frozenset(map(term_hash, terms(names)))


def time_hints(text: str, *, at: datetime) -> list[TimeHint]:
    """The times that a text names, relative ones as seen from ``at``, impossible ones skipped."""
    hints: list[TimeHint] = []
    for year, month, day in _ISO.findall(text):
        _add_day(hints, year, int(month), day)
    for day, name, year in _DAY_MONTH.findall(text):
        _add_day(hints, year, _MONTHS[name.lower()], day)
    for name, day, year in _MONTH_DAY.findall(text):
        _add_day(hints, year, _MONTHS[name.lower()], day)
    for name, year in _MONTH_YEAR.findall(text):
        start = datetime(int(year), _MONTHS[name.lower()], 1, tzinfo=UTC)
        hints.append(_span(start, start + timedelta(days=31)))
    if not hints:
        hints += [TimeHint(month=_MONTHS[name.lower()]) for name in _MONTH_ONLY.findall(text)]
    if not hints:
        for year in _YEAR_ONLY.findall(text):
            start = datetime(int(year), 1, 1, tzinfo=UTC)
            hints.append(_span(start, start + timedelta(days=365)))
    return hints + _relative(text, at)


def _relative(text: str, at: datetime) -> list[TimeHint]:
    spans: list[tuple[float, float]] = []
    for number, unit in _PAST.findall(text):
        spans.append((_days(number, unit), 0.0))
    for number, unit in _AGO.findall(text):
        days = _days(number, unit)
        slack = max(1.0, days * 0.15)
        spans.append((days + slack, days - slack))
    for which, what in _LAST.findall(text):
        spans.append(_named_span(which.lower(), what.lower(), at))
    for name in _NEAR_DAY.findall(text):
        back = {"yesterday": 1, "day before yesterday": 2}.get(name.lower(), 0)
        midnight = at.hour / 24 + at.minute / 1440
        spans.append((back + midnight, back + midnight - 1))
    found: list[TimeHint] = []
    now = (at - _EPOCH) // timedelta(microseconds=1)
    for begin, end in spans:
        found.append(TimeHint(now - int(begin * _DAY_US), now - int(end * _DAY_US)))
    return found


def _days(number: str, unit: str) -> float:
    count = int(number) if number.isdigit() else _NUMBERS[number.lower()]
    return count * _UNIT_DAYS[unit.lower()]


def _named_span(which: str, what: str, at: datetime) -> tuple[float, float]:
    if what in _WEEKDAYS:
        back = (at.weekday() - _WEEKDAYS.index(what)) % 7 or 7
        return back + 0.9, back - 0.9
    if what == "night":
        return 1.2, 0.0
    days = {"week": 7.0, "weekend": 7.0, "month": 31.0, "year": 365.0}[what]
    return (days, 0.0) if which in ("this", "past") else (2 * days, min(days, at.weekday() + 0.0))


def _add_day(hints: list[TimeHint], year: str, month: int, day: str) -> None:
    try:
        if not year:
            datetime(2000, month, int(day), tzinfo=UTC)
            hints.append(TimeHint(month=month))
            return
        start = datetime(int(year), month, int(day), tzinfo=UTC)
    except ValueError:
        return
    hints.append(_span(start, start + timedelta(days=1)))


def _span(start: datetime, end: datetime) -> TimeHint:
    one = timedelta(microseconds=1)
    return TimeHint((start - _EPOCH) // one, (end - _EPOCH) // one)
