"""A whole call: who calls, what is known, what is said, and what is left of it when it ends."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from adapters.livekit.calls import FailingStore
from adapters.livekit.jobs import ANN, WatchedLLM, calls, end, settings_in, talk, texts, words_of
from adapters.livekit.waiting import until
from livekit.agents import Agent, AgentSession, function_tool

from secondcall import InvalidValue, Memory, ShortTermMemory, StateTools, Step, Workflow
from secondcall.adapters.livekit import CallSettings, call
from secondcall.testing.livekit_room import room_job

pytestmark = pytest.mark.anyio


async def test_the_second_call_knows_the_first(memory: Memory, tmp_path: Path) -> None:
    """What one call remembers is in front of the model in the next, before its first word; each
    call is a session of its own with every word in it."""
    with room_job(job_id="AJ_1") as job:
        job.call_in(ANN)
        settings = settings_in(tmp_path, grace_seconds=0)
        async with call(job.ctx, memory, settings=settings) as live:
            assert live.resolved.caller.known is False
            agent = Agent(instructions="Be brief.", tools=[*await live.tools()])
            script = calls(("remember", {"name": "seat", "value": "aisle"}), then="Noted.")
            async with talk(live.agent(agent), script, userdata=live.userdata) as (session, _):
                await session.run(user_input="I sit on the aisle.")
                assert isinstance(session.userdata, ShortTermMemory)
        await end(job.ctx)
    with room_job(job_id="AJ_2") as job:
        job.call_in(ANN)
        async with call(job.ctx, memory, settings=settings) as live:
            assert live.resolved.caller.known is True
            assert live.brief is not None
            agent = live.agent(Agent(instructions="Be brief."))
            async with talk(agent, ["Aisle."], userdata=live.userdata) as (session, model):
                await session.run(user_input="Where do I sit?")
            assert '"seat" = "aisle"' in texts(model.requests[0])
            user = live.user
        await end(job.ctx)
    sessions = await user.sessions()
    assert {one.session_id for one in sessions} == {"call_AJ_1", "call_AJ_2"}
    first = await (await user.session("call_AJ_1")).items()
    assert words_of(first) == ["I sit on the aisle.", "Noted."]
    assert [one.key.kind for one in first].count("tool_call") == 1
    (fact,) = await user.facts()
    assert fact.sources == (first[0].key,)


async def test_leaving_the_block_ends_nothing(memory: Memory, tmp_path: Path) -> None:
    """A session that goes on after the entrypoint returned is recorded to its last word."""
    with room_job() as job:
        job.call_in(ANN)
        async with call(job.ctx, memory, settings=settings_in(tmp_path)) as live:
            talking = talk(live.agent(Agent(instructions="Be brief.")), ["Hello.", "Bye."])
            session, _ = await talking.__aenter__()
        await session.run(user_input="Hello?")
        await session.run(user_input="Bye!")
        await talking.__aexit__(None, None, None)
        await end(job.ctx)
        assert words_of(await live.session.items()) == ["Hello?", "Hello.", "Bye!", "Bye."]


async def test_agents_of_handoffs_know_the_caller(memory: Memory, tmp_path: Path) -> None:
    """The next agent, which nobody wrapped, has the brief and the same userdata."""
    caller = await memory.identify(phone=ANN)
    await memory.user(caller).remember("name", "Ann")

    class First(Agent):
        """Hands over."""

        @function_tool
        async def hand_over(self) -> Agent:
            """Give the caller to the next agent."""
            return Agent(instructions="You are the next.")

    with room_job() as job:
        job.call_in(ANN)
        async with call(job.ctx, memory, settings=settings_in(tmp_path)) as live:
            script = [*calls(("hand_over", {})), "Hello Ann."]
            agent = live.agent(First(instructions="You are the first."))
            async with talk(agent, script, userdata=live.userdata) as (session, model):
                await session.run(user_input="The next, please.")
                await session.run(user_input="Who am I?")
                assert session.userdata is live.userdata
            assert "You are the next." in texts(model.requests[-1])
            assert '"name" = "Ann"' in texts(model.requests[-1])
        await end(job.ctx)


async def test_a_dropped_call_goes_on_in_its_session(memory: Memory, tmp_path: Path) -> None:
    """A caller who is back within the grace time is in the same session and hears the turns told;
    one who comes later is not."""
    user = memory.user(await memory.identify(phone=ANN))
    for number, grace in enumerate((30.0, 30.0, 0.0)):
        with room_job(job_id=f"AJ_{number}") as job:
            job.call_in(ANN)
            settings = settings_in(tmp_path, grace_seconds=grace)
            async with call(job.ctx, memory, settings=settings) as live:
                expected = "call_AJ_0" if grace else "call_AJ_2"
                assert live.session.session_id == expected
                assert len(live.preloaded.turns) == (2 if number == 1 else 0)
                agent = live.agent(Agent(instructions="Be brief."))
                async with talk(agent, ["Yes?"], dropped=True) as (session, _):
                    await session.run(user_input=f"Part {number}")
            await end(job.ctx)
    assert words_of(await (await user.session("call_AJ_0")).items()) == [
        "Part 0", "Yes?", "Part 1", "Yes?"
    ]  # fmt: skip


async def test_two_calls_at_once_are_two_sessions(memory: Memory, tmp_path: Path) -> None:
    """While one call of a caller goes on, another of the same caller is a session of its own."""
    with room_job(job_id="AJ_1") as first, room_job(job_id="AJ_2") as second:
        first.call_in(ANN)
        second.call_in(ANN)
        settings = settings_in(tmp_path)
        async with call(first.ctx, memory, settings=settings) as one:
            agent = one.agent(Agent(instructions="Be brief."))
            async with talk(agent, ["Yes?"]) as (session, _):
                await session.run(user_input="Hello from one")
                await until(lambda: one.recorder.progress.store >= 2)
                assert await one.session.claim("AJ_1", seconds=30)
                async with call(second.ctx, memory, settings=settings) as two:
                    assert two.user.user_id == one.user.user_id
                    assert two.session.session_id == "call_AJ_2"
                await two.aclose()
        await end(first.ctx)


async def test_a_store_that_is_down_at_the_start_costs_only_memory(tmp_path: Path) -> None:
    """The call goes on without memory; what is said is in the caller's record when the store is
    back, under their own id."""
    store = FailingStore()
    async with Memory.open(store) as memory:
        ann = await memory.identify(phone=ANN)
        await memory.user(ann).remember("name", "Ann")
        store.down = True
        with room_job() as job:
            job.call_in(ANN)
            settings = CallSettings(journal=tmp_path, preload_seconds=0.1)
            async with call(job.ctx, memory, settings=settings) as live:
                assert live.resolved.pending is True
                agent = live.agent(Agent(instructions="Be brief."))
                async with talk(agent, ["Hello."]) as (session, model):
                    await session.run(user_input="Hello?")
                    assert "Ann" not in texts(model.requests[0])
                    store.down = False
                    await until(lambda: live.user.user_id == ann.user_id)
                    await until(lambda: live.recorder.progress.waiting == 0)
            await end(job.ctx)
            assert live.brief is not None
            items = [one async for one in memory.user(ann).items()]
        assert words_of(items) == ["Hello?", "Hello."]


async def test_a_memory_that_cannot_be_opened_costs_only_memory(tmp_path: Path) -> None:
    """A memory that is not open is opened; if that fails the call goes on, and the journal keeps
    what is said for the next start, which gives it to the caller."""
    path = tmp_path / "folder" / "memory.db"
    memory = Memory.open(f"sqlite:///{path}")
    (tmp_path / "folder").write_text("no folder")
    with room_job() as job:
        job.call_in(ANN)
        settings = CallSettings(journal=tmp_path / "journal", end_seconds=0.2)
        async with call(job.ctx, memory, settings=settings) as live:
            assert live.brief is None or live.brief.known is False
            agent = live.agent(Agent(instructions="Be brief."))
            async with talk(agent, ["Hello."]) as (session, _):
                await session.run(user_input="Hello?")
        await end(job.ctx)
    (tmp_path / "folder").unlink()
    (tmp_path / "folder").mkdir()
    with room_job(job_id="AJ_2") as job:
        job.call_in(ANN)
        async with call(job.ctx, Memory.open(f"sqlite:///{path}"), settings=settings) as live:
            assert live.resolved.caller.known is True
            items = [one async for one in live.user.items()]
            assert words_of(items) == ["Hello?", "Hello."]
        await live.aclose()


async def test_a_caller_who_becomes_known_gets_their_memory(memory: Memory, tmp_path: Path) -> None:
    """An attribute that comes late gives agents and tools the caller's memory, in mid-call."""
    ann = await memory.identify(phone=ANN)
    await memory.user(ann).remember("name", "Ann")
    with room_job() as job:
        job.call_in(None)
        settings = settings_in(tmp_path, caller={"attribute_seconds": 0.05})
        async with call(job.ctx, memory, settings=settings) as live:
            assert live.resolved.caller.anonymous is True
            tools = await live.tools()
            agent = live.agent(Agent(instructions="Be brief.", tools=[*tools]))
            remember = calls(("remember", {"name": "seat", "value": "aisle"}), then="Hello Ann.")
            async with talk(agent, ["Yes?", *remember]) as (session, model):
                await session.run(user_input="Hello?")
                job.set_attributes("sip_1", {"sip.phoneNumber": ANN})
                await until(lambda: live.brief is not None and live.brief.known)
                await session.run(user_input="It is me, on the aisle")
            assert '"name" = "Ann"' in texts(model.requests[1])
        await end(job.ctx)
        user = memory.user(ann)
        assert {str(one.value) for one in await user.facts()} == {"Ann", "aisle"}
        assert words_of([one async for one in user.items()])[:2] == ["Hello?", "Yes?"]


