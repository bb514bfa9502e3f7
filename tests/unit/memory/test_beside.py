"""Epochs as text, and what is kept of users beside the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from secondcall import Memory, Message

pytestmark = pytest.mark.anyio


async def test_an_epoch_is_made_by_the_first_write() -> None:
    """A user has no epoch before anything is stored, asking for it makes none, and after that
    every handle sees the same."""
    async with Memory.open("memory://") as memory:
        session = await memory.user("ana").session("s")
        assert await session.epoch() is None
        assert await memory.users() == []
        await session.record(Message("user", "hello"))
        epoch = await session.epoch()
        assert epoch is not None
        other = await memory.user("ana").session("t")
        assert await other.epoch() == epoch
        assert await other.has_epoch(epoch)
        assert not await other.has_epoch("00" * 16)


async def test_an_epoch_ends_with_forgetting() -> None:
    """After ``forget`` the epoch is nobody's, also when the user has returned."""
    async with Memory.open("memory://") as memory:
        session = await memory.user("ana").session("s")
        await session.record(Message("user", "hello"))
        epoch = await session.epoch()
        assert epoch is not None
        await memory.user("ana").forget()
        assert not await (await memory.user("ana").session("s")).has_epoch(epoch)
        again = await memory.user("ana").session("s")
        await again.record(Message("user", "hello again"))
        assert not await again.has_epoch(epoch)


async def test_an_epoch_lives_on_in_a_merge() -> None:
    """A user who was merged into another is still there by the old epoch."""
    async with Memory.open("memory://") as memory:
        session = await memory.user("ana").session("s")
        await session.record(Message("user", "hello"))
        epoch = await session.epoch()
        assert epoch is not None
        await (await memory.user("anna").session("t")).record(Message("user", "hi"))
        await memory.merge("ana", "anna")
        assert await (await memory.user("ana").session("s")).has_epoch(epoch)


async def test_forgetting_reaches_what_is_kept_beside() -> None:
    """``forget`` tells every place of every partition that goes, and counts what went."""
    asked: list[tuple[str, str]] = []

    async def erase(tenant_id: str, user_id: str) -> int:
        asked.append((tenant_id, user_id))
        return 2

    async with Memory.open("memory://", tenant_id="shop") as memory:
        memory.beside("notes", "here", erase)
        memory.beside("notes", "there", erase)
        memory.beside("notes", "gone", erase)
        memory.beside("notes", "gone", None)
        for user_id in ("ana", "anna"):
            session = await memory.user(user_id).session("s")
            await session.record(Message("user", "hello"))
        await memory.merge("ana", "anna")
        receipt = await memory.user("anna").forget()
    assert receipt.removed["notes"] == 8
    assert receipt.complete
    assert set(asked) == {("shop", "ana"), ("shop", "anna")}


async def test_a_place_that_fails_makes_the_receipt_incomplete() -> None:
    """What could not be erased beside the store is named in the receipt; the store is erased."""

    async def erase(tenant_id: str, user_id: str) -> int:
        raise OSError(f"the disk of {tenant_id} is away")

    async with Memory.open("memory://") as memory:
        memory.beside("notes", "here", erase)
        await (await memory.user("ana").session("s")).record(Message("user", "hello"))
        receipt = await memory.user("ana").forget()
        assert (receipt.complete, receipt.remaining) == (False, {"notes": 1})
        assert await memory.users() == []


async def test_places_tell_stores_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two files are two places, one file is one however it is named, and no password is shown."""
    monkeypatch.chdir(tmp_path)
    one = Memory.open("sqlite:///a.db").place
    assert one == Memory.open(f"sqlite:///{tmp_path}/a.db").place
    assert one != Memory.open("sqlite:///b.db").place
    assert Memory.open("memory://").place == "MemoryStore"


async def test_forgetting_asks_for_the_identities_too() -> None:
    """What may be kept under a number or another identity of the user alone is asked for by the
    name of that identity's partition."""
    asked: list[str] = []

    async def erase(tenant_id: str, partition: str) -> int:
        del tenant_id
        asked.append(partition)
        return 1

    async with Memory.open("memory://") as memory:
        ana = await memory.identify(phone="+14155550100", email="ana@example.com")
        memory.beside("notes", "here", erase)
        receipt = await memory.user(ana).forget()
    assert len(asked) == len(set(asked)) == 3
    assert asked[-1] == ana.user_id
    assert receipt.removed["notes"] == 3
