"""Items that come after a boundary was drawn behind their time are in the conversation for good."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from secondcall import Memory, Message, SessionMemory
from secondcall.memory.buffering import BufferedSession
from secondcall.shortterm.summary import SummarizingBuffer
from secondcall.testing.fakes import FrozenClock

WORDS = "The garden is full of birds and the kitchen smells of paint in the morning."
LATE = "By the way, my passport number is X99-12345."


async def _talk(session: SessionMemory, clock: FrozenClock, turns: int) -> None:
    for _ in range(turns):
        clock.advance(timedelta(seconds=10))
        await session.record(Message("user", WORDS), Message("assistant", f"I see. {WORDS}"))


async def _summarised(memory: Memory, clock: FrozenClock) -> tuple[SessionMemory, Message]:
    """A session of which the older part is summarised, and an item from the time of that part."""
    session = await memory.user("ana").session("s")
    buffer = await session.buffer(600)
    assert isinstance(buffer, SummarizingBuffer)
    await _talk(session, clock, 30)
    await memory.flush()
    first_at = buffer.summaries[0].first_at
    assert first_at is not None
    return session, Message("user", LATE, id="late", at=first_at - timedelta(seconds=1))


async def _context(session: SessionMemory, limit: int = 600) -> str:
    buffer = await session.buffer(limit)
    assert isinstance(buffer, SummarizingBuffer)
    return buffer.summary() + "".join(one.text for one in buffer.get() if isinstance(one, Message))


async def test_a_late_item_survives_a_restart(tmp_path: Path, clock: FrozenClock) -> None:
    """An item from before the boundary, that no summary stands for when the process ends, is
    summarised by the next process: its key facts stay."""
    url = f"sqlite:///{tmp_path / 'm.db'}"
    async with Memory.open(url, clock=clock) as memory:
        session, late = await _summarised(memory, clock)
        await session.record(late)
        assert "X99-12345" in await _context(session)
    async with Memory.open(url, clock=clock) as memory:
        session = await memory.user("ana").session("s")
        await _context(session)
        await memory.flush()
        assert "X99-12345" in await _context(session)
        await _talk(session, clock, 20)
        await memory.flush()
        assert "X99-12345" in await _context(session)


async def test_a_late_item_is_summarised_once(memory: Memory, clock: FrozenClock) -> None:
    """When a summary stands for it, the head does not name it any more, and its words are in one
    summary alone."""
    session, late = await _summarised(memory, clock)
    await session.record(late)
    await _talk(session, clock, 20)
    await memory.flush()
    buffer = await session.buffer(600)
    assert isinstance(buffer, SummarizingBuffer)
    items = [one.key.id for node in buffer.summaries for one in await buffer.expand(node.id)]
    assert items.count("late") == 1
    assert len(items) == len(set(items))


async def test_a_late_item_of_one_process_survives_the_summaries_of_another(
    tmp_path: Path, clock: FrozenClock
) -> None:
    """Another process that has the buffer open, and summarises next, keeps it too."""
    url = f"sqlite:///{tmp_path / 'm.db'}"
    async with Memory.open(url, clock=clock) as memory, Memory.open(url, clock=clock) as second:
        session, late = await _summarised(memory, clock)
        other = await second.user("ana").session("s")
        await _context(other)
        await session.record(late)
        await memory.flush()
        await _talk(other, clock, 20)
        await second.flush()
        assert "X99-12345" in await _context(other)
        await _context(session)
        await memory.flush()
        assert "X99-12345" in await _context(session)


async def test_a_late_item_that_is_removed_is_not_waited_for(
    memory: Memory, clock: FrozenClock
) -> None:
    """What is removed before it was summarised is in no context, and its key is forgotten."""
    session, late = await _summarised(memory, clock)
    await session.record(late)
    await memory.flush()
    user = memory.user("ana")
    keys = [one.key for one in await session.items() if one.key.id == "late"]
    await user.remove(keys)
    await _talk(session, clock, 20)
    await memory.flush()
    assert "X99-12345" not in await _context(session)
    held = [one for one in _buffers(memory) if one.session_id == "s"]
    head = await held[0].shelf.load()
    assert head is not None
    assert not head.late


def _buffers(memory: Memory) -> list[BufferedSession]:
    return list(memory._shared.buffers._all())  # pyright: ignore[reportPrivateUsage] - what is kept is looked at
