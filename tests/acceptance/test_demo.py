"""The demo shows what it says, with words that it cannot know beforehand."""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

COMMAND = [sys.executable, "-m", "secondcall.cli"]


def secondcall(*arguments: str) -> str:
    """Run the command line; its standard output."""
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, check=True, text=True, encoding="utf-8"
    ).stdout


def demo(*arguments: str) -> dict[str, dict[str, Any]]:
    """What ``demo --json`` prints."""
    return cast("dict[str, dict[str, Any]]", json.loads(secondcall("demo", "--json", *arguments)))


def word() -> str:
    """A word that nobody has said before."""
    return "".join(secrets.choice("bdfgklmnprstvz") + secrets.choice("aeiou") for _ in range(5))


def test_fresh_words_are_found_in_the_second_call(tmp_path: Path) -> None:
    """Random words of the first call are recalled in the second, by items that ``show`` finds."""
    pet, name, offer = word(), word(), word()
    lines: list[object] = [
        {"role": "user", "text": "The weather has been dreadful all week."},
        {"id": "said", "role": "user", "text": f"My {pet} is called {name}, she is four."},
        {"role": "assistant", "text": f"I promise to send the {offer} on Tuesday."},
        {"type": "fact", "kind": "promise", "predicate": "shipping", "value": f"send the {offer}"},
        {"role": "user", "text": "Thank you, goodbye."},
    ]
    script = tmp_path / "script.jsonl"
    script.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    done = demo("--url", url, "--script", str(script), "--ask", f"What is my {pet} called?")
    second = done["second_call"]
    assert offer in second["brief"]
    assert name in second["recalled"][0]["text"]
    assert name in second["answer"]
    assert second["brief_ms"] > 0
    assert second["recall_ms"] > 0
    for item in second["recalled"]:
        shown = json.loads(
            secondcall(
                "show", "--json", "--url", url, "--user", second["user_id"], "--item", item["id"]
            )
        )
        assert item["text"] in [one["text"] for one in shown["items"]]
    for other in ("stranger", "withheld"):
        outcome = done[other]
        assert (outcome["brief"], outcome["recalled"], outcome["facts"]) == ("", [], [])
        told = json.dumps(outcome, ensure_ascii=False)
        assert not any(one in told for one in (name, offer, second["user_id"]))


def test_the_second_process_gets_nothing_else(tmp_path: Path) -> None:
    """The process of the second call reads a URL, a number and a question, and works from those."""
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    first = demo("--url", url)["second_call"]
    request = {"url": url, "phone": "+1 415 555 0142", "question": "Which oil is wrong?"}
    done = subprocess.run(
        [sys.executable, "-m", "secondcall.cli.call"],
        input=json.dumps(request),
        capture_output=True,
        check=True,
        text=True,
        cwd=tmp_path,
    )
    assert json.loads(done.stdout)["user_id"] == first["user_id"]


def test_the_demo_reads_well(tmp_path: Path) -> None:
    """Without ``--json`` the calls, the brief, the sources, the dates and the times are printed."""
    text = secondcall("demo", "--url", f"sqlite:///{tmp_path / 'memory.db'}")
    assert text.index("First call") < text.index("Second call") < text.index("withheld number")
    for part in ("Caller: ", "Agent: Welcome back.", "<memory note=", " ms", "show"):
        assert part in text
    assert re.search(r"\[call-[0-9a-f]+ / item_[0-9a-f]+\]", text)
    assert "no mineral oil from Kettner" in text.split("Caller: Which oil")[1].splitlines()[1]
    assert text.count("we have spoken before") == 2


def test_a_script_needs_a_question(tmp_path: Path) -> None:
    """A script without a question is a wrong call."""
    script = tmp_path / "script.jsonl"
    script.write_text('{"role": "user", "text": "Hello"}\n', "utf-8")
    done = subprocess.run([*COMMAND, "demo", "--script", str(script)], capture_output=True)
    assert done.returncode == 2
    assert b"--ask" in done.stderr


def test_a_call_that_fails_is_said(tmp_path: Path) -> None:
    """A store that the calls cannot open is one line and exit code 1."""
    done = subprocess.run(
        [*COMMAND, "demo", "--url", f"sqlite:///{tmp_path}/no/such/folder/m.db"],
        capture_output=True,
    )
    assert done.returncode == 1
    assert done.stderr.count(b"\n") == 1
    assert b"Traceback" not in done.stderr
