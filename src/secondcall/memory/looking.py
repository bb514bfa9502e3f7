"""Whether anything changed since the last question, looked up as what was found is read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from secondcall.abc import EntryKey, Scope, StoredEntry
    from secondcall.memory.shared import Looked, Place
    from secondcall.record.index import OpenIndex

__all__ = ["Looking"]

_RESERVE_SECONDS = 0.02


class Looking:
    """One look at partitions, policy and headers for one question asked at ``started``, with what
    it is answered from. Beside a search it would only take turns with it, so it is begun when the
    search is over, in the read of the items that were found; or at once, if nothing is open yet.
    """

    def __init__(self, place: Place, started: float, until: float | None) -> None:
        self._place = place
        self._started = started
        self._until = until
        self._looked: Looked | None = None
        self._task: asyncio.Task[tuple[OpenIndex | None, bool]] | None = None

    def begin(self) -> None:
        """Look in a task of its own, beside whatever follows."""
        self._task = asyncio.ensure_future(self._opened())

    async def entries(self, scope: Scope, keys: Sequence[EntryKey]) -> Sequence[StoredEntry]:
        """The newest entries of these keys; with the first that are asked for it looks too."""
        if self._looked is None and self._task is None and scope == self._place.home_seen():
            self._looked = await self._place.look(keys)
            if self._looked.headers:
                return self._looked.entries
        return await self._place.shared.store.entries(scope, keys)

    async def done(self) -> tuple[OpenIndex | None, bool]:
        """The user's index, and whether it may lack what others wrote just now.

        Raises: store errors.
        """
        return await (self._opened() if self._task is None else self._task)

    def cancel(self) -> None:
        """End the task, if there is one."""
        if self._task is not None:
            self._task.cancel()

    async def _opened(self) -> tuple[OpenIndex | None, bool]:
        """Some of the time is kept back for answering from what was read before."""
        place, until = self._place, self._until
        looked = await place.look() if self._looked is None else self._looked
        scopes = await place.scopes()
        opened = place.shared.cache.peek(scopes)
        if opened is not None and self._overtaken(opened, looked):
            return opened, False
        fresh = place.shared.cache.fresh(scopes, looked.headers)
        if until is None:
            return await fresh, False
        task = asyncio.ensure_future(fresh)
        reserve = min(_RESERVE_SECONDS, (until - self._started) / 4)
        timeout = max(0.0, until - reserve - time.perf_counter())
        try:
            done, _ = await asyncio.wait({task}, timeout=timeout)
        finally:
            if not task.done():
                place.shared.background.adopt(task)
        if done:
            return task.result(), False
        return place.shared.cache.peek(scopes), True

    def _overtaken(self, opened: OpenIndex, looked: Looked) -> bool:
        """Whether all that the index lacks was acknowledged after the question had been asked."""
        own = self._place.shared.own_writes
        return set(looked.headers) == set(opened.scopes) and all(
            header is not None
            and header.epoch == opened.epochs[scope]
            and own.are_all(scope, header, behind=opened.applied[scope], since=self._started)
            for scope, header in looked.headers.items()
        )
