"""Starting ``state_worker`` processes, letting them end and killing them."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from typing import IO, TypedDict

__all__ = ["PROCESSES", "TASKS", "Order", "kill_while_saving", "run_writers"]

PROCESSES = 4
TASKS = 4
_COMMAND = [sys.executable, "-m", "secondcall.testing.conformance.state_worker"]
_SECONDS = 300.0


class Order(TypedDict):
    """What a worker is asked to do."""

    url: str
    name: str
    tasks: int
    count: int
    until_killed: bool


def _start(order: Order) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        _COMMAND,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(order) + "\n")
    process.stdin.flush()
    return process


def run_writers(url: str, increments: int) -> float:
    """Let 16 writers in 4 processes add so much to ``KEY``, each; the seconds it took."""
    begun = time.monotonic()
    processes = [
        _start(Order(url=url, name=f"p{number}", tasks=TASKS, count=increments, until_killed=False))
        for number in range(PROCESSES)
    ]
    for process in processes:
        process.communicate(timeout=_SECONDS)
    assert [process.returncode for process in processes] == [0] * PROCESSES
    return time.monotonic() - begun


def kill_while_saving(url: str, name: str, *, most_seconds: float = 0.3) -> dict[str, int]:
    """Kill -9 two processes at a random moment; the last acknowledged version of each session."""
    processes = [
        _start(Order(url=url, name=f"{name}-{number}", tasks=TASKS, count=0, until_killed=True))
        for number in range(2)
    ]
    first = [_output(process).readline() for process in processes]
    time.sleep(random.uniform(0, most_seconds))
    for process in processes:
        process.kill()
    acknowledged: dict[str, int] = {}
    for process, line in zip(processes, first, strict=True):
        with process:
            for one in (line + _output(process).read()).splitlines():
                session_id, version = one.split()
                acknowledged[session_id] = int(version)
    return acknowledged


def _output(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout
