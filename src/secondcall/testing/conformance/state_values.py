"""Versions, conflicts, deletion, history and lists of states."""

from __future__ import annotations

import pytest

from secondcall.abc_state import StateConflict, StateStore, StoredState
from secondcall.errors import InvalidValue
from secondcall.testing.conformance.state_material import (
    EPOCH,
    KEY,
    NOW_US,
    WIDE,
    StateSuite,
    all_history,
    save,
    session,
)

__all__ = ["StateValuesSuite"]

HARD_BODIES = [b"", b"\x00", bytes(range(256)), b"{}", "🙂".encode(), b"x" * 300_000]


async def _delete(store: StateStore, expected: int | None) -> None:
    assert expected is not None
    await store.delete(KEY, expected_version=expected, epoch=EPOCH, now_us=NOW_US, by="test")


async def _refused(
    store: StateStore, expected: int | None, current: StoredState | None, *, delete: bool = False
) -> None:
    """A save or deletion at this version is refused, with what is there, and leaves nothing."""
    before = await store.scan(KEY.tenant_id, KEY.user_id)
    with pytest.raises(StateConflict) as caught:
        await (_delete(store, expected) if delete else save(store, b"refused", expected=expected))
    found = None if current is None else current.version
    assert (caught.value.expected, caught.value.found) == (expected, found)
    assert caught.value.current == current
    assert await store.load(KEY) == current
    assert await store.scan(KEY.tenant_id, KEY.user_id) == before


