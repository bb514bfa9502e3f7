"""The script that counts what the key-fact finder takes."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[3] / "bench"))

keyfact_rates: Any = import_module("keyfact_rates")


def test_rates_are_of_different_messages() -> None:
    """Each different message of a user counts once, as holding an answer if it does anywhere."""
    said = [
        {"role": "user", "content": "My number is 4417."},
        {"role": "assistant", "content": "My number is 1."},
        {"role": "user", "content": "Good morning to you."},
    ]
    marked = [{"role": "user", "content": "My number is 4417.", "has_answer": True}]
    questions = [{"haystack_sessions": [said, marked]}]
    answering, others = keyfact_rates.rates(keyfact_rates.user_messages(questions))
    assert (answering.messages, answering.with_fact) == (1, 1)
    assert answering.facts >= 1
    assert (others.messages, others.with_fact, others.facts) == (1, 0, 0)


def test_it_says_why_it_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the data it says so; with a file it prints the table."""
    monkeypatch.setenv("SECONDCALL_EVAL_DATA", str(tmp_path))
    keyfact_rates.main()
    assert "skipped: there is no file" in capsys.readouterr().out
    file = tmp_path / "some.json"
    file.write_text(json.dumps([{"haystack_sessions": []}]), "utf-8")
    monkeypatch.setenv("SECONDCALL_EVAL_DATA", str(file))
    keyfact_rates.main()
    assert "| that hold an answer | 0 |" in capsys.readouterr().out
