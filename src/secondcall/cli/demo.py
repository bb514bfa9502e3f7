"""``demo``: the second call works, shown in processes of their own."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, cast

import click

from secondcall.cli.output import print_json, say
from secondcall.cli.place import json_option, settings

__all__ = ["demo"]

# Numbers of the range that is kept free for fiction.
_CALLER = "+1 415 555 0142"
_STRANGER = "+1 415 555 0187"
_WITHHELD = "anonymous"
_QUESTION = "Which oil should you not use on my brakes?"

_Call = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Calls:
    first: _Call
    second: _Call
    stranger: _Call
    withheld: _Call


@click.command()
@click.option(
    "--script",
    type=click.Path(exists=True, dir_okay=False),
    help="The first call: any file that 'import' reads. Needs --ask.",
)
@click.option("--ask", "question", help="What the caller asks in the second call.")
@click.option("--url", help="The store; default SECONDCALL_URL, or a new file that is kept.")
@json_option
def demo(script: str | None, question: str | None, url: str | None, as_json: bool) -> None:
    """Two calls of one caller in two processes, then a stranger and a withheld number.

    The second process gets the URL of the store, the caller's number and the question, nothing
    else. What it answers is quoted from the record.
    """
    if script is not None and question is None:
        raise click.UsageError("--script needs --ask", click.get_current_context())
    question = question or _QUESTION
    url = url or settings().url or _new_store()
    with as_file(files("secondcall.cli") / "data" / "first_call.jsonl") as own:
        calls = _call_all(url, Path(script) if script is not None else own, question)
    if as_json:
        print_json(
            {
                "second_call": {**_outcome(calls.second), "url": url},
                "stranger": _outcome(calls.stranger),
                "withheld": _outcome(calls.withheld),
            }
        )
    else:
        _say_calls(calls, url)


def _new_store() -> str:
    folder = Path(tempfile.mkdtemp(prefix="secondcall-demo-"))
    return f"sqlite:///{(folder / 'memory.db').as_posix()}"


def _call_all(url: str, script: Path, question: str) -> _Calls:
    session_id = f"call-{secrets.token_hex(4)}"
    first = _call({"url": url, "phone": _CALLER, "script": str(script), "session_id": session_id})

    def ask(phone: str) -> _Call:
        return _call({"url": url, "phone": phone, "question": question})

    return _Calls(first, ask(_CALLER), ask(_STRANGER), ask(_WITHHELD))


def _call(request: Mapping[str, str]) -> _Call:
    done = subprocess.run(
        [sys.executable, "-m", "secondcall.cli.call"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise click.ClickException(lines[-1] if lines else "the call's process ended early")
    return cast("_Call", json.loads(done.stdout))


def _outcome(call: _Call) -> Mapping[str, object]:
    names = (
        "brief",
        "recalled",
        "brief_ms",
        "recall_ms",
        "facts",
        "greeting",
        "answer",
        "reason",
        "user_id",
        "ms",
    )
    return {name: call[name] for name in names}


def _say_calls(calls: _Calls, url: str) -> None:
    _title(f"First call, from {_CALLER} (process 1)")
    for item in calls.first["said"]:
        _say_item(item)
    say(f"  {calls.first['facts']} facts remembered, then the caller hangs up.", dim=True)
    _say_times(calls.first)
    _title(f"Second call, from {_CALLER} (process 2: a URL, a number, a question)")
    say(calls.second["brief"], dim=True)
    _say_turns(calls.second)
    say("  Recalled:", bold=True)
    for item in calls.second["recalled"]:
        say(f"  {item['score']:.3f}  {_day(item)}  [{item['session_id']} / {item['id']}]", dim=True)
        say(f"         {_text(item)}")
    _say_times(calls.second)
    _title(f"A call from {_STRANGER} (process 3)")
    _say_turns(calls.stranger)
    _say_times(calls.stranger)
    _title("A call from a withheld number (process 4)")
    _say_turns(calls.withheld)
    _say_times(calls.withheld)
    say()
    say(f"See it in the record: secondcall show --user {calls.second['user_id']} --url '{url}'")


def _title(text: str) -> None:
    say()
    say(text, bold=True)


def _say_item(item: Mapping[str, Any]) -> None:
    who = {"user": "Caller", "assistant": "Agent"}.get(str(item.get("role")), "Tool")
    say(f"  {who}: {_text(item)}")


def _say_turns(call: _Call) -> None:
    say(f"  Agent: {call['greeting']}")
    say(f"  Caller: {call['question']}")
    say(f"  Agent: {call['answer']}")


def _say_times(call: _Call) -> None:
    steps = ", ".join(f"{name.replace('_', ' ')} {ms:.1f} ms" for name, ms in call["ms"].items())
    say(f"  {steps}", dim=True)


def _text(item: Mapping[str, Any]) -> str:
    if item["kind"] == "message":
        return str(item["text"])
    return f"{item['name']} {json.dumps(item['arguments'])} -> {item['output']}"


def _day(item: Mapping[str, Any]) -> str:
    return str(item["at"])[:10]
