from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from llama_index.core.llms import ChatMessage
from llama_index.core.memory import Memory as TheirMemory
from sqlalchemy.ext.asyncio import create_async_engine

from secondcall import (
    Memory,
    Message,
    Step,
    StoreUnavailable,
    Workflow,
)
from secondcall.abc import Batch, Epoch, Scope, Written
from secondcall.adapters.llama_index.async_chat_store import SecondCallAsyncChatStore
from secondcall.adapters.llama_index.blocks import (
    FactsMemoryBlock,
    RecallMemoryBlock,
    StateMemoryBlock,
)
from secondcall.stores.memory import MemoryStore

_FROM_DEFAULTS = cast("Any", TheirMemory).from_defaults
TAKES_STORES = "chat_store" in inspect.signature(_FROM_DEFAULTS).parameters
REFUND = Workflow("refund", {"ask": Step(), "pay": Step(terminal=True)}, {"ask": "pay"})


class DownStore(MemoryStore):
    """A store whose writes fail while it is ``down``."""

    down = False

    async def write(
        self, scope: Scope, batch: Batch, *, epoch: Epoch, now_us: int, create: bool = False
    ) -> Written:
        """As ever, unless it is down."""
        if self.down:
            raise StoreUnavailable("the store is down")
        return await super().write(scope, batch, epoch=epoch, now_us=now_us, create=create)


def user(text: str) -> ChatMessage:
    """A message of the user."""
    return ChatMessage(role="user", content=text)


def words(text: str) -> list[str]:
    """The tokens of these tests."""
    return text.split()


async def recorded(memory: Memory, user_id: str = "ana") -> list[str]:
    """The texts of everything that was recorded of a user."""
    items = [one.item async for one in memory.user(user_id).items()]
    return [item.text for item in items if isinstance(item, Message)]


async def tell(block: Any, question: str, session_id: str | None = None) -> str:
    """What a block gives for a question, as ``Memory`` asks it."""
    return await block.aget([user(question)], session_id=session_id)


async def test_recall_finds_what_other_sessions_said() -> None:
    """The block gives what was said in any session of the user, fenced, and nothing of others."""
    async with Memory.open("memory://") as memory:
        block = RecallMemoryBlock(user_id="ana", memory=memory)
        await block.aput([user("My vendor is Acme in Oslo.")], session_id="monday")
        other = RecallMemoryBlock(user_id="bob", memory=memory)
        text = await tell(block, "Who is my vendor?", "tuesday")
        assert text.startswith("<memory")
        assert "Acme in Oslo" in text
        assert await tell(other, "Who is my vendor?", "tuesday") == ""


async def test_one_block_serves_sessions_that_are_apart() -> None:
    """A block that is shared by two sessions narrows by the one that asks, each time anew."""
    async with Memory.open("memory://") as memory:
        current = RecallMemoryBlock(user_id="ana", memory=memory, sessions="current")
        others = RecallMemoryBlock(user_id="ana", memory=memory, sessions="others")
        await current.aput([user("The code of the garage is 1111.")], session_id="a")
        await current.aput([user("The code of the garage is 2222.")], session_id="b")
        question = "What is the code of the garage?"
        for session, own, foreign in (("a", "1111", "2222"), ("b", "2222", "1111")):
            text = await tell(current, question, session)
            assert own in text
            assert foreign not in text
            text = await tell(others, question, session)
            assert foreign in text
            assert own not in text


async def test_what_stands_in_the_queue_is_not_told_again() -> None:
    """An item that is among the messages that ask is left out."""
    async with Memory.open("memory://") as memory:
        block = RecallMemoryBlock(user_id="ana", memory=memory)
        said = user("My vendor is Acme in Oslo.")
        await block.aput([said], session_id="a")
        assert await block.aget([said, user("Who is my vendor?")], session_id="a") == ""
        assert await block.aget([], session_id="a") == ""
        assert await block.aget(None) == ""


async def test_a_message_that_comes_again_is_recorded_once() -> None:
    """Repeated and concurrent puts of the same messages, in one block and in two, record each
    once, and change none of them."""
    async with Memory.open("memory://") as memory:
        blocks = [
            RecallMemoryBlock(user_id="ana", memory=memory),
            FactsMemoryBlock(user_id="ana", memory=memory),
        ]
        messages = [user(f"fact number {number}") for number in range(5)]
        await asyncio.gather(
            *(
                block.aput(messages, from_short_term_memory=True, session_id="a")
                for block in blocks
                for _ in range(4)
            )
        )
        assert sorted(await recorded(memory)) == [f"fact number {n}" for n in range(5)]
        assert all(one.additional_kwargs == {} for one in messages)


