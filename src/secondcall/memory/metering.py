"""Writes down what model and embedding calls used: in batches, in the background, by user.

Documents of kind *usage* hold the calls of a batch; when there are many, the older ones are added
up by day. All of it is the user's: it goes with an erasure, and after 90 days by itself. Nothing is
written on the way to a reply.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from secondcall import telemetry, usage
from secondcall.abc import Batch, Document, DocumentWrite, Epoch, Scope
from secondcall.checks import to_us
from secondcall.errors import SecondcallError, UserErased, VersionConflict
from secondcall.memory.tally import (
    DAY_US,
    KIND,
    Row,
    Tally,
    added_up,
    can_be_added,
    decode,
    deletion,
    ends_us,
    first_key,
    is_day,
    new_document,
    sound,
)

if TYPE_CHECKING:
    from secondcall.abc import Store
    from secondcall.memory.background import Background
    from secondcall.usage import Call, Layer, Usage

__all__ = ["KEEP_DAYS", "Meter", "in_session", "total_usage"]

KEEP_DAYS = 90
_log = logging.getLogger("secondcall")
_LINGER_SECONDS = 1.0
"""How long calls are gathered before they are written."""
_BATCH_CALLS = 100
_MAX_WAITING = 10_000
_MAX_DOCUMENTS = 256
_KEEP_DOCUMENTS = 64
"""Over so many single documents of a user the older ones are added up, down to so many."""
_KEEP_US = KEEP_DAYS * DAY_US
_PAGE = 500
_TRIES = 4

_session: ContextVar[str] = ContextVar("session", default="")


@contextmanager
def in_session(session_id: str) -> Generator[None]:
    """What is called inside is put down to this session, where nothing nearer names one."""
    token = _session.set(session_id)
    try:
        yield
    finally:
        _session.reset(token)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A batch under the key that it is written with, however often it is tried."""

    scope: Scope
    epoch: Epoch | None
    write: DocumentWrite
    calls: int


