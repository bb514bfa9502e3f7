"""The set of opposites as it is read, asked and judged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from secondcall import InvalidValue
from secondcall.evaluate.opposites import load, opposites_report, opposites_text, run_opposites
from secondcall.record.transfer import Source

_AT = "2026-06-01T10:00:00Z"


def _message(name: str, text: str) -> dict[str, str]:
    return {"id": name, "session_id": "s", "role": "user", "text": text, "at": _AT}


def _case(
    name: str, kind: str, question: str, right: list[str], opposite: list[str]
) -> dict[str, object]:
    return {
        "id": name,
        "kind": kind,
        "pair": "love/hate",
        "question": question,
        "at": "2026-06-02T10:00:00Z",
        "right": right,
        "opposite": opposite,
    }


def _file(folder: Path, cases: list[dict[str, object]]) -> Source:
    messages = [_message("a", "I love pizza."), _message("b", "I hate broccoli.")]
    path = folder / "own.jsonl"
    line = {"id": "r", "domain": "food", "messages": messages, "cases": cases}
    path.write_text(json.dumps(line) + "\n", "utf-8")
    return Source(path)


def test_a_case_fails_when_the_opposite_comes_first(tmp_path: Path) -> None:
    """A case is judged by what comes first of both sides; what finds neither is counted apart."""
    cases = [
        _case("1", "likes", "what do I like?", ["a"], ["b"]),
        _case("2", "likes", "what do I like?", ["b"], ["a"]),
        _case("3", "opposite", "the boiling point of tungsten", ["a"], ["b"]),
    ]
    answers = run_opposites(load(_file(tmp_path, cases)))
    assert [(one.first, one.failed) for one in answers] == [
        ("right", False),
        ("opposite", True),
        ("neither", False),
    ]
    report = opposites_report(answers, file="own", embedder="static")
    assert (report["failed"], report["neither"], report["share"]) == (1, 1, 0.3333)
    assert list(opposites_text(answers))[-1] == "failed: r 2 (love/hate)"


def test_a_broken_case_is_refused_with_its_place(tmp_path: Path) -> None:
    """A line that lacks a field is named, not guessed at."""
    case = _case("1", "hopes", "what do I like?", ["a"], ["b"])
    with pytest.raises(InvalidValue, match="kind"):
        load(_file(tmp_path, [case]))
