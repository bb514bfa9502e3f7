"""Advice on settings: the same for the same traffic, within all limits, and it runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secondcall import InvalidValue, Memory, TokenBudget
from secondcall.record.retain import parse_retention
from secondcall.shortterm.advise import Traffic, advise, in_units, program

TRAFFICS = st.builds(
    Traffic,
    state=st.sampled_from(cast("list[Literal['session', 'shared']]", ["session", "shared"])),
    calls_a_day=st.integers(1, 10**9),
    messages_a_call=st.integers(1, 10**6),
    gap_seconds=st.floats(0.001, 86_400),
    days_kept=st.none() | st.integers(0, 36_500),
    window=st.integers(500, 10**8),
    processes=st.integers(1, 10_000),
    hosts=st.integers(1, 10_000),
    message_tokens=st.integers(1, 100_000),
)


@settings(max_examples=200, deadline=None)
@given(TRAFFICS)
def test_every_plan_is_one_that_works(traffic: Traffic) -> None:
    """Whatever the traffic, the settings are accepted, fit the window and have a reason each."""
    plan = advise(traffic)
    assert plan == advise(traffic)
    budget = TokenBudget(traffic.window, plan.reserve, plan.shares)
    assert budget.check_buffer_limit(plan.token_limit) == plan.token_limit
    assert 300 <= plan.ttl_seconds <= 86_400
    assert 2 <= plan.message_limit <= 10
    assert 1 <= plan.message_tokens <= max(100, traffic.window // 10)
    assert plan.summarise_every is None or plan.summarise_every >= 5
    assert plan.memory_bytes > 0
    assert plan.disk_bytes >= 0
    assert all(one.value and one.reason for one in plan.advice)
    parse_retention(plan.retain)
    Memory.open(plan.url, retain=plan.retain)
    compile(program(traffic, plan), "program.py", "exec")


def test_the_plan_follows_the_traffic() -> None:
    """Slow talk lives longer, shared state is saved, small windows get small buffers, long calls
    are summarised, and what this release cannot do is said."""
    usual = advise(Traffic())
    assert (usual.ttl_seconds, usual.keep, usual.retain) == (300, False, "90d")
    assert (usual.summarise_every, usual.warnings) == (None, ())
    assert advise(Traffic(gap_seconds=600)).ttl_seconds == 6_000
    assert advise(Traffic(state="shared")).keep
    assert advise(Traffic(processes=4)).keep
    assert advise(Traffic(window=2_000)).token_limit < 1_000
    assert advise(Traffic(messages_a_call=2_000)).summarise_every is not None
    assert advise(Traffic(days_kept=None)).retain is None
    assert advise(Traffic(days_kept=0)).url == "memory://"
    assert advise(Traffic(days_kept=0)).disk_bytes == 0
    assert "several hosts" in " ".join(advise(Traffic(hosts=2)).warnings)
    assert "writes a second" in " ".join(advise(Traffic(calls_a_day=10**6)).warnings)


@pytest.mark.parametrize(
    "traffic",
    [
        Traffic(),
        Traffic(state="shared", messages_a_call=2_000, days_kept=None),
        Traffic(days_kept=0, window=500),
        Traffic(window=4_000, processes=2, gap_seconds=600.0),
    ],
)
def test_the_program_runs(traffic: Traffic, tmp_path: Path) -> None:
    """The program that is printed runs as it is, in an empty folder."""
    path = tmp_path / "program.py"
    path.write_text(program(traffic, advise(traffic)), "utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", path.name],
        cwd=tmp_path,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "wishes=['a table for two']" in done.stdout


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("state", "both"),
        ("calls_a_day", 0),
        ("messages_a_call", -1),
        ("gap_seconds", float("nan")),
        ("gap_seconds", 0),
        ("gap_seconds", True),
        ("days_kept", -1),
        ("window", 100),
        ("processes", True),
        ("hosts", 0),
        ("message_tokens", 1.5),
    ],
)
def test_bad_traffic(name: str, value: object) -> None:
    """What cannot be is refused by its name."""
    with pytest.raises(InvalidValue, match=name):
        Traffic(**cast("Any", {name: value}))


def test_units() -> None:
    """Sizes are printed in the largest unit that keeps a number before the point."""
    shown = [in_units(one) for one in (0, 999, 1_000, 56e6, 3e9, 5e12)]
    assert shown == ["0 bytes", "999 bytes", "1 KB", "56 MB", "3 GB", "5.0 TB"]