class Meter:
    """Collects the calls of one opened store and writes them in the background."""

    def __init__(self, store: Store, background: Background, now_us: Callable[[], int]) -> None:
        self._store = store
        self._background = background
        self._now_us = now_us
        self._lock = threading.Lock()
        self._fresh: dict[tuple[Scope, Epoch | None], list[Row]] = {}
        self._prepared: dict[str, _Prepared] = {}
        self._waiting = 0
        self._timer: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None
        self._documents: dict[Scope, int] = {}

    @contextmanager
    def calls(
        self,
        layer: Layer,
        scope: Scope,
        epoch: Epoch | None = None,
        *,
        session_id: str | None = None,
    ) -> Generator[None]:
        """What is called inside is put down to this layer of this user.

        Without a ``session_id`` it is put down to the one of ``in_session`` around it, if any; with
        an empty one to none.
        ``epoch`` is the user's as far as it is known: what was used for a user who was forgotten
        meanwhile is not written. Of a user who has no record nothing is written at all.
        """

        def collect(call: Call) -> None:
            session = _session.get() if session_id is None else session_id
            self._take(layer, scope, epoch, session, sound(call))

        try:
            with usage.collecting(collect):
                yield
        finally:
            if self._waiting:
                self._schedule()

    def drop(self, scope: Scope) -> None:
        """Forget what is not written yet of a user who is being erased."""
        with self._lock:
            for key in [key for key in self._fresh if key[0] == scope]:
                self._waiting -= len(self._fresh.pop(key))
            for name in [name for name, one in self._prepared.items() if one.scope == scope]:
                self._waiting -= self._prepared.pop(name).calls
            self._documents.pop(scope, None)

    async def flush(self) -> None:
        """Write what was collected. What cannot be written is kept and tried again later."""
        self._prepare()
        for name, one in list(self._prepared.items()):
            try:
                await self._write(one)
            except SecondcallError as error:
                _log.warning(
                    "what model calls used could not be written and will be tried again",
                    extra={"error": type(error).__name__},
                )
                return
            with self._lock:
                if self._prepared.pop(name, None) is not None:
                    self._waiting -= one.calls

    async def finish(self) -> None:
        """Write what was collected, with some patience: the store is about to be closed."""
        for attempt in range(_TRIES):
            await self.flush()
            if not self._waiting:
                return
            await asyncio.sleep(0.05 * 2**attempt)

    async def sweep(self, scope: Scope) -> None:
        """``tidy``, for a user of whom there is something."""
        header = await self._store.header(scope)
        if header is not None:
            await self.tidy(scope, header.epoch)

    async def tidy(self, scope: Scope, epoch: Epoch) -> None:
        """Delete what is older than 90 days, and add up by day what is more than a bound."""
        documents = [document async for document in self._read(scope, "")]
        oldest_us = self._now_us() - _KEEP_US
        ended = [one for one in documents if ends_us(one) < oldest_us]
        single = [one for one in documents if one not in ended and not is_day(one)]
        self._documents[scope] = len(single)
        writes = [deletion(one) for one in ended]
        if len(single) > _MAX_DOCUMENTS:
            days = {one.key: one for one in documents if is_day(one)}
            chosen = can_be_added(single[: len(single) - _KEEP_DOCUMENTS], days)
            writes += [deletion(one) for one in chosen]
            writes += added_up(chosen, days, keep_us=_KEEP_US)
            self._documents[scope] = len(single) - len(chosen)
        if writes:
            try:
                await self._store.write(
                    scope, Batch(documents=writes), epoch=epoch, now_us=self._now_us()
                )
            except (VersionConflict, UserErased):  # somebody else has just done it
                return

    async def rows(self, scope: Scope, since_us: int) -> AsyncIterator[tuple[Row, bool]]:
        """What is written of a user, oldest first, and whether it is a single call.

        A day that was added up counts whole if its last call is not before ``since_us``.
        """
        oldest_us = max(since_us, self._now_us() - _KEEP_US)
        async for document in self._read(scope, first_key(oldest_us)):
            for row in decode(document):
                if row.at_us >= oldest_us:
                    yield row, not is_day(document)

    async def _read(self, scope: Scope, after: str) -> AsyncIterator[Document]:
        while page := await self._store.documents(scope, KIND, after=after, limit=_PAGE):
            for document in page:
                yield document
            if len(page) < _PAGE:
                return
            after = page[-1].key

    def _take(
        self, layer: Layer, scope: Scope, epoch: Epoch | None, session_id: str, call: Call
    ) -> None:
        telemetry.count_usage(
            layer,
            call.operation,
            input_tokens=call.input_tokens,
            output_tokens=call.output_tokens,
            cost=call.cost,
        )
        with self._lock:
            if self._waiting == _MAX_WAITING:
                _log.warning("what model calls used cannot be written; further calls are not kept")
            if self._waiting < _MAX_WAITING:
                self._fresh.setdefault((scope, epoch), []).append(
                    Row(self._now_us(), session_id, layer, call)
                )
                self._waiting += 1

    def _prepare(self) -> None:
        with self._lock:
            fresh, self._fresh = self._fresh, {}
            for (scope, epoch), rows in fresh.items():
                for start in range(0, len(rows), _BATCH_CALLS):
                    batch = rows[start : start + _BATCH_CALLS]
                    write = new_document(batch, keep_us=_KEEP_US)
                    self._prepared[write.key] = _Prepared(scope, epoch, write, len(batch))

    async def _write(self, one: _Prepared) -> None:
        epoch = one.epoch
        if epoch is None:
            header = await self._store.header(one.scope)
            if header is None:
                return
            epoch = header.epoch
        try:
            await self._store.write(
                one.scope, Batch(documents=[one.write]), epoch=epoch, now_us=self._now_us()
            )
        except (UserErased, VersionConflict):  # gone, or written before a cancellation was seen
            return
        await self._keep_bound(one.scope, epoch)

    async def _keep_bound(self, scope: Scope, epoch: Epoch) -> None:
        """Look at a user's documents at the first batch of this process, and when they are many."""
        if len(self._documents) > _MAX_WAITING:
            self._documents.clear()
        known = self._documents.get(scope)
        if known is None or known >= _MAX_DOCUMENTS:
            await self.tidy(scope, epoch)
        else:
            self._documents[scope] = known + 1

    def _schedule(self) -> None:
        """Write soon; at once when there is a batch of it."""
        loop = asyncio.get_running_loop()
        if self._waiting >= _BATCH_CALLS:
            self._background.start(KIND, self.flush)
        elif self._timer is None or self._timer[0] is not loop:
            self._timer = loop, loop.call_later(_LINGER_SECONDS, self._due)

    def _due(self) -> None:
        self._timer = None
        self._background.start(KIND, self.flush)


async def total_usage(meter: Meter, scopes: Iterable[Scope], since: datetime | None) -> Usage:
    """What a user's partitions used since then; what is not written yet is written first."""
    await meter.flush()
    tally = Tally()
    since_us = 0 if since is None else to_us("since", since)
    for scope in scopes:
        async for row, single in meter.rows(scope, since_us):
            tally.add(scope.name, row, single=single)
    return tally.usage(since)
