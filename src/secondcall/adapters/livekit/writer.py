"""The one ordered background writer of a call: first to the journal, then to the store.

An item is *acknowledged* when it is in the journal, flushed to the disk, or in the store, whichever
comes first; until then it is in memory only, usually for a few milliseconds. Nobody waits for it:
``put`` returns at once, and what the store does not take is tried again until it does.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import anyio.to_thread

from secondcall import telemetry
from secondcall.adapters.livekit.journal import Journal
from secondcall.adapters.livekit.lines import key_of
from secondcall.errors import NotOpen, UsageError, UserErased
from secondcall.memory import SessionMemory
from secondcall.record.append import weight
from secondcall.types import Item

__all__ = ["BeforeStore", "OpenJournal", "OpenSession", "Progress", "Writer"]

OpenSession: TypeAlias = Callable[[], SessionMemory | Awaitable[SessionMemory]]
OpenJournal: TypeAlias = Callable[[], Journal]
BeforeStore: TypeAlias = Callable[[], Awaitable[None]]

_log = logging.getLogger("secondcall")
_BATCH = 200
_MAX_WAITING = 20_000
_MAX_CHARACTERS = 32_000_000
"""More than so much waiting for the store is left to the journal, or lost without one."""
_CLOSE_SECONDS = 0.5


@dataclass(slots=True, eq=False)
class _Waiting:
    """An item on its way, and how far it is."""

    item: Item
    characters: int
    in_journal: bool = False
    is_late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far the writer is: items in the ``store``, ``waiting`` for it, those of them that are in
    the ``journal``, and those that were ``lost``."""

    store: int
    waiting: int
    journal: int
    lost: int

    @property
    def acknowledged(self) -> int:
        """How many items would survive the process now."""
        return self.store + self.journal


