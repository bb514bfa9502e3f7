"""The same verbs, blocking: ``SyncMemory`` runs an event loop in a thread of its own.

It works in scripts, in threads, and inside a running loop (which it then blocks, as any blocking
call does). Every handle that it gives out belongs to that one loop and may be used from any thread.
Each verb is the asynchronous one, called through the portal: there is no second implementation.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from secondcall.errors import NotOpen
from secondcall.memory import Memory, SessionMemory, UserMemory
from secondcall.memory.keeping import KeptShortTerm
from secondcall.memory.listed import ListedSession
from secondcall.memory.stating import StateHandle
from secondcall.shortterm.snapshot import Restored
from secondcall.shortterm.userdata import ShortTermMemory
from secondcall.state.update import Retry
from secondcall.types import Caller, RecordedItem, Trust

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from secondcall.shortterm.summary import SummarizingBuffer

__all__ = ["SyncListed", "SyncMemory", "SyncSession", "SyncShortTerm", "SyncState", "SyncUser"]

P = ParamSpec("P")
T = TypeVar("T")
H = TypeVar("H")
F = TypeVar("F")
G = TypeVar("G")


class _Portal:
    """The one loop of a ``SyncMemory``, started at entering and stopped at closing."""

    def __init__(self) -> None:
        self._context: AbstractContextManager[BlockingPortal] | None = None
        self._portal: BlockingPortal | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        with self._lock:
            if self._portal is None:
                from anyio.from_thread import (
                    start_blocking_portal,
                )  # 30 ms that others need not pay

                self._context = start_blocking_portal(name="secondcall")
                self._portal = self._context.__enter__()

    def stop(self) -> None:
        with self._lock:
            context, self._context, self._portal = self._context, None, None
        if context is not None:
            context.__exit__(None, None, None)

    def call(self, work: Callable[[], Awaitable[T]]) -> T:
        portal = self._portal
        if portal is None:
            raise NotOpen("this memory is not open; use 'with SyncMemory.open(url) as memory'")
        return portal.call(work)


class _Handle(Generic[H]):
    def __init__(self, portal: _Portal, target: H) -> None:
        self._portal = portal
        self._target = target


def _blocking(
    verb: Callable[Concatenate[Any, P], Awaitable[T]],
) -> Callable[Concatenate[_Handle[Any], P], T]:
    @functools.wraps(verb)
    def call(self: _Handle[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._portal.call(lambda: verb(self._target, *args, **kwargs))  # pyright: ignore[reportPrivateUsage] - one class, seen from outside

    return call


class SyncState(_Handle[StateHandle[F]], Generic[F]):
    """The state of one session, or user-wide; see ``StateHandle``. A change given to ``update``
    runs in the loop's thread."""

    delete = _blocking(StateHandle[F].delete)
    history = _blocking(StateHandle[F].history)
    load = _blocking(StateHandle[F].load)
    save = _blocking(StateHandle[F].save)
    settle = _blocking(StateHandle[F].settle)
    update = _blocking(StateHandle[F].update)

    @property
    def session_id(self) -> str | None:
        """The session whose state it is; ``None``: the user-wide one."""
        return self._target.session_id

    @property
    def user_id(self) -> str:
        """The user whose state it is."""
        return self._target.user_id

    @property
    def trust(self) -> Trust:
        """How far the user's identity is proved."""
        return self._target.trust

    def of(self, kind: type[G], **options: Any) -> SyncState[G]:
        """The same state with fields of your own class; see ``StateHandle.of``."""
        return SyncState(self._portal, self._target.of(kind, **options))

    def retrying(self, retry: Retry) -> SyncState[F]:
        """The same state with other retries; see ``StateHandle.retrying``."""
        return SyncState(self._portal, self._target.retrying(retry))


class SyncShortTerm(_Handle[KeptShortTerm[T]]):
    """A session's short-term memory and its place in the store; see ``KeptShortTerm``."""

    reload = _blocking(KeptShortTerm[Any].reload)
    save = _blocking(KeptShortTerm[Any].save)

    @property
    def memory(self) -> ShortTermMemory[T]:
        """The memory to work with; nothing is written until ``save``."""
        return self._target.memory

    @property
    def restored(self) -> Restored | None:
        """What loading did, field by field; ``None`` when there was nothing to load."""
        return self._target.restored

    @property
    def version(self) -> int | None:
        """The version that was loaded or saved last."""
        return self._target.version


class SyncListed(_Handle[ListedSession]):
    """A session as a list that can be rearranged; see ``ListedSession``. A change given to
    ``arrange`` runs in the loop's thread."""

    append = _blocking(ListedSession.append)
    arrange = _blocking(ListedSession.arrange)
    attached = _blocking(ListedSession.attached)
    clear = _blocking(ListedSession.clear)
    is_rearranged = _blocking(ListedSession.is_rearranged)
    read = _blocking(ListedSession.read)
    remove = _blocking(ListedSession.remove)

    def buffer(self, token_limit: int) -> SummarizingBuffer:
        """An empty buffer for the list; see ``ListedSession.buffer``."""
        return self._target.buffer(token_limit)

    def settle(self, buffer: SummarizingBuffer) -> None:
        """Summarise in the loop's background what is due; see ``ListedSession.settle``."""

        async def begin() -> None:
            self._target.settle(buffer)

        self._portal.call(begin)


