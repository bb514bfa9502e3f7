"""``secondcall advise``: by options, by asking, as JSON, and honest about what it was given."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence

import pytest

from secondcall.cli.app import run


def _run(
    capsys: pytest.CaptureFixture[str], arguments: Sequence[str], *, code: int = 0
) -> tuple[str, str]:
    assert run(["advise", *arguments]) == code
    done = capsys.readouterr()
    assert "Traceback" not in done.err
    return done.out, done.err


def test_options(capsys: pytest.CaptureFixture[str]) -> None:
    """With options nothing is asked; what was not given is named, reasons and program follow."""
    out, err = _run(capsys, ["--calls-a-day", "200", "--days-kept", "30"])
    assert err == ""
    assert "Taken as usual: state session, messages a call 40" in out
    assert "retention: 30d" in out
    assert 'Memory.open("sqlite:///memory.db", retain="30d")' in out


def test_asking(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without options it asks on standard error, and asks again what it cannot read."""
    answers = "shared\nmany\n50\n\n\n\never\n8000\n\n2\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(answers))
    out, err = _run(capsys, ["--json"])
    plan = json.loads(out)
    assert plan["traffic"]["state"] == "shared"
    assert plan["traffic"]["calls_a_day"] == 50
    assert plan["traffic"]["days_kept"] is None
    assert (plan["traffic"]["window"], plan["traffic"]["hosts"]) == (8_000, 2)
    assert plan["shares"] == {"buffer": 0.5, "recall": 0.2, "state": 0.3}
    assert any("several hosts" in one for one in plan["warnings"])
    assert "not a valid integer" in err


def test_nobody_to_ask(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without options and without anybody to ask it fails as called wrongly."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    out, err = _run(capsys, [], code=2)
    assert out == ""
    assert "nobody to ask" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--calls-a-day", "0"], "calls_a_day is 0"),
        (["--window", "10"], "window is 10"),
        (["--gap-seconds", "nan"], "gap_seconds is nan"),
        (["--days-kept", "-1"], "expected a number of days"),
        (["--days-kept", "soon"], "expected a number of days"),
        (["--state", "both"], "'both'"),
        (["--hosts", "two"], "'two'"),
    ],
)
def test_wrong_calls(
    capsys: pytest.CaptureFixture[str], arguments: Sequence[str], said: str
) -> None:
    """A wrong answer is one line that names it, and exit code 2."""
    out, err = _run(capsys, arguments, code=2)
    assert out == ""
    assert said in err
