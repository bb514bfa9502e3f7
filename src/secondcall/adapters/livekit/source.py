"""What the agents of one call draw on: whose memory it is, what was loaded, how it is looked up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from secondcall.adapters.livekit.lookup import Lookup, LookupOptions
from secondcall.adapters.livekit.preload import Preloaded

if TYPE_CHECKING:
    from livekit.agents import AgentSession

    from secondcall.abc import TokenCounter
    from secondcall.adapters.livekit.tools import StateSchemas
    from secondcall.adapters.livekit.window import WindowOptions
    from secondcall.memory.session import SessionMemory
    from secondcall.memory.user import UserMemory

__all__ = ["CallMemory", "MemorySource", "StatefulMemory"]

_log = logging.getLogger("secondcall.livekit")
_GATE_SECONDS = 0.5


class MemorySource(Protocol):
    """The memory of one call, as its agents see it."""

    @property
    def user(self) -> UserMemory | None:
        """Whose memory it is; ``None`` where the call goes on without one."""
        ...

    @property
    def session(self) -> SessionMemory | None:
        """This conversation's record, which summaries of a long call come from."""
        ...

    @property
    def preloaded(self) -> Preloaded | None:
        """What was loaded for the call; ``None`` while it is being loaded."""
        ...

    @property
    def lookup(self) -> Lookup:
        """The lookups on the way to replies."""
        ...

    @property
    def window(self) -> WindowOptions | None:
        """How large the running context may become; ``None`` leaves it alone."""
        ...

    async def ready(self) -> None:
        """Return when what is loaded is there, or when its deadline has come; never raise."""
        ...

    def entered(self, session: AgentSession[Any]) -> None:
        """Called once for each session that an agent with this memory enters."""
        ...


class CallMemory:
    """A ``MemorySource``. ``preloaded`` is what ``preload`` gave, or what will give it: then no
    reply and no ``on_enter`` begins before it is there or ``gate_seconds`` are over."""

    def __init__(
        self,
        user: UserMemory | None,
        *,
        preloaded: Preloaded | Awaitable[Preloaded] | None = None,
        session: SessionMemory | None = None,
        options: LookupOptions | None = None,
        window: WindowOptions | None = None,
        counter: TokenCounter | None = None,
        gate_seconds: float = _GATE_SECONDS,
        on_session: Callable[[AgentSession[Any]], None] | None = None,
    ) -> None:
        self._user = user
        self._session = session
        self._window = window
        self._gate_seconds = gate_seconds
        self._on_session = on_session
        session_id = None if session is None else session.session_id
        self._lookup = Lookup(user, options, session_id=session_id, counter=counter)
        self._preloaded: Preloaded | None = None
        self._loading: asyncio.Future[Preloaded] | None = None
        if preloaded is None or isinstance(preloaded, Preloaded):
            self.loaded(preloaded or Preloaded())
        else:
            self._loading = asyncio.ensure_future(preloaded)
            self._loading.add_done_callback(self._arrived)

    @property
    def user(self) -> UserMemory | None:
        """Whose memory it is."""
        return self._user

    @property
    def session(self) -> SessionMemory | None:
        """This conversation's record."""
        return self._session

    @property
    def preloaded(self) -> Preloaded | None:
        """What was loaded; ``None`` while it is being loaded."""
        return self._preloaded

    @property
    def lookup(self) -> Lookup:
        """The lookups on the way to replies."""
        return self._lookup

    @property
    def window(self) -> WindowOptions | None:
        """How large the running context may become."""
        return self._window

    def loaded(self, preloaded: Preloaded) -> None:
        """Take what was loaded, or loaded anew after it became known who is calling: the agents
        get it before their next reply."""
        self._preloaded = preloaded
        self._lookup.told(preloaded.brief, preloaded.turns)

    def retire(self) -> None:
        """Give nothing more to anybody: the call is over, or turned out to be somebody else's. An
        agent that still draws on it loses what it was told before its next reply."""
        self._user = self._session = None
        self._lookup.cancel()
        self._lookup = Lookup(None, self._lookup.options)
        self.loaded(Preloaded())

    async def ready(self) -> None:
        """Wait for what is being loaded, ``gate_seconds`` at most."""
        if self._loading is None or self._preloaded is not None:
            return
        await asyncio.wait({self._loading}, timeout=self._gate_seconds)
        if self._preloaded is None:
            _log.warning(
                "the call begins before its memory was loaded",
                extra={"gate_seconds": self._gate_seconds},
            )
            self._preloaded = Preloaded(missing="brief: deadline")

    def entered(self, session: AgentSession[Any]) -> None:
        """Tell ``on_session``."""
        if self._on_session is not None:
            self._on_session(session)

    def _arrived(self, loading: asyncio.Future[Preloaded]) -> None:
        error = None if loading.cancelled() else loading.exception()
        if error is None and not loading.cancelled():
            self.loaded(loading.result())
            return
        name = "cancelled" if error is None else type(error).__name__
        _log.warning("the memory of a call could not be loaded", extra={"error": name})
        self.loaded(Preloaded(missing=f"brief: {name}"))


class StatefulMemory(CallMemory):
    """A ``CallMemory`` that also brings the tools of states up to date before a reply."""

    def __init__(self, user: UserMemory, *, schemas: list[StateSchemas], **settings: Any) -> None:
        super().__init__(user, **settings)
        self._schemas = schemas

    async def ready(self) -> None:
        """See ``CallMemory.ready``."""
        await super().ready()
        for one in self._schemas:
            await one.refresh()
