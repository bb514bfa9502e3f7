"""Questions are read with their evidence, and what cannot be asked is left out and counted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from secondcall.evaluate import locomo, longmemeval
from secondcall.evaluate.questions import ItemName
from secondcall.record.transfer import Source


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("D1:3", ["D1:3"]),
        (" D1:3 ", ["D1:3"]),
        ("D8:6; D9:17", ["D8:6", "D9:17"]),
        ("D9:1 D4:4 D4:6", ["D9:1", "D4:4", "D4:6"]),
        ("D:11:26", ["D11:26"]),
        ("D30:05", ["D30:5"]),
        ("D", None),
        ("", None),
        ("D1:3, see above", None),
    ],
)
def test_evidence_ids(entry: str, expected: Sequence[str] | None) -> None:
    """Evidence is read where it leaves no doubt, and not guessed where it does."""
    assert locomo.evidence_ids(entry) == expected


def source(tmp_path: Path, content: object) -> Source:
    """A file of this content."""
    path = tmp_path / "data.json"
    path.write_text(json.dumps(content), "utf-8")
    return Source(path)


def asked(evidence: Sequence[object], category: int = 1) -> Mapping[str, object]:
    """A question of LoCoMo."""
    return {"question": "What?", "answer": "x", "evidence": evidence, "category": category}


def sample(name: str, *questions: Mapping[str, object]) -> Mapping[str, object]:
    """A conversation of LoCoMo with two sessions of two turns."""
    conversation: dict[str, object] = {}
    for number in (1, 2):
        conversation[f"session_{number}_date_time"] = f"9:00 am on {number} May, 2023"
        conversation[f"session_{number}"] = [
            {"speaker": "Ola", "dia_id": f"D{number}:{turn}", "text": "Words."} for turn in (1, 2)
        ]
    return {"sample_id": name, "conversation": conversation, "qa": list(questions)}


def test_locomo(tmp_path: Path) -> None:
    """A question knows its evidence, its sessions and the last session's time, and no more."""
    content = [sample("a", asked(["D1:2; D2:1"], category=3))]
    data = locomo.load(source(tmp_path, content))
    (haystack,) = data.haystacks
    (question,) = haystack.questions
    assert haystack.user_id == "a"
    assert question.id == "a:0"
    assert question.category == "3"
    assert question.asked_at == datetime(2023, 5, 2, 9, 0, 1, tzinfo=UTC)
    assert question.messages == {ItemName("session_1", "D1:2"), ItemName("session_2", "D2:1")}
    assert question.sessions == {"session_1", "session_2"}


def test_locomo_left_out(tmp_path: Path) -> None:
    """Questions without evidence and evidence that leads nowhere are counted by reason."""
    content = [sample("a", asked([]), asked(["D"]), asked(["D7:1", "D1:1"]), asked(["D1:1"]))]
    data = locomo.load(source(tmp_path, content))
    assert [question.id for question in data.haystacks[0].questions] == ["a:2", "a:3"]
    assert data.left_out == {
        "questions without evidence": 2,
        "evidence that cannot be read": 1,
        "evidence that is not in the conversation": 1,
    }


def test_locomo_limit(tmp_path: Path) -> None:
    """A limit takes the first questions with evidence in file order, over conversations."""
    content = [
        sample("a", asked([]), asked(["D1:1"])),
        sample("b", asked(["D1:1"]), asked(["D1:1"])),
        sample("c", asked(["D1:1"])),
    ]
    data = locomo.load(source(tmp_path, content), limit=2)
    assert [one.id for haystack in data.haystacks for one in haystack.questions] == ["a:1", "b:0"]
    assert data.questions == 2


def haystack(name: str, *, answer: Sequence[str] = ("s1",), marked: bool = True) -> dict[str, Any]:
    """A question of LongMemEval over two sessions."""
    turns = [
        {"role": "user", "content": "My tram is the 7.", "has_answer": marked},
        {"role": "assistant", "content": "Noted."},
    ]
    return {
        "question_id": name,
        "question_type": "temporal-reasoning",
        "question": "Which tram is mine?",
        "question_date": "2024/02/03 (Sat) 10:18",
        "answer": "the 7",
        "answer_session_ids": list(answer),
        "haystack_session_ids": ["s1", "s2"],
        "haystack_dates": ["2024/01/01 (Mon) 09:00", "2024/01/02 (Tue) 09:00"],
        "haystack_sessions": [turns, turns[1:]],
    }


def test_longmemeval(tmp_path: Path) -> None:
    """Evidence is what is marked in the haystack; the moment of asking is the question's date."""
    data = longmemeval.load(source(tmp_path, [haystack("q1")]))
    (question,) = data.haystacks[0].questions
    assert question.messages == {ItemName("s1", "s1:0")}
    assert question.sessions == {"s1"}
    assert question.category == "temporal-reasoning"
    assert question.asked_at == datetime(2024, 2, 3, 10, 18, tzinfo=UTC)


def test_what_is_newest_of_a_change(tmp_path: Path) -> None:
    """A question about a change knows its latest evidence, if there is earlier; others do not."""
    changed = {**haystack("q1"), "question_type": "knowledge-update"}
    turn = {"role": "user", "content": "My tram is the 9 now.", "has_answer": True}
    sessions = [*changed["haystack_sessions"][:1], [turn]]
    content = [{**changed, "haystack_sessions": sessions}, changed, haystack("q2")]
    data = longmemeval.load(source(tmp_path, content))
    newest = [one.questions[0].newest for one in data.haystacks]
    assert newest == [{ItemName("s2", "s2:0")}, frozenset(), frozenset()]


def test_longmemeval_left_out(tmp_path: Path) -> None:
    """Questions without an answer and without evidence are left out and counted."""
    content = [haystack("q1_abs"), haystack("q2", marked=False), haystack("q3"), haystack("q4")]
    data = longmemeval.load(source(tmp_path, content), limit=1)
    assert [one.user_id for one in data.haystacks] == ["q3"]
    assert data.left_out == {
        "questions without an answer (_abs)": 1,
        "questions without evidence": 1,
    }
