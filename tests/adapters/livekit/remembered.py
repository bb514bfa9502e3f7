"""A caller with a past, a store that obeys, and sessions that are driven by text or speech."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from adapters.livekit.waiting import until
from livekit.agents import Agent, AgentSession, llm

from secondcall import Memory, Message, UserMemory
from secondcall.abc import Change, Document, EntryKey, Header, Scope, StoredEntry
from secondcall.adapters.livekit.chat import is_memory
from secondcall.stores.memory import MemoryStore
from secondcall.testing.livekit import FedSTT, ScriptedLLM

__all__ = [
    "ASKED",
    "HELD",
    "UNKNOWN",
    "ObedientStore",
    "a_caller",
    "answered",
    "looked_up",
    "remembered_in",
    "said_to",
    "speaking",
    "texting",
    "told_in",
]

HELD = "Please move me to an aisle seat near the front."
ASKED = "Which aisle seat did I ask for?"
UNKNOWN = "Quantum chromodynamics lattice?"


class ObedientStore(MemoryStore):
    """Counts reads; answers them late while the gate is shut; raises ``error`` when it is set."""

    def __init__(self) -> None:
        super().__init__("memory://")
        self.reads = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: BaseException | None = None

    async def _obey(self) -> None:
        self.reads += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error

    async def header(self, scope: Scope) -> Header | None:
        """As it is."""
        await self._obey()
        return await super().header(scope)

    async def read(self, scope: Scope, **more: Any) -> Sequence[StoredEntry]:
        """As it is."""
        await self._obey()
        return await super().read(scope, **more)

    async def changes(self, scope: Scope, *, after: int, limit: int) -> Sequence[Change]:
        """As it is."""
        await self._obey()
        return await super().changes(scope, after=after, limit=limit)

    async def entries(self, scope: Scope, keys: Sequence[EntryKey]) -> Sequence[StoredEntry]:
        """As it is."""
        await self._obey()
        return await super().entries(scope, keys)

    async def document(self, scope: Scope, kind: str, key: str) -> Document | None:
        """As it is."""
        await self._obey()
        return await super().document(scope, kind, key)

    async def documents(self, scope: Scope, kind: str, **more: Any) -> Sequence[Document]:
        """As it is."""
        await self._obey()
        return await super().documents(scope, kind, **more)


@asynccontextmanager
async def a_caller(store: ObedientStore | None = None) -> AsyncGenerator[UserMemory]:
    """Ana, who spoke about her seat a month ago; her index is loaded. The store obeys no more when
    it is closed."""
    store = ObedientStore() if store is None else store
    async with Memory.open(store) as memory:
        user = memory.user("ana")
        earlier = await user.session("earlier")
        at = datetime(2026, 1, 5, 12, tzinfo=UTC)
        await earlier.record(
            Message("user", HELD, id="seat", at=at),
            Message("assistant", "Aisle seat 4C is yours.", id="seat-answer", at=at),
            Message("user", "My dog is called Bramble.", id="dog", at=at),
            Message("assistant", "What a lovely name.", id="dog-answer", at=at),
        )
        await memory.flush()
        await user.recall("warm up", limit=1)
        try:
            yield user
        finally:
            store.error = None
            store.gate.set()


@asynccontextmanager
async def texting(
    model: ScriptedLLM, agent: Agent, **settings: Any
) -> AsyncGenerator[AgentSession[None]]:
    """A started session without audio."""
    settings.setdefault("turn_handling", {"turn_detection": None})
    session = AgentSession[None](llm=model, vad=None, **settings)
    await session.start(agent)
    try:
        yield session
    finally:
        await session.aclose()


@asynccontextmanager
async def speaking(
    model: ScriptedLLM, ears: FedSTT, agent: Agent, *, early: bool = True, delay: float = 0.05
) -> AsyncGenerator[AgentSession[None]]:
    """A started session that hears; ``early`` is preemptive generation."""
    session = AgentSession[None](
        llm=model,
        stt=ears,
        vad=None,
        turn_handling={
            "turn_detection": "stt",
            "endpointing": {"min_delay": delay, "max_delay": 10 * delay},
            "preemptive_generation": {"enabled": early},
        },
        session_close_transcript_timeout=0.1,
    )
    await session.start(agent)
    try:
        yield session
    finally:
        await session.aclose()


def said_to(model: ScriptedLLM, request: int = -1) -> list[str]:
    """The texts of one request, in order."""
    return [one.text_content or "" for one in model.requests[request].messages()]


def remembered_in(chat_ctx: llm.ChatContext, kind: str) -> list[llm.ChatMessage]:
    """The memory messages of one kind in a context."""
    return [
        one for one in chat_ctx.messages() if is_memory(one) and one.extra.get("secondcall") == kind
    ]


def told_in(chat_ctx: llm.ChatContext) -> str:
    """What the brief says in a context."""
    return " ".join(one.text_content or "" for one in remembered_in(chat_ctx, "brief"))


def looked_up(model: ScriptedLLM, request: int = -1) -> list[llm.ChatMessage]:
    """What one request was told for the caller's newest words."""
    return remembered_in(model.requests[request], "lookup")


async def answered(session: AgentSession[None], messages: int) -> None:
    """Wait until the history has so many messages."""
    await until(lambda: len(session.history.messages()) >= messages)
