"""Calls that go wrong, each in a way of its own: nothing is lost, mixed up or said in vain."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from adapters.livekit.calls import FailingStore
from adapters.livekit.jobs import ANN, calls, end, outputs, settings_in, talk, texts, words_of
from adapters.livekit.remembered import ObedientStore
from adapters.livekit.waiting import until
from livekit.agents import Agent

from secondcall import Memory, MemoryTools, StateTools, Step, Workflow
from secondcall.adapters.livekit import CallNotes, CallSettings, call, resolve_caller
from secondcall.adapters.livekit.continuing import holder_of
from secondcall.errors import StoreCorrupt, StoreUnavailable
from secondcall.stores.memory import MemoryStore
from secondcall.testing.livekit_room import room_job

pytestmark = pytest.mark.anyio

BEN = "+14155550101"


async def test_a_call_that_was_ended_on_purpose_is_not_continued(
    memory: Memory, tmp_path: Path
) -> None:
    """After the agent has closed the session the next call is one of its own, however soon it
    comes; after the caller has gone it is the same one."""
    found: list[str] = []
    for number, dropped in enumerate((False, True, False)):
        with room_job(job_id=f"AJ_{number}") as job:
            job.call_in(ANN)
            async with call(job.ctx, memory, settings=settings_in(tmp_path)) as live:
                found.append(live.session.session_id)
                agent = live.agent(Agent(instructions="Be brief."))
                async with talk(agent, ["Yes?"], dropped=dropped) as (session, _):
                    await session.run(user_input=f"Part {number}")
            await end(job.ctx)
    assert found == ["call_AJ_0", "call_AJ_1", "call_AJ_1"]


async def test_a_job_is_held_as_by_its_room_before_it_is_connected() -> None:
    """A job that takes another's place in a room is known by the room that the job names: the room
    itself has no name before it is connected. Two agents in a room are two."""
    with room_job(job_id="AJ_1") as job:
        assert holder_of(job.ctx) == "AJ_1"
        job.ctx.job.room.name = "call-7"
        info = job.ctx._info  # pyright: ignore[reportPrivateUsage] - only a worker says so
        info.fake_job = False
        first = holder_of(job.ctx)
        job.ctx.job.id = "AJ_2"
        assert holder_of(job.ctx) == first
        job.ctx.job.agent_name = "supervisor"
        assert holder_of(job.ctx) != first


async def test_tools_without_a_memory_do_not_say_that_they_saved(tmp_path: Path) -> None:
    """While the memory cannot be opened the tools say that nothing is saved."""
    path = tmp_path / "folder" / "memory.db"
    (tmp_path / "folder").write_text("no folder")
    workflow = Workflow("w", {"a": Step(), "b": Step(terminal=True)}, {"a": "b"})
    with room_job() as job:
        job.call_in(ANN)
        settings = CallSettings(journal=tmp_path / "journal", end_seconds=0.2)
        async with call(job.ctx, Memory.open(f"sqlite:///{path}"), settings=settings) as live:
            tools = await live.tools(state=StateTools(live.session, workflows=[workflow]))
            agent = live.agent(Agent(instructions="Be brief.", tools=[*tools]))
            script = calls(
                ("remember", {"name": "seat", "value": "aisle"}),
                ("update_workflow_state", {"start": "w"}),
            )
            async with talk(agent, script) as (session, model):
                await session.run(user_input="An aisle seat")
            told = outputs(model.requests[-1])
            assert ["do not say that it is saved" in one for one in told] == [True, True]
            assert await live.user.facts() == []
        await end(job.ctx)


async def test_two_sessions_one_after_the_other(memory: Memory, tmp_path: Path) -> None:
    """A session that begins after another was closed is recorded to its last word, also when the
    block is left meanwhile."""
    with room_job() as job:
        job.call_in(ANN)
        async with call(job.ctx, memory, settings=settings_in(tmp_path)) as live:
            async with talk(live.agent(Agent(instructions="Be brief.")), ["One."]) as (first, _):
                await first.run(user_input="Hello?")
            assert live.is_over
            talking = talk(live.agent(Agent(instructions="Be brief.")), ["Two.", "Three."])
            second, _ = await talking.__aenter__()
            assert not live.is_over
        await second.run(user_input="Again?")
        await talking.__aexit__(None, None, None)
        await end(job.ctx)
        assert words_of(await live.session.items()) == ["Hello?", "One.", "Again?", "Two."]


async def test_an_agent_is_used_again_after_its_call(memory: Memory, tmp_path: Path) -> None:
    """An agent that draws on a call that is over knows nothing of its caller, and what is said with
    it is not recorded in that caller's memory."""
    ann = await memory.identify(phone=ANN)
    await memory.user(ann).remember("name", "Ann")
    with room_job() as job:
        job.call_in(ANN)
        async with call(job.ctx, memory, settings=settings_in(tmp_path)) as live:
            agent = live.agent(Agent(instructions="Be brief."))
            async with talk(agent, ["Hello."]) as (session, model):
                await session.run(user_input="Hello?")
                assert '"name" = "Ann"' in texts(model.requests[0])
        await end(job.ctx)
    async with talk(agent, ["Who?"]) as (session, model):
        await session.run(user_input="I am somebody else")
    assert '"name" = "Ann"' not in texts(model.requests[0])
    assert words_of([one async for one in memory.user(ann).items()]) == ["Hello?", "Hello."]


