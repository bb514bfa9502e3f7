"""A call to which nobody comes leaves what was known as it was, and nothing made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from adapters.livekit.jobs import ANN, end, talk
from livekit.agents import Agent

from secondcall import Memory, Message
from secondcall.adapters.livekit import CallSettings, call
from secondcall.testing.livekit_room import room_job

pytestmark = pytest.mark.anyio


def _settings(folder: Path, *, outbound: bool = True) -> CallSettings:
    return CallSettings(
        journal=folder, preload_seconds=60, caller={"outbound": outbound, "timeout_seconds": 0.05}
    )


def _journals(folder: Path) -> list[Path]:
    return [*folder.rglob("*.journal")]


@pytest.mark.parametrize("starts", [True, False], ids=["session", "no session"])
@pytest.mark.parametrize("outbound", [True, False], ids=["outbound", "inbound"])
async def test_the_participant_never_comes(
    memory: Memory, tmp_path: Path, starts: bool, outbound: bool
) -> None:
    """Without a number the callee or caller has an id for this call alone, no words are recorded,
    and no user, session or journal is left, whether an agent's session was started or not."""
    with room_job() as job:
        settings = _settings(tmp_path, outbound=outbound)
        async with call(job.ctx, memory, settings=settings) as live:
            assert live.resolved.caller.anonymous
            assert live.resolved.participant is None
            if starts:
                async with talk(live.agent(Agent(instructions="Be brief.")), []):
                    pass
        await end(job.ctx)
        assert await live.session.items() == []
    assert await memory.users() == []
    assert _journals(tmp_path) == []


async def test_nobody_answers_at_a_number_that_is_known(memory: Memory, tmp_path: Path) -> None:
    """The callee is whom the job says, with their brief; the call that was not answered is no
    conversation of theirs, and their last one stays the last."""
    ann = memory.user(await memory.identify(phone=ANN))
    before = await ann.session("before")
    await before.record(Message("user", "Call me back, please.", id="a"))
    await before.close()
    metadata: dict[str, Any] = {"phone_number": ANN}
    with room_job(json.dumps(metadata)) as job:
        async with call(job.ctx, memory, settings=_settings(tmp_path)) as live:
            assert live.user.user_id == ann.user_id
            assert live.resolved.participant is None
            assert live.brief is not None
            async with talk(live.agent(Agent(instructions="Be brief.")), []):
                pass
        await end(job.ctx)
    assert [one.session_id for one in await ann.sessions()] == ["before"]
    assert [one.key.id async for one in ann.items()] == ["a"]
    assert await memory.users() == [ann.user_id]
    assert _journals(tmp_path) == []
