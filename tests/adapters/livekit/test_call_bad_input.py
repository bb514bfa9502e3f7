"""Whole calls with what a room, a disk or a store should not do: each is answered, and what is said
is kept."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from adapters.livekit.calls import FailingStore
from adapters.livekit.jobs import ANN, end, settings_in, talk
from adapters.livekit.waiting import until
from livekit.agents import Agent

from secondcall import Memory, Message
from secondcall.adapters.livekit import CallSettings, LiveCall, call
from secondcall.testing.livekit_room import RoomJob, room_job

pytestmark = pytest.mark.anyio

TALKED = ["Hello?", "One.", "Still there?", "Two."]


async def _talked(job: RoomJob, memory: Memory, settings: CallSettings) -> LiveCall[Any]:
    """A call of two turns, to its end."""
    async with call(job.ctx, memory, settings=settings) as live:
        agent = live.agent(Agent(instructions="Be brief."))
        async with talk(agent, ["One.", "Two."], userdata=live.userdata) as (session, _):
            await session.run(user_input="Hello?")
            await session.run(user_input="Still there?")
    await end(job.ctx)
    return live


async def _said(live: LiveCall[Any]) -> list[str]:
    items = await live.session.items()
    return [one.item.text.strip() for one in items if isinstance(one.item, Message)]


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param("not json", id="words"),
        pytest.param("[]", id="list"),
        pytest.param("7", id="number"),
        pytest.param("null", id="null"),
        pytest.param('{"user_id": {"a": 1}}', id="wrong type"),
        pytest.param('{"user_id"', id="torn"),
        pytest.param("\x00", id="control"),
        pytest.param("x" * 100_000, id="long"),
        pytest.param("[" * 20_000, id="deep"),
    ],
)
async def test_metadata_that_is_not_json_costs_only_what_it_says(
    memory: Memory, tmp_path: Path, metadata: str
) -> None:
    """A job whose metadata cannot be read is a call like others, of the number that calls."""
    with room_job(metadata) as job:
        job.call_in(ANN)
        live = await _talked(job, memory, settings_in(tmp_path))
    assert live.user.user_id == (await memory.identify(phone=ANN)).user_id
    assert await _said(live) == TALKED


@pytest.mark.parametrize(
    "attributes",
    [
        {"sip.phoneNumber": "", "user_id": ""},
        {"sip.phoneNumber": "[object Object]"},
        {"sip.phoneNumber": "None", "sip.callID": "\x00"},
        {"user_id": "u" * 100_000},
        {"sip.phoneNumber": "9" * 5_000, "sip.trunkPhoneNumber": "NaN", "user_id": "\u202e"},
    ],
    ids=["empty", "object", "none", "long", "digits"],
)
async def test_attributes_of_wrong_types_make_nobody_known(
    memory: Memory, tmp_path: Path, attributes: dict[str, str]
) -> None:
    """Attributes that hold no number and no id leave a caller with an id for this call alone, or
    one of their own; the call is recorded, and two such callers share nothing."""
    found: list[str] = []
    for number in range(2):
        with room_job(job_id=f"AJ_{number}") as job:
            job.join("sip_1", kind="sip", attributes={"sip.ruleID": "SDR_1", **attributes})
            settings = settings_in(tmp_path, caller={"attribute_seconds": 0.01})
            live = await _talked(job, memory, settings)
        assert live.resolved.caller.anonymous
        assert await _said(live) == TALKED
        found.append(live.user.user_id)
    assert found[0] != found[1]


@pytest.mark.parametrize("also_the_store", [False, True], ids=["journal", "store too"])
async def test_a_full_disk_keeps_no_reply_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, also_the_store: bool
) -> None:
    """With a disk that takes nothing for the journal the store has the whole call; when that is
    full too, replies come all the same, and what is lost is counted."""
    store = FailingStore()

    def full(descriptor: int, data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with Memory.open(store) as memory:
        await memory.identify(phone=ANN)
        with room_job() as job:
            job.call_in(ANN)
            monkeypatch.setattr(os, "write", full)
            settings = settings_in(tmp_path, end_seconds=0.2 if also_the_store else 6.0)
            async with call(job.ctx, memory, settings=settings) as live:
                store.down = also_the_store
                agent = live.agent(Agent(instructions="Be brief."))
                async with talk(agent, ["One.", "Two."]) as (session, _):
                    await session.run(user_input="Hello?")
                    await session.run(user_input="Still there?")
                    said = [one.text_content for one in session.history.messages()]
            await end(job.ctx)
            monkeypatch.undo()
        store.down = False
        assert said == TALKED
        assert live.recorder.progress.lost == (4 if also_the_store else 0)
        assert await _said(live) == ([] if also_the_store else TALKED)


async def test_a_store_that_dies_in_mid_call_and_comes_back(tmp_path: Path) -> None:
    """Turns said while the store is away are answered, and in the record in their place when it is
    back, before the call ends."""
    store = FailingStore()
    async with Memory.open(store) as memory:
        with room_job() as job:
            job.call_in(ANN)
            async with call(job.ctx, memory, settings=settings_in(tmp_path)) as live:
                agent = live.agent(Agent(instructions="Be brief."))
                async with talk(agent, ["One.", "Two.", "Three."]) as (session, _):
                    await session.run(user_input="a")
                    await until(lambda: live.recorder.progress.store == 2)
                    store.down = True
                    await session.run(user_input="b")
                    await until(lambda: live.recorder.progress.journal == 2)
                    store.down = False
                    await session.run(user_input="c")
            await end(job.ctx)
            assert live.recorder.progress.lost == 0
            assert await _said(live) == ["a", "One.", "b", "Two.", "c", "Three."]
    assert _journals(tmp_path) == []


def _journals(folder: Path) -> list[Path]:
    return [*folder.rglob("*.journal")]