async def test_nothing_is_stored_before_consent(memory: Memory, tmp_path: Path) -> None:
    """Without consent a whole call with tools and a state leaves nothing behind but the id of the
    caller who became known in it, which looking up a number makes; reading the state is allowed."""
    workflow = Workflow(
        "w", {"a": Step(), "b": Step(terminal=True)}, {"a": "b"}, slots={"name": str}
    )
    settings = settings_in(
        tmp_path, consent=False, keep_userdata=True, caller={"attribute_seconds": 0.05}
    )
    with room_job() as job:
        job.call_in(None)
        async with call(job.ctx, memory, settings=settings) as live:
            tools = await live.tools(state=StateTools(live.session, workflows=[workflow]))
            agent = live.agent(Agent(instructions="Be brief.", tools=[*tools]))
            script = calls(
                ("remember", {"name": "seat", "value": "aisle"}),
                ("update_workflow_state", {"start": "w"}),
                ("get_workflow_state", {}),
            )
            async with talk(agent, [*script, "Yes?"], userdata=live.userdata) as (session, model):
                await session.run(user_input="Begin")
                told = outputs(model.requests[1])
                assert ["refused" in one for one in told] == [True, True, False]
                live.userdata.set_flag("seen")
                job.set_attributes("sip_1", {"sip.phoneNumber": ANN})
                await until(lambda: not live.user.user_id.startswith("anonymous"))
                await session.run(user_input="It is me")
        await end(job.ctx)
        assert await live.user.known() is False
    assert await memory.users() == [live.user.user_id]


class _Held(ObedientStore):
    """Holds back only the next read."""

    def __init__(self) -> None:
        super().__init__()
        self.holds = False

    async def _obey(self) -> None:
        if self.holds:
            self.holds = False
            await super()._obey()


async def test_a_write_that_waits_does_not_bring_a_forgotten_caller_back(tmp_path: Path) -> None:
    """A tool's write that waits for the store while the caller is forgotten is not made."""
    store = _Held()
    async with Memory.open(store) as memory:
        with room_job() as job:
            job.call_in(ANN)
            settings = CallSettings(journal=tmp_path, preload_seconds=60)
            async with call(job.ctx, memory, settings=settings) as live:
                tools = await live.tools(deadline_seconds=0.05)
                agent = live.agent(Agent(instructions="Be brief.", tools=[*tools]))
                script = calls(("remember", {"name": "seat", "value": "aisle"}))
                async with talk(agent, script) as (session, _):
                    store.gate.clear()
                    store.holds = True
                    await session.run(user_input="An aisle seat")
                    assert (await live.forget()).complete
                    store.gate.set()
                    await session.run(user_input="Anything else")
                    assert await memory.users() == []
            await end(job.ctx)
        assert await memory.users() == []


