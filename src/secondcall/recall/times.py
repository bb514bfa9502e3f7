"""When: the times that a text names, as seen from a moment and from its time zone. Pure.

Everything that a calendar can resolve is resolved here; the rest in ``recall/talks.py`` and
``recall/when.py``. English only. A date that does not exist names nothing; one that has not come
yet is a time like any other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache

__all__ = [
    "MONTH",
    "MONTHS",
    "NUMBER",
    "UNIT",
    "WEEKDAY",
    "YEAR",
    "Found",
    "TimeHint",
    "count_of",
    "pattern",
    "read",
    "time_hints",
    "to_us",
]

_DAY_US = 86_400_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OPEN = 0.5
"""What a span without a beginning or an end is worth: it holds much of the record."""
_MAX_HINTS = 16

MONTHS = {
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
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
NUMBERS = {
    "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "couple": 2, "few": 3,
}  # fmt: skip
UNIT_DAYS = {"day": 1.0, "week": 7.0, "fortnight": 14.0, "month": 30.4, "year": 365.25}

MONTH = "|".join(sorted(MONTHS, key=len, reverse=True))
WEEKDAY = "|".join(WEEKDAYS)
YEAR = r"(?:19|20)\d\d"
NUMBER = rf"\d{{1,3}}|{'|'.join(NUMBERS)}"
UNIT = "day|week|fortnight|month|year"
_NTH = r"(\d{1,2})(?:st|nd|rd|th)?"


def pattern(text: str) -> re.Pattern[str]:
    """A pattern of whatever case."""
    return re.compile(text, re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TimeHint:
    """A time that is named: the span ``[start_us, end_us)``.

    With ``month`` no year was named: the span is the last one that had begun, and that month of
    every other year counts half. ``worth`` is what lying inside counts, at most 1.
    """

    start_us: int = 0
    end_us: int = 0
    month: int | None = None
    worth: float = 1.0

    @property
    def fade_us(self) -> int:
        """How far around it the hint still says something, ever less."""
        if self.worth < 1:
            return 14 * _DAY_US
        return max(self.end_us - self.start_us, 2 * _DAY_US)


@dataclass(frozen=True, slots=True)
class Found:
    """A hint and the piece of text that gave it."""

    hint: TimeHint | None
    begin: int
    end: int


_Maker = Callable[[re.Match[str], datetime], TimeHint | None]


def time_hints(text: str, *, at: datetime) -> list[TimeHint]:
    """The times that a text names, relative ones as seen from ``at`` and in its time zone.

    Dates that do not exist are skipped, and what is named twice counts once.
    """
    found, _ = read(text, at)
    hints = [one for one in _sided(text, found, at) if one is not None]
    return list(dict.fromkeys(hints))[:_MAX_HINTS]


def read(text: str, at: datetime) -> tuple[Sequence[Found], str]:
    """The expressions of time in order, and the text with each replaced by bars."""
    return _read(text, at, at.tzinfo)


@lru_cache(maxsize=64)
def _read(text: str, at: datetime, _zone: tzinfo | None) -> tuple[Sequence[Found], str]:
    # Equal moments in two zones are equal, but "yesterday" is not the same day there.
    found: list[Found] = []
    rest = text
    for rule, make in _RULES:
        for match in rule.finditer(rest):
            begin = match.start(match.re.groupindex.get("when", 0))
            found.append(Found(_made(make, match, at), begin, match.end()))
        for one in found:
            rest = rest[: one.begin] + "|" * (one.end - one.begin) + rest[one.end :]
        if len(found) > _MAX_HINTS:
            break
    found.sort(key=lambda one: one.begin)
    return tuple(found), rest


def _made(make: _Maker, match: re.Match[str], at: datetime) -> TimeHint | None:
    try:
        return make(match, at)
    except (ValueError, OverflowError):
        return None


def _sided(text: str, found: Sequence[Found], at: datetime) -> Iterator[TimeHint | None]:
    """The hints with what stands before them: "since March", "from the 3rd to the 9th"."""
    skip = False
    for one, following in zip(found, [*found[1:], None], strict=False):
        if skip:
            skip = False
            continue
        hint = one.hint
        side = _SIDE.search(text[max(0, one.begin - 24) : one.begin])
        if hint is None or side is None:
            yield hint
            continue
        word = side.group(1).lower()
        if (
            word in ("from", "between")
            and following is not None
            and following.hint is not None
            and following.hint.end_us > hint.start_us
            and _TO.fullmatch(text[one.end : following.begin])
        ):
            skip = True
            yield TimeHint(hint.start_us, following.hint.end_us)
        else:
            yield _opened(hint, word, at)


def _opened(hint: TimeHint, word: str, at: datetime) -> TimeHint:
    if word in ("since", "after", "from", "following"):
        start = hint.start_us if word in ("since", "from") else hint.end_us
        return TimeHint(start, max(to_us(at), start + _DAY_US), worth=_OPEN)
    if word == "between":
        return hint
    end = hint.start_us if word in ("before", "prior to") else hint.end_us
    return TimeHint(min(0, end - _DAY_US), end, worth=_OPEN)


# What is made of each kind of expression


def to_us(moment: datetime) -> int:
    """Microseconds since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _days(first: date, count: int, zone: tzinfo | None) -> TimeHint:
    """``count`` days of a calendar, from midnight to midnight where the user is."""
    last = first + timedelta(days=count)
    start = datetime(first.year, first.month, first.day, tzinfo=zone)
    end = datetime(last.year, last.month, last.day, tzinfo=zone)
    return TimeHint(to_us(start), to_us(end))


