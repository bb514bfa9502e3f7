"""Appending, correcting and removing items, and reading them back."""

from __future__ import annotations

import pytest

from secondcall.abc import Batch, EntryKey, Header, NewEntry, Store
from secondcall.errors import UserErased, VersionConflict
from secondcall.testing.conformance.material import (
    EPOCH,
    NOW_US,
    SCOPE,
    YEAR_1_US,
    YEAR_9999_US,
    StoreSuite,
    all_changes,
    document,
    entry,
    key,
    record,
    total,
)

__all__ = ["EntriesSuite"]


async def _ids(
    store: Store,
    *,
    session_id: str | None = None,
    since_us: int | None = None,
    until_us: int | None = None,
    newest_first: bool = False,
    limit: int = 1_000,
) -> list[str]:
    found = await store.read(
        SCOPE,
        session_id=session_id,
        since_us=since_us,
        until_us=until_us,
        newest_first=newest_first,
        limit=limit,
    )
    return [one.key.id for one in found]


async def _remove(store: Store, *keys: EntryKey) -> int:
    written = await store.write(SCOPE, Batch(removals=keys), epoch=EPOCH, now_us=NOW_US)
    return written.removed


class EntriesSuite(StoreSuite):
    """Order, idempotence, corrections, removals, paging and outlines."""

    async def test_absent_partition_is_empty(self, store: Store) -> None:
        """What was never written has no header and no rows, and reading it makes none."""
        assert await store.header(SCOPE) is None
        assert list(await store.changes(SCOPE, after=0, limit=10)) == []
        assert list(await store.entries(SCOPE, [key("a")])) == []
        assert list(await store.read(SCOPE, limit=10)) == []
        assert list(await store.read(SCOPE, session_id="s", limit=10)) == []
        assert list(await store.sessions(SCOPE, limit=10)) == []
        assert await total(store) == 0
        assert list(await store.scopes("tenant", "user", limit=10)) == []

    async def test_absent_partition_is_made_only_on_demand(self, store: Store) -> None:
        """Without ``create`` a write to an absent partition is refused and makes nothing."""
        with pytest.raises(UserErased):
            await store.write(SCOPE, Batch(entries=[entry("a")]), epoch=EPOCH, now_us=NOW_US)
        assert await store.header(SCOPE) is None
        assert await total(store) == 0

    async def test_empty_batch_makes_the_partition(self, store: Store) -> None:
        """An empty write with ``create`` leaves a header without changes."""
        written = await record(store)
        assert (written.first_change, written.change) == (1, 0)
        assert await store.header(SCOPE) == Header(epoch=EPOCH, change=0)

    async def test_entry_is_kept_as_it_came(self, store: Store) -> None:
        """Every field of an entry comes back, and any bytes as its body."""
        bodies = [b"", b"\x00\xff\x00", bytes(range(256)) * 5_000]
        for number, body in enumerate(bodies, start=1):
            new = NewEntry(
                key=EntryKey("s", "tool_call", f"i{number}"),
                at_us=NOW_US + number,
                body=body,
                digest=bytes([number]),
            )
            await record(store, new)
            (found,) = await store.entries(SCOPE, [new.key])
            assert (found.key, found.at_us, found.body) == (new.key, new.at_us, body)
            assert (found.change, found.position, found.recorded_us) == (number, number, NOW_US)

    async def test_numbers_follow_the_order_of_the_batch(self, store: Store) -> None:
        """Entries take the first numbers, then removals, then announced documents."""
        await record(store, entry("old"))
        written = await store.write(
            SCOPE,
            Batch(
                documents=[document("d", announce=True), document("silent")],
                removals=[key("old")],
                entries=[entry("b"), entry("a")],
            ),
            epoch=EPOCH,
            now_us=NOW_US,
        )
        assert list(written.outcomes) == ["added", "added"]
        assert list(written.entry_changes) == [2, 3]
        assert (written.removed, written.first_change, written.change) == (1, 2, 5)
        changes = await all_changes(store)
        assert [change.kind for change in changes] == [
            "entry",
            "entry",
            "entry",
            "removal",
            "document",
        ]
        assert [change.key for change in changes[1:4]] == [key("b"), key("a"), key("old")]
        assert changes[4].document == ("fact", "d")

    async def test_repeated_entry_is_unchanged(self, store: Store) -> None:
        """The same key with the same digest takes no number, whether in one batch or two."""
        first = await record(store, entry("a", "one"), entry("a", "one"))
        assert list(first.outcomes) == ["added", "unchanged"]
        assert list(first.entry_changes) == [1, 1]
        again = await record(store, entry("b"), entry("a", "one", at_us=NOW_US + 5))
        assert list(again.outcomes) == ["added", "unchanged"]
        assert list(again.entry_changes) == [2, 1]
        assert (again.first_change, again.change) == (2, 2)
        nothing = await record(store, entry("a", "one"))
        assert (nothing.first_change, nothing.change) == (3, 2)
        assert len(await all_changes(store)) == 2

    async def test_correction_keeps_its_position(self, store: Store) -> None:
        """Another digest replaces what reads return, moves in time and keeps the position."""
        await record(store, entry("a", "one"), entry("b", "two"))
        written = await record(store, entry("a", "corrected", at_us=NOW_US + 9))
        assert list(written.outcomes) == ["corrected"]
        assert list(written.entry_changes) == [3]
        (found,) = await store.entries(SCOPE, [key("a")])
        assert (found.body, found.at_us) == (b"corrected", NOW_US + 9)
        assert (found.change, found.position) == (3, 1)
        assert await _ids(store) == ["b", "a"]
        await record(store, entry("a", "again", at_us=NOW_US))
        assert await _ids(store) == ["a", "b"]
        assert await _ids(store, session_id="s") == ["a", "b"]

    async def test_correction_back_to_an_older_content_counts(self, store: Store) -> None:
        """Only the newest content makes a repeat: an older one is a correction again."""
        await record(store, entry("a", "one"), entry("a", "two"))
        written = await record(store, entry("a", "one"))
        assert list(written.outcomes) == ["corrected"]
        (found,) = await store.entries(SCOPE, [key("a")])
        assert (found.body, found.change, found.position) == (b"one", 3, 1)

    async def test_correction_without_a_time_keeps_the_old_one(self, store: Store) -> None:
        """An entry that ``keeps_time`` corrects the words and not when they were said."""
        await record(store, entry("a", "one", at_us=NOW_US - 7))
        await record(store, entry("a", "two", keeps_time=True), entry("b", keeps_time=True))
        found = await store.entries(SCOPE, [key("a"), key("b")])
        assert [(one.body, one.at_us) for one in found] == [
            (b"two", NOW_US - 7),
            (b"words", NOW_US),
        ]
        correction = (await all_changes(store))[1]
        assert correction.entry is not None
        assert correction.entry.at_us == NOW_US - 7

    async def test_log_keeps_what_was_corrected(self, store: Store) -> None:
        """The change log carries each entry as it was appended, with its first position."""
        await record(store, entry("a", "one"), entry("b"), entry("a", "two"))
        entries = [change.entry for change in await all_changes(store)]
        assert [one and one.body for one in entries] == [b"one", b"words", b"two"]
        assert [one and one.position for one in entries] == [1, 2, 1]

    async def test_same_id_elsewhere_is_another_item(self, store: Store) -> None:
        """An id in another session, or of another kind, does not correct the first."""
        call = NewEntry(key=EntryKey("s", "tool_call", "a"), at_us=NOW_US, body=b"c", digest=b"c")
        written = await record(store, entry("a", "1"), entry("a", "2", session_id="t"), call)
        assert list(written.outcomes) == ["added"] * 3
        found = await store.entries(SCOPE, [key("a"), key("a", "t"), call.key])
        assert [one.body for one in found] == [b"1", b"2", b"c"]

    async def test_removal_blanks_every_entry_of_an_item(self, store: Store) -> None:
        """A removed item is read nowhere, and its entries in the log have no content."""
        await record(store, entry("a", "one"), entry("b"), entry("a", "two"), entry("a", "three"))
        assert await _remove(store, key("a"), key("absent"), key("a")) == 1
        assert list(await store.entries(SCOPE, [key("a")])) == []
        assert await _ids(store) == ["b"]
        assert await _ids(store, session_id="s") == ["b"]
        changes = await all_changes(store)
        assert [change.kind for change in changes] == ["entry"] * 4 + ["removal"]
        assert [change.entry is None for change in changes] == [True, False, True, True, True]
        assert {change.key for change in changes if change.entry is None} == {key("a")}

    async def test_removed_item_may_come_back(self, store: Store) -> None:
        """After its removal an item is new: added, at a new position, also with the old words."""
        await record(store, entry("a", "one"), entry("b"))
        await _remove(store, key("a"))
        written = await record(store, entry("a", "one"))
        assert list(written.outcomes) == ["added"]
        (found,) = await store.entries(SCOPE, [key("a")])
        assert (found.change, found.position) == (4, 4)
        assert await _remove(store, key("a")) == 1
        assert await _ids(store) == ["b"]
        assert [change.entry is None for change in await all_changes(store)] == [
            True,
            False,
            True,
            True,
            True,
        ]

    async def test_removal_in_the_batch_that_appends(self, store: Store) -> None:
        """A removal sees the entries of its own batch, whose bodies are then not kept."""
        written = await store.write(
            SCOPE,
            Batch(entries=[entry("a")], removals=[key("a")]),
            epoch=EPOCH,
            now_us=NOW_US,
            create=True,
        )
        assert (written.removed, written.change) == (1, 2)
        assert [change.entry for change in await all_changes(store)] == [None, None]

    async def test_absent_items_are_removed_without_a_number(self, store: Store) -> None:
        """Removing what is not there, also in an unknown session, changes nothing."""
        await record(store, entry("a"))
        assert await _remove(store, key("x"), key("a", "unknown")) == 0
        assert len(await all_changes(store)) == 1

    async def test_changes_come_in_pages(self, store: Store) -> None:
        """Pages of the log follow each other without gap or repeat, to an empty one."""
        await record(store, *(entry(f"i{number}") for number in range(25)))
        seen: list[int] = []
        while page := await store.changes(SCOPE, after=len(seen), limit=7):
            assert len(page) <= 7
            seen += [change.number for change in page]
        assert seen == list(range(1, 26))
        assert list(await store.changes(SCOPE, after=99, limit=7)) == []

    async def test_entries_come_in_the_order_of_their_keys(self, store: Store) -> None:
        """Known keys give their entries in the order asked, unknown ones nothing."""
        await record(store, entry("a"), entry("b"), entry("c", session_id="t"))
        asked = [key("c", "t"), key("x"), key("a"), key("c"), key("b")]
        found = await store.entries(SCOPE, asked)
        assert [one.key for one in found] == [key("c", "t"), key("a"), key("b")]

    async def test_reading_order_is_time_then_position(self, store: Store) -> None:
        """Late items go where their time puts them, equal times keep the order of arrival."""
        times = {"z": 5, "y": 3, "x": 5, "w": -4, "v": 3}
        for item_id, at_us in times.items():
            session_id = "s" if item_id in "zw" else "t"
            await record(store, entry(item_id, at_us=at_us, session_id=session_id))
        assert await _ids(store) == ["w", "y", "v", "z", "x"]
        assert await _ids(store, newest_first=True) == ["x", "z", "v", "y", "w"]
        assert await _ids(store, session_id="s") == ["w", "z"]
        assert await _ids(store, session_id="t", newest_first=True) == ["x", "v", "y"]
        assert await _ids(store, limit=2) == ["w", "y"]
        assert await _ids(store, limit=2, newest_first=True) == ["x", "z"]

    async def test_time_bounds_are_half_open(self, store: Store) -> None:
        """``since_us`` is included, ``until_us`` is not, in both directions and in a session."""
        await record(store, *(entry(f"i{at_us}", at_us=at_us) for at_us in (-1, 0, 1, 2, 3)))
        for session_id in (None, "s"):
            assert await _ids(store, since_us=0, until_us=2, session_id=session_id) == ["i0", "i1"]
            assert await _ids(store, since_us=2, session_id=session_id) == ["i2", "i3"]
            assert await _ids(store, until_us=0, session_id=session_id) == ["i-1"]
            assert await _ids(
                store, since_us=0, until_us=3, newest_first=True, session_id=session_id
            ) == ["i2", "i1", "i0"]
            assert await _ids(store, since_us=2, until_us=2, session_id=session_id) == []

    async def test_reading_comes_in_pages(self, store: Store) -> None:
        """Pages in either direction give everything once, through equal times and bounds."""
        await record(store, *(entry(f"i{n:02}", at_us=n // 4) for n in range(30)))
        expected = [f"i{n:02}" for n in range(4, 28)]
        for newest_first in (False, True):
            seen: list[str] = []
            after: tuple[int, int] | None = None
            while page := await store.read(
                SCOPE, since_us=1, until_us=7, after=after, newest_first=newest_first, limit=5
            ):
                seen += [one.key.id for one in page]
                after = (page[-1].at_us, page[-1].position)
            assert seen == (expected[::-1] if newest_first else expected)

    async def test_times_from_year_1_to_9999(self, store: Store) -> None:
        """The first and the last microsecond that a datetime can hold are kept and ordered."""
        await record(store, entry("last", at_us=YEAR_9999_US), entry("first", at_us=YEAR_1_US))
        assert await _ids(store) == ["first", "last"]
        assert await _ids(store, since_us=YEAR_1_US, until_us=YEAR_9999_US) == ["first"]
        (outline,) = await store.sessions(SCOPE, limit=5)
        assert (outline.first_us, outline.last_us) == (YEAR_1_US, YEAR_9999_US)

    async def test_sessions_show_what_they_hold(self, store: Store) -> None:
        """Outlines follow additions, corrections and removals; an empty session is not listed."""
        await record(store, entry("a", at_us=10), entry("b", at_us=20), entry("c", at_us=30))

        async def outline() -> list[tuple[str, int, int, int]]:
            found = await store.sessions(SCOPE, limit=5)
            return [(one.session_id, one.first_us, one.last_us, one.items) for one in found]

        assert await outline() == [("s", 10, 30, 3)]
        await record(store, entry("c", "earlier", at_us=15), entry("a", "later", at_us=17))
        assert await outline() == [("s", 15, 20, 3)]
        await _remove(store, key("b"))
        assert await outline() == [("s", 15, 17, 2)]
        await _remove(store, key("a"), key("c"))
        assert await outline() == []
        await record(store, entry("d", at_us=1))
        assert await outline() == [("s", 1, 1, 1)]

    async def test_sessions_come_newest_first_in_pages(self, store: Store) -> None:
        """Sessions are ordered by their last time, ties by id, both downwards, page by page."""
        ends = {"a": 5, "b": 7, "c": 5, "d": 9, "e": 5}
        await record(store, *(entry("i", session_id=one, at_us=at) for one, at in ends.items()))
        seen: list[str] = []
        after: tuple[int, str] | None = None
        while page := await store.sessions(SCOPE, limit=2, after=after):
            seen += [one.session_id for one in page]
            after = (page[-1].last_us, page[-1].session_id)
        assert seen == ["d", "b", "e", "c", "a"]

    async def test_refused_batch_leaves_nothing(self, store: Store) -> None:
        """A large batch whose last document conflicts changes no row, number or outline."""
        await record(store, entry("kept", "kept"))
        batch = Batch(
            entries=[
                *(entry(f"i{n}", session_id=f"s{n % 7}") for n in range(2_000)),
                entry("kept", "corrected"),
            ],
            removals=[key("kept")],
            documents=[document("d", announce=True), document("e", expected=3)],
        )
        before = await store.scan(SCOPE)
        with pytest.raises(VersionConflict):
            await store.write(SCOPE, batch, epoch=EPOCH, now_us=NOW_US)
        assert await store.scan(SCOPE) == before
        (found,) = await store.entries(SCOPE, [key("kept")])
        assert found.body == b"kept"
        assert len(await all_changes(store)) == 1
        assert await store.document(SCOPE, "fact", "d") is None
        assert [one.session_id for one in await store.sessions(SCOPE, limit=20)] == ["s"]

    async def test_refused_first_batch_makes_no_partition(self, store: Store) -> None:
        """A conflict in the write that would have made the partition leaves none."""
        with pytest.raises(VersionConflict):
            await store.write(
                SCOPE,
                Batch(entries=[entry("a")], documents=[document("d", expected=1)]),
                epoch=EPOCH,
                now_us=NOW_US,
                create=True,
            )
        assert await store.header(SCOPE) is None
        assert await total(store) == 0

    async def test_large_batch_takes_numbers_in_order(self, store: Store) -> None:
        """A batch of 3,000 entries is numbered one by one in the order given."""
        written = await record(store, *(entry(f"i{n}", f"{n}") for n in range(3_000)))
        assert list(written.entry_changes) == list(range(1, 3_001))
        changes = await all_changes(store)
        assert [change.entry and change.entry.body for change in changes] == [
            str(n).encode() for n in range(3_000)
        ]