@dataclass
class Order:
    """Userdata with something in it that cannot be written down."""

    items: list[str] = field(default_factory=list[str])
    lock: Any = field(default_factory=threading.Lock)


async def test_userdata_is_kept_without_what_cannot_be(memory: Memory, tmp_path: Path) -> None:
    """Kept userdata is there when a dropped call goes on; a lock in it is left out, and new."""
    settings = settings_in(tmp_path, keep_userdata=True)
    locks: list[Any] = []
    for number in range(2):
        with room_job(job_id=f"AJ_{number}") as job:
            job.call_in(ANN)
            async with call(job.ctx, memory, userdata=Order, settings=settings) as live:
                assert live.userdata.data.items == ["tea"] * number
                live.userdata.append("items", "tea")
                locks.append(live.userdata.data.lock)
                agent = live.agent(Agent(instructions="Be brief."))
                talking = talk(agent, ["Yes?"], userdata=live.userdata, dropped=True)
                async with talking as (session, _):
                    await session.run(user_input="Tea, please")
            await end(job.ctx)
    assert locks[0] is not locks[1]


async def test_nothing_is_recorded_before_consent(memory: Memory, tmp_path: Path) -> None:
    """Without consent the record stays empty and tools remember nothing; from the moment it is
    given they do."""
    with room_job() as job:
        job.call_in(ANN)
        async with call(job.ctx, memory, settings=settings_in(tmp_path, consent=False)) as live:
            agent = live.agent(Agent(instructions="Be brief.", tools=[*await live.tools()]))
            remember = calls(("remember", {"name": "seat", "value": "aisle"}), then="Yes?")
            async with talk(agent, [*remember, "Fine."]) as (session, _):
                await session.run(user_input="Before")
                assert await live.user.known() is False
                live.consent.give()
                await session.run(user_input="After")
        await end(job.ctx)
        assert words_of(await live.session.items()) == ["After", "Fine."]


