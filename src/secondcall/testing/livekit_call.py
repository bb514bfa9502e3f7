"""Calls a LiveKit agent in text, each call in a fresh process, without a server.

``dial("my_agent:server")``, for ``second_call``, imports the agent in a new process, gives its
entrypoint a real job in a room that a caller with that number has come to, says the lines one by
one, hangs up and ends the job as a worker does: close, ``on_session_end``, shutdown callbacks.
"""

# LiveKit leaves type arguments of its own classes open: what is unknown there is its own.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import sys
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, cast

from livekit.agents import (
    AgentServer,
    AgentSession,
    ConversationItemAddedEvent,
    JobContext,
    llm,
)

from secondcall.adapters.livekit.agent import attached_to
from secondcall.testing.livekit_room import RoomJob, room_job
from secondcall.testing.second_call import Dial, HeardCall

__all__ = ["CallFailed", "Entrypoint", "dial", "take_call"]

_START_SECONDS = 30.0
_REPLY_SECONDS = 60.0
_END_SECONDS = 15.0
_GREETING_SECONDS = 10.0
_LOOK_SECONDS = 0.01

Entrypoint = Callable[[JobContext], Awaitable[None]]


class CallFailed(RuntimeError):
    """The agent's process ended without having taken the call; the text is the end of what it
    wrote to standard error."""


def dial(
    agent: str,
    *,
    environment: Mapping[str, str] | None = None,
    timeout_seconds: float = 180.0,
    folder: str | None = None,
) -> Dial:
    """A ``Dial`` for the agent named ``"module:name"``: an ``AgentServer`` or an entrypoint.

    ``environment`` is added to this process's, ``folder`` is where the module is looked for, by
    default the working folder. What the agent says is what it would speak; audio, speech models and
    the room's media are left out. The dial raises ``CallFailed``, ``TimeoutError``.
    """

    async def call(number: str | None, lines: Sequence[str]) -> HeardCall:
        request = {"agent": agent, "number": number, "lines": list(lines)}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "secondcall.testing.livekit_call",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **(environment or {})},
            cwd=folder,
        )
        try:
            async with asyncio.timeout(timeout_seconds):
                out, err = await process.communicate(json.dumps(request).encode())
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0 or not out:
            raise CallFailed(err.decode(errors="replace").strip()[-2_000:] or "it wrote nothing")
        heard = json.loads(out.splitlines()[-1])
        return HeardCall(replies=heard["replies"], given=heard["given"], user_id=heard["user_id"])

    return call


def main() -> None:
    """Take one call: the request is read from standard input, what was heard printed as JSON."""
    request = cast("dict[str, Any]", json.load(sys.stdin))
    sys.path.insert(0, os.getcwd())
    entrypoint, end = _named(request["agent"])
    lines = cast("list[str]", request["lines"])
    heard = asyncio.run(take_call(entrypoint, lines, number=request["number"], end=end))
    told = {"replies": heard.replies, "given": heard.given, "user_id": heard.user_id}
    sys.stdout.write(json.dumps(told) + "\n")


async def take_call(
    entrypoint: Entrypoint,
    lines: Sequence[str],
    *,
    number: str | None,
    end: Entrypoint | None = None,
) -> HeardCall:
    """One call in this process, from the job's start to its end; ``end`` is the server's
    ``on_session_end``.

    Raises: what the entrypoint raises, ``TimeoutError``.
    """
    with room_job(job_id=f"AJ_{os.getpid()}_{os.urandom(4).hex()}") as job, _in_text() as given:
        job.call_in(number)
        entered = asyncio.ensure_future(entrypoint(job.ctx))
        session = await _started(job.ctx, entered)
        replies: list[str] = []
        session.on("conversation_item_added", _Listener(replies))
        replies.extend(_said(one) for one in session.history.messages() if one.role == "assistant")
        await _idle(session)
        for line in lines:
            async with asyncio.timeout(_REPLY_SECONDS):
                await session.run(user_input=line)
        attached = attached_to(session)
        user = None if attached is None else attached.source.user
        await _hang_up(job, session, entered, end)
    return HeardCall(replies=replies, given=given, user_id=None if user is None else user.user_id)