class StateValuesSuite(StateSuite):
    """A state changes only from the version that the writer knew, and every version is kept."""

    async def test_absent_state_is_none(self, states: StateStore) -> None:
        """What was never saved is absent, without history, and in no list."""
        for key in (KEY, WIDE, session("s", "nobody")):
            assert await states.load(key) is None
            assert list(await states.history(key, limit=9)) == []
            assert list(await states.list(key.tenant_id, key.user_id, limit=9)) == []
            assert await states.trim_history(key, keep=0) == 0

    async def test_state_comes_back_as_it_was_saved(self, states: StateStore) -> None:
        """Every field and any bytes come back from ``save``, ``load`` and ``history`` alike."""
        version = None
        for number, body in enumerate(HARD_BODIES, 1):
            saved = await states.save(
                KEY,
                body,
                expected_version=version,
                epoch=EPOCH,
                now_us=NOW_US - number,
                by=f"writer {number} é🙂",
                summary=b'{"n": %d}' % number,
                schema=number,
                expires_us=NOW_US + number,
                due_us=-number,
            )
            assert saved == StoredState(
                key=KEY,
                version=number,
                body=body,
                updated_us=NOW_US - number,
                updated_by=f"writer {number} é🙂",
                schema=number,
                expires_us=NOW_US + number,
                due_us=-number,
            )
            assert await states.load(KEY) == saved
            (newest,) = await states.history(KEY, limit=1)
            assert (newest.version, newest.at_us, newest.by) == (
                number,
                saved.updated_us,
                saved.updated_by,
            )
            assert (newest.body, newest.schema) == (body, number)
            assert newest.summary == b'{"n": %d}' % number
            version = number
        assert [one.body for one in await all_history(states)] == HARD_BODIES

    async def test_first_version_is_1(self, states: StateStore) -> None:
        """Saved if absent, a state has version 1; each further save takes the next number."""
        assert (await save(states)).version == 1
        for version in range(1, 6):
            assert (await save(states, b"same", expected=version)).version == version + 1

    async def test_save_if_absent_leaves_what_is_there(self, states: StateStore) -> None:
        """Who believes that the state is absent is told what is there."""
        await _refused(states, None, await save(states, b"first"))
        await _refused(states, None, await save(states, b"second", expected=1))

    async def test_other_versions_are_refused(self, states: StateStore) -> None:
        """An old version, one from the future, and any version of what is absent are conflicts."""
        for delete in (False, True):
            await _refused(states, 1, None, delete=delete)
            await _refused(states, 2**40, None, delete=delete)
        await save(states, b"1")
        current = await save(states, b"2", expected=1)
        for delete in (False, True):
            for expected in (1, 3, 2**40, 2**63 - 1):
                await _refused(states, expected, current, delete=delete)

    async def test_deleted_state_is_absent(self, states: StateStore) -> None:
        """After a deletion nothing is loaded or listed, and a save must expect nothing there."""
        await save(states, b"1")
        await _delete(states, 1)
        assert await states.load(KEY) is None
        assert list(await states.list(KEY.tenant_id, KEY.user_id, limit=9)) == []
        for expected in (1, 2):
            await _refused(states, expected, None)
            await _refused(states, expected, None, delete=True)

    async def test_versions_go_on_over_a_deletion(self, states: StateStore) -> None:
        """A deletion takes a version, and what is saved after it the next one: none comes twice."""
        await save(states, b"1")
        for version in (1, 3, 5):
            await states.delete(
                KEY, expected_version=version, epoch=EPOCH, now_us=NOW_US, by="who", summary=b"gone"
            )
            assert (await save(states, b"again")).version == version + 2
        changes = await all_history(states)
        assert [one.body for one in changes] == [b"1", *[None, b"again"] * 3]
        assert (changes[1].by, changes[1].at_us, changes[1].summary) == ("who", NOW_US, b"gone")

    async def test_expiry_is_the_callers(self, states: StateStore) -> None:
        """A state whose time has passed is loaded with that time; the next save sets it anew."""
        await save(states, expires_us=NOW_US - 1)
        found = await states.load(KEY)
        assert found is not None
        assert found.expires_us == NOW_US - 1
        assert (await save(states, expected=1)).expires_us is None
        found = await states.load(KEY)
        assert found is not None
        assert found.expires_us is None

    async def test_clocks_that_jump_change_nothing(self, states: StateStore) -> None:
        """Versions decide and times do not: a writer whose clock is behind is no older."""
        await save(states, b"late", now_us=NOW_US)
        await save(states, b"early", expected=1, now_us=NOW_US - 10**12)
        found = await states.load(KEY)
        assert found is not None
        assert (found.body, found.updated_us) == (b"early", NOW_US - 10**12)
        assert [one.body for one in await all_history(states)] == [b"late", b"early"]

    async def test_history_comes_newest_first(self, states: StateStore) -> None:
        """A page has the newest changes below ``before``, and deletions are among them."""
        for version in range(20):
            await save(states, b"%d" % (version + 1), expected=version or None)
        await _delete(states, 20)
        seen: list[int] = []
        before = None
        while page := await states.history(KEY, limit=8, before=before):
            assert len(page) <= 8
            assert before is None or page[0].version < before
            seen += [one.version for one in page]
            assert all(one.body in (None, b"%d" % one.version) for one in page)
            before = seen[-1]
        assert seen == list(range(21, 0, -1))
        assert list(await states.history(KEY, limit=9, before=1)) == []
        assert [one.version for one in await states.history(KEY, limit=2, before=2**40)] == [21, 20]

    async def test_history_is_trimmed(self, states: StateStore) -> None:
        """Only the newest are kept, and only those since a time; the state itself stays."""
        for version in range(10):
            await save(states, b"x", expected=version or None, now_us=NOW_US + version)
        current = await states.load(KEY)
        assert await states.trim_history(KEY) == 0
        assert await states.trim_history(KEY, keep=10, older_than_us=NOW_US) == 0
        assert await states.trim_history(KEY, keep=7) == 3
        assert await states.trim_history(KEY, older_than_us=NOW_US + 5) == 2
        assert [one.version for one in await states.history(KEY, limit=99)] == [10, 9, 8, 7, 6]
        assert await states.trim_history(KEY, keep=4, older_than_us=NOW_US + 8) == 3
        assert await states.trim_history(KEY, keep=0) == 2
        assert list(await states.history(KEY, limit=9)) == []
        assert await states.load(KEY) == current
        with pytest.raises(InvalidValue):
            await states.trim_history(KEY, keep=-1)

    async def test_versions_go_on_over_a_trimmed_history(self, states: StateStore) -> None:
        """A state that was deleted and has no history left still goes on counting."""
        await save(states, b"1")
        await _delete(states, 1)
        assert await states.trim_history(KEY, keep=0) == 2
        assert (await save(states, b"3")).version == 3

    async def test_long_history_is_trimmed(self, states: StateStore) -> None:
        """A history longer than any step of the store is trimmed to what is asked for."""
        for version in range(260):
            await save(states, b"x", expected=version or None)
        assert await states.trim_history(KEY, keep=5) == 255
        assert [one.version for one in await states.history(KEY, limit=999)] == [
            260,
            259,
            258,
            257,
            256,
        ]

    async def test_states_are_listed_in_order(self, states: StateStore) -> None:
        """The user-wide state comes first, then sessions by code points, page by page."""
        names = ["a", "B", "ä", "\uffff", "🙂", "a ", "aa", "é", "e\u0301", "1", "10", "2"]
        keys = [session(one) for one in sorted(names)]
        for key in [*reversed(keys), WIDE]:
            await save(states, key=key)
        await save(states, key=session("deleted"))
        await states.delete(
            session("deleted"), expected_version=1, epoch=EPOCH, now_us=NOW_US, by="test"
        )
        await states.admit("tenant", "alice2", epoch=EPOCH, now_us=NOW_US)
        await save(states, key=session("other", "alice2"))
        for limit in (1, 3, 100):
            seen = [*await states.list("tenant", "alice", limit=limit)]
            while page := await states.list("tenant", "alice", after=seen[-1], limit=limit):
                assert len(page) <= limit
                assert not set(page) & set(seen)
                seen += page
            assert seen == [WIDE, *keys]
        assert (
            list(await states.list("tenant", "alice", after=session("\U0010ffff"), limit=9)) == []
        )
        with pytest.raises(InvalidValue):
            await states.list("tenant", "alice", after=session("s", "bob"), limit=9)
