"""Two calls of the same new caller at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from adapters.livekit.jobs import ANN, end, settings_in, talk, texts
from adapters.livekit.waiting import until
from livekit.agents import Agent

from secondcall import Memory
from secondcall.adapters.livekit import call
from secondcall.testing.livekit_room import room_job

pytestmark = pytest.mark.anyio


async def test_a_call_whose_caller_became_known_late_is_not_joined_by_another(
    memory: Memory, tmp_path: Path
) -> None:
    """The number of the first call comes late; a second call of the same number that begins a
    moment after that is a conversation of its own, while the first goes on."""
    ann = memory.user(await memory.identify(phone=ANN))
    await ann.remember("seat", "aisle")
    settings = settings_in(tmp_path, caller={"attribute_seconds": 0.05})
    with room_job(job_id="AJ_1") as one, room_job(job_id="AJ_2") as two:
        one.call_in(None)
        two.call_in(ANN, identity="sip_2")
        async with call(one.ctx, memory, settings=settings) as first:
            async with talk(first.agent(Agent(instructions="x")), ["Hi."] * 9) as (a, _):
                await a.run(user_input="First call here")
                await until(lambda: first.recorder.progress.store >= 2)
                one.set_attributes("sip_1", {"sip.phoneNumber": ANN})
                await until(lambda: not first.resolved.caller.anonymous)
                await a.run(user_input="It is Ann")
                await until(lambda: first.recorder.progress.waiting == 0)
                async with call(two.ctx, memory, settings=settings) as second:
                    async with talk(second.agent(Agent(instructions="x")), ["Ho."]) as (b, model):
                        await b.run(user_input="Second call here")
                        await a.run(user_input="First again")
                        heard = "".join(texts(asked) for asked in model.requests)
        await asyncio.gather(end(one.ctx), end(two.ctx))
        assert first.session.session_id != second.session.session_id
        assert "(continued)" not in heard


async def test_a_call_that_turned_out_to_be_anothers_is_not_joined_by_another(
    memory: Memory, tmp_path: Path
) -> None:
    """As above, where the number said Ann and the backend says Ben."""
    await memory.user(await memory.identify(phone=ANN)).remember("seat", "aisle")
    settings = settings_in(tmp_path)
    with room_job(job_id="AJ_1") as one, room_job('{"user_id": "ben"}', job_id="AJ_2") as two:
        one.call_in(ANN)
        async with call(one.ctx, memory, settings=settings) as first:
            async with talk(first.agent(Agent(instructions="x")), ["Hi."] * 9) as (a, _):
                await a.run(user_input="First call here")
                await until(lambda: first.recorder.progress.store >= 2)
                one.set_attributes("sip_1", {"sip.phoneNumber": ANN, "user_id": "ben"})
                await until(lambda: first.recorder.since is not None)
                await a.run(user_input="It is Ben")
                await until(lambda: first.recorder.progress.store >= 2)
                async with call(two.ctx, memory, settings=settings) as second:
                    async with talk(second.agent(Agent(instructions="x")), ["Ho."]) as (b, _):
                        await b.run(user_input="Second call here")
                        await a.run(user_input="First again")
        await asyncio.gather(end(one.ctx), end(two.ctx))
        assert second.user.user_id == first.user.user_id
        assert first.session.session_id != second.session.session_id
