"""State in PostgreSQL, beside a record in SQLite, between processes and over a killed server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from services.postgresql import Server

from secondcall import Memory

pytestmark = [pytest.mark.external_service, pytest.mark.anyio]

WORKER = Path(__file__).with_name("state_beside_worker.py")
PROCESSES = 4
TIMES = int(os.environ.get("SECONDCALL_CONTENTION_INCREMENTS", "10"))

Urls = tuple[str, str]


@pytest.fixture
def urls(tmp_path: Path, postgresql_18: Server) -> Urls:
    """Where the record is, and where the states are."""
    return f"sqlite:///{tmp_path / 'm.db'}", postgresql_18.url()


def _begin(what: str, urls: Urls, known: str, number: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(WORKER), what, urls[0], known, str(number), urls[1]],
        stdout=subprocess.PIPE,
        text=True,
    )


def _run(what: str, urls: Urls, known: str, number: int = 0, *, status: int = 0) -> Any:
    process = _begin(what, urls, known, number)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == status
    return json.loads(said)


def test_a_state_outlives_its_process_and_its_server(urls: Urls, postgresql_18: Server) -> None:
    """``onboarding`` at its second step, written by a process that was killed, is read and gone on
    with by others, also after the server was killed and started again."""
    assert _run("start", urls, "1", 1, status=-signal.SIGKILL) == "saved"
    if postgresql_18.can_stop:
        postgresql_18.kill()
        postgresql_18.start()
    assert _run("read", urls, "") == ["onboarding", 1, "documents", {"name": "Ana"}, 1]
    assert _run("advance", urls, "1") == [1, "done"]


async def test_no_update_of_any_process_is_lost_and_forgetting_covers_both(urls: Urls) -> None:
    """Sixteen writers in four processes count one state up to the exact sum, without a gap in its
    history; forgetting the user then empties the record and the schema."""
    processes = [_begin("count", urls, "", TIMES) for _ in range(PROCESSES)]
    done = [json.loads(process.communicate(timeout=300)[0]) for process in processes]
    async with Memory.open(urls[0], state=urls[1]) as memory:
        user = memory.user("ana")
        state = await user.state.load()
        assert state is not None
        assert state.fields["n"] == state.version == sum(done) == PROCESSES * 4 * TIMES
        versions = [one.version for one in await user.state.history(limit=1_000)]
        assert versions == list(range(versions[0], versions[0] - len(versions), -1))
        receipt = await user.forget()
        assert receipt.complete
        assert receipt.removed["state.states"] == 1
        assert await memory.user("ana").state.load() is None
