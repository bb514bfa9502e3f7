"""``remember``, ``settle``, ``retract``, ``facts``, and facts in exports."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from secondcall.cli.app import run

Secondcall = Callable[..., str]


@pytest.fixture
def secondcall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Secondcall:
    """Run ``secondcall`` over one store; what it printed. ``expect`` is the exit code."""
    monkeypatch.setenv("SECONDCALL_URL", f"sqlite:///{tmp_path / 'memory.db'}")
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, expect: int = 0) -> str:
        code = run(arguments)
        done = capsys.readouterr()
        assert code == expect, done
        return done.out if expect == 0 else done.err

    return call


def _facts(secondcall: Secondcall, *arguments: str) -> list[dict[str, Any]]:
    printed = secondcall("facts", "--user", "ann", "--json", *arguments)
    return cast("list[dict[str, Any]]", json.loads(printed)["facts"])


def test_facts_that_change(secondcall: Secondcall) -> None:
    """A fact is told, changed, ended and asked for as of a day and as it was believed."""
    say = ("--user", "ann", "--valid-from")
    secondcall("remember", "home", "Leeds", *say, "2024-01-22")
    secondcall("remember", "home", "York", *say, "2024-04-01")
    assert [one["value"] for one in _facts(secondcall)] == ["York"]
    assert [one["value"] for one in _facts(secondcall, "--as-of", "2024-02-01")] == ["Leeds"]
    assert _facts(secondcall, "--believed-at", "2024-05-01") == []
    history = _facts(secondcall, "home", "--history")
    assert [one["value"] for one in history] == ["Leeds", "York"]
    assert history[0]["superseded_by"] == history[1]["id"]
    secondcall("retract", "home", "--user", "ann", "--at", "2024-09-01")
    assert _facts(secondcall) == []
    assert "Nothing is known" in secondcall("facts", "--user", "ann")
    assert "leave out --as-of" in secondcall(
        "facts", "--user", "ann", "--history", "--as-of", "2024-01-01", expect=2
    )


def test_several_values_and_what_rests_on_them(secondcall: Secondcall) -> None:
    """Values are added and taken back one by one; what rested on one is to be confirmed."""
    told = secondcall("remember", "allergy", "milk", "--user", "ann", "--multi", "--json")
    milk = json.loads(told)
    assert milk["multi"] is True
    secondcall("remember", "allergy", "nuts", "--user", "ann")
    rests = ("--user", "ann", "--rests-on", milk["id"])
    secondcall("remember", "breakfast", "oat porridge", *rests)
    assert "several values" in secondcall("retract", "allergy", "--user", "ann", expect=1)
    secondcall("retract", "allergy", "--user", "ann", "--value", "milk")
    values = {one["value"]: one["to_confirm"] for one in _facts(secondcall)}
    assert set(values) == {"nuts", "oat porridge"}
    assert "allergy was milk until" in values["oat porridge"]
    for command in ("facts", "show"):
        printed = secondcall(command, "--user", "ann")
        assert "to be confirmed: allergy was milk until" in printed
    assert "allergy was milk" in secondcall("recall", "breakfast porridge", "--user", "ann")


def test_a_promise_is_settled(secondcall: Secondcall) -> None:
    """A promise is moved on; a value may be JSON."""
    say = ("--user", "ann", "--kind", "promise", "--due", "2026-01-01", "--parse")
    secondcall("remember", "refund", '{"EUR": 40}', *say)
    assert "overdue since 2026-01-01" in secondcall("brief", "--user", "ann")
    done = json.loads(secondcall("settle", "refund", "kept", "--user", "ann", "--json"))
    assert (done["status"], done["value"]) == ("kept", {"EUR": 40})
    assert "not JSON" in secondcall("remember", "refund", "{", "--user", "ann", "--parse", expect=2)


def test_everything_of_a_fact_is_exported(secondcall: Secondcall, tmp_path: Path) -> None:
    """An export that is imported elsewhere and exported again is the same file."""
    milk = json.loads(
        secondcall("remember", "allergy", "milk", "--user", "ann", "--multi", "--json")
    )
    secondcall("remember", "breakfast", "oats", "--user", "ann", "--rests-on", milk["id"])
    secondcall("retract", "allergy", "--user", "ann", "--value", "milk")
    secondcall("remember", "home", "Leeds", "--user", "ann", "--valid-from", "2024-01-22")
    secondcall("remember", "home", "Hull", "--user", "ann")
    secondcall("remember", "home", "York", "--user", "ann", "--valid-from", "2024-04-01")
    secondcall("remember", "breakfast", "oats", "--user", "ann")
    secondcall("export", "--user", "ann", "--output", "first.jsonl")
    other = ("--url", f"sqlite:///{tmp_path / 'other.db'}")
    secondcall("import", "first.jsonl", "--user", "ann", *other)
    secondcall("export", "--user", "ann", "--output", "second.jsonl", *other)
    first, second = (tmp_path / name for name in ("first.jsonl", "second.jsonl"))
    assert first.read_text("utf-8") == second.read_text("utf-8")
    assert '"earlier"' in first.read_text("utf-8")
    assert '"confirmed"' in first.read_text("utf-8")
    before = secondcall("facts", "--user", "ann", "--json")
    assert secondcall("facts", "--user", "ann", "--json", *other) == before


def test_facts_of_a_file(secondcall: Secondcall, tmp_path: Path) -> None:
    """Lines written by hand may state one of several values, and when it ended."""
    lines = [
        {"type": "fact", "predicate": "access", "value": name, "multi": True, **more}
        for name, more in (
            ("Wanda", {"valid_from": "2025-02-03T09:00:00Z"}),
            ("Rolf", {"valid_from": "2025-02-03T09:00:00Z", "invalid_at": "2025-04-14T20:26:00Z"}),
        )
    ]
    path = tmp_path / "facts.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    for _ in range(2):
        secondcall("import", str(path), "--user", "ann")
    assert [one["value"] for one in _facts(secondcall)] == ["Wanda"]
    assert len(_facts(secondcall, "--as-of", "2025-03-01")) == 2
    assert len(_facts(secondcall, "--history")) == 2


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"rests_on": "fact_1"}, "rests_on: expected a list"),
        ({"rests_on": [1]}, r"rests_on[0]: expected the id of a fact"),
        ({"multi": "yes"}, "multi: expected true or false"),
        ({"earlier": [{"until": "2025-01-01T00:00:00Z"}]}, "earlier[0].valid_from: expected"),
    ],
)
def test_bad_lines_are_named(
    secondcall: Secondcall, tmp_path: Path, line: dict[str, object], words: str
) -> None:
    """A field of the wrong kind is refused with its place, before anything is written."""
    path = tmp_path / "facts.jsonl"
    path.write_text(json.dumps({"type": "fact", "predicate": "a", "value": 1, **line}), "utf-8")
    assert words in secondcall("import", str(path), "--user", "ann", expect=1)
