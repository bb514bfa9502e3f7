"""Checked by pyright, never run: the short-term memory as its user's type makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import assert_type

from secondcall import (
    Dropped,
    JsonValue,
    KeptShortTerm,
    Memory,
    Message,
    Restored,
    ShortTermMemory,
    Snapshot,
    SyncMemory,
    SyncShortTerm,
)


@dataclass
class CallData:
    name: str = ""
    items: list[str] = field(default_factory=list[str])


def verbs() -> None:
    """The memory has its type from what it starts with, ``update`` from what its function gives."""
    memory = assert_type(ShortTermMemory(CallData), ShortTermMemory[CallData])
    assert_type(ShortTermMemory(CallData(name="Ana"), ttl_seconds=None), ShortTermMemory[CallData])
    assert_type(memory.data, CallData)
    assert_type(memory.data.items, list[str])
    assert_type(memory.update(lambda data: data.items.pop()), str)
    assert_type(memory.update(lambda data: replace(data, name="Bo")), CallData)
    assert_type(memory.increment("tries"), int)
    assert_type(memory.append("items", "x", limit=3), int)
    assert_type(memory.add(Message("user", "hi")), int)
    assert_type(memory.messages, list[Message])
    assert_type(memory.flags, frozenset[str])
    assert_type(memory.intent, str | None)
    assert_type(memory.get("name"), object)
    assert_type(memory.dropped, Dropped)
    assert_type(memory.copy(), ShortTermMemory[CallData])
    snapshot = assert_type(memory.snapshot(), Snapshot)
    assert_type(snapshot.skipped, Mapping[str, str])
    assert_type(memory.restore(snapshot), Restored)


def refuse(memory: ShortTermMemory[CallData], raw: Mapping[str, JsonValue]) -> None:
    """Mistakes that a type checker must see; an ignore that is not needed is an error."""
    memory.restore(raw)
    memory.update(lambda data: data.tires)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownLambdaType] - must be refused
    memory.add("hi")  # pyright: ignore[reportArgumentType] - must be refused
    memory.data = CallData()  # pyright: ignore[reportAttributeAccessIssue] - must be refused
    ShortTermMemory(CallData, ttl_seconds="300")  # pyright: ignore[reportArgumentType] - must be refused


async def kept() -> None:
    """What is kept has the same type, in both faces."""
    async with Memory.open("memory://") as memory:
        session = await memory.user("ana").session("call-1")
        kept = assert_type(await session.shortterm(CallData), KeptShortTerm[CallData])
        assert_type(kept.memory, ShortTermMemory[CallData])
        assert_type(kept.restored, Restored | None)
        assert_type(await kept.save(), int | None)
        assert_type(await kept.reload(), Restored | None)


def blocking() -> None:
    """The blocking face keeps the type too."""
    with SyncMemory.open("memory://") as memory:
        kept = memory.user("ana").session("call-1").shortterm(CallData, ttl_seconds=60)
        assert_type(kept, SyncShortTerm[CallData])
        assert_type(kept.memory.data, CallData)
        assert_type(kept.save(), int | None)
