"""Timers: each due state goes to one holder at a time."""

from __future__ import annotations

import anyio
from anyio.lowlevel import checkpoint

from secondcall.abc_state import StateKey, StateStore
from secondcall.testing.conformance.state_material import (
    EPOCH,
    KEY,
    NOW_US,
    WIDE,
    StateSuite,
    save,
    session,
)

__all__ = ["StateTimersSuite"]

_SECOND_US = 1_000_000


async def _claim(
    store: StateStore,
    *,
    at: float = 0.0,
    limit: int = 99,
    holder: str = "one",
    tenant_id: str = "tenant",
) -> list[StateKey]:
    """Claim for 60 seconds, so many seconds after the tests' time."""
    now_us = NOW_US + round(at * _SECOND_US)
    return [
        *await store.claim_due(tenant_id, now_us=now_us, limit=limit, holder=holder, seconds=60)
    ]


class StateTimersSuite(StateSuite):
    """What is due is given out once, and again only when its holder's time has run out."""

    async def test_due_states_are_claimed_once(self, states: StateStore) -> None:
        """A state is given out from its time on, to one holder, and not even to that one again."""
        await save(states, due_us=NOW_US)
        await save(states, key=WIDE)
        assert await _claim(states, at=-0.000_001) == []
        assert await _claim(states) == [KEY]
        for holder in ("one", "two"):
            assert await _claim(states, at=59.999_999, holder=holder) == []

    async def test_claim_runs_out(self, states: StateStore) -> None:
        """Whoever was given a state and did nothing loses it to the next that asks."""
        await save(states, due_us=NOW_US - 5)
        assert await _claim(states) == [KEY]
        assert await _claim(states, at=60, holder="two") == [KEY]
        assert await _claim(states, at=119, holder="one") == []
        assert await _claim(states, at=120, holder="one") == [KEY]

    async def test_save_ends_a_claim(self, states: StateStore) -> None:
        """A save sets the timer anew: gone, or due again at once if its time has come."""
        await save(states, due_us=NOW_US)
        assert await _claim(states) == [KEY]
        await save(states, expected=1, due_us=NOW_US)
        assert await _claim(states) == [KEY]
        await save(states, expected=2)
        assert await _claim(states, at=1_000) == []
        await save(states, expected=3, due_us=NOW_US + 5 * _SECOND_US)
        assert await _claim(states, at=4) == []
        await states.delete(KEY, expected_version=4, epoch=EPOCH, now_us=NOW_US, by="test")
        assert await _claim(states, at=1_000) == []

    async def test_claiming_changes_no_state(self, states: StateStore) -> None:
        """A claim takes no version and no row of the history."""
        saved = await save(states, due_us=NOW_US)
        assert await _claim(states) == [KEY]
        assert await states.load(KEY) == saved
        assert len(await states.history(KEY, limit=9)) == 1

    async def test_earliest_come_first(self, states: StateStore) -> None:
        """The most overdue are given out first, at most so many at once, and none is left out."""
        for number in range(12):
            await save(states, key=session(f"s{number}"), due_us=NOW_US - number)
        seen: list[StateKey] = []
        while page := await _claim(states, limit=5):
            assert len(page) <= 5
            assert not set(page) & set(seen)
            seen += page
        assert seen == [session(f"s{number}") for number in range(11, -1, -1)]

    async def test_timers_of_tenants_do_not_meet(self, states: StateStore) -> None:
        """A tenant claims its own states and no others, of all its users."""
        mine = [session(None, "bob"), session("s", "carl"), KEY]
        others = [session("s", tenant_id=one) for one in ("Tenant", "tenant ", "%", "t")]
        for key in (*mine, *others):
            await states.admit(key.tenant_id, key.user_id, epoch=EPOCH, now_us=NOW_US)
            await save(states, key=key, due_us=NOW_US)
        assert set(await _claim(states)) == set(mine)
        for key in others:
            assert await _claim(states, tenant_id=key.tenant_id) == [key]

    async def test_erased_timers_are_gone(self, states: StateStore) -> None:
        """The timers of an erased user are given to nobody, also not when the user returns."""
        await save(states, due_us=NOW_US)
        assert await _claim(states) == [KEY]
        await states.erase(KEY.tenant_id, KEY.user_id)
        await states.admit(KEY.tenant_id, KEY.user_id, epoch=b"new", now_us=NOW_US)
        assert await _claim(states, at=1_000) == []

    async def test_claims_at_once_share_out(self, states: StateStore) -> None:
        """Of many who claim at the same time each gets others, and together they get all."""
        keys = [session(f"s{number:03}") for number in range(60)]
        for key in keys:
            await save(states, key=key, due_us=NOW_US)
        got: list[StateKey] = []

        async def work(number: int) -> None:
            while page := await _claim(states, limit=4, holder=f"h{number}"):
                assert not set(page) & set(got)
                got.extend(page)
                await checkpoint()

        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(work, number)
        # Whoever found nothing may have asked while others held the last ones.
        got.extend(await _claim(states))
        assert sorted(got) == keys
