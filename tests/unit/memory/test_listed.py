from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest

from secondcall import (
    InvalidValue,
    ItemKey,
    Memory,
    Message,
    SchemaTooNew,
    SessionMemory,
    StoreCorrupt,
    SyncMemory,
)
from secondcall.abc import ANY_VERSION, Batch, DocumentWrite, Scope
from secondcall.memory.listed import Arrangement, ListedSession, Listing
from secondcall.stores.memory import MemoryStore
from secondcall.testing.fakes import FrozenClock


async def _session(memory: Memory, *texts: str, user_id: str = "ana") -> SessionMemory:
    session = await memory.user(user_id).session("s")
    if texts:
        await session.record(*(Message("user", text, id=text) for text in texts))
    return session


def _texts(items: object) -> list[str]:
    assert isinstance(items, list | tuple)
    return [one.item.text for one in items]  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - recorded items


async def _active(listed: ListedSession) -> list[str]:
    return _texts((await listed.read()).active)


def _order(*texts: str) -> Callable[[Listing], Arrangement]:
    """The active items by their text, a new message where none has it."""

    def change(stands: Listing) -> Arrangement:
        by_text = {one.key.id: one for one in stands.active}
        return Arrangement(
            active=[by_text.get(text) or Message("user", text, id=text) for text in texts],
            archived=stands.archived,
        )

    return change


async def test_a_list_begins_as_the_record(memory: Memory) -> None:
    """Without an arrangement the list is what was recorded, in order."""
    session = await _session(memory, "a", "b")
    assert await _active(session.listed()) == ["a", "b"]


async def test_a_replaced_item_stays_in_the_record(memory: Memory) -> None:
    """What an arrangement leaves out is no longer listed, and still recorded and recalled."""
    session = await _session(memory, "the vendor is Acme", "b")
    await session.listed().arrange(_order("summary", "b"))
    assert await _active(session.listed()) == ["summary", "b"]
    assert len(await session.items()) == 3
    found = await session.user.recall("who is the vendor?")
    assert "the vendor is Acme" in _texts(list(found.items))


async def test_what_is_recorded_later_follows_the_arrangement(memory: Memory) -> None:
    """Items recorded after an arrangement, through any handle, are at the end of the list."""
    session = await _session(memory, "a", "b", "c")
    await session.listed().arrange(_order("c", "a"))
    await (await _session(memory)).record(Message("user", "d", id="d"))
    assert await _active(session.listed()) == ["c", "a", "d"]
    await session.listed().arrange(_order("d", "x", "a"))
    assert await _active(session.listed()) == ["d", "x", "a"]


async def test_an_item_that_comes_while_the_list_is_replaced_is_kept(tmp_path: Path) -> None:
    """What another process records between reading and rearranging is at the end of the list."""
    url = f"sqlite:///{(tmp_path / 'memory.db').as_posix()}"
    async with Memory.open(url) as memory:
        session = await _session(memory, "a")
        with SyncMemory.open(url) as elsewhere:
            other = elsewhere.user("ana").session("s")

            def change(stands: Listing) -> Arrangement:
                other.record(Message("user", "late", id="late"))
                return _order("z")(stands)

            await session.listed().arrange(change)
        assert await _active(session.listed()) == ["z", "late"]


async def test_archived_items_are_listed_apart(memory: Memory) -> None:
    """Archiving moves items out of the list into the archive, in order."""
    session = await _session(memory, "a", "b", "c")

    def archive(stands: Listing) -> Arrangement:
        return Arrangement(
            active=stands.active[1:], archived=[*stands.archived, *stands.active[:1]]
        )

    await session.listed().arrange(archive)
    await session.listed().arrange(archive)
    listing = await session.listed().read()
    assert (_texts(listing.active), _texts(listing.archived)) == (["c"], ["a", "b"])


async def test_rivals_both_rearrange(memory: Memory) -> None:
    """Twenty handles that archive one item each at the same time archive twenty."""
    texts = [f"m{number}" for number in range(20)]
    session = await _session(memory, *texts)

    async def one() -> None:
        own = await memory.user("ana").session("s")
        await own.listed().arrange(
            lambda stands: Arrangement(
                active=stands.active[1:], archived=[*stands.archived, stands.active[0]]
            )
        )

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(one)
    listing = await session.listed().read()
    assert (_texts(listing.active), _texts(listing.archived)) == ([], texts)


async def test_a_refused_item_leaves_the_list_as_it_was(memory: Memory) -> None:
    """When a new item is refused, nothing of the arrangement is written."""
    session = await _session(memory, "a", "b")
    with pytest.raises(InvalidValue, match="role"):
        await session.listed().arrange(
            lambda _: Arrangement(active=[Message("nobody", "x")])  # pyright: ignore[reportArgumentType] - refused
        )
    assert await _active(session.listed()) == ["a", "b"]


async def test_removed_items_are_gone_for_good(memory: Memory) -> None:
    """``remove`` and ``clear`` take items out of the record, those that were replaced too."""
    session = await _session(memory, "a", "b", "c")
    listed = session.listed()
    await listed.arrange(_order("b", "c"))
    assert await listed.remove([ItemKey("ana", "s", "message", "b")]) == 1
    assert await _active(listed) == ["c"]
    assert await listed.clear() == 2
    assert await _active(listed) == []
    assert await session.items() == []
    await session.record(Message("user", "new", id="new"))
    assert await _active(listed) == ["new"]


async def test_clocks_that_disagree_do_not_shuffle_the_list(tmp_path: Path) -> None:
    """The list is in the order of recording, whatever the clocks of those who record say."""
    url = f"sqlite:///{(tmp_path / 'memory.db').as_posix()}"
    now = datetime(2026, 3, 1, tzinfo=UTC)
    async with (
        Memory.open(url, clock=FrozenClock(now)) as first,
        Memory.open(url, clock=FrozenClock(now - timedelta(hours=1))) as behind,
    ):
        await _session(first, "a")
        await _session(behind, "b")
        session = await _session(first, "c")
        assert await _active(session.listed()) == ["a", "b", "c"]