class Writer:
    """Writes the items of one call in the order of ``put``, each again when it has changed.

    ``session`` gives the handle to record with; it may raise while the store is down, and is asked
    again then and after the user was forgotten. ``journal`` makes the journal, or is
    ``None`` for none. An attempt at the store has ``attempt_seconds``; between failed ones it waits
    from ``retry_seconds[0]``, doubled each time, to ``retry_seconds[1]``. What is safe in the
    journal waits for ``before_store``, which must end by itself, before it goes to the store.
    """

    def __init__(
        self,
        session: OpenSession,
        journal: OpenJournal | None,
        *,
        attempt_seconds: float = 10.0,
        retry_seconds: tuple[float, float] = (0.1, 5.0),
        on_erased: Callable[[], None] | None = None,
        before_store: BeforeStore | None = None,
    ) -> None:
        self._open_session = session
        self._before_store = before_store
        self._open_journal = journal
        self._attempt_seconds = attempt_seconds
        self._retry_seconds = retry_seconds
        self._on_erased = on_erased
        self._session: SessionMemory | None = None
        self._journal: Journal | None = None
        self._marked = False
        self._incoming: dict[tuple[str, str | None], Item] = {}
        self._ready: deque[_Waiting] = deque()
        self._characters = 0
        self._stored = self._lost = 0
        self._spilled = 0
        self._singly = 0
        self._in_hand: list[Item] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._arrived = asyncio.Event()
        self._storable = asyncio.Event()
        self._hurry = asyncio.Event()
        self._moved = asyncio.Event()
        self._stopping = False
        self.refusing = False
        """Whether the user was forgotten, so that nothing is taken before ``accept``."""

    @property
    def progress(self) -> Progress:
        """How far it is."""
        in_journal = sum(one.in_journal for one in self._ready) + self._spilled
        waiting = len(self._incoming) + len(self._in_hand) + len(self._ready) + self._spilled
        return Progress(store=self._stored, waiting=waiting, journal=in_journal, lost=self._lost)

    @property
    def session(self) -> SessionMemory | None:
        """The handle it records with, once there is one."""
        return self._session

    def put(self, item: Item) -> None:
        """Take an item, without waiting. Call it on the event loop."""
        if self.refusing:
            return
        self._incoming[key_of(item)] = item
        if not self._tasks or any(task.done() for task in self._tasks):
            self._start()
        self._arrived.set()

    def accept(self) -> None:
        """Take items again after the user was forgotten, who then begins with nothing."""
        self.refusing = False

    async def settled(self, seconds: float) -> bool:
        """Wait until the store has all that was put, at most ``seconds``; whether it has."""
        until = time.monotonic() + seconds
        self._hurry.set()
        while (waiting := self.progress.waiting) and waiting > self._spilled:
            left = until - time.monotonic()
            if left <= 0:
                return False
            self._moved.clear()
            try:
                await asyncio.wait_for(self._moved.wait(), left)
            except TimeoutError:
                return False
        return not self._spilled

    async def tidy(self) -> None:
        """Delete the journal if the store has everything; the next ``put`` makes another one."""
        if not self.progress.waiting:
            await self._discard()

    async def opened(self) -> SessionMemory:
        """The handle to record with. Raises: what ``session`` raises."""
        if self._session is None:
            found = self._open_session()
            self._session = await found if inspect.isawaitable(found) else found
        return self._session

    async def drop(self) -> None:
        """Forget everything that waits, here and in the journal, and begin anew with a session of
        its own: for a user who is forgotten."""
        await self._stop()
        self._incoming.clear()
        self._ready.clear()
        self._characters = self._spilled = 0
        self._in_hand = []
        self._session = None
        self.refusing = False
        await self._discard()
        self._moved.set()

    async def aclose(self) -> None:
        """Stop. What the store has not taken stays in the journal for ``replay``; without one it is
        lost, which is logged. Harmless when repeated."""
        stuck = not await self._stop()
        late = list(self._incoming.values())
        self._incoming.clear()
        if stuck:  # the disk has not answered for what is in hand, and would not for more
            self._give_up([_Waiting(one, 0) for one in (*self._in_hand, *late)], "stuck")
            self._in_hand, self._journal = [], None
        elif late:
            await self._to_journal(late)
        done = not self._ready and not self._spilled
        if done:
            await self._discard()
        else:
            self._give_up([one for one in self._ready if not one.in_journal], "closed")
            self._ready = deque(one for one in self._ready if one.in_journal)
            self._characters = sum(one.characters for one in self._ready)
            if self._journal is not None:
                await self._quietly(self._journal.close)
                self._journal = None

    def _start(self) -> None:
        """Begin to work, or begin again what an unforeseen error has ended."""
        self._stopping = False
        running = self._tasks or [None, None]
        self._tasks = [
            asyncio.create_task(work()) if task is None or task.done() else task
            for task, work in zip(running, (self._journalling, self._storing), strict=True)
        ]
        self._storable.set()

    async def _stop(self) -> bool:
        """Let the journal finish what it is at, and say whether it has; an attempt at the store may
        be cut off, since it can be made again."""
        if not self._tasks:
            return True
        self._stopping = True
        self._arrived.set()
        (journalling, storing), self._tasks = self._tasks, []
        storing.cancel()
        _, pending = await asyncio.wait([journalling, storing], timeout=_CLOSE_SECONDS)
        for task in pending:
            task.cancel()
        return journalling not in pending

    async def _journalling(self) -> None:
        while not self._stopping:
            await self._arrived.wait()
            self._arrived.clear()
            while self._incoming and not self._stopping:
                batch = list(self._incoming.values())[:_BATCH]
                for item in batch:
                    del self._incoming[key_of(item)]
                self._in_hand = batch
                await self._to_journal(batch)
                if self._in_hand is batch:
                    self._in_hand = []

    async def _to_journal(self, batch: Sequence[Item]) -> None:
        """Put the items into the journal if it takes them, and before the store in any case."""
        entries = [_Waiting(item, weight(item)) for item in batch]
        kept = await self._appended(batch)
        if self.refusing:
            await self._discard()
            return
        for entry, in_journal in zip(entries, kept, strict=True):
            entry.in_journal = in_journal
        self._ready.extend(entries)
        self._characters += sum(entry.characters for entry in entries)
        self._spill()
        self._storable.set()

    async def _appended(self, batch: Sequence[Item]) -> list[bool]:
        """Which of the items the journal has taken."""
        nothing = [False] * len(batch)
        if self._open_journal is None or self.refusing:
            return nothing
        try:
            if self._journal is None:
                self._journal = self._open_journal()
            journal = self._journal
            kept = await anyio.to_thread.run_sync(_append, journal, batch)
        except Exception as error:  # a live edge: any failure leaves the store; it is logged
            _warn("the journal of this call cannot be written", error, len(batch))
            return nothing
        if self._journal is not journal:
            await self._quietly(journal.discard)
            return nothing
        return kept

    async def _storing(self) -> None:
        pause = self._retry_seconds[0]
        while True:
            await self._storable.wait()
            self._storable.clear()
            await self._give_way()
            while self._ready:
                batch = list(self._ready)[: 1 if self._singly else _BATCH]
                if await self._attempt(batch) or await self._hurried(pause):
                    pause = self._retry_seconds[0]
                else:
                    pause = min(2 * pause, self._retry_seconds[1])

    async def _give_way(self) -> None:
        """Let what is more urgent go first, unless somebody waits or something is not safe yet."""
        safe = bool(self._ready) and all(one.in_journal for one in self._ready)
        if self._before_store is not None and safe and not self._hurry.is_set():
            await self._before_store()

    async def _attempt(self, batch: Sequence[_Waiting]) -> bool:
        """Try to record these; whether there is no reason to wait before the next attempt."""
        try:
            await asyncio.wait_for(self._store(batch), self._attempt_seconds)
        except UserErased:
            await self._erased()
        except Exception as error:  # a live edge: tried again, and logged
            if not isinstance(error, UsageError) or isinstance(error, NotOpen):
                self._late(error)
                return False
            await self._refused(batch, error)
        else:
            self._singly = max(0, self._singly - 1)
        return True

    async def _store(self, batch: Sequence[_Waiting]) -> None:
        session = await self.opened()
        if not self._marked:
            await self._mark(session)
        await session.record(*(one.item for one in batch))
        self._took(batch)
        if not self._marked:
            await self._mark(session)
        await self._done(batch)

    async def _mark(self, session: SessionMemory) -> None:
        """Note in the journal under which epoch this user is stored, once there is one."""
        epoch = await session.epoch()
        self._marked = epoch is not None
        if self._journal is not None:
            know = partial(self._journal.know, user_id=session.user.user_id, epoch=epoch)
            await self._quietly(know)

    def _took(self, batch: Sequence[_Waiting]) -> None:
        self._stored += len(batch)
        self._remove(batch)

    def _remove(self, batch: Sequence[_Waiting]) -> None:
        for entry in batch:
            if self._ready and self._ready[0] is entry:
                self._characters -= self._ready.popleft().characters
        self._moved.set()

    async def _refused(self, batch: Sequence[_Waiting], error: UsageError) -> None:
        """One item of the batch is not accepted: find it by recording them one by one."""
        if len(batch) > 1:
            self._singly = len(batch)
            return
        self._singly = max(0, self._singly - 1)
        self._remove(batch)
        self._give_up(batch, type(error).__name__)
        await self._done(batch)

    async def _done(self, batch: Sequence[_Waiting]) -> None:
        """Tell the journal; what was left to it stays whole, since it counts from the front."""
        count = sum(one.in_journal for one in batch)
        if self._journal is not None and count and not self._spilled:
            await self._quietly(partial(self._journal.done, count))

    def _late(self, error: Exception) -> None:
        fresh = [one for one in self._ready if not one.is_late]
        for one in fresh:
            one.is_late = True
        if fresh:
            telemetry.count_unwritten("late", type(error).__name__, len(fresh))
            _warn(
                "the store has not taken what was said; it is tried again", error, len(self._ready)
            )

    def _give_up(self, entries: Sequence[_Waiting], reason: str) -> None:
        if not entries:
            return
        self._lost += len(entries)
        telemetry.count_unwritten("lost", reason, len(entries))
        _log.error(
            "items of this call are lost",
            extra={"reason": reason, "items": len(entries)},
        )

    def _spill(self) -> None:
        """Keep the memory bounded while the store is down: the oldest are left to the journal."""
        dropped: list[_Waiting] = []
        while self._ready and (
            len(self._ready) > _MAX_WAITING or self._characters > _MAX_CHARACTERS
        ):
            dropped.append(self._ready.popleft())
            self._characters -= dropped[-1].characters
        self._spilled += sum(one.in_journal for one in dropped)
        self._give_up([one for one in dropped if not one.in_journal], "too_many")

    async def _hurried(self, seconds: float) -> bool:
        """Pause, until somebody is in a hurry; whether somebody is."""
        try:
            await asyncio.wait_for(self._hurry.wait(), seconds)
        except TimeoutError:
            return False
        self._hurry.clear()
        return True

    async def _erased(self) -> None:
        """The user was forgotten: what waits must not be kept anywhere, and nothing more is taken
        before ``drop``."""
        _log.info("the user of this call was forgotten; nothing more is recorded")
        self.refusing = True
        self._incoming.clear()
        self._ready.clear()
        self._characters = self._spilled = 0
        self._session = None
        if self._on_erased is not None:
            self._on_erased()
        await self._discard()
        self._moved.set()

    async def _discard(self) -> None:
        journal, self._journal = self._journal, None
        self._marked = False
        if journal is not None:
            await self._quietly(journal.discard)

    async def _quietly(self, work: Callable[[], None]) -> None:
        """Do what tidies a journal; if it fails, a replay finds the items in the store already."""
        try:
            await anyio.to_thread.run_sync(work)
        except OSError as error:
            _warn("the journal of this call cannot be tidied", error, 0)


def _append(journal: Journal, batch: Sequence[Item]) -> list[bool]:
    """Append all, or each by itself where one of them is nothing that can be written down.

    Raises: ``OSError``.
    """
    try:
        journal.append(batch)
    except (TypeError, ValueError, RecursionError) as error:
        if len(batch) > 1:
            return [kept for item in batch for kept in _append(journal, [item])]
        _warn("an item cannot be put into the journal of this call", error, 1)
        return [False]
    return [True] * len(batch)


def _warn(message: str, error: BaseException, items: int) -> None:
    _log.warning(message, extra={"error": type(error).__name__, "items": items})
