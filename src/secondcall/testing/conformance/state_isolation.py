"""Walls between tenants, users and sessions, whatever characters their names hold."""

from __future__ import annotations

import pytest

from secondcall.abc_state import StateKey, StateStore
from secondcall.errors import InvalidValue
from secondcall.testing.conformance.isolation import HOSTILE_NAMES, PAIRS
from secondcall.testing.conformance.state_material import (
    EPOCH,
    KEY,
    NOW_US,
    WIDE,
    StateSuite,
    save,
    session,
    total,
)

__all__ = ["StateIsolationSuite"]

_TRIPLES = [("a", "b:c", "d"), ("a:b", "c", "d"), ("a", "b", "c:d"), ("a:b:c", "d", None)]


def _look_alikes() -> list[StateKey]:
    """Keys that differ in ways that joined, folded or escaped names lose."""
    keys = [StateKey(name, "alice", "s") for name in HOSTILE_NAMES]
    keys += [StateKey("tenant", name, "s") for name in HOSTILE_NAMES]
    keys += [StateKey("tenant", "alice", name) for name in HOSTILE_NAMES]
    keys += [StateKey("tenant", name, None) for name in HOSTILE_NAMES]
    keys += [StateKey(one, two, "s") for one, two in PAIRS]
    keys += [StateKey("tenant", one, two) for one, two in PAIRS]
    keys += [StateKey(*one) for one in _TRIPLES]
    return list(dict.fromkeys(keys))


class StateIsolationSuite(StateSuite):
    """Nothing of one tenant, user or session is seen or changed through another."""

    async def test_states_do_not_meet(self, states: StateStore) -> None:
        """Each of some hundred look-alike keys has its own state, version and history."""
        keys = _look_alikes()
        for number, key in enumerate(keys):
            await states.admit(key.tenant_id, key.user_id, epoch=EPOCH, now_us=NOW_US)
            assert (await save(states, b"%d" % number, key=key)).version == 1
        for number, key in enumerate(keys):
            found = await states.load(key)
            assert found is not None
            assert (found.key, found.body) == (key, b"%d" % number)
            assert [one.body for one in await states.history(key, limit=9)] == [b"%d" % number]
        owners = {key[:2] for key in keys}
        for tenant_id, user_id in owners:
            listed = await states.list(tenant_id, user_id, limit=1_000)
            assert set(listed) == {key for key in keys if key[:2] == (tenant_id, user_id)}

    async def test_absent_states_show_nothing_of_others(self, states: StateStore) -> None:
        """A key that holds nothing does not show what a look-alike holds."""
        await save(states, b"mine")
        others = [session(one) for one in ("S", "s ", "s/", "%", "_", "*", "..", "None", "null")]
        others += [session("s", one) for one in ("ALICE", "alice ", "alic", "%", "_", "bob")]
        others += [session("s", tenant_id="Tenant"), session("s", tenant_id="tenant "), WIDE]
        for key in others:
            assert await states.load(key) is None
            assert list(await states.history(key, limit=9)) == []

    async def test_user_wide_state_is_no_session(self, states: StateStore) -> None:
        """The user-wide state meets no session, whatever that is called."""
        names = ["None", "null", "NULL", "user", "*", "-", "_", "0", "\u200b", "wide"]
        await save(states, b"wide", key=WIDE)
        for name in names:
            await save(states, name.encode(), key=session(name))
        await save(states, b"wider", key=WIDE, expected=1)
        for name in names:
            found = await states.load(session(name))
            assert found is not None
            assert (found.body, found.version) == (name.encode(), 1)
        await states.delete(WIDE, expected_version=2, epoch=EPOCH, now_us=NOW_US, by="test")
        assert len(await states.list("tenant", "alice", limit=99)) == len(names)

    async def test_epochs_do_not_meet(self, states: StateStore) -> None:
        """Erasing a user touches no look-alike, and each is refused only its own epoch."""
        names = ["alice", "alice ", "ALICE", "alic", "alicee", "%", "_", "*", "alice/", "..", "é"]
        for name in names:
            epoch = EPOCH if name == "alice" else name.encode()
            await states.admit("tenant", name, epoch=epoch, now_us=NOW_US)
            await save(states, name.encode(), key=session("s", name), epoch=epoch)
            await save(states, name.encode(), key=session(None, name), epoch=epoch)
        for number, name in enumerate(names):
            await states.erase("tenant", name)
            assert await total(states, name) == 0
            for left in names[number + 1 :]:
                found = await states.load(session("s", left))
                assert found is not None
                assert found.body == left.encode()
                assert len(await states.list("tenant", left, limit=9)) == 2

    async def test_nul_and_surrogates_are_refused(self, states: StateStore) -> None:
        """Text with a NUL character or a lone surrogate is refused wherever it stands."""
        before = await total(states)
        for bad in ("a\x00b", "\x00", "a\ud800"):
            for key in (session(bad), session("s", bad), session("s", tenant_id=bad)):
                with pytest.raises(InvalidValue):
                    await save(states, key=key)
                with pytest.raises(InvalidValue):
                    await states.load(key)
            with pytest.raises(InvalidValue):
                await states.admit("tenant", bad, epoch=EPOCH, now_us=NOW_US)
            with pytest.raises(InvalidValue):
                await save(states, by=bad)
        assert await total(states) == before

    async def test_empty_ids_are_refused(self, states: StateStore) -> None:
        """No user and no session has an empty id, so that none is taken for user-wide."""
        for key in (session(""), session("s", ""), session(None, "")):
            with pytest.raises(InvalidValue):
                await save(states, key=key)
            with pytest.raises(InvalidValue):
                await states.load(key)
        assert await states.load(KEY) is None
