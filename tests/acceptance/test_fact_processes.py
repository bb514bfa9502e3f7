"""Several processes tell facts of one user in one SQLite file at once."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import anyio.to_thread
import pytest

from secondcall import Memory
from secondcall.facts.chain import holds_at

pytestmark = pytest.mark.anyio

WORKER = Path(__file__).with_name("fact_worker.py")
PROCESSES = 4
EACH = 25


def _run(url: str) -> list[dict[str, int]]:
    """What each process reports at its end."""
    workers = [
        subprocess.Popen(
            [sys.executable, str(WORKER), url, f"p{number}", str(EACH)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    outputs = [worker.communicate(timeout=120) for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * PROCESSES, outputs
    return [json.loads(out) for out, _ in outputs]


async def test_processes_change_one_predicate(tmp_path: Path) -> None:
    """One value wins, every value is recorded, and at each moment exactly one held; the values of
    another predicate are all there, but for those that were taken back."""
    url = f"sqlite:///{tmp_path / 'm.db'}"
    done = await anyio.to_thread.run_sync(_run, url)
    assert done == [{"told": 2 * EACH, "lost": 0}] * PROCESSES
    async with Memory.open(url) as memory:
        user = memory.user("ann")
        seats = await user.history("seat")
        assert len({str(fact.value) for fact in seats}) == len(seats) == PROCESSES * EACH
        ids = {fact.id for fact in seats}
        assert sum(fact.invalid_at is None for fact in seats) == 1
        assert all(fact.superseded_by in ids for fact in seats if fact.invalid_at is not None)
        for each in seats:
            assert sum(holds_at(fact, each.valid_from) for fact in seats) == 1
        tags = [fact for fact in await user.facts() if fact.predicate == "tag"]
        assert len(tags) == PROCESSES * EACH * 4 // 5
        believed = await user.facts(believed_at=datetime.now(UTC))
        assert {fact.id for fact in believed} == {fact.id for fact in await user.facts()}
