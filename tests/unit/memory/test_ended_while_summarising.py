"""What waits for its summary when a process ends is taken up by the next."""

from __future__ import annotations

import asyncio
from pathlib import Path

from secondcall import Memory, Message, SessionMemory
from secondcall.abc import Completion, LanguageModel, Prompt
from secondcall.shortterm.summary import SummarizingBuffer
from secondcall.testing.fakes import FrozenClock

WORDS = "The kitchen still smells of paint, so we eat outside."


class Silent(LanguageModel):
    """A model that never answers."""

    id = "silent"

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def complete(self, prompt: Prompt) -> Completion:
        """Nothing."""
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError


async def _talk(session: SessionMemory, begin: int, turns: int) -> None:
    for number in range(begin, begin + turns):
        await session.record(
            Message("user", f"The code of room {number} is {number * 13 + 7}.", id=f"u{number}"),
            Message("assistant", f"I see. {WORDS}", id=f"a{number}"),
        )


async def _known(session: SessionMemory) -> set[str]:
    """The ids of all that the window gives or a summary stands for."""
    buffer = await session.buffer(1_200)
    assert isinstance(buffer, SummarizingBuffer)
    assert buffer.tokens <= 1_200
    found = {one.id or "" for one in buffer.get() if isinstance(one, Message)}
    for node in buffer.summaries:
        found |= {one.key.id for one in await buffer.expand(node.id)}
    return found


async def test_what_waits_for_a_silent_model_is_taken_up(
    tmp_path: Path, clock: FrozenClock
) -> None:
    """A process that ends while its model is silent leaves nothing behind that the next one does
    not summarise: neither the first part of a session nor a later one."""
    url = f"sqlite:///{tmp_path / 'm.db'}"
    others = asyncio.all_tasks()
    for begin in (0, 80):
        model = Silent()
        ending = Memory.open(url, model=model, extract=False, clock=clock)
        await ending.__aenter__()
        session = await ending.user("ana").session("s")
        await session.buffer(1_200)
        await _talk(session, begin, 80)
        await model.asked.wait()
        async with Memory.open(url, extract=False, clock=clock) as memory:
            session = await memory.user("ana").session("s")
            await session.buffer(1_200)
            await memory.flush()
            wanted = {f"{who}{number}" for who in "ua" for number in range(begin + 80)}
            assert wanted - await _known(session) == set()
        left = asyncio.all_tasks() - others
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
