"""Bytes that are attached to items: written with them, read in any process, gone with them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from secondcall import InvalidValue, Memory, Message, StoreCorrupt, TooLarge, ToolCall
from secondcall.abc import ANY_VERSION, Batch, DocumentWrite, Scope
from secondcall.memory import attached
from secondcall.memory.listed import Arrangement
from secondcall.stores.memory import MemoryStore
from secondcall.testing.fakes import FrozenClock
from secondcall.types import ItemKey

_ONE = ("message", "m")
_SCOPE = Scope("default", "user", "ana")


def _message() -> Message:
    return Message("user", "see", id="m")


@pytest.mark.parametrize("size", [0, 1, 5 * 1024 * 1024])
async def test_what_is_attached_comes_back(tmp_path: Path, size: int) -> None:
    """Bytes of any size come back in another process's memory; items without any are left out."""
    url = f"sqlite:///{(tmp_path / 'memory.db').as_posix()}"
    data = bytes(range(256)) * (size // 256 + 1)
    async with Memory.open(url) as memory:
        session = await memory.user("ana").session("s")
        items = [_message(), ToolCall("t", None, call_id="c")]
        await session.listed().append(items, {_ONE: data[:size]})
    async with Memory.open(url) as memory:
        session = await memory.user("ana").session("s")
        found = await session.listed().attached([_ONE, ("tool_call", "c"), ("tool_call", "m")])
        assert found == {_ONE: data[:size]}
        assert len(await session.items()) == 2


async def test_the_same_id_elsewhere_has_nothing(memory: Memory) -> None:
    """The same item id in another session or of another user has none of it."""
    session = await memory.user("ana").session("s")
    await session.listed().append([_message()], {_ONE: b"x"})
    for user_id, session_id in (("ana", "s2"), ("bob", "s")):
        other = await memory.user(user_id).session(session_id)
        await other.record(_message())
        assert await other.listed().attached([_ONE]) == {}


async def test_a_refused_batch_attaches_nothing(memory: Memory) -> None:
    """Bytes of no item of the batch, and more than 128 MiB, are refused, and nothing is written."""
    session = await memory.user("ana").session("s")
    with pytest.raises(InvalidValue, match="no item of this batch"):
        await session.listed().append([_message()], {("message", "other"): b"x"})
    large = bytes(attached.MAX_ATTACHED_BYTES + 1)
    with pytest.raises(TooLarge, match="'m'"):
        await session.listed().append([_message()], {_ONE: large})
    assert await session.items() == []


async def test_new_items_of_an_arrangement_bring_theirs(memory: Memory) -> None:
    """What is attached to new items of an arrangement is written with it."""
    session = await memory.user("ana").session("s")
    await session.listed().arrange(
        lambda _: Arrangement(active=[_message()], attached={_ONE: b"x"})
    )
    assert await session.listed().attached([_ONE]) == {_ONE: b"x"}


@pytest.mark.parametrize("way", ["remove", "clear", "forget", "expire", "correct"])
async def test_it_goes_with_its_item(way: str) -> None:
    """Removing the item, clearing the list, forgetting the user and the end of its time take what
    is attached with them, every piece of it; other items keep theirs."""
    clock = FrozenClock(datetime(2026, 3, 1, tzinfo=UTC))
    store = MemoryStore()
    async with Memory.open(store, clock=clock, retain="10d") as memory:
        user = memory.user("ana")
        session = await user.session("s")
        await session.listed().append([_message()], {_ONE: bytes(9 * 1024 * 1024)})
        if way == "correct":  # fewer pieces than before
            await session.listed().append([Message("user", "hm", id="m")], {_ONE: b"x"})
        clock.advance(timedelta(days=6))
        other = ("message", "n")
        await session.listed().append([Message("user", "later", id="n")], {other: b"y"})
        if way in ("remove", "correct"):
            assert await user.remove([ItemKey("ana", "s", "message", "m")]) == 1
        elif way == "clear":
            await session.listed().clear()
        elif way == "forget":
            await user.forget()
        else:
            clock.advance(timedelta(days=6))
            await user.sweep()
        left = await store.documents(_SCOPE, "attachment", limit=100)
        whole = way in ("clear", "forget")
        assert [one.body for one in left if one.body == b"y"] == ([] if whole else [b"y"])
        assert len(left) == (0 if whole else 2)


async def test_what_cannot_be_read_is_named_and_can_be_removed() -> None:
    """Damaged bytes are refused with the item's name, and go with the item all the same."""
    store = MemoryStore()
    async with Memory.open(store) as memory:
        session = await memory.user("ana").session("s")
        await session.listed().append([_message()], {_ONE: b"as it was"})
        header = await store.header(_SCOPE)
        assert header is not None
        for document in await store.documents(_SCOPE, "attachment", limit=10):
            write = DocumentWrite(
                kind="attachment", key=document.key, body=b"{}", expected_version=ANY_VERSION
            )
            await store.write(_SCOPE, Batch(documents=[write]), epoch=header.epoch, now_us=0)
        with pytest.raises(StoreCorrupt, match="'m'"):
            await session.listed().attached([_ONE])
        await session.listed().clear()
        assert await store.documents(_SCOPE, "attachment", limit=10) == []
