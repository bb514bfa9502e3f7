"""The userdata of one call: in memory while it runs, and with its session where that is wanted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Generic, TypeVar, cast
from weakref import WeakSet

from secondcall.adapters.livekit.opening import is_misuse
from secondcall.errors import InvalidValue
from secondcall.shortterm.userdata import ShortTermMemory

if TYPE_CHECKING:
    from secondcall.adapters.livekit.settings import CallSettings
    from secondcall.memory import SessionMemory
    from secondcall.memory.keeping import KeptShortTerm

__all__ = ["CallUserdata"]

_log = logging.getLogger("secondcall.livekit")
_OPEN_SECONDS = 2.0
_KEPT_SECONDS = 86_400.0
"""What is kept must run out some day; a day after it was written no call goes on any more."""

T = TypeVar("T")

_taken: WeakSet[ShortTermMemory[object]] = WeakSet()


class CallUserdata(Generic[T]):
    """``memory`` is what the agents have, from ``start``: a class, an instance of one, or a memory
    of the application's own, with its own settings.

    Raises: ``InvalidValue`` for what can be none, and for a memory that another call had before.
    """

    def __init__(self, start: ShortTermMemory[T] | type[T] | T, settings: CallSettings) -> None:
        self._is_kept = settings.keep_userdata
        self._ttl_seconds: float | Mapping[str, float | None] | None = settings.userdata_ttl_seconds
        if self._is_kept and self._ttl_seconds is None:
            self._ttl_seconds = _KEPT_SECONDS
        self.memory: ShortTermMemory[T]
        if isinstance(start, ShortTermMemory):
            self.memory = _own(cast("ShortTermMemory[T]", start))
        else:
            self.memory = ShortTermMemory[T](start, ttl_seconds=self._ttl_seconds)
        self._kept: KeptShortTerm[T] | None = None

    @property
    def has_place(self) -> bool:
        """Whether it is known where it is kept."""
        return self._kept is not None

    async def keep_in(self, session: SessionMemory) -> None:
        """Keep it with this session from now on, and take over what is kept there. Where the store
        does not answer, it lives in this process alone until this is called again."""
        self._kept = None
        if not self._is_kept:
            return
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                kept = await session.shortterm(
                    type(self.memory.data), ttl_seconds=self._ttl_seconds
                )
                kept.memory = self.memory
                if kept.restored is not None:
                    await kept.reload()
        except Exception as error:  # a live edge: the call goes on with what it has; it is logged
            if is_misuse(error):
                raise
            _log.warning(
                "the userdata is not taken over from where it is kept",
                extra={"error": type(error).__name__},
            )
        else:
            self._kept = kept

    def let_go(self) -> bool:
        """Keep it nowhere; whether something in it came from where it was kept."""
        kept, self._kept = self._kept, None
        return kept is not None and kept.restored is not None

    async def save(self) -> None:
        """Keep what it holds now, if it is kept. Raises: store errors."""
        if self._kept is not None:
            await self._kept.save()


def _own(memory: ShortTermMemory[T]) -> ShortTermMemory[T]:
    known = cast("ShortTermMemory[object]", memory)
    if known in _taken:
        raise InvalidValue(
            "this ShortTermMemory was the userdata of another call, whose caller's data would be "
            "in it; make one in the entrypoint, for each call"
        )
    _taken.add(known)
    return memory
