"""Forgetting states, down to the bytes of the file, with the record and in a file of their own."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from secondcall import Memory, UserErased
from secondcall.abc_state import StateKey

pytestmark = pytest.mark.anyio

NOW_US = 1_767_225_600_000_000


def _bytes(folder: Path) -> bytes:
    return b"".join(one.read_bytes() for one in folder.iterdir())


@pytest.mark.parametrize("apart", [False, True])
async def test_no_word_of_a_forgotten_state_is_left_in_the_files(
    tmp_path: Path, apart: bool
) -> None:
    """Random words in states, summaries, authors and session ids are in the files, then in none;
    the receipt names where they were, and a late save is refused."""
    words = {name: secrets.token_hex(8) for name in ("body", "old", "summary", "by", "session")}
    state = f"sqlite:///{tmp_path / 's.db'}" if apart else None
    place = "state." if apart else ""
    async with Memory.open(f"sqlite:///{tmp_path / 'm.db'}", state=state) as memory:
        user = memory.user("ana")
        await user.remember("word", "another")
        shared = memory._shared  # pyright: ignore[reportPrivateUsage] - below the handles
        states = shared.state_store()
        header = await shared.store.header((await user._place.scopes())[0])  # pyright: ignore[reportPrivateUsage] - below the handles
        assert header is not None
        await states.admit("default", "ana", epoch=header.epoch, now_us=NOW_US)

        async def save(session_id: str, word: str, expected: int | None) -> None:
            await states.save(
                StateKey("default", "ana", session_id),
                (word * 40).encode(),
                expected_version=expected,
                epoch=header.epoch,
                now_us=NOW_US,
                by=words["by"],
                summary=words["summary"].encode(),
                due_us=NOW_US,
            )

        for number in range(60):
            session_id = f"{words['session']}{number}"
            await save(session_id, words["old"], None)
            await save(session_id, words["body"], 1)
        before = _bytes(tmp_path)
        assert [name for name, word in words.items() if word.encode() not in before] == []
        receipt = await user.forget()
        assert receipt.complete, receipt.detail
        assert receipt.removed[f"{place}states"] == 60
        assert receipt.removed[f"{place}state_history"] == 120
        assert receipt.remaining == {}
        after = _bytes(tmp_path)
        assert [name for name, word in words.items() if word.encode() in after] == []
        with pytest.raises(UserErased):
            await save("late", "late", None)
        with pytest.raises(UserErased):
            await states.admit("default", "ana", epoch=header.epoch, now_us=NOW_US)
