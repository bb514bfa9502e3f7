"""A call that turns out to be somebody else's: nothing of the one reaches the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from adapters.livekit.jobs import ANN, calls, end, outputs, settings_in, talk, texts
from adapters.livekit.waiting import until
from livekit.agents import Agent, RunResult

from secondcall import Memory, Message, StateTools, Step, Workflow
from secondcall.adapters.livekit import call
from secondcall.testing.livekit import Reply
from secondcall.testing.livekit_room import room_job

pytestmark = pytest.mark.anyio


@dataclass
class Order:
    """Userdata that is kept."""

    items: list[str] = field(default_factory=list[str])


async def _said(memory: Memory, user_id: str) -> list[str]:
    user = memory.user(user_id)
    return [one.item.text.strip() async for one in user.items() if isinstance(one.item, Message)]


def _journals(folder: Path) -> list[Path]:
    return [*folder.rglob("*.journal")]


async def _ben(live: Any, job: Any) -> str:
    """The caller on Ann's telephone turns out to be Ben."""
    before = live.user.user_id
    job.set_attributes("sip_1", {"sip.phoneNumber": ANN, "user_id": "ben"})
    await until(lambda: live.user.user_id != before)
    await until(lambda: live.recorder.since is not None)
    return live.user.user_id


async def test_what_was_said_before_stays_where_it_was_said(memory: Memory, tmp_path: Path) -> None:
    """What was said as Ann is Ann's alone, with Ann's facts in it; what is said as Ben is Ben's
    alone, to the last word, also at the end."""
    ann = await memory.identify(phone=ANN)
    await memory.user(ann).remember("name", "Ann")
    with room_job() as job:
        job.call_in(ANN)
        async with call(job.ctx, memory, settings=settings_in(tmp_path)) as live:
            agent = live.agent(Agent(instructions="Be brief."))
            async with talk(agent, ["Hello Ann.", "Hello Ben."]) as (session, model):
                await session.run(user_input="Hello?")
                ben = await _ben(live, job)
                await session.run(user_input="I am Ben")
            assert "Ann" not in "".join(
                one.text_content or "" for one in model.requests[1].messages() if one.extra
            )
        await end(job.ctx)
    assert await _said(memory, ann.user_id) == ["Hello?", "Hello Ann."]
    assert await _said(memory, ben) == ["I am Ben", "Hello Ben."]


async def test_the_second_record_is_finished_before_the_memory_is_closed(tmp_path: Path) -> None:
    """A memory that the call opened is closed only after both records are whole."""
    memory = Memory.open(f"sqlite:///{tmp_path}/memory.db")
    with room_job() as job:
        job.call_in(ANN)
        async with call(job.ctx, memory, settings=settings_in(tmp_path)) as live:
            agent = live.agent(Agent(instructions="Be brief."))
            async with talk(agent, ["One.", "Two."]) as (session, _):
                await session.run(user_input="Hello?")
                ben = await _ben(live, job)
                await session.run(user_input="I am Ben")
                session.history.add_message(role="user", content="one more thing")
        await end(job.ctx)
    assert not memory.is_open
    assert _journals(tmp_path) == []
    async with Memory.open(f"sqlite:///{tmp_path}/memory.db") as again:
        assert await _said(again, ben) == ["I am Ben", "Two.", "one more thing"]


async def test_userdata_goes_to_nobody_else(memory: Memory, tmp_path: Path) -> None:
    """What was kept of Ann is taken from a caller who is Ben, and what Ben has in it is not there
    when Ann calls again."""
    settings = settings_in(tmp_path, keep_userdata=True, session_id="shared")
    seen: list[list[str]] = []
    for number in range(3):
        with room_job(job_id=f"AJ_{number}") as job:
            job.call_in(ANN)
            async with call(job.ctx, memory, userdata=Order, settings=settings) as live:
                seen.append([*live.userdata.data.items])
                agent = live.agent(Agent(instructions="Be brief."))
                async with talk(agent, ["Yes?"] * 2, userdata=live.userdata) as (session, _):
                    await session.run(user_input="Hello?")
                    if number == 1:
                        await _ben(live, job)
                        assert live.userdata.data.items == []
                        live.userdata.append("items", "secret of Ben")
                    else:
                        live.userdata.append("items", "tea")
            await end(job.ctx)
    assert seen == [[], ["tea"], ["tea"]]


