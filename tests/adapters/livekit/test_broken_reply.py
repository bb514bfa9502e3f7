"""Replies whose memory misbehaves: the caller is answered all the same, and soon."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from adapters.livekit.jobs import talk
from adapters.livekit.remembered import ObedientStore, a_caller
from livekit.agents import Agent

from secondcall import Memory, Message, StateTools
from secondcall.adapters.livekit import CallMemory, with_memory
from secondcall.adapters.livekit.continuing import continued_session
from secondcall.adapters.livekit.tools import StateSchemas

pytestmark = pytest.mark.anyio


class _Cancelled(CallMemory):
    """Memory in which something was cancelled that nobody asked to be."""

    async def ready(self) -> None:
        """See ``CallMemory.ready``."""
        raise asyncio.CancelledError


async def test_a_cancellation_inside_memory_costs_no_reply(memory: Memory) -> None:
    """A task that was cancelled inside a look-up does not pass for the cancelling of the reply."""
    source = _Cancelled(memory.user("ana"))
    async with talk(with_memory(Agent(instructions="x"), source), ["Yes."]) as (session, _):
        await session.run(user_input="Hello?")
        assert session.history.messages()[-1].text_content == "Yes."


async def test_a_state_in_a_store_that_hangs_is_asked_once(tmp_path: Path) -> None:
    """The tools of a state are brought up to date before each reply, but not while the store has
    just not answered: replies do not wait for it again and again."""
    store = ObedientStore()
    async with a_caller(store) as user:
        schemas = StateSchemas(StateTools(await user.session("call")))
        await schemas.load()
        store.gate.clear()
        before = store.reads
        for _ in range(5):
            assert not await schemas.refresh(deadline_seconds=0.01)
        assert store.reads == before + 1


@pytest.mark.parametrize(("ahead", "continues"), [(10, True), (3_600, False)])
async def test_a_clock_that_is_ahead_makes_no_call_go_on(
    memory: Memory, ahead: int, continues: bool
) -> None:
    """A call whose worker's clock was an hour ahead is not continued for an hour; seconds do not
    matter."""
    user = memory.user("ana")
    at = user.now() + timedelta(seconds=ahead)
    await (await user.session("call_AJ_1")).record(Message("user", "Hello?", at=at))
    found = await continued_session(user, "AJ_2", grace_seconds=30, deadline_seconds=60)
    assert found == ("call_AJ_1" if continues else None)
