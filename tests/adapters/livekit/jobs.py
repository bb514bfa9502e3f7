"""Whole calls for tests: a job in which somebody calls, a session in text, and the job's end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from livekit.agents import Agent, AgentSession, CloseReason, JobContext, llm

from secondcall.adapters.livekit import CallSettings, on_session_end
from secondcall.testing.livekit import Reply, Script, ScriptedLLM
from secondcall.types import Message, RecordedItem

__all__ = [
    "ANN",
    "WatchedLLM",
    "calls",
    "end",
    "outputs",
    "settings_in",
    "talk",
    "texts",
    "words_of",
]

ANN = "+14155550100"


class WatchedLLM(ScriptedLLM):
    """Keeps the tools too that it is offered, as their schemas by name, for each request."""

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.offered: list[dict[str, Any]] = []

    def chat(self, *, tools: Any = None, **request: Any) -> Any:
        """See ``LLM.chat``."""
        schemas = {
            one.info.name: dict(one.info.raw_schema)
            for one in tools or ()
            if isinstance(one, llm.RawFunctionTool)
        }
        self.offered.append(schemas)
        return super().chat(tools=tools, **request)


def settings_in(folder: Path, **more: Any) -> CallSettings:
    """Settings of a call with its journal in a folder, and time to load on a slow machine."""
    return CallSettings(journal=folder, preload_seconds=60, **more)


def words_of(items: Iterable[RecordedItem]) -> list[str]:
    """The texts of the messages among some items."""
    return [one.item.text.strip() for one in items if isinstance(one.item, Message)]


def texts(request: llm.ChatContext) -> str:
    """All that a model was given to read, in one text."""
    return "\n".join(one.text_content or "" for one in request.messages())


def outputs(request: llm.ChatContext) -> list[str]:
    """What tools gave back, as a model was told it."""
    return [one.output for one in request.items if isinstance(one, llm.FunctionCallOutput)]


@asynccontextmanager
async def talk(
    agent: Agent, script: Script, *, userdata: Any = None, dropped: bool = False
) -> AsyncGenerator[tuple[AgentSession[Any], WatchedLLM]]:
    """A session of ``agent`` in text, closed at the end, or ``dropped`` by the caller."""
    model = WatchedLLM(script)
    session: AgentSession[Any] = AgentSession(
        llm=model, vad=None, turn_handling={"turn_detection": None}, userdata=userdata
    )
    await session.start(agent)
    try:
        yield session, model
    finally:
        if dropped:
            await session._aclose_impl(reason=CloseReason.PARTICIPANT_DISCONNECTED)  # pyright: ignore[reportPrivateUsage] - a room's own way
        await session.aclose()


async def end(ctx: JobContext) -> None:
    """What a worker does after the session is closed, in its order."""
    await on_session_end(ctx)
    callbacks = ctx._shutdown_callbacks  # pyright: ignore[reportPrivateUsage] - only a worker runs them
    await asyncio.gather(*(one("participant disconnected") for one in callbacks))


def calls(*tools: tuple[str, dict[str, object]], then: str = "Done.") -> Sequence[Reply | str]:
    """A script that calls tools, and then says something."""
    return [Reply(tools=tools), then]
