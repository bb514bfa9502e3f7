"""Whose the summary of a long call is: it goes with the caller whose words it holds."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from adapters.livekit.jobs import ANN, end, settings_in, talk, texts
from adapters.livekit.remembered import remembered_in
from adapters.livekit.waiting import until
from livekit.agents import Agent

from secondcall import Memory
from secondcall.adapters.livekit import LookupOptions, WindowOptions, call
from secondcall.adapters.livekit.agent import attached_to
from secondcall.testing.livekit_room import room_job

pytestmark = pytest.mark.anyio

SECRET = "TK-88213"
SMALL_TALK = "it is nice to chat a while about trains and about the weather, is it not?"


async def _cut_off(memory: Memory, folder: Path) -> None:
    """Ann says her order number, and the line breaks."""
    with room_job(job_id="AJ_1") as job:
        job.call_in(ANN)
        async with call(job.ctx, memory, settings=settings_in(folder)) as live:
            agent = live.agent(Agent(instructions="Be brief."))
            async with talk(agent, ["Ok."] * 9, dropped=True) as (session, _):
                await session.run(user_input="Hello there, I have a question")
                await session.run(
                    user_input=f"My order number is {SECRET} and I was promised 40 euros back."
                )
        await end(job.ctx)


async def _until_summarised(session: Any, model: Any) -> None:
    """Talk until a request holds a summary with the order number."""
    known = attached_to(session)
    assert known is not None
    for number in range(60):
        await session.run(user_input=f"Number {number}: {SMALL_TALK}")
        await asyncio.sleep(0.05)
        await until(lambda: not known.keeper.busy)
        told = remembered_in(model.requests[-1], "summary")
        if told and SECRET in (told[0].text_content or ""):
            return
    raise AssertionError("no summary holds the order number")


@pytest.mark.parametrize("how", ["forgotten", "another"])
async def test_a_summary_does_not_outlive_whose_it_is(
    memory: Memory, tmp_path: Path, how: str
) -> None:
    """A continued call's summary holds words of the call before. When the caller is forgotten, or
    proves to be somebody else, no request has them any more."""
    await _cut_off(memory, tmp_path)
    window, lookup = WindowOptions(max_tokens=1_600), LookupOptions(max_tokens=100)
    settings = settings_in(tmp_path, window=window, lookup=lookup)
    with room_job(job_id="AJ_2") as job:
        job.call_in(ANN)
        async with call(job.ctx, memory, settings=settings) as live:
            agent = live.agent(Agent(instructions="Be brief."))
            async with talk(agent, ["I have taken note of all that."] * 99) as (session, model):
                await _until_summarised(session, model)
                if how == "forgotten":
                    assert (await live.forget()).complete
                else:
                    job.set_attributes("sip_1", {"sip.phoneNumber": ANN, "user_id": "ben"})
                    await until(lambda: live.recorder.since is not None)
                await session.run(user_input="And what do you know of me?")
                await session.run(user_input="Go on")
                told = texts(model.requests[-1])
        await end(job.ctx)
    assert SECRET not in told