async def _started(ctx: JobContext, entered: asyncio.Future[None]) -> AgentSession[Any]:
    """The session that the entrypoint has started."""
    async with asyncio.timeout(_START_SECONDS):
        while True:
            session = cast("AgentSession[Any] | None", cast("Any", ctx)._primary_agent_session)
            if session is not None and session.agent_state != "initializing":
                return session
            if entered.done():
                entered.result()
                if session is None:
                    raise CallFailed("the entrypoint returned without starting an AgentSession")
            await asyncio.sleep(_LOOK_SECONDS)


async def _idle(session: AgentSession[Any]) -> None:
    """Let a greeting be said, if there is one."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_GREETING_SECONDS):
            await session.wait_for_idle()


async def _hang_up(
    job: RoomJob,
    session: AgentSession[Any],
    entered: asyncio.Future[None],
    end: Entrypoint | None,
) -> None:
    """What a worker does when the caller has left, in its order."""
    job.leave(job.caller)
    await asyncio.wait({entered}, timeout=_END_SECONDS)
    entered.cancel()
    await session.aclose()
    if end is not None:
        await end(job.ctx)
    callbacks = job.ctx._shutdown_callbacks  # pyright: ignore[reportPrivateUsage] - only a worker runs them
    await asyncio.gather(*(one("participant disconnected") for one in callbacks))
    with contextlib.suppress(asyncio.CancelledError):
        await entered


class _Listener:
    """Keeps what the agent says."""

    def __init__(self, replies: list[str]) -> None:
        self._replies = replies

    def __call__(self, event: ConversationItemAddedEvent) -> None:
        if isinstance(event.item, llm.ChatMessage) and event.item.role == "assistant":
            self._replies.append(_said(event.item))


def _said(message: llm.ChatMessage) -> str:
    return message.text_content or ""


@contextlib.contextmanager
def _in_text() -> Generator[list[str]]:
    """Sessions start without the room's media; the texts that models are given, over all requests.

    It changes LiveKit's classes: for a process that takes one call.
    """
    given: list[str] = []
    sessions: Any = AgentSession
    streams: Any = llm.LLMStream
    start, ask = sessions.start, streams.__init__

    def asked(stream: Any, model: Any, **request: Any) -> None:
        given.extend(_texts(request["chat_ctx"]))
        ask(stream, model, **request)

    async def started(session: Any, agent: Any, **options: Any) -> Any:
        for media in ("room", "room_options", "room_input_options", "room_output_options"):
            options.pop(media, None)
        return await start(session, agent, **options)

    sessions.start, streams.__init__ = started, asked
    try:
        yield given
    finally:
        sessions.start, streams.__init__ = start, ask


def _texts(chat_ctx: llm.ChatContext) -> list[str]:
    texts: list[str] = []
    for item in chat_ctx.items:
        if isinstance(item, llm.ChatMessage):
            texts.append(item.text_content or "")
        elif isinstance(item, llm.FunctionCallOutput):
            texts.append(item.output)
    return texts


def _named(agent: str) -> tuple[Entrypoint, Entrypoint | None]:
    """The entrypoint and the end of the session of an agent named ``"module:name"``."""
    module, colon, name = agent.partition(":")
    if not colon:
        raise CallFailed(f"agent is {agent!r}, expected 'module:name' of a server or entrypoint")
    found = getattr(importlib.import_module(module), name)
    if not isinstance(found, AgentServer):
        return cast("Entrypoint", found), None
    entrypoint = found._entrypoint_fnc  # pyright: ignore[reportPrivateUsage] - set by rtc_session
    if entrypoint is None:
        raise CallFailed(f"the server {agent!r} has no rtc_session")
    return entrypoint, found._session_end_fnc  # pyright: ignore[reportPrivateUsage] - set by rtc_session


if __name__ == "__main__":
    main()
