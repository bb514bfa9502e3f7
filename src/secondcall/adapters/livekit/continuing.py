"""Which session a call is: its own, or the one of a call that dropped a moment ago.

A call holds its session by a claim that it renews while it runs and that runs out by itself, so
that neither two calls at once nor a worker that was killed can mix up or block a conversation.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from secondcall.errors import NotOpen, OperationFailed

if TYPE_CHECKING:
    from livekit.agents import JobContext

    from secondcall.memory import SessionMemory, UserMemory

__all__ = ["Held", "continued_session", "holder_of", "own_session_id"]

_log = logging.getLogger("secondcall.livekit")
_PREFIX = "call_"
_CLAIM_SECONDS = 12.0
_BEAT_SECONDS = 4.0
_LET_GO_SECONDS = 2.0
_AGAIN_SECONDS = 1.0
"""A new caller's session can be held only when something is stored of them."""
_OVER = "over"
"""Holds a session that was ended on purpose, so that no call continues it."""
_FAILURES = (OperationFailed, NotOpen, TimeoutError)


def own_session_id(job_id: str) -> str:
    """The session of a job's call, if it continues none."""
    return f"{_PREFIX}{job_id}"


def holder_of(ctx: JobContext) -> str:
    """What a job holds sessions as. One that takes the place of a killed one, for the same agent
    in the same room, holds what that held."""
    # The room tells its name only once it is connected, a made-up job has one that all share.
    room = ctx.room.name or ("" if ctx.is_fake_job() else ctx.job.room.name)
    return f"{ctx.job.agent_name}@{room}" if room else ctx.job.id


async def continued_session(
    user: UserMemory, holder: str, *, grace_seconds: float, deadline_seconds: float
) -> str | None:
    """The user's last call, if something was said in it within the last ``grace_seconds`` and no
    other call holds it; it is held by ``holder`` from then on. ``None`` also when the store does
    not say so in time."""
    if grace_seconds <= 0:
        return None
    try:
        async with asyncio.timeout(deadline_seconds):
            return await _claimed(user, holder, timedelta(seconds=grace_seconds))
    except Exception as error:  # a live edge: whatever a store does, the call goes on; it is logged
        _log.warning(
            "it is not known whether a call continues another; it is a session of its own",
            extra={"error": type(error).__name__},
        )
        return None


async def _claimed(user: UserMemory, holder: str, grace: timedelta) -> str | None:
    for last in await user.sessions(limit=3):
        if not last.session_id.startswith(_PREFIX):
            continue
        # By another worker's clock, which may be ahead of this one's.
        if abs(user.now() - last.last_at) > grace:
            return None
        session = await user.session(last.session_id)
        held = await session.claim(holder, seconds=_CLAIM_SECONDS)
        return last.session_id if held else None
    return None


class Held:
    """Holds a call's session while it runs. ``also`` is done with each renewal, such as saving."""

    def __init__(
        self,
        session: Callable[[], SessionMemory],
        holder: str,
        *,
        also: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._session = session
        self._holder = holder
        self._also = also
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name="secondcall holds a session")

    async def follow(self) -> None:
        """The session is another one: hold it now, or as soon as it can be held."""
        if not self._task.done() and not await self._claimed(_AGAIN_SECONDS):
            self._changed.set()

    async def aclose(self, *, over_seconds: float = 0.0) -> None:
        """Let the session go; for ``over_seconds`` no call continues it. Harmless when repeated."""
        if self._task.done():
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        try:
            async with asyncio.timeout(_LET_GO_SECONDS):
                session = self._session()
                await session.release(self._holder)
                if over_seconds > 0:
                    await session.claim(_OVER, seconds=over_seconds)
        except _FAILURES as error:
            _log.warning(
                "a session is held until its claim runs out", extra={"error": type(error).__name__}
            )

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            held = await self._claimed(_BEAT_SECONDS, self._also)
            with contextlib.suppress(TimeoutError):
                seconds = _BEAT_SECONDS if held else _AGAIN_SECONDS
                await asyncio.wait_for(self._changed.wait(), seconds)

    async def _claimed(
        self, seconds: float, also: Callable[[], Awaitable[None]] | None = None
    ) -> bool:
        held = False
        try:
            async with asyncio.timeout(seconds):
                held = await self._session().claim(self._holder, seconds=_CLAIM_SECONDS)
                if also is not None:
                    await also()
        except Exception as error:  # a live edge: the next beat tries again; it is logged
            _log.warning("a session is not held", extra={"error": type(error).__name__})
        return held