class SyncSession(_Handle[SessionMemory]):
    """One conversation of one user; see ``SessionMemory``."""

    buffer = _blocking(SessionMemory.buffer)
    claim = _blocking(SessionMemory.claim)
    close = _blocking(SessionMemory.close)
    context = _blocking(SessionMemory.context)
    epoch = _blocking(SessionMemory.epoch)
    has_epoch = _blocking(SessionMemory.has_epoch)
    record = _blocking(SessionMemory.record)
    release = _blocking(SessionMemory.release)
    items = _blocking(SessionMemory.items)

    def listed(self) -> SyncListed:
        """This session as a list; see ``SessionMemory.listed``."""
        return SyncListed(self._portal, self._target.listed())

    def shortterm(self, start: type[T] | T, **settings: Any) -> SyncShortTerm[T]:
        """This session's typed short-term memory; see ``SessionMemory.shortterm``."""
        kept = self._portal.call(lambda: self._target.shortterm(start, **settings))
        return SyncShortTerm(self._portal, kept)

    @property
    def session_id(self) -> str:
        """The session that this handle is bound to."""
        return self._target.session_id

    @property
    def state(self) -> SyncState[Mapping[str, Any]]:
        """The state of this session; see ``SessionMemory.state``."""
        return SyncState(self._portal, self._target.state)


class SyncUser(_Handle[UserMemory]):
    """Everything remembered of one user; see ``UserMemory``."""

    attached = _blocking(UserMemory.attached)
    brief = _blocking(UserMemory.brief)
    facts = _blocking(UserMemory.facts)
    flush = _blocking(UserMemory.flush)
    forget = _blocking(UserMemory.forget)
    history = _blocking(UserMemory.history)
    hold = _blocking(UserMemory.hold)
    item = _blocking(UserMemory.item)
    known = _blocking(UserMemory.known)
    recall = _blocking(UserMemory.recall)
    recaps = _blocking(UserMemory.recaps)
    reindex = _blocking(UserMemory.reindex)
    remember = _blocking(UserMemory.remember)
    remove = _blocking(UserMemory.remove)
    restore = _blocking(UserMemory.restore)
    retain = _blocking(UserMemory.retain)
    retention = _blocking(UserMemory.retention)
    retract = _blocking(UserMemory.retract)
    sessions = _blocking(UserMemory.sessions)
    settle = _blocking(UserMemory.settle)
    sweep = _blocking(UserMemory.sweep)
    usage = _blocking(UserMemory.usage)

    def now(self) -> datetime:
        """The time by the memory's clock."""
        return self._target.now()

    @property
    def user_id(self) -> str:
        """The id that the handle was made with."""
        return self._target.user_id

    @property
    def state(self) -> SyncState[Mapping[str, Any]]:
        """The user-wide state; see ``UserMemory.state``."""
        return SyncState(self._portal, self._target.state)

    def session(self, session_id: str) -> SyncSession:
        """One conversation, new or going on. Raises: ``InvalidValue``."""
        session = self._portal.call(lambda: self._target.session(session_id))
        return SyncSession(self._portal, session)

    def items(
        self,
        *,
        session_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        newest_first: bool = False,
    ) -> Iterator[RecordedItem]:
        """The record in reading order, read page by page; see ``UserMemory.items``."""
        stream = self._target.items(
            session_id=session_id, since=since, until=until, newest_first=newest_first
        )
        step = functools.partial(anext, stream, None)
        while (found := self._portal.call(step)) is not None:
            yield found


class SyncMemory(_Handle[Memory]):
    """One tenant's memory, blocking; see ``Memory``. Made by ``SyncMemory.open``."""

    audit = _blocking(Memory.audit)
    flush = _blocking(Memory.flush)
    identify = _blocking(Memory.identify)
    identities = _blocking(Memory.identities)
    link = _blocking(Memory.link)
    merge = _blocking(Memory.merge)
    problems = _blocking(Memory.problems)
    sweep = _blocking(Memory.sweep)
    unlink = _blocking(Memory.unlink)
    unmerge = _blocking(Memory.unmerge)
    users = _blocking(Memory.users)

    @classmethod
    def open(cls, *args: Any, **kwargs: Any) -> Self:
        """As ``Memory.open``, to be used as ``with SyncMemory.open(...) as memory``."""
        return cls(_Portal(), Memory.open(*args, **kwargs))

    def __enter__(self) -> Self:
        self._portal.start()
        try:
            self._portal.call(self._target.__aenter__)
        except BaseException:  # interrupted too: no thread is left behind; raised on
            self._portal.stop()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Finish background work, close the store, stop the loop. Harmless when repeated."""
        try:
            self._portal.call(self._target.aclose)
        except NotOpen:
            return
        finally:
            self._portal.stop()

    def due_states(self, **options: Any) -> list[SyncState[Mapping[str, Any]]]:
        """States whose timers have gone off; see ``Memory.due_states``."""
        found = self._portal.call(lambda: self._target.due_states(**options))
        return [SyncState(self._portal, one) for one in found]

    @property
    def place(self) -> str:
        """Tells this memory's store from others; see ``Memory.place``."""
        return self._target.place

    def beside(
        self, name: str, place: str, erase: Callable[[str, str], Awaitable[int]] | None
    ) -> None:
        """Make known what is kept of users beside the store; see ``Memory.beside``."""
        self._target.beside(name, place, erase)

    def tenant(self, tenant_id: str) -> SyncMemory:
        """The same store for another tenant; close only the first. Raises: ``InvalidValue``."""
        return _SyncTenant(self._portal, self._target.tenant(tenant_id))

    def user(self, caller: Caller | str) -> SyncUser:
        """The memory of one user; see ``Memory.user``. Raises: ``InvalidValue``."""
        return SyncUser(self._portal, self._target.user(caller))


class _SyncTenant(SyncMemory):
    """Another tenant over the same portal; the one that was opened closes it."""

    def close(self) -> None:
        """Leave the store to the one that was opened."""
