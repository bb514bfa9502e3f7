"""A realtime model that misses an update of its context is told again, until it has taken it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from adapters.livekit.jobs import ANN, end
from adapters.livekit.realtime_model import ScriptedRealtime
from adapters.livekit.waiting import until
from livekit.agents import Agent, AgentSession, llm

from secondcall import Memory
from secondcall.adapters.livekit import CallSettings, attached, call
from secondcall.adapters.livekit.call import LiveCall
from secondcall.testing.livekit import Reply
from secondcall.testing.livekit_room import RoomJob, room_job

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("ann_is_known")]

FAULT = pytest.mark.parametrize("fault", ["hangs", "raises"])
TOLD = "aisle"


class _Refusing(ScriptedRealtime):
    """Takes no update of its context while it has a ``fault``; ``seen`` has what it answered to."""

    def __init__(self) -> None:
        self.fault: str | None = None
        self.refused = 0
        self.seen: list[str] = []
        super().__init__(self._answer)

    def session(self, **options: bool) -> llm.RealtimeSession[Any]:
        """A line whose updates fail as the model says."""
        line = super().session(**options)
        update = line.update_chat_ctx

        async def refusing(chat_ctx: llm.ChatContext) -> None:
            if self.fault is None:
                await update(chat_ctx)
                return
            self.refused += 1
            if self.fault == "hangs":
                await asyncio.Event().wait()
            raise llm.RealtimeError("update_chat_ctx timed out.")

        line.update_chat_ctx = refusing
        return line

    def _answer(self, chat_ctx: llm.ChatContext) -> Reply:
        self.seen.append("\n".join(one.text_content or "" for one in chat_ctx.messages()))
        return Reply(text="Here I am.")


@asynccontextmanager
async def _called(
    memory: Memory, folder: Path, number: str | None
) -> AsyncGenerator[tuple[RoomJob, LiveCall[Any], _Refusing, AgentSession[Any]]]:
    settings = CallSettings(journal=folder, preload_seconds=60, caller={"attribute_seconds": 0.05})
    with room_job() as job:
        job.call_in(number)
        async with call(job.ctx, memory, settings=settings) as live:
            model = _Refusing()
            session = AgentSession[Any](llm=model, vad=None)
            await session.start(live.agent(Agent(instructions="Be brief.")))
            await session.run(user_input="Hello?")
            yield job, live, model, session
            await session.aclose()
        await end(job.ctx)


async def _talk_on(model: _Refusing, session: AgentSession[Any], known: Callable[[], bool]) -> None:
    """The model takes updates again; talk until it has taken the one that it missed."""
    model.fault = None
    for number in range(20):
        await session.run(user_input=f"Who am I? {number}")
        if known():
            return
        await asyncio.sleep(0.05)


@FAULT
async def test_the_next_caller_is_not_answered_with_the_brief_of_the_first(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """It turns out to be Ben while the model takes no update: Ann's brief leaves the model as soon
    as it takes one."""
    monkeypatch.setattr(attached, "_TELL_SECONDS", 0.05)
    async with _called(memory, tmp_path, ANN) as (job, live, model, session):
        assert TOLD in model.seen[-1]
        model.fault = fault
        job.set_attributes("sip_1", {"sip.phoneNumber": ANN, "user_id": "ben"})
        await until(lambda: model.refused > 0 and live.resolved.caller.trust == "verified")
        await _talk_on(model, session, lambda: TOLD not in model.seen[-1])
    assert TOLD not in model.seen[-1]


@FAULT
async def test_what_was_forgotten_leaves_the_model_too(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """The receipt says that a model still has it, and the model loses it when it takes an
    update."""
    monkeypatch.setattr(attached, "_TELL_SECONDS", 0.05)
    async with _called(memory, tmp_path, ANN) as (_, live, model, session):
        model.fault = fault
        receipt = await live.forget()
        assert not receipt.complete
        assert "realtime model" in receipt.detail
        await _talk_on(model, session, lambda: TOLD not in model.seen[-1])
        assert (await live.forget()).complete
    assert TOLD not in model.seen[-1]


@FAULT
async def test_who_becomes_known_late_is_known_once_the_model_takes_updates(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """The brief of a late number reaches a model that missed it."""
    monkeypatch.setattr(attached, "_TELL_SECONDS", 0.05)
    async with _called(memory, tmp_path, None) as (job, live, model, session):
        model.fault = fault
        job.set_attributes("sip_1", {"sip.phoneNumber": ANN})
        await until(lambda: model.refused > 0 and not live.resolved.caller.anonymous)
        await _talk_on(model, session, lambda: TOLD in model.seen[-1])
    assert TOLD in model.seen[-1]


@FAULT
async def test_a_silent_line_is_told_again_too(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Without any reply meanwhile, the update is tried again after a moment."""
    monkeypatch.setattr(attached, "_TELL_SECONDS", 0.05)
    monkeypatch.setattr(attached, "_AGAIN_SECONDS", (0.05, 0.2))
    async with _called(memory, tmp_path, ANN) as (job, _, model, session):
        model.fault = fault
        job.set_attributes("sip_1", {"sip.phoneNumber": ANN, "user_id": "ben"})
        await until(lambda: model.refused > 3)
        model.fault = None
        await asyncio.sleep(0.5)
        await session.run(user_input="Who am I?")
    assert TOLD not in model.seen[-1]


async def test_the_end_of_a_reply_is_enough_to_be_told_again(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without audio no state of the agent says that a reply is over; what is owed is told then all
    the same, and not only after a pause."""
    monkeypatch.setattr(attached, "_TELL_SECONDS", 0.05)
    monkeypatch.setattr(attached, "_AGAIN_SECONDS", (600.0, 600.0))
    async with _called(memory, tmp_path, None) as (job, live, model, session):
        model.fault = "raises"
        job.set_attributes("sip_1", {"sip.phoneNumber": ANN})
        await until(lambda: model.refused > 0 and not live.resolved.caller.anonymous)
        await _talk_on(model, session, lambda: TOLD in model.seen[-1])
    assert TOLD in model.seen[-1]
