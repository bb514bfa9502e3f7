"""Models for LiveKit Agents that are driven by code: a real ``AgentSession`` without a network.

``ScriptedLLM`` answers by a script and keeps what it was asked; ``FedSTT`` hears what it is fed, so
that spoken turns need no audio.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from livekit.agents import LanguageCode, llm, stt
from livekit.agents.types import (
    DEFAULT_API_CONNECT_OPTIONS,
    NOT_GIVEN,
    APIConnectOptions,
    NotGivenOr,
)
from livekit.agents.utils import AudioBuffer

__all__ = ["FedSTT", "Reply", "Script", "ScriptedLLM"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer: words, tool calls as (name, arguments), seconds until it begins, or an error."""

    text: str = ""
    tools: Sequence[tuple[str, Mapping[str, object]]] = ()
    delay_seconds: float = 0.0
    error: Exception | None = None


Script: TypeAlias = "Callable[[llm.ChatContext], Reply | str] | Sequence[Reply | str]"


class ScriptedLLM(llm.LLM[Literal["scripted"]]):
    """Answers with what ``script`` gives for a chat context, or with the next of a list.

    ``requests`` keeps a copy of every context it was asked with. A list that is used up is answered
    with "(the script has ended)".
    """

    def __init__(self, script: Script) -> None:
        super().__init__()
        self.requests: list[llm.ChatContext] = []
        self.cancelled = 0
        self._script = script

    @property
    def model(self) -> str:
        """``scripted``."""
        return "scripted"

    def chat(
        self,
        *,
        chat_ctx: llm.ChatContext,
        tools: list[llm.Tool] | None = None,
        conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS,
        parallel_tool_calls: NotGivenOr[bool] = NOT_GIVEN,
        tool_choice: NotGivenOr[llm.ToolChoice] = NOT_GIVEN,
        extra_kwargs: NotGivenOr[dict[str, Any]] = NOT_GIVEN,
    ) -> llm.LLMStream:
        """A stream of the next answer's words, then its tool calls."""
        del parallel_tool_calls, tool_choice, extra_kwargs
        self.requests.append(chat_ctx.copy())
        return _ScriptedStream(
            self, self._next(chat_ctx), chat_ctx=chat_ctx, tools=tools or [], conn=conn_options
        )

    def _next(self, chat_ctx: llm.ChatContext) -> Reply:
        if callable(self._script):
            reply = self._script(chat_ctx)
        elif len(self.requests) <= len(self._script):
            reply = self._script[len(self.requests) - 1]
        else:
            reply = "(the script has ended)"
        return Reply(text=reply) if isinstance(reply, str) else reply


class _ScriptedStream(llm.LLMStream):
    _numbers = itertools.count(1)

    def __init__(
        self,
        owner: ScriptedLLM,
        reply: Reply,
        *,
        chat_ctx: llm.ChatContext,
        tools: list[llm.Tool],
        conn: APIConnectOptions,
    ) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType] - LiveKit leaves LLM open
            owner, chat_ctx=chat_ctx, tools=tools, conn_options=conn
        )
        self._owner = owner
        self._reply = reply
        self._number = next(self._numbers)

    async def _run(self) -> None:
        try:
            await asyncio.sleep(self._reply.delay_seconds)
        except asyncio.CancelledError:
            self._owner.cancelled += 1
            raise
        if self._reply.error is not None:
            raise self._reply.error
        for piece in re.findall(r"\s*\S+|\s+$", self._reply.text):
            self._send(llm.ChoiceDelta(role="assistant", content=piece))
        if self._reply.tools:
            calls = [
                llm.FunctionToolCall(
                    name=name,
                    arguments=json.dumps(arguments),
                    call_id=f"call_{self._number}_{position}",
                )
                for position, (name, arguments) in enumerate(self._reply.tools)
            ]
            self._send(llm.ChoiceDelta(role="assistant", tool_calls=calls))

    def _send(self, delta: llm.ChoiceDelta) -> None:
        self._event_ch.send_nowait(llm.ChatChunk(id=f"reply_{self._number}", delta=delta))


class FedSTT(stt.STT[Literal["fed"]]):
    """A streaming speech recogniser that hears what it is fed; no audio is needed.

    Give the session ``turn_detection="stt"`` and short endpointing delays.
    """

    def __init__(self) -> None:
        super().__init__(capabilities=stt.STTCapabilities(streaming=True, interim_results=True))
        self._fed: asyncio.Queue[stt.SpeechEvent] = asyncio.Queue()

    def say(self, text: str, *, interim: Sequence[str] = ()) -> None:
        """One whole spoken turn, after what was understood in between."""
        self.feed(stt.SpeechEventType.START_OF_SPEECH)
        for words in interim:
            self.feed(stt.SpeechEventType.INTERIM_TRANSCRIPT, words)
        self.feed(stt.SpeechEventType.FINAL_TRANSCRIPT, text)
        self.feed(stt.SpeechEventType.END_OF_SPEECH)

    def feed(self, kind: stt.SpeechEventType, text: str = "") -> None:
        """One event, with what was understood."""
        heard = [stt.SpeechData(text=text, language=LanguageCode("en"), confidence=0.9)]
        self._fed.put_nowait(stt.SpeechEvent(type=kind, alternatives=heard if text else []))

    def stream(
        self,
        *,
        language: NotGivenOr[str] = NOT_GIVEN,
        conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS,
    ) -> stt.RecognizeStream:
        """The stream that the session listens to."""
        del language
        return _FedStream(self, self._fed, conn_options)

    async def _recognize_impl(
        self,
        buffer: AudioBuffer,
        *,
        language: NotGivenOr[str] = NOT_GIVEN,
        conn_options: APIConnectOptions,
    ) -> stt.SpeechEvent:
        raise NotImplementedError("FedSTT only streams")


class _FedStream(stt.RecognizeStream):
    def __init__(
        self, owner: FedSTT, events: asyncio.Queue[stt.SpeechEvent], conn: APIConnectOptions
    ) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType] - LiveKit leaves STT open
            stt=owner, conn_options=conn
        )
        self._events = events

    async def _run(self) -> None:
        while True:
            self._event_ch.send_nowait(await self._events.get())