async def test_the_caller_can_be_forgotten_in_the_call(memory: Memory, tmp_path: Path) -> None:
    """Forgetting takes the record, the userdata, and what the agents were told; after a new consent
    everything works again."""
    ann = await memory.identify(phone=ANN)
    await memory.user(ann).remember("name", "Ann")
    with room_job() as job:
        job.call_in(ANN)
        async with call(job.ctx, memory, settings=settings_in(tmp_path)) as live:
            tools = await live.tools()
            agent = live.agent(Agent(instructions="Be brief.", tools=[*tools]))
            remember = calls(("remember", {"name": "seat", "value": "aisle"}))
            async with talk(agent, ["Yes?", "Done.", *remember]) as (session, model):
                await session.run(user_input="Hello?")
                assert '"name" = "Ann"' in texts(model.requests[0])
                receipt = await live.forget()
                assert receipt.complete
                await session.run(user_input="Do you know me?")
                assert '"name" = "Ann"' not in texts(model.requests[1])
                live.consent.give()
                await session.run(user_input="The aisle, please")
        await end(job.ctx)
        assert "Hello?" not in words_of(
            [one async for one in memory.user(live.user.user_id).items()]
        )
        facts = await memory.user(live.user.user_id).facts()
        assert [one.value for one in facts] == ["aisle"]


