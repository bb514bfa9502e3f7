"""The command line as people use it: in processes of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from secondcall.cli import main

COMMAND = [sys.executable, "-m", "secondcall.cli"]


def secondcall(
    folder: Path, *arguments: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run the command line in a process of its own, on a store in ``folder``."""
    url = {"SECONDCALL_URL": f"sqlite:///{folder / 'memory.db'}"}
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        check=False,
        cwd=folder,
        env={**os.environ, **url, **(env or {})},
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a transcript of odd characters."""
    lines: Sequence[object] = [
        {"role": "user", "text": "Grüße \u202e 你好 👩\u200d🚒 \x1b[31m"},
        {"role": "assistant", "text": "Half a pair: \ud83d"},
    ]
    content = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "odd.jsonl").write_text(content, "utf-8")
    return tmp_path


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_any_text_on_any_terminal(folder: Path, encoding: str) -> None:
    """Odd characters go in and come out under every encoding, and none steers the terminal."""
    env = {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    assert secondcall(folder, "import", "--user", "ü", "odd.jsonl").returncode == 0
    for command in (("show", "--all"), ("brief",), ("recall", "Grüße"), ("export",)):
        done = secondcall(folder, *command, "--user", "ü", env=env)
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"\x1b" not in done.stdout
    done = secondcall(folder, "show", "--all", "--user", "ü", "--json", env=env)
    assert json.loads(done.stdout)["items"][0]["text"] == "Grüße \u202e 你好 👩\u200d🚒 \x1b[31m"


def test_a_reader_that_goes_away(folder: Path) -> None:
    """When the reader of a pipe leaves early, the command ends without a word."""
    line = json.dumps({"role": "user", "text": "word " * 200})
    (folder / "long.jsonl").write_text(f"{line}\n" * 2_000, "utf-8")
    assert secondcall(folder, "import", "--user", "ada", "long.jsonl").returncode == 0
    for command in ("export", "show"):
        more = ["--all"] if command == "show" else []
        process = subprocess.Popen(
            [*COMMAND, command, "--user", "ada", *more, "--url", f"sqlite:///{folder}/memory.db"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        process.stderr.close()
        assert process.wait() == 1


def test_control_c(folder: Path) -> None:
    """A command that is interrupted ends with exit code 130, in one line, and did nothing."""
    assert secondcall(folder, "import", "--user", "ada", "odd.jsonl").returncode == 0
    process = subprocess.Popen(
        [*COMMAND, "forget", "--user", "ada"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "SECONDCALL_URL": f"sqlite:///{folder / 'memory.db'}"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stderr is not None
    asked = b""
    while not asked.endswith(b"[y/N]: "):
        asked += process.stderr.read(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert err.strip() == b"secondcall: interrupted"
    assert secondcall(folder, "brief", "--user", "ada").returncode == 0


def test_forget_that_is_not_complete(folder: Path) -> None:
    """While another process pins the log, ``forget`` ends with exit code 3 and says why."""
    assert secondcall(folder, "import", "--user", "ada", "odd.jsonl").returncode == 0
    pin = (
        "import apsw, sys\n"
        f"connection = apsw.Connection({str(folder / 'memory.db')!r})\n"
        "connection.execute('BEGIN')\n"
        "connection.execute('SELECT count(*) FROM sqlite_schema').fetchall()\n"
        "print('pinned', flush=True)\n"
        "sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", pin], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        done = secondcall(folder, "forget", "--user", "ada", "--yes", "--json")
        receipt = json.loads(done.stdout)
        assert (done.returncode, receipt["complete"]) == (3, False)
        assert receipt["detail"]
    finally:
        holder.communicate(b"")
    assert secondcall(folder, "brief", "--user", "ada").returncode == 1


def test_help_names_every_command(folder: Path) -> None:
    """Help lists the commands."""
    done = secondcall(folder, "--help")
    assert done.returncode == 0
    for command in ("import", "export", "recall", "brief", "show", "forget", "doctor", "eval"):
        assert f"  {command} ".encode() in done.stdout


def test_entry_point(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """``main`` ends the process with the exit code."""
    monkeypatch.setattr(sys, "argv", ["secondcall", "--version"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert capsys.readouterr().out.strip()
