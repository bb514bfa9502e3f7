"""The official format of LoCoMo: a list of long conversations between two people.

Both people are recorded as ``user`` with their name as speaker. A picture's caption stands in
brackets behind the words. The items of a session follow each other by a second.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import cast

from secondcall.record.formats.fields import Fields
from secondcall.record.formats.source import Source
from secondcall.record.formats.transcript import Transcript
from secondcall.types import Message

__all__ = ["people", "read", "sessions_of"]

_STEP = timedelta(seconds=1)
_SESSION = re.compile(r"session_(\d+)")
_TIME = re.compile(r"(\d{1,2}):(\d{2}) ([ap])m on (\d{1,2}) ([A-Za-z]+),? (\d{4})")
_MONTHS = {
    "january": 1,
    "february": 2,
    "march": 3,
    "april": 4,
    "may": 5,
    "june": 6,
    "july": 7,
    "august": 8,
    "september": 9,
    "october": 10,
    "november": 11,
    "december": 12,
}


def read(source: Source, default_session: str) -> Iterator[Transcript]:
    """The sessions of every conversation, each with its person. Raises: ``InvalidValue``."""
    for sample in people(source):
        yield from sessions_of(sample)


def people(source: Source) -> Iterator[Fields]:
    """The conversations of a file, unread."""
    document = source.document
    if not isinstance(document, list):
        source.place.refuse("expected a list of conversations")
    for index, value in enumerate(cast("list[object]", document)):
        yield Fields(value, source.place.inside(f"[{index}]"))


def sessions_of(sample: Fields) -> Sequence[Transcript]:
    """The sessions of one conversation in order; those without a turn are not there."""
    conversation = Fields(sample.raw("conversation"), sample.place.inside("conversation"))
    person = sample.text("sample_id")
    numbers = sorted(
        int(match.group(1)) for name in conversation.names() if (match := _SESSION.fullmatch(name))
    )
    found: list[Transcript] = []
    for number in numbers:
        name = f"session_{number}"
        begun = _time(conversation, f"{name}_date_time")
        turns = conversation.entries(name)
        place = conversation.place.inside(name)
        items = [
            _message(Fields(turn, place.inside(f"[{index}]")), begun + index * _STEP)
            for index, turn in enumerate(turns)
        ]
        if items:
            found.append(Transcript(session_id=name, items=items, person=person))
    return found


def _message(turn: Fields, at: datetime) -> Message:
    caption = turn.optional_text("blip_caption")
    text = turn.text("text")
    if caption:
        text = f"{text} [{caption}]" if text else f"[{caption}]"
    return Message(
        "user", text, id=turn.text("dia_id"), speaker=turn.text("speaker") or None, at=at
    )


def _time(conversation: Fields, name: str) -> datetime:
    match = _TIME.fullmatch(conversation.text(name).strip())
    if match is None or match.group(5).lower() not in _MONTHS:
        conversation.refuse(name, "a time like '1:56 pm on 8 May, 2023'")
    hour, minute, half, day, month, year = match.groups()
    try:
        return datetime(
            int(year),
            _MONTHS[month.lower()],
            int(day),
            int(hour) % 12 + (12 if half == "p" else 0),
            int(minute),
            tzinfo=UTC,
        )
    except ValueError:
        conversation.refuse(name, "a time that exists")
