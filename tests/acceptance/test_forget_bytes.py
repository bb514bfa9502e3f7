"""Forgetting, down to the bytes of the file."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from secondcall import ItemKey, Memory, Message

pytestmark = pytest.mark.anyio


def _bytes(folder: Path) -> bytes:
    return b"".join(one.read_bytes() for one in folder.iterdir())


async def test_no_word_of_a_forgotten_user_is_left_in_the_files(tmp_path: Path) -> None:
    """Random words in messages, facts, metadata and ids are in the files, then in none."""
    words = {name: secrets.token_hex(8) for name in ("text", "fact", "meta", "item", "session")}
    path = tmp_path / "m.db"
    async with Memory.open(f"sqlite:///{path}") as memory:
        caller = await memory.identify(phone="+14155550100")
        user = memory.user(caller.user_id)
        session = await user.session(words["session"])
        for start in range(0, 1_200, 100):
            await session.record(
                *(
                    Message(
                        "user",
                        f"{words['text']} number {n}",
                        id=f"{words['item']}{n}",
                        metadata={"m": words["meta"]},
                    )
                    for n in range(start, start + 100)
                )
            )
        source = ItemKey(user.user_id, words["session"], "message", f"{words['item']}0")
        await user.remember("word", words["fact"], sensitive=True, sources=[source])
        await user.remember("word", "another")
        await memory.flush()
        await user.recall(words["text"])
        before = _bytes(tmp_path)
        assert all(word.encode() in before for word in words.values())
        receipt = await user.forget()
        assert receipt.complete, receipt.detail
        after = _bytes(tmp_path)
        words["user"] = caller.user_id
        assert [name for name, word in words.items() if word.encode() in after] == []
        assert b"4155550100" not in after
