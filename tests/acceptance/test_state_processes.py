"""State between real processes on one SQLite file."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from secondcall import SyncMemory

WORKER = Path(__file__).with_name("state_worker.py")
PROCESSES, TIMES = 4, 50


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A SQLite file."""
    return f"sqlite:///{tmp_path / 'm.db'}"


def _begin(what: str, url: str, known: str = "", number: int = 0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(WORKER), what, url, known, str(number)],
        stdout=subprocess.PIPE,
        text=True,
    )


def _run(what: str, url: str, known: str = "", number: int = 0, *, status: int = 0) -> Any:
    process = _begin(what, url, known, number)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == status
    return json.loads(said)


def test_a_state_outlives_its_process(url: str) -> None:
    """A workflow at its second step, whose process was killed, is read and gone on with by others,
    whether they know the workflow or not."""
    assert _run("start", url, "1", 1, status=-signal.SIGKILL) == "saved"
    at = ["onboarding", 1, "documents", {"name": "Ana"}, 1]
    assert _run("read", url) == at
    assert _run("read", url, "1") == at
    assert _run("advance", url, "1") == [1, "done"]


def test_a_deploy_does_not_break_what_runs(url: str) -> None:
    """While old and new processes run side by side, an instance of the old version goes its old way
    in both that know it; one of the new is not touched by a process that only knows the old."""
    _run("start", url, "1", 1, status=-signal.SIGKILL)
    assert _run("advance", url, "1,2") == [1, "done"]
    _run("start", url, "1,2", 2, status=-signal.SIGKILL)
    name, message = _run("advance", url, "1")
    assert name == "SchemaTooNew"
    assert "version 2 of workflow 'onboarding', which is newer than version 1" in message
    assert _run("read", url, "1")[1:3] == [2, "documents"]
    assert _run("advance", url, "1,2") == [2, "review"]
    name, message = _run("advance", url)
    assert name == "UnknownName"
    assert "workflows=[" in message


def test_no_update_of_any_process_is_lost(url: str) -> None:
    """Sixteen writers in four processes count one state up; the sum is exact and the history has
    no gap."""
    processes = [_begin("count", url, number=TIMES) for _ in range(PROCESSES)]
    done = [json.loads(process.communicate(timeout=300)[0]) for process in processes]
    with SyncMemory.open(url) as memory:
        state = memory.user("ana").state.load()
        assert state is not None
        assert state.fields["n"] == sum(done) == PROCESSES * 4 * TIMES
        assert state.version == state.fields["n"]
        versions = [one.version for one in memory.user("ana").state.history(limit=1_000)]
        assert versions == list(range(versions[0], versions[0] - len(versions), -1))
