"""Calls for tests: a session in text mode, a recorder with a journal, a store that can fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from livekit.agents import Agent, AgentSession

from secondcall import Memory, SessionMemory
from secondcall.abc import Batch, Epoch, Scope, Written
from secondcall.adapters.livekit.consent import Consent
from secondcall.adapters.livekit.recording import Recorder
from secondcall.adapters.livekit.replay import Journals
from secondcall.adapters.livekit.writer import BeforeStore
from secondcall.errors import StoreUnavailable
from secondcall.stores.memory import MemoryStore
from secondcall.testing.livekit import ScriptedLLM
from secondcall.types import Item, Message, RecordedItem

__all__ = ["FailingStore", "Recorded", "recorded", "recording", "said", "talking"]


class FailingStore(MemoryStore):
    """A store in memory that can be taken away: ``down`` makes it raise, ``hangs`` wait; what waits
    then raises when it hangs no longer."""

    def __init__(self) -> None:
        super().__init__("memory://")
        self.down = False
        self._back: asyncio.Event | None = None
        self.attempts = 0

    @property
    def hangs(self) -> bool:
        """Whether whoever comes has to wait."""
        return self._back is not None

    @hangs.setter
    def hangs(self, hangs: bool) -> None:
        back, self._back = self._back, asyncio.Event() if hangs else None
        if back is not None:
            back.set()

    async def write(
        self, scope: Scope, batch: Batch, *, epoch: Epoch, now_us: int, create: bool = False
    ) -> Written:
        """See ``Store.write``."""
        self.attempts += 1
        await self._reach()
        return await super().write(scope, batch, epoch=epoch, now_us=now_us, create=create)

    async def header(self, scope: Scope) -> Any:
        """See ``Store.header``."""
        await self._reach()
        return await super().header(scope)

    async def _reach(self) -> None:
        if self._back is not None:
            await self._back.wait()
            raise StoreUnavailable("the store has not answered, as the test says")
        if self.down:
            raise StoreUnavailable("the store is down, as the test says")


@dataclass
class Recorded:
    """A memory with a recorder of one call of ``ana``."""

    memory: Memory
    journals: Journals
    recorder: Recorder
    opened: list[SessionMemory] = field(default_factory=list[SessionMemory])

    async def items(self, session_id: str = "call") -> list[RecordedItem]:
        """What the store has of the call."""
        return await recorded(self.memory, session_id)

    def files(self) -> list[Path]:
        """The journals on the disk."""
        return sorted(self.journals.folder.glob("*.journal"))


async def recorded(memory: Memory, session_id: str = "call") -> list[RecordedItem]:
    """What a memory has of one of ana's calls, in reading order."""
    session = await memory.user("ana").session(session_id)
    return await session.items()


def said(items: Sequence[RecordedItem] | Sequence[Item]) -> list[tuple[str, str]]:
    """The messages among the items, as (role, text)."""
    plain = [one.item if isinstance(one, RecordedItem) else one for one in items]
    return [(one.role, one.text.strip()) for one in plain if isinstance(one, Message)]


@asynccontextmanager
async def recording(
    folder: Path,
    url: Any = "memory://",
    *,
    consent: Consent | None = None,
    attempt_seconds: float = 10.0,
    before_store: BeforeStore | None = None,
) -> AsyncGenerator[Recorded]:
    """A recorder over a fresh memory, with a journal in ``folder``."""
    async with Memory.open(url) as memory:
        journals = Journals(memory, folder)

        async def session() -> SessionMemory:
            found.opened.append(await memory.user("ana").session("call"))
            return found.opened[-1]

        recorder = Recorder(
            session,
            journal=lambda: journals.journal("call", user_id="ana"),
            consent=consent,
            attempt_seconds=attempt_seconds,
            retry_seconds=(0.01, 0.05),
            before_store=before_store,
        )
        found = Recorded(memory, journals, recorder)
        try:
            yield found
        finally:
            await recorder.aclose()


@asynccontextmanager
async def talking(
    model: ScriptedLLM, agent: Agent | None = None, **options: Any
) -> AsyncGenerator[AgentSession[None]]:
    """A session in text mode, closed at the end."""
    session = AgentSession[None](
        llm=model, vad=None, turn_handling={"turn_detection": None}, **options
    )
    await session.start(Agent(instructions="Be brief.") if agent is None else agent)
    try:
        yield session
    finally:
        await session.aclose()
