"""An evaluation goes through the public face and reports what its page describes."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from secondcall.cli.app import run as run_command
from secondcall.evaluate import locomo
from secondcall.evaluate.metrics import MESSAGE_FIGURES, SESSION_FIGURES
from secondcall.evaluate.questions import Data, ItemName
from secondcall.evaluate.run import run
from secondcall.record.transfer import Source

EVAL_DATA = Path(os.environ.get("SECONDCALL_EVAL_DATA", "../shared/data"))
SAID = (
    ("Ola", "The kiln arrived on Monday, it fills half of the shed."),
    ("Pim", "I finally sold the old sailing boat."),
    ("Ola", "My sister Runa moved to Tromsø for the museum job."),
    ("Pim", "We adopted a three-legged goat called Bartók."),
    ("Ola", "I burned all the bread again."),
    ("Pim", "The physiotherapist says my knee needs six more weeks."),
)
ASKED: Sequence[tuple[str, Sequence[str], int]] = (
    ("Where did Ola's sister move?", ["D2:1"], 4),
    ("What animal did Pim adopt?", ["D2:2"], 4),
    ("What did Pim sell and what is wrong with his knee?", ["D1:2; D3:2"], 1),
    ("What arrived on Monday?", ["D1:1"], 2),
    ("Who won the race?", [], 5),
)


def conversations() -> Sequence[Mapping[str, object]]:
    """Two conversations of three sessions in LoCoMo's format."""
    conversation: dict[str, object] = {}
    for number in (1, 2, 3):
        conversation[f"session_{number}_date_time"] = f"9:00 am on {number} May, 2023"
        conversation[f"session_{number}"] = [
            {"speaker": speaker, "dia_id": f"D{number}:{turn}", "text": text}
            for turn, (speaker, text) in enumerate(SAID[2 * number - 2 : 2 * number], 1)
        ]
    questions = [
        {"question": text, "answer": "", "evidence": evidence, "category": category}
        for text, evidence, category in ASKED
    ]
    return [
        {"sample_id": name, "conversation": conversation, "qa": questions} for name in ("a", "b")
    ]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The conversations as a file."""
    path = tmp_path / "talks.json"
    path.write_text(json.dumps(conversations()), "utf-8")
    return path


@pytest.fixture
def data(file: Path) -> Data:
    """The conversations as they are evaluated."""
    return locomo.load(Source(file))


def test_plain_questions_are_answered(data: Data) -> None:
    """Recall ranks the plain evidence of every person first, and answers come in file order."""
    told: list[int] = []
    answers = run(data, workers=1, progress=told.append)
    assert [answer.question.id for answer in answers] == [
        f"{name}:{number}" for name in ("a", "b") for number in range(4)
    ]
    assert sum(told) == 8
    for answer in answers:
        assert set(answer.messages[:3]) & answer.question.messages
        assert len(set(answer.messages)) == len(answer.messages)
        assert answer.sessions[0] == answer.messages[0].session_id
        assert answer.seconds > 0


def test_labels_are_not_used(data: Data) -> None:
    """With other evidence and other categories the rankings are the same."""
    nonsense = frozenset({ItemName("session_1", "D1:1")})
    haystacks = [
        replace(
            haystack,
            questions=[
                replace(
                    question, category="9", messages=nonsense, sessions=frozenset({"session_1"})
                )
                for question in haystack.questions
            ],
        )
        for haystack in data.haystacks
    ]
    honest = run(data, workers=1)
    blind = run(replace(data, haystacks=haystacks), workers=1)
    assert [answer.messages for answer in honest] == [answer.messages for answer in blind]
    assert [answer.sessions for answer in honest] == [answer.sessions for answer in blind]


def test_workers_change_nothing(data: Data) -> None:
    """Two worker processes give the same rankings as none."""
    alone, shared = (run(data, workers=workers) for workers in (1, 2))
    assert [answer.messages for answer in alone] == [answer.messages for answer in shared]


def test_the_report_has_its_shape(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``eval --json`` prints the documented fields, and the raw rankings hold no text."""
    raw = file.parent / "rankings.jsonl.gz"
    code = run_command(
        ["eval", "locomo", str(file), "--json", "--workers", "1", "--raw", str(raw), "--limit", "5"]
    )
    assert code == 0
    found = cast("dict[str, Any]", json.loads(capsys.readouterr().out))
    assert list(found) == [
        "questions",
        "message",
        "session",
        "by_category",
        "categories_1_4",
        "floor",
        "recall_ms",
        "configuration",
    ]
    assert found["questions"] == 5
    parts = [found, found["categories_1_4"], found["floor"], *found["by_category"].values()]
    for part in parts:
        assert tuple(part["message"]) == MESSAGE_FIGURES
        assert tuple(part["session"]) == SESSION_FIGURES
    assert set(found["by_category"]) == {"1", "2", "4"}
    assert found["recall_ms"]["p50"] <= found["recall_ms"]["p99"]
    assert found["configuration"]["left_out"] == {"questions without evidence": 1}
    rankings = gzip.decompress(raw.read_bytes()).decode("utf-8")
    assert rankings.count("\n") == 5
    assert not any(text in rankings for _, text in SAID)
    assert not any(text in rankings for text, _, _ in ASKED)


def test_the_table_shows_the_floor(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without ``--json`` every row has its floor below, and what is left out is said."""
    assert run_command(["eval", "locomo", str(file), "--workers", "1"]) == 0
    out = capsys.readouterr().out
    assert out.count("keyword floor") == 5
    assert "left out: 2 questions without evidence" in out


def test_nothing_to_ask(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file without a question that can be asked is refused in one line."""
    nothing: Sequence[object] = ()
    bare = [{**one, "qa": nothing} for one in conversations()]
    file.write_text(json.dumps(bare), "utf-8")
    assert run_command(["eval", "locomo", str(file)]) == 1
    assert "talks.json has no question with evidence" in capsys.readouterr().err


@pytest.mark.eval_data
def test_locomo_beats_the_floor(capsys: pytest.CaptureFixture[str]) -> None:
    """On the first 60 questions of LoCoMo, recall finds more than keywords alone."""
    file = EVAL_DATA / "locomo_dev.json"
    if not file.exists():
        pytest.skip(f"{file} is not there; set SECONDCALL_EVAL_DATA")
    assert run_command(["eval", "locomo", str(file), "--json", "--limit", "60"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["message"]["frac@10"] > found["floor"]["message"]["frac@10"]