class _Slow(MemoryStore):
    """A store that takes its time to open and to close, and says how often it did."""

    def __init__(self) -> None:
        super().__init__("memory://")
        self.seen: list[str] = []

    async def open(self) -> None:
        """See ``Store.open``."""
        await asyncio.sleep(0.05)
        await super().open()
        self.seen.append("open")

    async def aclose(self) -> None:
        """See ``Store.aclose``."""
        await asyncio.sleep(0.05)
        await super().aclose()
        self.seen.append("closed")


async def test_calls_that_begin_at_once_open_a_memory_once(tmp_path: Path) -> None:
    """Two calls that begin together share one opening, and one that begins while the last one is
    closing opens it again for itself."""
    store = _Slow()
    memory = Memory.open(store)
    settings = settings_in(tmp_path, grace_seconds=0)

    async def one(job_id: str, number: str) -> Any:
        with room_job(job_id=job_id) as job:
            job.call_in(number)
            async with call(job.ctx, memory, settings=settings) as live:
                return live

    first, second = await asyncio.gather(one("AJ_1", ANN), one("AJ_2", BEN))
    assert store.seen == ["open"]
    await first.aclose()
    assert memory.is_open
    closing = asyncio.create_task(second.aclose())
    await until(lambda: not memory.is_open)
    third = await one("AJ_3", ANN)
    await closing
    assert memory.is_open
    assert await third.user.known() is False
    await third.aclose()
    assert store.seen == ["open", "closed", "open", "closed"]


async def test_a_replay_reads_a_national_number_as_the_call_did(tmp_path: Path) -> None:
    """A call whose store was down from beginning to end is replayed to the caller whom a national
    number means."""
    pytest.importorskip("phonenumbers", reason="reads national numbers; an extra of its own")
    store = FailingStore()
    async with Memory.open(store) as memory:
        ann = await memory.identify(phone=ANN)
        await memory.user(ann).remember("name", "Ann")
        store.down = True
        settings = CallSettings(
            journal=tmp_path, preload_seconds=0.1, end_seconds=0.1, caller={"default_region": "US"}
        )
        with room_job() as job:
            job.call_in("(415) 555-0100")
            async with call(job.ctx, memory, settings=settings) as live:
                agent = live.agent(Agent(instructions="Be brief."))
                async with talk(agent, ["Hello."]) as (session, _):
                    await session.run(user_input="Hello?")
                    await until(lambda: live.recorder.progress.journal == 2)
            await end(job.ctx)
        store.down = False
        with room_job(job_id="AJ_2") as job:
            job.call_in(BEN)
            async with call(job.ctx, memory, settings=settings) as live:
                await live.aclose()
        assert words_of([one async for one in memory.user(ann).items()]) == ["Hello?", "Hello."]


async def test_a_tool_set_follows_only_whom_it_was_bound_to(memory: Memory) -> None:
    """The tools of another user's or session's state stay with it; those of the user follow."""
    ann, ben = memory.user("ann"), memory.user("ben")
    here, there = await ann.session("call"), await ben.session("call")
    assert StateTools(here).follow("ann", there)
    assert StateTools(ann).follow("ann", there)
    assert not StateTools(await ann.session("other")).follow("ann", there)
    assert not StateTools(memory.user("team")).follow("ann", there)
    assert MemoryTools(here).pending == 0


