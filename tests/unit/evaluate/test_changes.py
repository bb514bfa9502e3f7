"""The evaluation of facts that change replays what a file says and checks what its page says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from secondcall.cli.app import run as run_command
from secondcall.evaluate.changes import QUESTION_KINDS, load
from secondcall.evaluate.changing import run_changes
from secondcall.record.transfer import Source

OPEN = Path(__file__).parents[3] / "bench" / "sets" / "changes" / "open.jsonl"
GAPS = OPEN.with_name("gaps.jsonl")
EXACT = ("as_of", "believed", "cascade", "history")


def test_the_open_half(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever needs no search is exact on the open half; no ended value is given as current, none
    is left unmarked, and what holds stands before what has ended."""
    assert run_command(["eval", "changes", str(OPEN), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["questions"] == 122
    for kind in EXACT:
        assert report["by_kind"][kind]["right"] == 1.0, kind
    now = report["by_kind"]["now"]["checks"]
    assert now["nothing ended as current"] == 1.0
    assert now["ended marked"] == 1.0
    assert now["current before ended"] == 1.0
    assert now["current fact first"] >= 0.96
    assert report["by_kind"]["past_item"]["right"] >= 0.8


def test_facts_asked_for_in_other_words() -> None:
    """Of questions that share no word with the fact three in four have it first."""
    answers = run_changes(load(Source(GAPS)))
    assert len(answers) == 48
    assert sum(answer.right for answer in answers) >= 36


def test_a_wrong_expectation_is_counted(tmp_path: Path) -> None:
    """Questions whose answers are altered are found wrong, each by its check."""
    topic = json.loads(OPEN.read_text("utf-8").splitlines()[1])
    for question in topic["questions"]:
        question["expect"] = ["something else"]
        question["items"] = ["no such item"]
        question["flagged"] = []
    path = tmp_path / "altered.jsonl"
    path.write_text(json.dumps(topic), "utf-8")
    answers = run_changes(load(Source(path)))
    assert len(answers) == len(topic["questions"])
    assert not any(answer.right for answer in answers)
    assert {answer.question.kind for answer in answers} <= set(QUESTION_KINDS)


def test_a_table_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --json each kind of question is a row, and what was wrong is named."""
    assert run_command(["eval", "changes", str(OPEN), "--limit", "2"]) == 0
    printed = capsys.readouterr().out
    assert "cascade" in printed
    assert "flagged exactly" in printed


def test_a_bad_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line that lacks a field is refused with its place."""
    path = tmp_path / "bad.jsonl"
    path.write_text('{"id": "x", "kind": "once"}\n{"id": "y"}', "utf-8")
    assert run_command(["eval", "changes", str(path)]) == 1
    assert "bad.jsonl, line 1.sessions: expected a list" in capsys.readouterr().err
