"""The userdata of a call live as long as it does, unless the application says otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from adapters.livekit.jobs import ANN, end, settings_in, talk
from livekit.agents import Agent

from secondcall import InvalidValue, Memory, ShortTermMemory
from secondcall.adapters.livekit import call
from secondcall.testing.livekit_room import room_job

pytestmark = pytest.mark.anyio

_DAY_SECONDS = 86_400.0


@dataclass
class Order:
    """What is ordered in a call."""

    items: list[str] = field(default_factory=list[str])
    table: int = 0


@pytest.mark.parametrize("ttl", [None, 60.0, {"table": 60.0, "*": None}])
async def test_userdata_live_as_long_as_the_call(memory: Memory, tmp_path: Path, ttl: Any) -> None:
    """Nothing in userdata runs out by itself, however quiet the call is, unless a life was set."""
    with room_job() as job:
        job.call_in(ANN)
        settings = settings_in(tmp_path, userdata_ttl_seconds=ttl)
        async with call(job.ctx, memory, userdata=Order, settings=settings) as live:
            live.userdata.set(table=7, items=["tea"])
            left = live.userdata.left_seconds("table")
            assert (left is None) == (ttl is None)
            assert left is None or left <= 60.0
            assert (live.userdata.left_seconds("items") is None) == (ttl != 60.0)
            await live.aclose()


async def test_kept_userdata_run_out_some_day(memory: Memory, tmp_path: Path) -> None:
    """What is saved with the session has a day to live, and not for ever."""
    with room_job() as job:
        job.call_in(ANN)
        settings = settings_in(tmp_path, keep_userdata=True)
        async with call(job.ctx, memory, userdata=Order, settings=settings) as live:
            live.userdata.set(table=7)
            left = live.userdata.left_seconds("table")
            assert left is not None
            assert _DAY_SECONDS / 2 < left <= _DAY_SECONDS
            await live.aclose()


async def test_the_application_brings_its_own(memory: Memory, tmp_path: Path) -> None:
    """A ready memory, with limits and lives of its own and with something in it, is the call's;
    kept, it is there with its settings when a dropped call goes on."""
    settings = settings_in(tmp_path, keep_userdata=True)
    own = ShortTermMemory(Order)
    for number in range(2):
        with room_job(job_id=f"AJ_{number}") as job:
            job.call_in(ANN)
            own = ShortTermMemory(Order(table=3), ttl_seconds={"*": 1e6}, max_entries=2)
            async with call(job.ctx, memory, userdata=own, settings=settings) as live:
                assert live.userdata is own
                assert own.data.items == ["tea"] * number
                assert own.data.table == 3
                own.append("items", "tea")
                left = own.left_seconds("items")
                assert left is not None
                assert left > _DAY_SECONDS
                agent = live.agent(Agent(instructions="Be brief."))
                talking = talk(agent, ["Yes?"], userdata=live.userdata, dropped=True)
                async with talking as (session, _):
                    await session.run(user_input="Tea, please")
                    assert session.userdata is own
            await end(job.ctx)
    assert own.append("items", "tea") == 1


async def test_a_memory_of_another_call_is_refused(memory: Memory, tmp_path: Path) -> None:
    """A ready memory that was one caller's userdata is not taken for another's, and the error says
    what to do."""
    own = ShortTermMemory(Order)
    with room_job(job_id="AJ_1") as job:
        job.call_in(ANN)
        async with call(job.ctx, memory, userdata=own, settings=settings_in(tmp_path)) as live:
            own.set(table=7)
            await live.aclose()
    with room_job(job_id="AJ_2") as job:
        job.call_in("+14155550101")
        with pytest.raises(InvalidValue, match="make one in the entrypoint"):
            async with call(job.ctx, memory, userdata=own, settings=settings_in(tmp_path)):
                raise AssertionError