async def test_what_the_chat_store_has_is_not_recorded_again() -> None:
    """With the chat store of the same session a flushed message has one item."""
    async with Memory.open("memory://") as memory:
        store = SecondCallAsyncChatStore(user_id="ana", memory=memory)
        block = RecallMemoryBlock(user_id="ana", memory=memory)
        messages = [user("aisle"), user("window")]
        await store.add_messages("a", messages)
        flushed = await store.archive_oldest_messages("a", 1)
        for one in flushed:
            one.additional_kwargs["session_id"] = "a"
        await block.aput(flushed, from_short_term_memory=True, session_id="a")
        assert await recorded(memory) == ["aisle", "window"]


async def test_a_store_that_is_down_fails_no_turn() -> None:
    """What could not be written is held and written with the next messages; a block that is to
    raise does so."""
    store = DownStore()
    async with Memory.open(store) as memory:
        block = RecallMemoryBlock(user_id="ana", memory=memory)
        strict = RecallMemoryBlock(user_id="ana", memory=memory, on_failure="raise")
        await block.aput([user("first")], session_id="a")
        store.down = True
        await block.aput([user("second")], session_id="a")
        with pytest.raises(StoreUnavailable):
            await strict.aput([user("fourth")], session_id="a")
        store.down = False
        await block.aput([user("third")], session_id="b")
        assert sorted(await recorded(memory)) == ["first", "second", "third"]
        await strict.aput([], session_id="a")
        assert "fourth" in await recorded(memory)


async def test_facts_are_those_that_hold_now() -> None:
    """Promises come first, a fact that another one ended does not come, and nobody else's do."""
    async with Memory.open("memory://") as memory:
        ana = memory.user("ana")
        await ana.remember("city", "Oslo")
        await ana.remember("city", "Bergen")
        await ana.remember("refund", "by Friday", kind="promise")
        text = await tell(FactsMemoryBlock(user_id="ana", memory=memory), "hello")
        assert "Oslo" not in text
        assert text.index("by Friday") < text.index("Bergen")
        assert await tell(FactsMemoryBlock(user_id="bob", memory=memory), "hello") == ""


async def test_the_state_is_of_the_session_that_asks() -> None:
    """Each session is told its own step, and the state is read anew each time."""
    async with Memory.open("memory://", workflows=[REFUND]) as memory:
        block = StateMemoryBlock(user_id="ana", memory=memory)
        session = await memory.user("ana").session("a")
        await session.state.update(lambda state: state.start(REFUND))
        assert '"ask"' in await tell(block, "hello", "a")
        assert await tell(block, "hello", "b") == ""
        await session.state.update(lambda state: state.advance("pay"))
        assert 'step "pay"' in await tell(block, "hello", "a")
        await block.aput([user("not taken")], from_short_term_memory=True, session_id="a")
        assert await recorded(memory) == []


async def test_a_block_is_cut_by_whole_lines() -> None:
    """Truncating drops lines from the end and keeps the fence; at the end nothing is left."""
    async with Memory.open("memory://") as memory:
        block = FactsMemoryBlock(user_id="ana", memory=memory)
        for number in range(6):
            await memory.user("ana").remember(f"thing {number}", f"value {number}")
        text = await tell(block, "hello")
        shorter = await block.atruncate(text, 20)
        assert shorter is not None
        assert 3 <= len(shorter.split("\n")) < len(text.split("\n"))
        assert shorter.startswith("<memory")
        assert shorter.endswith("</memory>")
        assert await block.atruncate(text, 10_000) is None
        small = FactsMemoryBlock(user_id="ana", memory=memory, max_tokens=60)
        assert len((await tell(small, "hello")).split("\n")) < len(text.split("\n"))


async def test_memory_is_told_by_its_blocks(url: str, tmp_path: Path) -> None:
    """In LlamaIndex's own ``Memory`` flushed messages reach the record, and recall and facts stand
    in what ``aget`` gives."""
    blocks: Sequence[Any] = [
        RecallMemoryBlock(user_id="ana", url=url, store="blocks"),
        FactsMemoryBlock(user_id="ana", store="blocks", url=url),
    ]
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'queue.db'}")
    memory = TheirMemory.from_defaults(
        async_engine=engine,
        session_id="a",
        token_limit=300,
        chat_history_token_ratio=0.1,
        token_flush_size=5,
        tokenizer_fn=words,
        memory_blocks=list(blocks),
    )
    for number in range(8):
        await memory.aput(user(f"vendor {number} is Acme{number} of Oslo, as we said on Monday"))
        await memory.aput(ChatMessage(role="assistant", content=f"vendor {number} was noted"))
    given = await memory.aget(input="Where is vendor Acme0 from?")
    shown = "\n".join(str(one.content) for one in given)
    assert "vendor 0 is Acme0 of Oslo" in shown
    await engine.dispose()
    assert copy.deepcopy(blocks[0]) is blocks[0]
    assert "sqlite" not in str(blocks[0].model_dump())
