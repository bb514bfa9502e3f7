"""What a type checker must know of the public face. Never run, only checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_type

from secondcall import (
    AgentState,
    Brief,
    Caller,
    Fact,
    Item,
    JsonValue,
    Memory,
    Message,
    Recalled,
    RecalledFact,
    RecalledItem,
    Receipt,
    Recorded,
    RecordedItem,
    SessionMemory,
    StateHandle,
    SyncMemory,
    SyncUser,
    ToolCall,
    UserMemory,
)


async def journey() -> None:
    """One call, from hello to erasure, with the type of each step."""
    async with Memory.open("memory://") as memory:
        assert_type(memory, Memory)
        caller = assert_type(await memory.identify(phone="+14155550100"), Caller)
        user = assert_type(memory.user(caller), UserMemory)
        assert_type(memory.user("ana"), UserMemory)
        assert_type(await user.brief(max_tokens=400, deadline_seconds=0.05), Brief)

        session = assert_type(await user.session("call-1"), SessionMemory)
        recorded = await session.record(
            Message("user", "An aisle seat, please.", metadata={"topic": "seat"}),
            ToolCall("book", {"seat": "12C"}, call_id="1", output="done"),
        )
        assert_type(recorded, Recorded)
        assert_type(await session.items(), list[RecordedItem])

        assert_type(await user.remember("seat", "aisle", kind="preference"), Fact)
        assert_type(await user.facts(), list[Fact])
        found = assert_type(await user.recall("Which seat?", by="turn", roles=["user"]), Recalled)
        assert_type(found.items, Sequence[RecalledItem])
        assert_type(found.facts, Sequence[RecalledFact])
        async for item in user.items():
            assert_type(item, RecordedItem)
        assert_type(await user.forget(), Receipt)


def tell_apart(item: Item) -> JsonValue:
    """An item is a message or a tool call, and nothing else."""
    if isinstance(item, Message):
        return item.text
    assert_type(item, ToolCall)
    return item.arguments


def refuse(memory: Memory) -> None:
    """Mistakes that a type checker must see; an ignore that is not needed is an error."""
    Message("robot", "beep")  # pyright: ignore[reportArgumentType] - must be refused
    Message("user", "hi", "id-1")  # pyright: ignore[reportCallIssue] - must be refused
    memory.user(4711)  # pyright: ignore[reportArgumentType] - must be refused
    memory.user("ana").remember("diet", "vegan", kind="taste")  # pyright: ignore[reportArgumentType, reportUnusedCoroutine] - must be refused


@dataclass(frozen=True)
class Cart:
    """Fields of a state."""

    total: int = 0


async def state() -> None:
    """State knows the class of its fields from the handle to the change."""
    async with Memory.open("memory://") as memory:
        user = memory.user("ana")
        assert_type(user.state, StateHandle[Mapping[str, Any]])
        cart = assert_type((await user.session("call-1")).state.of(Cart), StateHandle[Cart])
        loaded = assert_type(await cart.load(), AgentState[Cart] | None)
        changed = await cart.update(lambda one: one.with_fields(total=one.fields.total + 1))
        assert_type(changed.fields.total, int)
        assert_type(changed.advance("payment", confirmed=True), AgentState[Cart])
        assert_type(await cart.delete(), bool)
        if loaded is not None:
            await memory.user("ana").state.save(loaded)  # pyright: ignore[reportArgumentType] - must be refused


def blocking() -> None:
    """The blocking face has the same results, without await."""
    with SyncMemory.open("memory://") as memory:
        user = assert_type(memory.user("ana"), SyncUser)
        assert_type(user.recall("Which seat?"), Recalled)
        assert_type(user.brief(), Brief)
        assert_type(user.remember("seat", "aisle", kind="preference"), Fact)
