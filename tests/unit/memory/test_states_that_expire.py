"""States under retention: what is past its time goes, and what their history keeps is bounded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from secondcall import Memory, Message
from secondcall.abc_state import StateStore
from secondcall.cli.app import run
from secondcall.memory import expiring
from secondcall.testing.fakes import FrozenClock

DAY = timedelta(days=1)


@pytest.fixture(params=["memory", "sqlite", "apart"])
async def memory(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FrozenClock
) -> AsyncIterator[Memory]:
    """A memory with its states beside the record, in a file of their own, or in memory."""
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'm.db'}"
    state = f"sqlite:///{tmp_path / 's.db'}" if request.param == "apart" else None
    async with Memory.open(url, clock=clock, state=state) as opened:
        yield opened


def _states(memory: Memory) -> StateStore:
    return memory._shared.state_store()  # pyright: ignore[reportPrivateUsage] - what is stored


async def _keys(memory: Memory) -> list[str | None]:
    return [one.session_id for one in await _states(memory).list("default", "ann", limit=100)]


async def test_a_state_past_its_time_is_removed(memory: Memory, clock: FrozenClock) -> None:
    """The sweep deletes what is past ``expires_at``, with what its history held; a dry run counts
    it. Others stay, and a new state goes on with the versions."""
    user = memory.user("ann")
    short, long = await user.session("short"), await user.session("long")
    until = clock.now() + DAY
    await short.state.update(lambda state: state.with_fields(card="4417").expiring(until))
    await short.state.update(lambda state: state.with_fields(card="4418"))
    await long.state.update(lambda state: state.with_fields(n=1))
    await user.state.update(lambda state: state.with_fields(n=2))
    assert await user.sweep() == 0
    clock.advance(DAY)
    assert await user.sweep(dry_run=True) == 1
    assert set(await _keys(memory)) == {None, "short", "long"}
    assert await memory.sweep() == {"ann": 1}
    assert set(await _keys(memory)) == {None, "long"}
    (last,) = await short.state.history()
    assert (last.deleted, last.by, last.changed) == (True, "retention", {"reason": "expired"})
    assert await user.sweep() == 0
    again = await short.state.update(lambda state: state.with_fields(card="1"))
    assert again.version == 4


async def test_old_versions_run_out_by_the_policy(memory: Memory, clock: FrozenClock) -> None:
    """Versions older than the retention of *state* are not shown from then on and go at the sweep;
    the state itself stays."""
    user = memory.user("ann")
    await user.retain({"state": "10d"})
    state = (await user.session("s")).state
    for number in range(3):
        await state.update(lambda one, n=number: one.with_fields(n=n))
        clock.advance(4 * DAY)
    assert [one.version for one in await state.history()] == [3, 2]
    assert await user.sweep(dry_run=True) == 1
    assert await user.sweep() == 1
    clock.advance(30 * DAY)
    assert await state.history() == []
    assert await user.sweep() == 2
    found = await state.load()
    assert found is not None
    assert found.fields == {"n": 2}


async def test_without_a_policy_history_is_bounded_by_number(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default only versions beyond the newest 1,000 go."""
    monkeypatch.setattr(expiring, "HISTORY_KEPT", 5)
    user = memory.user("ann")
    for number in range(8):
        await user.state.update(lambda one, n=number: one.with_fields(n=n))
    assert await user.sweep(dry_run=True) == 3
    assert await user.sweep() == 3
    assert [one.version for one in await user.state.history()] == [8, 7, 6, 5, 4]


async def test_a_hold_keeps_states_and_versions(memory: Memory, clock: FrozenClock) -> None:
    """Under a legal hold nothing of it goes, neither by a sweep nor by saving."""
    user = memory.user("ann")
    await user.hold()
    until = clock.now() + DAY
    await user.state.update(lambda state: state.with_fields(n=0).expiring(until))
    for number in range(1, 70):
        await user.state.update(lambda one, n=number: one.with_fields(n=n))
    await memory.flush()
    kept = await _states(memory).history(
        (await _states(memory).list("default", "ann", limit=1))[0], limit=100
    )
    assert len(kept) == 70
    clock.advance(2 * DAY)
    assert await user.sweep() == 0
    assert await _keys(memory) == [None]


async def test_a_state_saved_meanwhile_stays(memory: Memory, clock: FrozenClock) -> None:
    """When somebody saves the state between the look and the deletion, it stays."""
    user = memory.user("ann")
    until = clock.now() + DAY
    await user.state.update(lambda state: state.with_fields(n=0).expiring(until))
    clock.advance(2 * DAY)
    delete = _states(memory).delete

    async def late(*given: Any, **named: Any) -> None:
        await user.state.update(lambda state: state.with_fields(n=1).expiring(None))
        await delete(*given, **named)

    _states(memory).delete = late
    assert await user.sweep() == 0
    found = await user.state.load()
    assert found is not None
    assert found.fields == {"n": 1}


def test_the_command_shows_and_counts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``secondcall retention`` shows the period of states, counts with --dry-run and removes."""
    monkeypatch.setenv("SECONDCALL_URL", f"sqlite:///{tmp_path / 'm.db'}")
    began = datetime(2020, 1, 1, tzinfo=UTC)

    async def fill() -> None:
        async with Memory.open(
            f"sqlite:///{tmp_path / 'm.db'}", clock=FrozenClock(began)
        ) as memory:
            user = memory.user("ann")
            await (await user.session("s")).record(Message("user", "hello"))
            await user.state.update(lambda one: one.with_fields(n=1).expiring(began + DAY))

    asyncio.run(fill())

    def told(*more: str) -> dict[str, Any]:
        assert run(["retention", "--user", "ann", "--json", *more]) == 0
        return json.loads(capsys.readouterr().out)

    shown = told("--keep", "36500d", "--dry-run")
    assert "state" in shown["policy"]["keep_seconds"]
    assert shown["swept"] == {"ann": 1}
    assert told("--sweep")["swept"] == {"ann": 1}
    assert told("--dry-run")["swept"] == {"ann": 0}
