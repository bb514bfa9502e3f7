"""The official format of LongMemEval: questions, each with a haystack of sessions.

Items are named ``session:turn``, turns counted from 0, and follow each other by a second. A session
that occurs twice in a haystack is two sessions, the second with ``#2`` behind its id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import cast

from secondcall.record.formats.fields import Fields
from secondcall.record.formats.source import Source
from secondcall.record.formats.transcript import Transcript
from secondcall.types import Message, Role

__all__ = ["item_id", "people", "read", "session_names", "sessions_of", "time_of", "turns_of"]

_STEP = timedelta(seconds=1)
_TIME = re.compile(r"(\d{4})/(\d{2})/(\d{2}) \([A-Za-z]{3}\) (\d{2}):(\d{2})")
_ROLES = ("user", "assistant", "system")


def read(source: Source, default_session: str) -> Iterator[Transcript]:
    """The haystack sessions of every question, each with its person. Raises: ``InvalidValue``."""
    for question in people(source):
        yield from sessions_of(question)


def people(source: Source) -> Iterator[Fields]:
    """The questions of a file, unread."""
    document = source.document
    if not isinstance(document, list):
        source.place.refuse("expected a list of questions")
    for index, value in enumerate(cast("list[object]", document)):
        yield Fields(value, source.place.inside(f"[{index}]"))


def sessions_of(question: Fields) -> Sequence[Transcript]:
    """The haystack of one question, in file order."""
    person = question.text("question_id")
    dates = question.entries("haystack_dates")
    sessions = question.entries("haystack_sessions")
    names = session_names(question)
    if not len(names) == len(dates) == len(sessions):
        question.place.refuse(
            f"haystack_sessions has {len(sessions)} entries, haystack_session_ids {len(names)}, "
            f"haystack_dates {len(dates)}; expected as many of each"
        )
    found: list[Transcript] = []
    for index, session_id in enumerate(names):
        begun = time_of(dates[index], question, f"haystack_dates[{index}]")
        items = [
            _message(turn, session_id, position, begun)
            for position, turn in enumerate(turns_of(question, index))
        ]
        if items:
            found.append(Transcript(session_id=session_id, items=items, person=person))
    return found


def session_names(question: Fields) -> Sequence[str]:
    """The session ids of a haystack, each of them once."""
    found: list[str] = []
    uses: dict[str, int] = {}
    for index, name in enumerate(question.entries("haystack_session_ids")):
        if not isinstance(name, str):
            question.place.inside(f"haystack_session_ids[{index}]").refuse("expected a string")
        uses[name] = uses.get(name, 0) + 1
        found.append(name if uses[name] == 1 else f"{name}#{uses[name]}")
    return found


def turns_of(question: Fields, index: int) -> Iterator[Fields]:
    """The turns of one session of a haystack, unread."""
    turns = question.entries("haystack_sessions")[index]
    place = question.place.inside(f"haystack_sessions[{index}]")
    if not isinstance(turns, list):
        place.refuse("expected a list of turns")
    for position, turn in enumerate(cast("list[object]", turns)):
        yield Fields(turn, place.inside(f"[{position}]"))


def item_id(session_id: str, position: int) -> str:
    """The id of a turn."""
    return f"{session_id}:{position}"


def time_of(value: object, question: Fields, name: str) -> datetime:
    """A time like ``2023/05/30 (Tue) 10:18``, taken as UTC."""
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    place = question.place.inside(name)
    if match is None:
        place.refuse("expected a time like '2023/05/30 (Tue) 10:18'")
    year, month, day, hour, minute = (int(part) for part in match.groups())
    try:
        return datetime(year, month, day, hour, minute, tzinfo=UTC)
    except ValueError:
        place.refuse("expected a time that exists")


def _message(turn: Fields, session_id: str, position: int, begun: datetime) -> Message:
    role = cast("Role", turn.choice("role", _ROLES))
    return Message(
        role, turn.text("content"), id=item_id(session_id, position), at=begun + position * _STEP
    )
