"""The official formats of LoCoMo and LongMemEval, on conversations written for these tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from secondcall.errors import InvalidValue
from secondcall.record.transfer import Source, Transcript, transcripts
from secondcall.types import Message

Read = Callable[[object], list[Transcript]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Read a file of this content."""

    def read(content: object) -> list[Transcript]:
        path = tmp_path / "data.json"
        path.write_text(json.dumps(content), "utf-8")
        return list(transcripts(Source(path)))

    return read


def locomo(**more: object) -> list[Mapping[str, object]]:
    """A file of one conversation, with other fields where given."""
    conversation: dict[str, object] = {
        "speaker_a": "Ola",
        "speaker_b": "Pim",
        "session_2_date_time": "12:05 am on 1 March, 2024",
        "session_2": [{"speaker": "Ola", "dia_id": "D2:1", "text": "The kiln arrived."}],
        "session_10_date_time": "12:30 pm on 29 February, 2024",
        "session_10": [],
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            {"speaker": "Pim", "dia_id": "D1:1", "text": "I sold the boat."},
            {
                "speaker": "Ola",
                "dia_id": "D1:2",
                "text": "Look at this!",
                "blip_caption": "a green canoe on a roof",
            },
        ],
        "session_11_date_time": "9:00 am on 2 March, 2024",
    }
    return [{"sample_id": "talk-1", "conversation": conversation | more, "qa": []}]


def test_locomo(read: Read) -> None:
    """Sessions come in the order of their numbers, with speakers, captions, ids and times."""
    parts = read(locomo())
    assert [(part.person, part.session_id) for part in parts] == [
        ("talk-1", "session_1"),
        ("talk-1", "session_2"),
    ]
    assert parts[0].items == [
        Message(
            "user",
            "I sold the boat.",
            id="D1:1",
            speaker="Pim",
            at=datetime(2023, 5, 8, 13, 56, tzinfo=UTC),
        ),
        Message(
            "user",
            "Look at this! [a green canoe on a roof]",
            id="D1:2",
            speaker="Ola",
            at=datetime(2023, 5, 8, 13, 56, 1, tzinfo=UTC),
        ),
    ]
    assert parts[1].items[0].at == datetime(2024, 3, 1, 0, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    "time", ["yesterday", "1:56 pm on 8 Maybe, 2023", "1:56 pm on 31 June, 2023", 7]
)
def test_locomo_bad_times(read: Read, time: object) -> None:
    """A session date that is none is refused with its place."""
    with pytest.raises(InvalidValue, match=r"\[0\]\.conversation\.session_1_date_time: expected"):
        read(locomo(session_1_date_time=time))


def longmemeval(**more: object) -> list[Mapping[str, object]]:
    """A file of one question, with other fields where given."""
    turns = [
        {"role": "user", "content": "My tram is the 7.", "has_answer": True},
        {"role": "assistant", "content": "Noted."},
    ]
    question: dict[str, object] = {
        "question_id": "q1",
        "question_type": "single-session-user",
        "question": "Which tram is mine?",
        "question_date": "2024/02/03 (Sat) 10:18",
        "answer": "the 7",
        "answer_session_ids": ["s1"],
        "haystack_session_ids": ["s1", "s2", "s2"],
        "haystack_dates": [
            "2024/01/01 (Mon) 09:00",
            "2024/01/02 (Tue) 09:00",
            "2024/01/03 (Wed) 09:00",
        ],
        "haystack_sessions": [turns, turns[1:], turns[1:]],
    }
    return [question | more]


def test_longmemeval(read: Read) -> None:
    """Turns are named by session and place; a session that comes twice is two sessions."""
    parts = read(longmemeval())
    assert [(part.person, part.session_id) for part in parts] == [
        ("q1", "s1"),
        ("q1", "s2"),
        ("q1", "s2#2"),
    ]
    assert parts[0].items == [
        Message("user", "My tram is the 7.", id="s1:0", at=datetime(2024, 1, 1, 9, tzinfo=UTC)),
        Message("assistant", "Noted.", id="s1:1", at=datetime(2024, 1, 1, 9, 0, 1, tzinfo=UTC)),
    ]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"haystack_dates": ["2024/01/01 (Mon) 09:00"]}, "expected as many of each"),
        ({"haystack_dates": ["soon"] * 3}, r"haystack_dates\[0\]: expected a time like"),
        ({"haystack_session_ids": [1, 2, 3]}, r"haystack_session_ids\[0\]: expected a string"),
        ({"haystack_sessions": ["a", "b", "c"]}, r"haystack_sessions\[0\]: expected a list"),
        (
            {"haystack_sessions": [[{"role": "boss", "content": "x"}], [], []]},
            r"haystack_sessions\[0\]\[0\]\.role: expected one of",
        ),
    ],
)
def test_longmemeval_bad_questions(read: Read, change: Mapping[str, object], problem: str) -> None:
    """A bad question is refused with its place and what was expected."""
    with pytest.raises(InvalidValue, match=problem):
        read(longmemeval(**change))
