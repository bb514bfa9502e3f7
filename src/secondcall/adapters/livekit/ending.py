"""The end of a call: what finishes its record, whichever of LiveKit's ends comes.

Three things begin it, and each is harmless after another: the session's ``close`` (see
``Recorder``), ``on_session_end`` of the server, which runs alone and has minutes, and a shutdown
callback, which shares seconds with the application's own and dies with the first that raises.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from livekit.agents import JobContext

from secondcall.adapters.livekit.recording import Finished, Recorder

__all__ = ["Ending", "on_session_end"]

_log = logging.getLogger("secondcall")
_ENDINGS = "_secondcall_endings"


class Ending:
    """Finishes ``recorder`` when the job of ``ctx`` ends.

    Each end has ``deadline_seconds``, less than the ten seconds after which a worker is killed;
    ``then`` is awaited once within them, after the first finish that was complete or else at the
    shutdown. Nothing here raises.
    """

    def __init__(
        self,
        ctx: JobContext,
        recorder: Recorder,
        *,
        deadline_seconds: float = 8.0,
        then: Callable[[Finished], Awaitable[None]] | None = None,
    ) -> None:
        self._recorder = recorder
        self._deadline_seconds = deadline_seconds
        self._then = then
        self.finished: Finished | None = None
        """What the last finish came to."""
        vars(ctx).setdefault(_ENDINGS, []).append(self)  # where they go when the job goes
        ctx.add_shutdown_callback(self.on_shutdown)

    async def on_session_end(self) -> None:
        """Finish the record; the session is closed and its history complete."""
        await self._finish(last=False)

    async def on_shutdown(self, reason: str) -> None:
        """Finish what is left and let go of the journal; the process ends after it."""
        del reason
        await self._finish(last=True)
        try:
            await self._recorder.aclose()
        except (
            Exception
        ) as error:  # a live edge: a sibling callback must not die of it; it is logged
            _log.error(
                "the record of a call could not be closed", extra={"error": type(error).__name__}
            )

    async def _finish(self, *, last: bool) -> None:
        until = time.monotonic() + self._deadline_seconds
        try:
            finished = await self._recorder.finish(deadline_seconds=self._deadline_seconds)
            self.finished = finished
            if not finished.complete:
                _log.warning(
                    "a call has ended before the store took all of it",
                    extra={
                        "items": finished.progress.waiting,
                        "in_journal": finished.progress.journal,
                    },
                )
            then = self._then
            if then is not None and (finished.complete or last):
                self._then = None
                async with asyncio.timeout_at(
                    asyncio.get_running_loop().time() + max(0.0, until - time.monotonic())
                ):
                    await then(finished)
        except Exception as error:  # a live edge: the job ends in any case; it is logged
            _log.error(
                "the end of a call could not be recorded", extra={"error": type(error).__name__}
            )


async def on_session_end(ctx: JobContext) -> None:
    """Finish the record of the job's calls: ``@server.rtc_session(on_session_end=on_session_end)``.

    The best of the ends: the session is closed, nothing else runs, and there are minutes. With an
    ``on_session_end`` of your own, await this one in it.
    """
    endings: list[Ending] = vars(ctx).get(_ENDINGS, [])
    for ending in endings:
        await ending.on_session_end()