async def test_an_entrypoint_that_fails_while_the_session_runs_loses_no_words(
    memory: Memory, tmp_path: Path
) -> None:
    """The job closes the session only after the entrypoint has raised; what is said until then is
    recorded."""
    with room_job() as job:
        job.call_in(ANN)

        async def entrypoint() -> None:
            async with call(job.ctx, memory, settings=settings_in(tmp_path)) as live:
                found.append(live)
                talking = talk(live.agent(Agent(instructions="Be brief.")), ["One.", "Two."])
                found.extend((talking, (await talking.__aenter__())[0]))
                raise ZeroDivisionError

        found: list[Any] = []
        with pytest.raises(ZeroDivisionError):
            await entrypoint()
        live, talking, session = found
        await session.run(user_input="Hello?")
        await session.run(user_input="Are you there?")
        await talking.__aexit__(None, None, None)
        await end(job.ctx)
        assert words_of(await live.session.items()) == ["Hello?", "One.", "Are you there?", "Two."]


@pytest.mark.parametrize("error", [StoreCorrupt("torn"), StoreUnavailable("gone")])
async def test_a_store_that_raises_anything_costs_only_memory(
    tmp_path: Path, error: Exception
) -> None:
    """Whatever a store raises, from the first question on, the caller is answered, and is in the
    record when it is back."""
    store = ObedientStore()
    async with Memory.open(store) as memory:
        store.error = error
        with room_job() as job:
            job.call_in(ANN)
            settings = CallSettings(journal=tmp_path, preload_seconds=0.1, keep_userdata=True)
            async with call(job.ctx, memory, settings=settings) as live:
                tools = await live.tools(state=StateTools(live.session))
                agent = live.agent(Agent(instructions="Be brief.", tools=[*tools]))
                script = calls(("get_workflow_state", {}), ("recall", {"question": "Seat?"}))
                async with talk(agent, [*script, "Yes."]) as (session, _):
                    await session.run(user_input="Hello?")
                    assert session.history.messages()[-1].text_content == "Done."
                    store.error = None
                    await until(lambda: live.recorder.progress.waiting == 0)
            await end(job.ctx)
        ann = memory.user(await memory.identify(phone=ANN))
        assert words_of([one async for one in ann.items()]) == ["Hello?", "Done."]


async def test_a_driver_that_raises_its_own_errors_costs_only_memory() -> None:
    """An error that no store should raise leaves the caller anonymous for now."""
    store = ObedientStore()
    async with Memory.open(store) as memory:
        store.error = RuntimeError("a driver's own")
        with room_job() as job:
            job.call_in(ANN)
            resolved = await resolve_caller(job.ctx, memory)
        assert resolved.caller.anonymous
        assert resolved.pending
        store.error = None


@pytest.mark.parametrize("found", ["\ud800", "a\x00b", "x" * 5_000, " ", "agent"])
async def test_an_id_that_is_none_costs_only_memory(memory: Memory, found: str) -> None:
    """Whatever stands in the metadata as an id, the call goes on, with nobody else's memory."""
    with room_job(json.dumps({"user_id": found, "phone_number": found})) as job:
        job.agent_is("agent")
        for outbound in (False, True):
            settings = CallSettings(
                journal=False, caller={"timeout_seconds": 0.01, "outbound": outbound}
            )
            async with call(job.ctx, memory, settings=settings) as live:
                assert live.resolved.caller.known is False
            await live.aclose()


async def test_what_waited_for_the_store_is_recorded_as_the_callers_own(tmp_path: Path) -> None:
    """When the store is back, what was said stands under the caller's id at once, and not under one
    that somebody has to join to it first."""
    store = FailingStore()
    async with Memory.open(store) as memory:
        ann = await memory.identify(phone=ANN)
        store.down = True
        with room_job() as job:
            job.call_in(ANN)
            settings = CallSettings(journal=tmp_path, preload_seconds=0.1)
            async with call(job.ctx, memory, settings=settings) as live:
                agent = live.agent(Agent(instructions="Be brief."))
                async with talk(agent, ["Hello."]) as (session, _):
                    await session.run(user_input="Hello?")
                    store.down = False
                    await until(lambda: live.recorder.progress.waiting == 0)
            await end(job.ctx)
        items = [one async for one in memory.user(ann).items()]
        assert words_of(items) == ["Hello?", "Hello."]
        assert {one.key.user_id for one in items} == {ann.user_id}


