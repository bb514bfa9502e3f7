"""Who was forgotten in a call, or could not be, and consents anew while it goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from adapters.livekit.calls import FailingStore
from adapters.livekit.jobs import ANN, calls, end, outputs, settings_in, talk, texts, words_of
from adapters.livekit.waiting import until
from livekit.agents import Agent

from secondcall import Memory
from secondcall.adapters.livekit import call
from secondcall.adapters.livekit.call import LiveCall
from secondcall.errors import StoreUnavailable
from secondcall.testing.livekit_room import room_job

pytestmark = pytest.mark.anyio


@pytest.fixture
def store() -> FailingStore:
    """The store of ``memory``."""
    return FailingStore()


@pytest.fixture
async def memory(store: FailingStore) -> AsyncIterator[Memory]:
    """Ann's seat is known."""
    async with Memory.open(store) as memory:
        await memory.user(await memory.identify(phone=ANN)).remember("seat", "aisle")
        yield memory


async def _forget_in_vain(live: LiveCall[Any], store: FailingStore) -> None:
    store.down = True
    with pytest.raises(StoreUnavailable):
        await live.forget(deadline_seconds=0.5)


async def _words(live: LiveCall[Any]) -> list[str]:
    return words_of([one async for one in live.user.items()])


async def test_consent_while_the_store_is_down_is_completed_when_it_is_back(
    memory: Memory, store: FailingStore, tmp_path: Path
) -> None:
    """The new id of who was forgotten is found as soon as the store answers, no tool being called;
    the call's own handles go by it."""
    with room_job() as job:
        job.call_in(ANN)
        async with call(job.ctx, memory, settings=settings_in(tmp_path)) as live:
            async with talk(live.agent(Agent(instructions="x")), ["Hi."] * 9) as (session, _):
                await session.run(user_input="Hello?")
                old = (await live.forget()).user_id
                store.down = True
                live.consent.give()
                await session.run(user_input="My dog is called Bramble.")
                store.down = False
                await until(lambda: live.user.user_id != old)
                await until(lambda: live.recorder.progress.waiting == 0)
                assert live.user.user_id == (await memory.identify(phone=ANN)).user_id
                assert await _words(live) == ["My dog is called Bramble.", "Hi."]
        await end(job.ctx)


async def test_consent_after_a_forgetting_that_failed_has_it_done_first(
    memory: Memory, store: FailingStore, tmp_path: Path
) -> None:
    """Nothing is recorded until what was to be forgotten is; then words, tools and userdata are
    those of somebody new."""
    settings = settings_in(tmp_path, keep_userdata=True)
    script = ["Hi.", "Hi.", *calls(("remember", {"name": "dog", "value": "Bramble"})), "Ok."]
    with room_job() as job:
        job.call_in(ANN)
        async with call(job.ctx, memory, settings=settings) as live:
            agent = live.agent(Agent(instructions="x", tools=[*await live.tools()]))
            async with talk(agent, script, userdata=live.userdata) as (session, model):
                await session.run(user_input="Hello?")
                old = live.user.user_id
                await _forget_in_vain(live, store)
                live.consent.give()
                await session.run(user_input="Not yet")
                assert not live.consent.recording
                store.down = False
                await until(lambda: live.consent.recording and live.user.user_id != old)
                live.userdata.set_flag("seen")
                await session.run(user_input="My dog is Bramble")
                assert '"changed": true' in outputs(model.requests[-1])[-1]
                assert "aisle" not in texts(model.requests[-1])
                await until(lambda: live.recorder.progress.waiting == 0)
        await end(job.ctx)
        facts = {one.predicate for one in await live.user.facts()}
        kept = await (await live.user.session(live.session.session_id)).shortterm(
            type(live.userdata.data)
        )
        assert facts == {"dog"}
        assert "Not yet" not in await _words(live)
        assert "My dog is Bramble" in await _words(live)
        assert "seen" in kept.memory.flags
        assert await memory.users() == [live.user.user_id]


async def test_consent_that_is_withdrawn_again_is_not_given_by_the_forgetting(
    memory: Memory, store: FailingStore, tmp_path: Path
) -> None:
    """Who thinks better of it while the store is down is not recorded when it is back."""
    with room_job() as job:
        job.call_in(ANN)
        async with call(job.ctx, memory, settings=settings_in(tmp_path)) as live:
            async with talk(live.agent(Agent(instructions="x")), ["Hi."] * 9) as (session, _):
                await _forget_in_vain(live, store)
                live.consent.give()
                live.consent.withdraw()
                store.down = False
                await session.run(user_input="My secret")
                assert (await live.forget()).complete
                assert not live.consent.recording
        await end(job.ctx)
    assert await memory.users() == []


async def test_a_caller_becomes_known_after_a_forgetting_that_was_made_up_for(
    memory: Memory, store: FailingStore, tmp_path: Path
) -> None:
    """A number that comes once the forgetting is done and consent holds brings what is known."""
    settings = settings_in(tmp_path, caller={"attribute_seconds": 0.05})
    with room_job() as job:
        job.call_in(None)
        async with call(job.ctx, memory, settings=settings) as live:
            async with talk(live.agent(Agent(instructions="x")), ["Hi."] * 9) as (session, model):
                await session.run(user_input="Hello?")
                await _forget_in_vain(live, store)
                store.down = False
                live.consent.give()
                await until(lambda: live.consent.recording)
                job.set_attributes("sip_1", {"sip.phoneNumber": ANN})
                await until(lambda: live.brief is not None)
                await session.run(user_input="What do you know of me?")
                assert "aisle" in texts(model.requests[-1])
        await end(job.ctx)
