"""Records under attack: a disk that hangs, items nothing can keep, ends that come at once."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from adapters.livekit.calls import FailingStore, recording, said, talking
from adapters.livekit.waiting import until
from livekit.agents import llm

from secondcall.adapters.livekit.journal import Journal
from secondcall.testing.livekit import ScriptedLLM
from secondcall.types import Item, Message

pytestmark = pytest.mark.anyio


async def test_a_disk_that_hangs_at_the_end_loses_nothing_silently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What the disk has not answered for when the record is closed is counted as lost, and stays in
    the file if the disk answers after all."""
    answers = threading.Event()
    append = Journal.append

    def slow(self: Journal, items: Sequence[Item]) -> None:
        answers.wait(30)
        append(self, items)

    monkeypatch.setattr(Journal, "append", slow)
    async with recording(tmp_path) as call:
        call.recorder.record(Message("user", "the last words", id="last"))
        await asyncio.sleep(0)
        await call.recorder.aclose()
        assert call.recorder.progress.lost == 1
        assert "items of this call are lost" in caplog.text
        answers.set()
        await until(lambda: len(call.files()) == 1)
        await until(lambda: b"the last words" in call.files()[0].read_bytes())


async def test_one_item_that_cannot_be_written_down_costs_only_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """While the store is down the journal has all the others of its batch."""
    caplog.set_level(logging.WARNING)
    store = FailingStore()
    async with recording(tmp_path, store) as call:
        store.down = True
        wrong: Any = {"what": object()}
        call.recorder.record(
            Message("user", "before", id="1"),
            Message("user", "wrong", id="2", metadata=wrong),
            Message("user", "after", id="3"),
        )
        await until(lambda: call.recorder.progress.journal == 2)
        store.down = False
        await until(lambda: call.recorder.progress.store == 2)
        assert (await call.recorder.finish()).progress.lost == 1
        assert said(await call.items()) == [("user", "before"), ("user", "after")]


async def test_ends_that_come_at_once_are_one(tmp_path: Path) -> None:
    """Finishing three times and closing twice, all together and one of them cancelled, records each
    word once."""
    async with recording(tmp_path) as call:
        async with talking(ScriptedLLM(["One."])) as session:
            call.recorder.attach(session)
            await session.run(user_input="Hello?")
            session.history.add_message(role="user", content="one more thing")
        ends = [asyncio.create_task(call.recorder.finish()) for _ in range(3)]
        await asyncio.sleep(0)
        ends[0].cancel()
        await asyncio.gather(*ends, return_exceptions=True)
        await asyncio.gather(call.recorder.aclose(), call.recorder.aclose())
        texts = [text for _, text in said(await call.items())]
        assert sorted(texts) == ["Hello?", "One.", "one more thing"]
        assert call.files() == []


async def test_a_clock_that_is_set_back_keeps_off_the_record_off(tmp_path: Path) -> None:
    """What was said off the record while the clock went back is not recorded afterwards."""
    async with recording(tmp_path) as call:
        now = [1_000.0]
        call.recorder.consent._clock = lambda: now[0]  # pyright: ignore[reportPrivateUsage] - a clock that goes back
        call.recorder.consent.off_the_record()
        now[0] = 900.0
        secret = llm.ChatMessage(role="user", content=["secret"], created_at=950.0)
        call.recorder.consent.back_on_the_record()
        fine = llm.ChatMessage(role="user", content=["fine"], created_at=1_001.0)
        finished = await call.recorder.finish(llm.ChatContext([secret, fine]))
        assert finished.complete
        assert said(await call.items()) == [("user", "fine")]


async def test_a_journal_that_says_not_whose_it_is_does_not_stay_for_ever(tmp_path: Path) -> None:
    """What stands in a file whose first line is damaged goes when it is as old as the others may
    become, and not before."""
    async with recording(tmp_path) as call:
        journal = call.journals.journal("call", user_id="ana")
        journal.append([Message("user", "hello", id="1")])
        journal.close()
        (path,) = call.files()
        path.write_bytes(b"x" + path.read_bytes())
        await call.journals.replay()
        assert call.files() == [path]
        os.utime(path, (0, 0))
        await call.journals.replay()
        assert call.files() == []
        assert await call.memory.users() == []
