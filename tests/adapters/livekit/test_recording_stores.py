"""Recording while the store is down, dies, hangs, comes back, or the user is forgotten."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from adapters.livekit.calls import FailingStore, recorded, recording, said, talking
from adapters.livekit.waiting import until
from livekit.agents import llm

from secondcall import Memory
from secondcall.adapters.livekit.journal import left_behind
from secondcall.adapters.livekit.recording import Recorder
from secondcall.errors import InvalidValue, NotOpen
from secondcall.memory import SessionMemory
from secondcall.testing.livekit import ScriptedLLM
from secondcall.types import Message

pytestmark = pytest.mark.anyio


async def test_a_store_that_is_down_at_the_start(tmp_path: Path) -> None:
    """The call goes on, what is said is in the journal, and in the store when it comes up."""
    store = FailingStore()
    async with recording(tmp_path, store) as call, talking(ScriptedLLM(["Hello."])) as session:
        store.down = True
        call.recorder.attach(session)
        await session.run(user_input="I am Ana")
        await until(lambda: call.recorder.progress.journal == 2)
        assert call.recorder.progress.store == 0
        store.down = False
        finished = await call.recorder.finish()
        found = await call.items()
    assert finished.complete
    assert said(found) == [("user", "I am Ana"), ("assistant", "Hello.")]


async def test_a_store_that_dies_and_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What is said while the store is away follows in order; lateness is logged without words."""
    store = FailingStore()
    script = ScriptedLLM(["One.", "Two.", "Three."])
    async with recording(tmp_path, store) as call, talking(script) as session:
        call.recorder.attach(session)
        await session.run(user_input="first")
        await until(lambda: call.recorder.progress.store == 2)
        store.down = True
        await session.run(user_input="the red door")
        await until(lambda: call.recorder.progress.journal == 2)
        store.down = False
        await session.run(user_input="third")
        await call.recorder.finish()
        found = await call.items()
    assert [text for _, text in said(found)] == [
        "first", "One.", "the red door", "Two.", "third", "Three."
    ]  # fmt: skip
    assert "the store has not taken what was said; it is tried again" in caplog.messages
    assert "red door" not in caplog.text


async def test_what_is_safe_lets_a_reply_go_first(tmp_path: Path) -> None:
    """What is in the journal waits for what is more urgent, and is then stored; at the end of the
    call nothing is waited for."""
    gate, asked = asyncio.Event(), list[int]()

    async def before_store() -> None:
        asked.append(call.recorder.progress.journal)
        await gate.wait()

    async with recording(tmp_path, before_store=before_store) as call:
        call.recorder.record(Message("user", "I am Ana", id="first"))
        await until(lambda: asked == [1])
        assert call.recorder.progress.store == 0
        call.recorder.record(Message("user", "and I call again", id="second"))
        await until(lambda: call.recorder.progress.journal == 2)
        gate.set()
        await until(lambda: call.recorder.progress.store == 2)
        gate.clear()
        assert (await call.recorder.finish()).complete
        call.recorder.record(Message("user", "one word more", id="third"))
        assert (await call.recorder.finish()).complete
        found = await call.items()
    assert [text for _, text in said(found)] == ["I am Ana", "and I call again", "one word more"]


async def test_what_is_safe_nowhere_waits_for_nothing() -> None:
    """Without a journal an item goes to the store, and nothing is let go before it."""
    asked: list[None] = []

    async def before_store() -> None:
        asked.append(None)

    async with Memory.open("memory://") as memory:
        session = await memory.user("ana").session("call")
        recorder = Recorder(lambda: session, before_store=before_store)
        recorder.record(Message("user", "I am Ana", id="first"))
        await until(lambda: recorder.progress.store == 1)
        await recorder.aclose()
        found = await recorded(memory)
    assert said(found) == [("user", "I am Ana")]
    assert asked == []


async def test_a_store_that_hangs_is_tried_again(tmp_path: Path) -> None:
    """An attempt that gets no answer is given up after its time and made again."""
    store = FailingStore()
    async with recording(tmp_path, store, attempt_seconds=0.05) as call:
        store.hangs = True
        call.recorder.record(Message("user", "hello"))
        await until(lambda: call.recorder.progress.journal == 1)
        store.hangs = False
        assert (await call.recorder.finish()).complete
        assert said(await call.items()) == [("user", "hello")]


async def test_a_session_that_cannot_be_had_is_asked_for_again(tmp_path: Path) -> None:
    """While the memory is not open the session cannot be made; it is asked for until it can."""
    async with Memory.open("memory://") as memory:
        asked: list[int] = []

        async def session() -> SessionMemory:
            asked.append(1)
            if len(asked) < 3:
                raise NotOpen("not yet")
            return await memory.user("ana").session("call")

        recorder = Recorder(session, retry_seconds=(0.001, 0.001))
        recorder.record(Message("user", "hello"))
        finished = await recorder.finish()
        await recorder.aclose()
        assert said(await recorded(memory)) == [("user", "hello")]
    assert finished.complete
    assert len(asked) == 3


