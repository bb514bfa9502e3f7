"""Epochs and erasure of states: nothing comes back, and nobody else is touched."""

from __future__ import annotations

import anyio
import pytest

from secondcall.abc_state import StateStore
from secondcall.errors import UserErased
from secondcall.testing.conformance.state_material import (
    EPOCH,
    KEY,
    NOW_US,
    OTHER_EPOCH,
    WIDE,
    StateSuite,
    save,
    session,
    total,
)

__all__ = ["StateErasureSuite"]

_DELETED = session("deleted")


async def _fill(store: StateStore, user_id: str = "alice") -> None:
    for number in range(130):
        key = session(f"s{number % 13}", user_id)
        await save(store, b"%d" % number, key=key, expected=number // 13 or None, due_us=NOW_US)
    await save(store, key=session(None, user_id))
    await save(store, key=session("deleted", user_id))
    await store.delete(
        session("deleted", user_id), expected_version=1, epoch=EPOCH, now_us=NOW_US, by="test"
    )
    await store.claim_due("tenant", now_us=NOW_US, limit=1, holder="me", seconds=60)


async def _refused(store: StateStore, epoch: bytes, user_id: str = "alice") -> None:
    """Every kind of write under this epoch is refused, before any version is compared."""
    before = await store.scan("tenant", user_id)
    for key in (session("s0", user_id), session("new", user_id), session(None, user_id)):
        for expected in (None, 1, 10, 99):
            with pytest.raises(UserErased):
                await save(store, b"late", key=key, expected=expected, epoch=epoch)
            if expected is not None:
                with pytest.raises(UserErased):
                    await store.delete(
                        key, expected_version=expected, epoch=epoch, now_us=NOW_US, by="late"
                    )
    assert await store.scan("tenant", user_id) == before


class StateErasureSuite(StateSuite):
    """The epoch guards every write; erasing empties every place and only of this user."""

    async def test_user_must_be_admitted(self, states: StateStore) -> None:
        """Nothing is written of a user who was not let in, and letting in again does nothing."""
        await _refused(states, EPOCH, "bob")
        assert await total(states, "bob") == 0
        for _ in range(3):
            await states.admit("tenant", "bob", epoch=EPOCH, now_us=NOW_US)
        assert (await save(states, key=session("s", "bob"))).version == 1
        await states.admit("tenant", "bob", epoch=EPOCH, now_us=NOW_US + 1)
        assert (await save(states, key=session("s", "bob"), expected=1)).version == 2

    async def test_other_epoch_is_refused(self, states: StateStore) -> None:
        """Under another epoch nothing is saved, deleted or admitted."""
        await _fill(states)
        await _refused(states, OTHER_EPOCH)
        with pytest.raises(UserErased):
            await states.admit("tenant", "alice", epoch=OTHER_EPOCH, now_us=NOW_US)
        assert (await save(states, key=session("s0"), expected=10)).version == 11

    async def test_erasure_empties_every_place(self, states: StateStore) -> None:
        """After erasing nothing is loaded, listed or scanned, and each place says what went."""
        await _fill(states)
        before = await states.scan("tenant", "alice")
        assert sum(before.values()) >= 15 + 133
        removed = await states.erase("tenant", "alice")
        assert dict(removed) == dict(before)
        assert set((await states.scan("tenant", "alice")).values()) == {0}
        for key in (session("s0"), WIDE, _DELETED):
            assert await states.load(key) is None
            assert list(await states.history(key, limit=9)) == []
            assert await states.trim_history(key, keep=0) == 0
        assert list(await states.list("tenant", "alice", limit=9)) == []

    async def test_erased_epoch_is_refused_for_ever(self, states: StateStore) -> None:
        """What was under way under the erased epoch cannot come back, also after a return."""
        await _fill(states)
        await states.erase("tenant", "alice")
        await _refused(states, EPOCH)
        with pytest.raises(UserErased):
            await states.admit("tenant", "alice", epoch=EPOCH, now_us=NOW_US)
        assert await total(states) == 0
        await states.admit("tenant", "alice", epoch=OTHER_EPOCH, now_us=NOW_US)
        await _refused(states, EPOCH)
        with pytest.raises(UserErased):
            await states.admit("tenant", "alice", epoch=EPOCH, now_us=NOW_US)

    async def test_epoch_is_refused_without_having_been_here(self, states: StateStore) -> None:
        """A user with records and no state yet, once erased, is not let in under that epoch."""
        removed = await states.erase("tenant", "bob", epoch=b"of the record")
        assert set(removed.values()) == {0}
        with pytest.raises(UserErased):
            await states.admit("tenant", "bob", epoch=b"of the record", now_us=NOW_US)
        await _refused(states, b"of the record", "bob")
        await states.admit("tenant", "bob", epoch=OTHER_EPOCH, now_us=NOW_US)
        await states.erase("tenant", "bob", epoch=OTHER_EPOCH)
        with pytest.raises(UserErased):
            await states.admit("tenant", "bob", epoch=OTHER_EPOCH, now_us=NOW_US)

    async def test_returning_user_begins_anew(self, states: StateStore) -> None:
        """Under a new epoch versions begin at 1, and nothing from before is seen."""
        await _fill(states)
        await states.erase("tenant", "alice")
        await states.admit("tenant", "alice", epoch=OTHER_EPOCH, now_us=NOW_US)
        for key in (session("s0"), WIDE, _DELETED):
            assert await states.load(key) is None
            assert list(await states.history(key, limit=9)) == []
            assert (await save(states, b"new", key=key, epoch=OTHER_EPOCH)).version == 1
            assert [one.body for one in await states.history(key, limit=9)] == [b"new"]
        assert len(await states.list("tenant", "alice", limit=9)) == 3

    async def test_absent_user_is_erased_with_zeros(self, states: StateStore) -> None:
        """Erasing who is not there, or twice, gives zeros for the same places as a scan."""
        removed = await states.erase("tenant", "nobody")
        assert set(removed.values()) == {0}
        assert removed.keys() == (await states.scan("tenant", "nobody")).keys()
        await _fill(states)
        await states.erase("tenant", "alice")
        assert set((await states.erase("tenant", "alice")).values()) == {0}

    async def test_erasure_leaves_others_alone(self, states: StateStore) -> None:
        """A neighbour keeps every row, and can write while the other is erased."""
        await states.admit("tenant", "alice2", epoch=EPOCH, now_us=NOW_US)
        await _fill(states)
        await _fill(states, "alice2")
        before = await states.scan("tenant", "alice2")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(states.erase, "tenant", "alice")
            for number in range(20):
                await save(states, key=session(f"new{number}", "alice2"))
        assert await total(states) == 0
        assert await total(states, "alice2") == sum(before.values()) + 40

    async def test_saves_that_race_with_erasure_do_not_stay(self, states: StateStore) -> None:
        """Whichever saves were on their way, after the erasure nothing of them is there."""
        refused: list[int] = []

        async def write(number: int) -> None:
            try:
                await states.admit("tenant", "alice", epoch=EPOCH, now_us=NOW_US)
                await save(states, key=session(f"s{number}"))
            except UserErased:
                refused.append(number)

        async with anyio.create_task_group() as tasks:
            for number in range(30):
                tasks.start_soon(write, number)
                if number == 15:
                    tasks.start_soon(states.erase, "tenant", "alice")
        await _refused(states, EPOCH)
        assert await total(states) == 0

    async def test_first_epoch_has_one_winner(self, states: StateStore) -> None:
        """Of many who let the same user in under epochs of their own exactly one succeeds."""
        let_in: list[bytes] = []

        async def begin(number: int) -> None:
            epoch = b"%016d" % number
            try:
                await states.admit("tenant", "bob", epoch=epoch, now_us=NOW_US)
            except UserErased:
                return
            let_in.append(epoch)

        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(begin, number)
        assert len(let_in) == 1
        await save(states, key=session("s", "bob"), epoch=let_in[0])

    async def test_erasure_is_finished(self, states: StateStore) -> None:
        """With nobody else using the store, what was erased is gone from its files and logs."""
        await _fill(states)
        await states.erase(KEY.tenant_id, KEY.user_id)
        result = await states.finish_erasure()
        assert result.complete, result.detail
        assert (await states.finish_erasure()).complete
