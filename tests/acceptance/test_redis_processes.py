"""State in Redis, beside a record in SQLite, between real processes, by script and by WATCH, on one
server and in a cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from services.redis import Server

from secondcall import Memory

pytestmark = [pytest.mark.external_service, pytest.mark.anyio]

WORKER = Path(__file__).with_name("state_beside_worker.py")
PROCESSES = 4
TIMES = int(os.environ.get("SECONDCALL_CONTENTION_INCREMENTS", "5"))
BY_WATCH = 20


@pytest.fixture(params=["script", "watch", "cluster"])
def urls(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[str, str]:
    """Where the record is, and where the states are."""
    name = "redis_in_three" if request.param == "cluster" else "redis_durable"
    where: Server = request.getfixturevalue(name)
    options = "&cas=watch" if request.param == "watch" else ""
    return f"sqlite:///{tmp_path / 'm.db'}", where.url(options)


def _begin(what: str, urls: tuple[str, str], known: str, number: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(WORKER), what, urls[0], known, str(number), urls[1]],
        stdout=subprocess.PIPE,
        text=True,
    )


def _run(what: str, urls: tuple[str, str], known: str, number: int = 0, *, status: int = 0) -> Any:
    process = _begin(what, urls, known, number)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == status
    return json.loads(said)


def test_a_state_outlives_its_process(urls: tuple[str, str]) -> None:
    """``onboarding`` at its second step, written by a process that was killed, is read and gone on
    with by others."""
    assert _run("start", urls, "1", 1, status=-signal.SIGKILL) == "saved"
    assert _run("read", urls, "") == ["onboarding", 1, "documents", {"name": "Ana"}, 1]
    assert _run("advance", urls, "1") == [1, "done"]


async def test_no_update_of_any_process_is_lost_and_forgetting_covers_both(
    urls: tuple[str, str],
) -> None:
    """Sixteen writers in four processes count one state up to the exact sum, without a gap in its
    history; forgetting the user then empties the record and Redis."""
    times = min(TIMES, BY_WATCH) if "cas=watch" in urls[1] else TIMES
    processes = [_begin("count", urls, "", times) for _ in range(PROCESSES)]
    done = [json.loads(process.communicate(timeout=300)[0]) for process in processes]
    async with Memory.open(urls[0], state=urls[1]) as memory:
        user = memory.user("ana")
        state = await user.state.load()
        assert state is not None
        assert state.fields["n"] == state.version == sum(done) == PROCESSES * 4 * times
        versions = [one.version for one in await user.state.history(limit=1_000)]
        assert versions == list(range(versions[0], versions[0] - len(versions), -1))
        receipt = await user.forget()
        assert receipt.complete, receipt.detail
        assert receipt.removed["state.states"] == 1
        assert set(receipt.remaining.values()) <= {0}
        assert await memory.user("ana").state.load() is None
