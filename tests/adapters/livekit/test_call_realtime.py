"""Calls with a realtime model that answers late, in another order, or not at all."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from adapters.livekit.jobs import ANN, end
from adapters.livekit.realtime_model import ScriptedRealtime
from adapters.livekit.remembered import told_in
from adapters.livekit.waiting import until
from livekit.agents import Agent, AgentSession, function_tool, llm

from secondcall import Memory, Message, RecordedItem
from secondcall.adapters.livekit import CallMemory, CallSettings, attached, call, with_memory
from secondcall.adapters.livekit.chat import EVENT
from secondcall.adapters.livekit.preload import Preloaded
from secondcall.testing.livekit import Reply
from secondcall.testing.livekit_room import room_job

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("ann_is_known")]


class _Model(ScriptedRealtime):
    """Keeps its lines. While ``fault`` is set a change of the context hangs or is answered with an
    error, as when the model's server does not confirm it in time."""

    def __init__(self, script: Callable[[llm.ChatContext], Reply]) -> None:
        super().__init__(script)
        self.lines: list[llm.RealtimeSession[Any]] = []
        self.fault: str | None = None
        self.refused = 0

    def session(self, **options: bool) -> llm.RealtimeSession[Any]:
        """A line that can be stuck."""
        line = super().session(**options)
        update = line.update_chat_ctx

        async def stuck(chat_ctx: llm.ChatContext) -> None:
            if self.fault is not None:
                self.refused += 1
                if self.fault == "hangs":
                    await asyncio.Event().wait()
                raise llm.RealtimeError("update_chat_ctx timed out.")
            await update(chat_ctx)

        line.update_chat_ctx = stuck
        self.lines.append(line)
        return line


def _here(chat_ctx: llm.ChatContext) -> Reply:
    del chat_ctx
    return Reply(text="Here I am.")


def _order(items: list[RecordedItem]) -> list[str]:
    return [
        one.item.text
        if isinstance(one.item, Message)
        else str(one.item.metadata.get(EVENT, "tool"))
        for one in items
    ]


@pytest.mark.parametrize("fault", ["hangs", "raises"])
async def test_a_context_that_the_model_does_not_take_in_time_loses_nothing(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """When the model does not take who the caller is, it goes on as before: replies come, all is
    recorded as the caller's own, and the next agent's context has the brief."""
    monkeypatch.setattr(attached, "_TELL_SECONDS", 0.05)
    settings = CallSettings(
        journal=tmp_path, preload_seconds=60, caller={"attribute_seconds": 0.05}
    )
    with room_job() as job:
        job.call_in(None)
        async with call(job.ctx, memory, settings=settings) as live:
            model = _Model(_here)
            session: AgentSession[Any] = AgentSession(llm=model, vad=None)
            await session.start(live.agent(Agent(instructions="x")))
            await session.run(user_input="Hello?")
            model.fault = fault
            job.set_attributes("sip_1", {"sip.phoneNumber": ANN})
            await until(lambda: model.refused > 0 and not live.resolved.caller.anonymous)
            model.fault = None
            await session.run(user_input="Are you there?")
            session.update_agent(Agent(instructions="y"))
            await until(lambda: "aisle" in told_in(model.told[-1]))
            await session.aclose()
        await end(job.ctx)
        ann = memory.user(await memory.identify(phone=ANN))
        said = [one.item.text async for one in ann.items() if isinstance(one.item, Message)]
    assert said == ["Hello?", "Here I am.", "Are you there?", "Here I am."]


@pytest.mark.parametrize("fault", ["hangs", "raises"])
async def test_an_agent_enters_though_the_model_does_not_take_its_context(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """A brief that comes late and cannot be told holds up neither ``on_enter`` nor a reply."""
    monkeypatch.setattr(attached, "_TELL_SECONDS", 0.05)
    entered: list[bool] = []

    class Entering(Agent):
        async def on_enter(self) -> None:
            entered.append(True)

    ann = memory.user(await memory.identify(phone=ANN))
    loading: asyncio.Future[Preloaded] = asyncio.get_running_loop().create_future()
    model = _Model(_here)
    session: AgentSession[Any] = AgentSession(llm=model, vad=None)
    source = CallMemory(ann, preloaded=loading, gate_seconds=30.0)
    await session.start(with_memory(Entering(instructions="x"), source))
    model.fault = fault
    loading.set_result(Preloaded(brief=await ann.brief()))
    await until(lambda: entered == [True])
    assert model.refused == 1
    model.fault = None
    await session.run(user_input="Hello?")
    assert session.history.messages()[-1].text_content == "Here I am."
    await session.aclose()


class _FrontDesk(Agent):
    @function_tool
    async def to_sales(self) -> Agent:
        """Hands over to sales."""
        return _Sales(instructions="Sell.")


class _Sales(Agent):
    async def on_enter(self) -> None:
        """Greets."""
        await self.session.generate_reply()


def _in_turn(*replies: Reply) -> Callable[[llm.ChatContext], Reply]:
    """A script that is the same for all lines of a model."""
    left = iter(replies)

    def script(chat_ctx: llm.ChatContext) -> Reply:
        del chat_ctx
        return next(left)

    return script


async def test_a_handoff_stands_in_the_order_in_which_it_happened(
    memory: Memory, tmp_path: Path
) -> None:
    """Question, tool, handoff, the next agent's greeting and the turn after it stand in this order;
    words whose transcript comes after the reply to them stand before it, where LiveKit tells when
    they began, and told again they are there once."""
    with room_job() as job:
        job.call_in(ANN)
        settings = CallSettings(journal=tmp_path, preload_seconds=60)
        async with call(job.ctx, memory, settings=settings) as live:
            model = _Model(
                _in_turn(
                    Reply(tools=[("to_sales", {})]), Reply(text="Sales here."), Reply(text="Yes.")
                )
            )
            session: AgentSession[Any] = AgentSession(llm=model, vad=None)
            await session.start(live.agent(_FrontDesk(instructions="Welcome.")))
            began = time.time()
            await session.run(user_input="To sales, please")
            await until(lambda: "Sales here." in str(session.history.messages()))
            await session.run(user_input="Any bread?")
            for _ in range(2):
                _transcribed(model.lines[-1], "Good morning", began)
            await session.aclose()
        await end(job.ctx)
        order = _order(await live.session.items())
    expected = ["To sales, please", "tool", "handoff", "Sales here.", "Any bread?", "Yes."]
    place = 0 if _TELLS_WHEN else len(expected)
    assert order == [*expected[:place], "Good morning", *expected[place:]]


_TELLS_WHEN = "turn_started_at" in {
    one.name for one in dataclasses.fields(llm.InputTranscriptionCompleted)
}


def _transcribed(line: llm.RealtimeSession[Any], words: str, began: float) -> None:
    when: dict[str, Any] = {"turn_started_at": began} if _TELLS_WHEN else {}
    heard = llm.InputTranscriptionCompleted(
        item_id="item_spoken", transcript=words, is_final=True, **when
    )
    line.emit("input_audio_transcription_completed", heard)
