"""What is done when the first memory of a process is opened."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading

import pytest

from secondcall import Memory, Message
from secondcall.memory import warming
from secondcall.recall.opposites import lexicon

pytestmark = pytest.mark.anyio

_OPENED_TWICE = """
import asyncio, gc
from secondcall import Memory
full = []
def seen(phase, info):
    if phase == "stop" and info["generation"] == 2:
        full.append(info)
gc.callbacks.append(seen)
async def main():
    gc.disable()
    for _ in range(2):
        async with Memory.open("memory://") as memory:
            await memory.flush()
    print(len(full))
asyncio.run(main())
"""


async def test_questions_can_be_read_at_once() -> None:
    """After the background work of opening the words that questions are read by are there."""
    lexicon.cache_clear()
    async with Memory.open("memory://") as memory:
        await memory.flush()
        assert warming.are_words_loaded()


async def test_the_first_question_loads_its_words_off_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A question that comes before they are loaded loads them in another thread."""
    threads: list[int] = []

    def seen() -> None:
        threads.append(threading.get_ident())

    async with Memory.open("memory://") as memory:
        await memory.flush()
        await (await memory.user("ann").session("s")).record(Message("user", "I like tea."))
        monkeypatch.setattr("secondcall.memory.asking.are_words_loaded", lambda: False)
        monkeypatch.setattr("secondcall.memory.asking.load_words", seen)
        found = await memory.user("ann").recall("tea")
    assert [item.key.id for item in found.items]
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


async def test_a_memory_closed_at_once_is_not_warmed() -> None:
    """What is not wanted any more is not done."""
    lexicon.cache_clear()
    await asyncio.to_thread(warming.warm, lambda: False)
    assert not warming.are_words_loaded()


def test_garbage_is_collected_once_in_a_process() -> None:
    """However many memories are opened, one full collection is made, and the host's is its own."""
    done = subprocess.run(
        [sys.executable, "-c", _OPENED_TWICE],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "1", done.stderr
    assert gc.isenabled()