async def test_a_refused_item_does_not_keep_back_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An item that the record does not accept is lost alone, which is logged."""
    async with recording(tmp_path) as call:
        call.recorder.record(
            Message("user", "one"), Message("user", "bad", id="x" * 2_000), Message("user", "two")
        )
        finished = await call.recorder.finish()
        assert said(await call.items()) == [("user", "one"), ("user", "two")]
    assert (finished.complete, finished.progress.lost) == (True, 1)
    assert "items of this call are lost" in caplog.messages


async def test_an_erasure_elsewhere_ends_the_recording(tmp_path: Path) -> None:
    """A user who is forgotten by somebody else during the call is recorded no more, and no journal
    stays; with a new consent recording begins anew, with nothing of before."""
    async with recording(tmp_path) as call, talking(ScriptedLLM(["a", "b", "c"])) as session:
        call.recorder.attach(session)
        await session.run(user_input="before")
        await until(lambda: call.recorder.progress.store == 2)
        await call.memory.user("ana").forget()
        await session.run(user_input="during")
        await until(lambda: not call.recorder.consent.recording)
        await call.recorder.finish()
        assert await call.memory.users() == []
        assert call.files() == []
        call.recorder.consent.give()
        await session.run(user_input="after")
        assert (await call.recorder.finish()).complete
        assert said(await call.items()) == [("user", "after"), ("assistant", "c")]


async def test_a_clock_that_is_wrong_changes_neither_order_nor_count(tmp_path: Path) -> None:
    """A worker whose clock is hours off the store's records the call whole, in order, once."""
    async with recording(tmp_path) as call, talking(ScriptedLLM([])) as session:
        call.recorder.attach(session)
        history = llm.ChatContext.empty()
        base = session.history.items[0].created_at + 5 * 3_600
        for number, role in enumerate(("user", "assistant", "user")):
            history.add_message(
                role=role,
                content=f"line {number}",
                created_at=base + number,
            )
        for one in history.messages():
            session._conversation_item_added(one)  # pyright: ignore[reportPrivateUsage] - as the session's own activity does
        await call.recorder.finish()
        again = await call.recorder.finish(history)
        found = await call.items()
    assert again.found == 0
    assert [text for _, text in said(found)] == ["line 0", "line 1", "line 2"]
    assert found[0].at - found[0].recorded_at > timedelta(hours=4)


async def test_what_waits_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the store is down for long, what is too much for memory is left to the journal, and
    comes with the next start."""
    monkeypatch.setattr("secondcall.adapters.livekit.writer._MAX_WAITING", 10)
    store = FailingStore()
    async with recording(tmp_path, store) as call:
        store.down = True
        for number in range(30):
            call.recorder.record(Message("user", f"line {number}"))
        await until(lambda: call.recorder.progress.journal == 30)
        store.down = False
        finished = await call.recorder.finish(deadline_seconds=5.0)
        await call.recorder.aclose()
        assert not finished.complete
        assert finished.progress.lost == 0
        done = await call.journals.replay()
        assert (done.items, len(await call.items())) == (30, 30)


async def test_lateness_and_loss_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Late and lost items are counted by the class of what kept them."""
    counted: list[tuple[Any, ...]] = []

    def count(*what: Any) -> None:
        counted.append(what)

    fake = SimpleNamespace(count_unwritten=count)
    monkeypatch.setattr("secondcall.adapters.livekit.writer.telemetry", fake)
    store = FailingStore()
    async with recording(tmp_path, store) as call:
        store.down = True
        call.recorder.record(Message("user", "one"))
        await until(lambda: bool(counted))
        store.down = False
        call.recorder.record(Message("user", "bad", id="x" * 2_000))
        await call.recorder.finish()
    assert counted[0] == ("late", "StoreUnavailable", 1)
    assert ("lost", "TooLarge", 1) in counted


async def test_an_unforeseen_error_does_not_end_the_writing(tmp_path: Path) -> None:
    """A task of the writer that has died is begun again with the next item, with what waited."""
    async with recording(tmp_path) as call:
        call.recorder.record(Message("user", "one"))
        await until(lambda: call.recorder.progress.store == 1)
        tasks = call.recorder.writer._tasks  # pyright: ignore[reportPrivateUsage] - what could die
        for task in tasks:
            task.cancel()
        await until(lambda: all(task.done() for task in tasks))
        call.recorder.record(Message("user", "two"))
        assert (await call.recorder.finish()).complete
        assert said(await call.items()) == [("user", "one"), ("user", "two")]


async def test_what_has_no_time_gets_one_at_once(tmp_path: Path) -> None:
    """An item whose time is impossible has that of its event, also when a replay records it."""
    store = FailingStore()
    async with recording(tmp_path, store) as call, talking(ScriptedLLM([])) as session:
        call.recorder.attach(session)
        store.down = True
        odd = llm.ChatMessage(role="user", content=["when?"], created_at=float("inf"))
        session._conversation_item_added(odd)  # pyright: ignore[reportPrivateUsage] - as the session's own activity does
        await until(lambda: call.recorder.progress.journal == 1)
        await call.recorder.aclose()
        left = [left_behind(path) for path in call.files()]
        for one in left:
            assert one is not None
            one.release()
            assert one.items[0].at is not None
    assert len(left) == 1


async def test_refusals_are_known_to_be_for_good() -> None:
    """What is not accepted is not tried again: ``InvalidValue`` reaches the writer as a refusal."""
    async with Memory.open("memory://") as memory:
        session = await memory.user("ana").session("call")
        with pytest.raises(InvalidValue):
            await session.record(Message("user", "bad", id=""))