class _Gone(FailingStore):
    """Answers nothing any more, when it ``hangs``."""

    async def acquire_lease(self, *args: Any, **more: Any) -> bool:
        """See ``Store.acquire_lease``."""
        await self._reach()
        return await super().acquire_lease(*args, **more)

    async def release_lease(self, *args: Any, **more: Any) -> None:
        """See ``Store.release_lease``."""
        await self._reach()
        await super().release_lease(*args, **more)


async def test_a_store_that_hangs_at_the_end_holds_nobody_up(tmp_path: Path) -> None:
    """A call can be ended while the store answers nothing; the journal has what was said."""
    store = _Gone()
    async with Memory.open(store) as memory:
        with room_job() as job:
            job.call_in(ANN)
            settings = settings_in(tmp_path, keep_userdata=True, end_seconds=0.1)
            async with asyncio.timeout(60), call(job.ctx, memory, settings=settings) as live:
                agent = live.agent(Agent(instructions="Be brief."))
                async with talk(agent, ["Hello."], userdata=live.userdata) as (session, _):
                    live.userdata.set_flag("seen")
                    store.hangs = True
                    await session.run(user_input="Hello?")
                    await until(lambda: live.recorder.progress.journal == 2)
                await live.aclose()
                assert live.recorder.progress.lost == 0
        store.hangs = False
    assert _journals(tmp_path) == 1


def _journals(folder: Path) -> int:
    return len([*folder.rglob("*.journal")])


async def test_userdata_is_kept_once_the_store_is_back(tmp_path: Path) -> None:
    """Userdata of a call that began without a store is saved when that is back."""
    store = FailingStore()
    async with Memory.open(store) as memory:
        ann = await memory.identify(phone=ANN)
        store.down = True
        with room_job() as job:
            job.call_in(ANN)
            settings = CallSettings(journal=tmp_path, preload_seconds=0.1, keep_userdata=True)
            async with call(job.ctx, memory, settings=settings) as live:
                agent = live.agent(Agent(instructions="Be brief."))
                async with talk(agent, ["Hello."], userdata=live.userdata) as (session, _):
                    live.userdata.set_flag("seen")
                    await session.run(user_input="Hello?")
                    store.down = False
                    await until(lambda: live.user.user_id == ann.user_id)
                    assert "seen" in live.userdata.flags
            await end(job.ctx)
        again = await (await memory.user(ann).session(live.session.session_id)).shortterm(CallNotes)
        assert "seen" in again.memory.flags


async def test_a_forgotten_caller_who_consents_anew_is_known_the_next_time(
    memory: Memory, tmp_path: Path
) -> None:
    """What is said and told after a new consent is there when they call again, and nothing else."""
    ann = await memory.identify(phone=ANN)
    await memory.user(ann).remember("name", "Ann")
    settings = settings_in(tmp_path, grace_seconds=0, keep_userdata=True)
    with room_job(job_id="AJ_1") as job:
        job.call_in(ANN)
        async with call(job.ctx, memory, settings=settings) as live:
            agent = live.agent(Agent(instructions="Be brief.", tools=[*await live.tools()]))
            script = [*calls(("remember", {"name": "seat", "value": "aisle"})), "Yes."]
            async with talk(agent, script, userdata=live.userdata) as (session, _):
                assert (await live.forget()).complete
                assert await memory.users() == []
                live.consent.give()
                await until(lambda: live.user.user_id != ann.user_id)
                await session.run(user_input="The aisle, please")
        await end(job.ctx)
    with room_job(job_id="AJ_2") as job:
        job.call_in(ANN)
        async with call(job.ctx, memory, settings=settings) as live:
            assert [str(one.value) for one in await live.user.facts()] == ["aisle"]
            assert words_of([one async for one in live.user.items()]) == [
                "The aisle, please",
                "Done.",
            ]
        await live.aclose()
    assert await memory.users() == [live.user.user_id]
