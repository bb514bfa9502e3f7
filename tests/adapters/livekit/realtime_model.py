"""A realtime model for tests: it answers in text by a script and keeps what it is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any, Literal, TypeVar

from livekit import rtc
from livekit.agents import llm
from livekit.agents.types import NOT_GIVEN, NotGivenOr

from secondcall.testing.livekit import Reply

__all__ = ["ScriptedRealtime"]

T = TypeVar("T")


class ScriptedRealtime(llm.RealtimeModel):
    """Answers with what ``script`` gives for the context that its server has; without one it says
    nothing. ``told`` keeps every context that it was sent, ``offered`` the names of its tools."""

    def __init__(self, script: Callable[[llm.ChatContext], Reply] | None = None) -> None:
        super().__init__(
            capabilities=llm.RealtimeCapabilities(
                message_truncation=False,
                turn_detection=True,
                user_transcription=False,
                auto_tool_reply_generation=False,
                audio_output=False,
                manual_function_calls=False,
                mutable_chat_context=True,
                mutable_instructions=True,
                mutable_tools=True,
            )
        )
        self.script = script
        self.told: list[llm.ChatContext] = []
        self.offered: list[str] = []

    def session(self, **_: bool) -> llm.RealtimeSession[Any]:
        """A line to it."""
        return _Line(self)

    async def aclose(self) -> None:
        """Nothing is open."""


class _Line(llm.RealtimeSession[Any]):
    def __init__(self, model: ScriptedRealtime) -> None:
        super().__init__(model)
        self._model = model
        self._chat_ctx = llm.ChatContext.empty()
        self._tools = llm.ToolContext.empty()
        self._replies = 0

    @property
    def chat_ctx(self) -> llm.ChatContext:
        return self._chat_ctx.copy()

    @property
    def tools(self) -> llm.ToolContext:
        return self._tools

    async def update_instructions(self, instructions: str) -> None:
        del instructions

    async def update_chat_ctx(self, chat_ctx: llm.ChatContext) -> None:
        self._chat_ctx = chat_ctx.copy()
        self._model.told.append(chat_ctx.copy())

    async def update_tools(self, tools: list[llm.Tool]) -> None:
        self._tools = llm.ToolContext(tools)
        self._model.offered = [one.id for one in tools]

    def update_options(self, *, tool_choice: NotGivenOr[llm.ToolChoice | None] = NOT_GIVEN) -> None:
        del tool_choice

    def push_audio(self, frame: rtc.AudioFrame) -> None:
        del frame

    def push_video(self, frame: rtc.VideoFrame) -> None:
        del frame

    def generate_reply(self, **_: Any) -> asyncio.Future[llm.GenerationCreatedEvent]:
        if self._model.script is None:
            return asyncio.get_running_loop().create_future()
        self._replies += 1
        reply, number = self._model.script(self.chat_ctx), self._replies
        calls = [
            llm.FunctionCall(
                call_id=f"call_{number}_{position}", name=name, arguments=json.dumps(arguments)
            )
            for position, (name, arguments) in enumerate(reply.tools)
        ]
        said = llm.ChatMessage(role="assistant", content=[reply.text])
        self._chat_ctx.items.extend([said] if reply.text else calls)
        message = llm.MessageGeneration(
            message_id=said.id,
            text_stream=_stream([reply.text]),
            audio_stream=_stream(list[rtc.AudioFrame]()),
            modalities=_ready(),
        )
        created = asyncio.get_running_loop().create_future()
        created.set_result(
            llm.GenerationCreatedEvent(
                message_stream=_stream([message] if reply.text else []),
                function_stream=_stream(calls),
                user_initiated=True,
                response_id=f"reply_{number}",
            )
        )
        return created

    def commit_audio(self) -> None: ...

    def clear_audio(self) -> None: ...

    def interrupt(self) -> None: ...

    def truncate(self, **_: Any) -> None: ...

    async def aclose(self) -> None: ...


async def _stream(values: Iterable[T]) -> AsyncGenerator[T]:
    for value in values:
        yield value


def _ready() -> asyncio.Future[list[Literal["text", "audio"]]]:
    modalities = asyncio.get_running_loop().create_future()
    modalities.set_result(["text"])
    return modalities
