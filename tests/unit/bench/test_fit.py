from __future__ import annotations

import gzip
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[3] / "bench"))

cases: Any = import_module("cases")
fit: Any = import_module("fit")
talks: Any = import_module("talks").talks


def _write(path: Path, content: object) -> Path:
    text = json.dumps(content)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def _question(**changes: Any) -> dict[str, Any]:
    return {
        "question_id": "q1",
        "question_type": "single-session-user",
        "question": "Where did I park my car?",
        "question_date": "2026/05/30 (Sat) 10:18",
        "haystack_dates": ["2026/05/21 (Thu) 10:00", "2026/05/20 (Wed) 07:47"],
        "haystack_session_ids": ["s2", "s1"],
        "answer_session_ids": ["s1"],
        "haystack_sessions": [
            [{"role": "user", "content": "hello"}],
            [
                {"role": "user", "content": "I parked by the lake.", "has_answer": True},
                {"role": "assistant", "content": "Good. A long list follows. Anything else?"},
            ],
        ],
    } | changes


def test_locomo_is_refused(tmp_path: Path) -> None:
    """A file with LoCoMo's structure is refused, whatever its name."""
    content: list[dict[str, str]] = [{"conversation": "", "qa": ""}]
    path = _write(tmp_path / "longmemeval.json", content)
    with pytest.raises(SystemExit, match="LoCoMo"):
        list(cases.longmemeval(path))


@pytest.mark.parametrize("content", [{}, [{"question_id": "q1"}]])
def test_another_file_is_refused(tmp_path: Path, content: object) -> None:
    """A file of another structure is refused."""
    with pytest.raises(SystemExit, match="not a LongMemEval file"):
        list(cases.longmemeval(_write(tmp_path / "data.json", content)))


def test_questions_are_read_in_the_order_of_time(tmp_path: Path) -> None:
    """Sessions come by date, evidence is counted from the first message, abstention is left out."""
    entries = [_question(), _question(question_id="q2_abs")]
    (case,) = cases.longmemeval(_write(tmp_path / "data.json.gz", entries))
    assert case.rows[0].text == "I parked by the lake."
    assert case.gold == {0}
    assert case.sessions == {"s1"}


def test_a_record_becomes_a_talk_of_two_people(tmp_path: Path) -> None:
    """Restructured, everybody has a name, replies are short, and the question names the user."""
    (case,) = cases.longmemeval(_write(tmp_path / "data.json", [_question()]))
    people = cases.as_people(case, 0)
    assert people is not None
    assert people.question == "Where did Anna park Anna's car?"
    assert [one.speaker for one in people.rows] == ["Anna", "Boris", "Anna"]
    assert people.rows[1].text == "Good. Anything else?"


def test_own_talks_are_the_same_each_time() -> None:
    """The synthetic questions are made without chance, and each has its evidence."""
    first, second = list(talks()), list(talks())
    assert first == second
    assert all(case.gold for case in first)
    assert len({case.question for case in first}) > 300


def test_the_ascent_finds_the_best_weights() -> None:
    """Coordinate ascent ends at the top of a simple hill, within its bounds."""

    def rate(weights: np.ndarray[Any, np.dtype[np.float32]]) -> float:
        return float(-((weights[1] - 0.7) ** 2) - (weights[2] + 0.5) ** 2)

    found = fit.ascend([1.0, 0.0, 0.4], [(0, 9), (0, 9), (0, 9)], rate)
    assert np.allclose(found, [1.0, 0.7, 0.0])


def test_shipped_weights_are_those_of_a_fit() -> None:
    """The shipped table has the fit's form: writing it again changes nothing."""
    table = {name: dict(weights) for name, weights in fit.PROFILES.items()}
    assert fit.source(table) == fit._TARGET.read_text("utf-8")