async def test_state_tools_are_those_of_the_step_before_each_reply(
    memory: Memory, tmp_path: Path
) -> None:
    """What the host changes between two turns is offered to the model at the next one."""
    workflow = Workflow("w", {"a": Step(), "b": Step(terminal=True)}, {"a": ["b"]})
    with room_job() as job:
        job.call_in(ANN)
        async with call(job.ctx, memory, settings=settings_in(tmp_path)) as live:
            tools = await live.tools(state=StateTools(live.session, workflows=[workflow]))
            agent = live.agent(Agent(instructions="Be brief.", tools=[*tools]))
            async with talk(agent, ["One.", "Two."]) as (session, model):
                await session.run(user_input="One")
                await live.session.state.update(lambda state: state.start(workflow))
                await session.run(user_input="Two")
        await end(job.ctx)
    steps = [one["update_workflow_state"]["parameters"]["properties"] for one in model.offered]
    assert "start" in steps[0]
    assert steps[1]["step"]["enum"] == ["b"]


async def test_an_entrypoint_that_fails_leaves_nothing_behind(
    memory: Memory, tmp_path: Path
) -> None:
    """An error in the block ends the call's own work, and is raised."""
    tasks = asyncio.all_tasks()
    with room_job() as job:
        job.call_in(ANN)
        before = job.listeners()
        with pytest.raises(ZeroDivisionError):
            async with call(job.ctx, memory, settings=settings_in(tmp_path)):
                raise ZeroDivisionError
        assert job.listeners() == before
    await memory.flush()
    left = {one.get_name() for one in asyncio.all_tasks() - tasks if not one.done()}
    assert not any("secondcall" in name for name in left)


async def test_wrong_userdata_is_refused(memory: Memory, tmp_path: Path) -> None:
    """An object that is no dataclass and no pydantic model is named at once."""
    with room_job() as job:
        job.call_in(ANN)
        wrong: Any = object()
        with pytest.raises(InvalidValue):
            async with call(job.ctx, memory, userdata=wrong, settings=settings_in(tmp_path)):
                raise AssertionError


async def test_the_last_call_closes_what_calls_have_opened(tmp_path: Path) -> None:
    """Calls in one process share a memory that the first of them opened; the end of one does not
    close it to the other."""
    memory = Memory.open("memory://")
    with room_job(job_id="AJ_1") as first, room_job(job_id="AJ_2") as second:
        first.call_in(ANN)
        second.call_in("+14155550101")
        settings = settings_in(tmp_path)
        async with call(first.ctx, memory, settings=settings) as one:
            async with call(second.ctx, memory, settings=settings) as two:
                await one.aclose()
                await one.aclose()
                assert memory.is_open
                assert await two.user.known() is False
            await two.aclose()
        assert not memory.is_open


async def test_a_session_can_be_attached(memory: Memory, tmp_path: Path) -> None:
    """A session whose agents nobody wrapped gets memory and a record by ``attach``."""
    ann = await memory.identify(phone=ANN)
    await memory.user(ann).remember("name", "Ann")
    with room_job() as job:
        job.call_in(ANN)
        async with call(job.ctx, memory, settings=settings_in(tmp_path)) as live:
            model = WatchedLLM(["Hello Ann."])
            session: AgentSession[Any] = AgentSession(
                llm=model, vad=None, turn_handling={"turn_detection": None}
            )
            live.attach(session)
            await session.start(Agent(instructions="Be brief."))
            await session.run(user_input="Hello?")
            await session.aclose()
        await end(job.ctx)
        assert '"name" = "Ann"' in texts(model.requests[0])
        assert words_of(await live.session.items()) == ["Hello?", "Hello Ann."]
