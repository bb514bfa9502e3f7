"""Recaps across processes, and down to the bytes of the file."""

from __future__ import annotations

import secrets
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from secondcall import ItemKey, Memory, Message

pytestmark = pytest.mark.anyio

WORKER = Path(__file__).with_name("recap_worker.py")


async def test_a_call_that_crashed_is_recapped_at_the_next_open(tmp_path: Path) -> None:
    """A process is killed in the middle of a call; the next one opens a session, and the brief
    after it tells what the call came to."""
    url = f"sqlite:///{tmp_path / 'm.db'}"
    done = await anyio.to_thread.run_sync(
        lambda: subprocess.run([sys.executable, str(WORKER), url], timeout=60, check=False)
    )
    assert done.returncode < 0
    async with Memory.open(url) as memory:
        user = memory.user("ann")
        assert (await user.brief(deadline_seconds=None)).recaps == []
        await user.session("next")
        await memory.flush()
        (recap,) = (await user.brief(deadline_seconds=None)).recaps
        assert recap.session_id == "crashed"
        assert "I will send the boarding pass by Friday." in recap.text


def _bytes(folder: Path) -> bytes:
    return b"".join(one.read_bytes() for one in folder.iterdir())


async def test_no_word_of_a_recap_is_left_in_the_files(tmp_path: Path) -> None:
    """A removed sentence leaves the recap, and after an erasure no recap is in the files."""
    words = {name: secrets.token_hex(8) for name in ("kept", "gone", "session")}
    async with Memory.open(f"sqlite:///{tmp_path / 'm.db'}") as memory:
        user = memory.user("ann")
        session = await user.session(words["session"])
        await session.record(
            Message("user", f"I need the part number {words['kept']} here.", id="kept"),
            Message("assistant", f"I will send the order {words['gone']} today.", id="gone"),
        )
        await session.close()
        await memory.flush()
        (recap,) = await user.recaps()
        assert words["kept"] in recap.text
        assert words["gone"] in recap.text
        await user.remove([ItemKey("ann", words["session"], "message", "gone")])
        await memory.flush()
        assert words["gone"] not in (await user.recaps())[0].text
        assert all(words[name].encode() in _bytes(tmp_path) for name in ("kept", "session"))
        receipt = await user.forget()
        assert receipt.complete, receipt.detail
        left = _bytes(tmp_path)
        assert [name for name, word in words.items() if word.encode() in left] == []