async def test_state_tools_go_by_the_caller_of_now(memory: Memory, tmp_path: Path) -> None:
    """After it is known who it is, the tools of a state neither show nor change the other's."""
    workflow = Workflow(
        "w", {"a": Step(), "b": Step(terminal=True)}, {"a": ["b"]}, slots={"name": str}
    )
    with room_job() as job:
        job.call_in(ANN)
        async with call(job.ctx, memory, settings=settings_in(tmp_path)) as live:
            ann = live.session
            tools = await live.tools(state=StateTools(live.session, workflows=[workflow]))
            agent = live.agent(Agent(instructions="Be brief.", tools=[*tools]))
            script = [
                *calls(("update_workflow_state", {"start": "w"})),
                *calls(("fill_slots", {"name": "Ann"})),
                *calls(("get_workflow_state", {})),
                *calls(("update_workflow_state", {"start": "w"})),
            ]
            async with talk(agent, script) as (session, model):
                await session.run(user_input="Begin")
                await session.run(user_input="I am Ann")
                await _ben(live, job)
                await session.run(user_input="Where are we?")
                assert "Ann" not in outputs(model.requests[-1])[-1]
                await session.run(user_input="Begin")
            mine = await live.session.state.load()
            theirs = await ann.state.load()
        await end(job.ctx)
    assert mine is not None
    assert theirs is not None
    assert (dict(mine.slots), dict(theirs.slots)) == ({}, {"name": "Ann"})
    assert "Ann" in texts(model.requests[-1])  # the conversation itself goes on


async def test_a_state_goes_on_when_the_caller_becomes_known(
    memory: Memory, tmp_path: Path
) -> None:
    """What was filled in before it was known who calls is there afterwards."""
    workflow = Workflow(
        "w", {"a": Step(), "b": Step(terminal=True)}, {"a": ["b"]}, slots={"name": str}
    )
    ann = await memory.identify(phone=ANN)
    await memory.user(ann).remember("name", "Ann")
    settings = settings_in(tmp_path, caller={"attribute_seconds": 0.05})
    with room_job() as job:
        job.call_in(None)
        async with call(job.ctx, memory, settings=settings) as live:
            tools = await live.tools(state=StateTools(live.session, workflows=[workflow]))
            agent = live.agent(Agent(instructions="Be brief.", tools=[*tools]))
            script = [
                *calls(("update_workflow_state", {"start": "w"})),
                *calls(("fill_slots", {"name": "Ann"})),
                *calls(("get_workflow_state", {})),
            ]
            async with talk(agent, script) as (session, model):
                await session.run(user_input="Begin")
                await session.run(user_input="I am Ann")
                job.set_attributes("sip_1", {"sip.phoneNumber": ANN})
                await until(lambda: live.brief is not None and live.brief.known)
                await session.run(user_input="Where are we?")
            assert '"name": "Ann"' in outputs(model.requests[-1])[-1]
        await end(job.ctx)


async def test_a_reply_that_was_begun_for_the_one_is_not_in_the_others_record(
    memory: Memory, tmp_path: Path
) -> None:
    """A reply that knew Ann's memory, and is said after it is known that the caller is Ben, is not
    in Ben's record."""
    ann = await memory.identify(phone=ANN)
    await memory.user(ann).remember("name", "Ann")
    with room_job() as job:
        job.call_in(ANN)
        async with call(job.ctx, memory, settings=settings_in(tmp_path)) as live:
            agent = live.agent(Agent(instructions="Be brief."))
            script = [Reply(text="Hello Ann.", delay_seconds=1.0), "Hello Ben."]
            async with talk(agent, script) as (session, model):
                turn: RunResult[Any] = session.run(user_input="Hello?")
                await until(lambda: len(model.requests) == 1)
                ben = await _ben(live, job)
                await turn
                await session.run(user_input="I am Ben")
        await end(job.ctx)
    assert await _said(memory, ann.user_id) == ["Hello?", "Hello Ann."]
    assert await _said(memory, ben) == ["I am Ben", "Hello Ben."]