def _months(year: int, month: int, count: int, zone: tzinfo | None) -> TimeHint:
    """``count`` months from one on; ``month`` may lie outside 1..12."""
    year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
    end_year, end_month = year + (month + count - 1) // 12, (month + count - 1) % 12 + 1
    first = date(year, month, 1)
    return _days(first, (date(end_year, end_month, 1) - first).days, zone)


def _back(at: datetime, begin_days: float, end_days: float) -> TimeHint:
    now = to_us(at)
    return TimeHint(now - int(begin_days * _DAY_US), now - int(end_days * _DAY_US))


def count_of(number: str) -> int:
    """The value of a number in figures or a word."""
    return int(number) if number.isdigit() else NUMBERS[number.lower()]


def _date(year: str | None, month: int, day: str, at: datetime) -> TimeHint:
    """A day; without a year the last one that had begun."""
    if year:
        return _days(date(int(year), month, int(day)), 1, at.tzinfo)
    for back in range(9):  # 29 February comes every eighth year at the least
        try:
            hint = _days(date(at.year - back, month, int(day)), 1, at.tzinfo)
        except ValueError:
            continue
        if hint.start_us <= to_us(at):
            return replace(hint, month=month)
    raise ValueError(day)


def _iso(match: re.Match[str], at: datetime) -> TimeHint:
    year, month, day = match.groups()
    return _date(year, int(month), day, at)


def _numeric(match: re.Match[str], at: datetime) -> TimeHint:
    """12.05.2026 is in May; 5/12 is the American 12 May where that exists."""
    first, mark, second, year = match.groups()
    if mark == "/" and int(first) <= 12:
        return _date(year, int(first), second, at)
    return _date(year, int(second), first, at)


def _day_month(match: re.Match[str], at: datetime) -> TimeHint:
    day, name, year = match.groups()
    return _date(year, MONTHS[name.lower()], day, at)


def _month_day(match: re.Match[str], at: datetime) -> TimeHint:
    name, day, year = match.groups()
    return _date(year, MONTHS[name.lower()], day, at)