async def test_a_long_arrangement_is_small(memory: Memory) -> None:
    """The document names runs of items, not each of 600."""
    texts = [f"m{number}" for number in range(600)]
    session = await _session(memory, *texts)
    await session.listed().arrange(
        lambda stands: Arrangement(active=stands.active[500:], archived=stands.active[:500])
    )
    listing = await session.listed().read()
    assert _texts(listing.active) == texts[500:]
    assert _texts(listing.archived) == texts[:500]


async def test_lists_of_users_are_apart(memory: Memory) -> None:
    """The same session id under two users is two lists."""
    ana, bob = await _session(memory, "a"), await _session(memory, "b", user_id="bob")
    await ana.listed().clear()
    assert await _active(ana.listed()) == []
    assert await _active(bob.listed()) == ["b"]


@pytest.mark.parametrize(
    ("body", "error"), [(b'{"v": 1}', StoreCorrupt), (b'{"v": 2}', SchemaTooNew)]
)
async def test_a_listing_that_cannot_be_read_is_named(body: bytes, error: type[Exception]) -> None:
    """A damaged listing, and one of a newer release, are refused with the session's name."""
    store = MemoryStore()
    async with Memory.open(store) as memory:
        session = await _session(memory, "a")
        scope = Scope("default", "user", "ana")
        header = await store.header(scope)
        assert header is not None
        write = DocumentWrite(kind="listing", key="s", body=body, expected_version=ANY_VERSION)
        await store.write(scope, Batch(documents=[write]), epoch=header.epoch, now_us=0)
        with pytest.raises(error, match="'s'"):
            await session.listed().read()


async def test_a_list_that_did_not_change_is_not_put_together_again(memory: Memory) -> None:
    """Reading again gives the same list; what was recorded since stands behind it, whoever did."""
    session = await _session(memory, "a", "b")
    listed = session.listed()
    await listed.arrange(_order("b", "a"))
    first = await listed.read()
    assert await listed.read() is first
    await (await _session(memory)).record(Message("user", "c", id="c"))
    grown = await listed.read()
    assert _texts(grown.active) == ["b", "a", "c"]
    assert (grown.placed, grown.version) == (2, first.version)
    assert grown.active[1] is first.active[1]
    assert _texts(first.active) == ["b", "a"]
    other = await memory.user("ana").session("elsewhere")
    await other.record(Message("user", "x"))
    assert await listed.read() is grown


async def test_every_other_change_is_seen(memory: Memory) -> None:
    """A correction, a removal and another's arrangement are in the list that is read next."""
    session = await _session(memory, "a", "b", "c")
    listed = session.listed()
    assert (await listed.read()).version is None
    await session.record(Message("user", "b, corrected", id="b"))
    assert await _active(listed) == ["a", "b, corrected", "c"]
    await session.user.remove([ItemKey("ana", "s", "message", "a")])
    assert await _active(listed) == ["b, corrected", "c"]
    await (await _session(memory)).listed().arrange(_order("c", "new"))
    assert await _active(listed) == ["c", "new"]
    await session.record(Message("user", "last", id="last"))
    assert await _active(listed) == ["c", "new", "last"]


async def test_a_list_is_new_for_a_user_who_returns(memory: Memory) -> None:
    """After the user was forgotten a new handle's list begins with what is recorded then."""
    session = await _session(memory, "a")
    await session.listed().arrange(_order("b"))
    await memory.user("ana").forget()
    again = await _session(memory, "c")
    assert await _active(again.listed()) == ["c"]


async def test_what_ran_out_leaves_a_list_that_was_read(tmp_path: Path) -> None:
    """What runs out by time alone is not in the list that is read next."""
    clock = FrozenClock(datetime(2026, 3, 1, tzinfo=UTC))
    async with Memory.open("memory://", clock=clock, retain="2d") as memory:
        session = await _session(memory, "a")
        clock.advance(timedelta(days=1))
        await session.record(Message("user", "b", id="b"))
        assert await _active(session.listed()) == ["a", "b"]
        clock.advance(timedelta(days=1, hours=1))
        assert await _active(session.listed()) == ["b"]


async def test_a_merged_user_has_one_list(memory: Memory) -> None:
    """The items of a user who is merged into another stand in one list with theirs, and leave it
    when they are parted."""
    await _session(memory, "a", user_id="bob")
    session = await _session(memory, "b")
    assert await _active(session.listed()) == ["b"]
    await memory.merge("bob", "ana")
    assert await _active(session.listed()) == ["a", "b"]
    await memory.unmerge("bob")
    assert await _active(session.listed()) == ["b"]


async def test_reads_that_overlap_with_writes(memory: Memory) -> None:
    """Lists that are read while items come and the list is rearranged hold each item once at most,
    and at the end all of them."""
    session = await _session(memory, "a")
    listed = session.listed()
    seen: list[list[str]] = []

    async def write() -> None:
        for number in range(20):
            await session.record(Message("user", f"m{number}", id=f"m{number}"))
            if number % 5 == 0:
                await listed.arrange(lambda stands: Arrangement(active=stands.active[::-1]))

    async def read() -> None:
        seen.extend([await _active(listed) for _ in range(20)])

    async with anyio.create_task_group() as group:
        for work in (write, read, read):
            group.start_soon(work)
    assert all(len(set(one)) == len(one) for one in seen)
    assert sorted(await _active(listed)) == sorted(["a", *(f"m{n}" for n in range(20))])
