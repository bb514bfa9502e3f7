"""The ends of a job, each harmless after another, none longer than it may be."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, cast

import pytest
from adapters.livekit.calls import FailingStore, recording, said, talking
from adapters.livekit.waiting import until
from livekit import rtc
from livekit.agents import JobContext
from livekit.agents.ipc.mock_room import create_mock_room
from livekit.agents.job import JobAcceptArguments, JobExecutorType, JobProcess, RunningJobInfo
from livekit.protocol import agent, models

from secondcall.adapters.livekit.ending import Ending, on_session_end
from secondcall.adapters.livekit.recording import Finished
from secondcall.testing.livekit import ScriptedLLM
from secondcall.types import Message

pytestmark = pytest.mark.anyio


def _job() -> JobContext:
    """A job without a server."""
    job = agent.Job(id="job", type=agent.JobType.JT_ROOM, room=models.Room(name="room"))
    info = RunningJobInfo(
        accept_arguments=JobAcceptArguments(identity="agent", name="", metadata=""),
        job=job,
        url="",
        token="",
        worker_id="worker",
        fake_job=True,
    )
    return JobContext(
        proc=JobProcess(executor_type=JobExecutorType.THREAD, user_arguments=None, http_proxy=None),
        info=info,
        room=cast("rtc.Room", create_mock_room()),
        on_connect=lambda: None,
        on_shutdown=lambda _: None,
        inference_executor=cast("Any", None),
    )


async def _shut_down(ctx: JobContext) -> None:
    """What the job process does last."""
    callbacks = ctx._shutdown_callbacks  # pyright: ignore[reportPrivateUsage] - what a job runs
    await asyncio.gather(*(callback("over") for callback in callbacks))


async def test_every_end_may_come_twice(tmp_path: Path) -> None:
    """``close``, ``on_session_end`` and the shutdown in any number leave one record and no file;
    what is to be done then is done once."""
    done: list[Finished] = []

    async def then(finished: Finished) -> None:
        done.append(finished)

    async with recording(tmp_path) as call:
        ctx = _job()
        ending = Ending(ctx, call.recorder, then=then)
        async with talking(ScriptedLLM(["Hello."])) as session:
            call.recorder.attach(session)
            await session.run(user_input="hi")
        for _ in range(2):
            await on_session_end(ctx)
        await _shut_down(ctx)
        await _shut_down(ctx)
        found = await call.items()
    assert said(found) == [("user", "hi"), ("assistant", "Hello.")]
    assert ending.finished is not None
    assert ending.finished.complete
    assert len(done) == 1
    assert call.files() == []


async def test_closing_is_enough(tmp_path: Path) -> None:
    """The session's ``close`` alone finishes the record, with nobody calling."""
    async with recording(tmp_path) as call:
        async with talking(ScriptedLLM(["Hello."])) as session:
            call.recorder.attach(session)
            session.history.add_message(role="user", content="only in the history")
        await until(lambda: call.recorder.progress.store == 1)
        assert said(await call.items()) == [("user", "only in the history")]


async def test_an_end_keeps_its_limit(tmp_path: Path) -> None:
    """With a store that hangs an end returns in its time, raises nothing, and leaves the journal
    to the next start."""
    store = FailingStore()
    async with recording(tmp_path, store) as call:
        ctx = _job()
        ending = Ending(ctx, call.recorder, deadline_seconds=0.2)
        store.hangs = True
        call.recorder.record(Message("user", "hello"))
        began = time.monotonic()
        await on_session_end(ctx)
        await _shut_down(ctx)
        took = time.monotonic() - began
        store.hangs = False
        assert ending.finished is not None
        assert not ending.finished.complete
        assert took < 8.0
        assert (await call.journals.replay()).items == 1


async def test_what_comes_after_may_fail(tmp_path: Path) -> None:
    """An error or a hang in what is done after the finish reaches nobody else's callback."""

    async def then(finished: Finished) -> None:
        if finished.complete:
            raise TypeError("no")

    async with recording(tmp_path) as call:
        ctx = _job()
        Ending(ctx, call.recorder, then=then)
        call.recorder.record(Message("user", "hello"))
        await on_session_end(ctx)
        await _shut_down(ctx)
        assert said(await call.items()) == [("user", "hello")]


async def test_a_job_without_a_call_ends_too() -> None:
    """``on_session_end`` of a job that never recorded does nothing."""
    ctx = _job()
    await on_session_end(ctx)
    assert ctx.job.id == "job"


async def test_several_ends_at_once(tmp_path: Path) -> None:
    """Ends that come together wait for each other instead of writing twice."""
    async with recording(tmp_path) as call:
        call.recorder.record(*(Message("user", str(number)) for number in range(50)))
        done = await asyncio.gather(*(call.recorder.finish() for _ in range(5)))
        assert all(one.complete for one in done)
        assert len(await call.items()) == 50