def _nth_day(match: re.Match[str], at: datetime) -> TimeHint:
    """ "On the 12th": the last one that had begun."""
    month = at.month if int(match.group(1)) <= at.day else at.month - 1
    start = date(at.year + (month - 1) // 12, (month - 1) % 12 + 1, int(match.group(1)))
    return _days(start, 1, at.tzinfo)


def _month_year(match: re.Match[str], at: datetime) -> TimeHint:
    return _months(int(match.group(2)), MONTHS[match.group(1).lower()], 1, at.tzinfo)


def _month_only(match: re.Match[str], at: datetime) -> TimeHint:
    which, name = match.group(1).lower(), match.group(2).lower()
    month = MONTHS[name]
    ahead = which == "next"
    year = at.year - (month > at.month) if not ahead else at.year + (month <= at.month)
    if which == "last" and month == at.month:
        year -= 1
    return replace(_months(year, month, 1, at.tzinfo), month=month)


def _season(match: re.Match[str], at: datetime) -> TimeHint:
    """As in the north; a season of three months, the last one that had begun."""
    which, name, said = match.group(1).lower(), match.group(2).lower(), match.group(3)
    month = _SEASONS[name]
    if said:
        return _months(int(said), month, 3, at.tzinfo)
    year = at.year - (month > at.month)
    hint = _months(year, month, 3, at.tzinfo)
    if which in ("last", "previous", "past") and hint.end_us > to_us(at):
        hint = _months(year - 1, month, 3, at.tzinfo)
    return hint


def _year_only(match: re.Match[str], at: datetime) -> TimeHint:
    return _months(int(match.group(1)), 1, 12, at.tzinfo)


def _past(match: re.Match[str], at: datetime) -> TimeHint:
    days = count_of(match.group(2)) * UNIT_DAYS[match.group(3).lower()]
    return _back(at, 0.0, -days) if match.group(1).lower() == "next" else _back(at, days, 0.0)


def _ago(match: re.Match[str], at: datetime) -> TimeHint:
    days = count_of(match.group(1)) * UNIT_DAYS[match.group(2).lower()]
    slack = max(1.0, days * 0.15)
    return _back(at, days + slack, days - slack)


def _named(match: re.Match[str], at: datetime) -> TimeHint:
    """ "Last week", "this Tuesday", "next month", "past weekend"."""
    which, what = match.group(1).lower(), match.group(2).lower()
    step = {"this": 0, "next": 1}.get(which, -1)
    today, zone = at.date(), at.tzinfo
    if what in WEEKDAYS:
        return _weekday(WEEKDAYS.index(what), step, at)
    if what == "night":
        return _back(at, at.hour / 24 + 0.3, at.hour / 24 - 0.3)
    if which == "past" and what != "weekend":
        return _back(at, {"week": 7.0, "month": 31.0, "year": 366.0}[what], 0.0)
    if what == "month":
        return _months(at.year, at.month + step, 1, zone)
    if what == "year":
        return _months(at.year + step, 1, 12, zone)
    monday = today - timedelta(days=today.weekday()) + timedelta(days=7 * step)
    if what == "week":
        return _days(monday, 7, zone)
    return _days(monday + timedelta(days=5), 2, zone)


def _weekday(number: int, step: int, at: datetime) -> TimeHint:
    """The last such day before today; the next one for "next"; the nearest past one for "this"."""
    today = at.date()
    back = (today.weekday() - number) % 7
    if step > 0:
        return _days(today + timedelta(days=(7 - back) or 7), 1, at.tzinfo)
    if step < 0:
        back = back or 7
    return _days(today - timedelta(days=back), 1, at.tzinfo)


def _on_weekday(match: re.Match[str], at: datetime) -> TimeHint:
    return _weekday(WEEKDAYS.index(match.group(1).lower()), 0, at)


def _near_day(match: re.Match[str], at: datetime) -> TimeHint:
    name = " ".join(match.group(1).lower().split())
    back = {"yesterday": 1, "day before yesterday": 2, "tomorrow": -1, "day after tomorrow": -2}
    return _days(at.date() - timedelta(days=back.get(name, 0)), 1, at.tzinfo)


_RULES: Sequence[tuple[re.Pattern[str], _Maker]] = (
    (pattern(rf"\b({YEAR})[-/.](\d{{1,2}})[-/.](\d{{1,2}})\b"), _iso),
    (pattern(rf"\b(\d{{1,2}})([./-])(\d{{1,2}})\2({YEAR})\b"), _numeric),
    (pattern(rf"\b{_NTH}(?: of)? ({MONTH})\b\.?(?:,? ({YEAR})\b)?"), _day_month),
    (pattern(rf"\b({MONTH})\b\.? {_NTH}\b(?:,? ({YEAR})\b)?"), _month_day),
    (pattern(rf"\b({MONTH})\b\.?,?(?: of)? ({YEAR})\b"), _month_year),
    (
        pattern(
            rf"\b(in|of|since|during|until|till|by|before|after|from|late|early|mid|last|this|next|"
            rf"and|to|between)[ -](?P<when>{MONTH})\b"
        ),
        _month_only,
    ),
    (
        pattern(
            rf"\b(last|this|past|previous|in the|during the|of|in) (?P<when>{'|'.join(_SEASONS)})\b"
            rf"(?: of)?(?: ({YEAR})\b)?"
        ),
        _season,
    ),
    (
        pattern(rf"\b(?:in|of|since|during|year|from|by|before|after|to|and) (?P<when>{YEAR})\b"),
        _year_only,
    ),
    (pattern(rf"\b({NUMBER})(?: of)? ({UNIT})s? (?:ago|back|earlier)\b"), _ago),
    (pattern(rf"\b(past|last|next) ({NUMBER})(?: of)? ({UNIT})s?\b"), _past),
    (
        pattern(rf"\b(last|this|past|previous|next) (week(?:end)?|month|year|night|{WEEKDAY})\b"),
        _named,
    ),
    (pattern(rf"\bon (?:the )?({WEEKDAY})\b(?!\s*\|)"), _on_weekday),
    (pattern(r"\bon the (\d{1,2})(?:st|nd|rd|th)\b"), _nth_day),
    (
        pattern(
            r"(?<!before )(?<!until )\b(day before yesterday|yesterday|day after tomorrow|tomorrow|"
            r"today|this (?:morning|afternoon|evening)|tonight)\b"
        ),
        _near_day,
    ),
)
"""Tried in this order; what one has read, the later ones do not see."""

_SIDE = pattern(
    r"\b(before|until|till|by|prior to|since|after|from|following|between)(?: the)?\s*$"
)
_TO = pattern(r"\s*(?:to|and|until|till|through|[-\u2013])?\s*(?:the )?")
