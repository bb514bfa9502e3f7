"""What every state store refuses, before anything is written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from secondcall.abc_state import StateStore
from secondcall.errors import InvalidValue, NotOpen, TooLarge
from secondcall.testing.conformance.state_material import (
    EPOCH,
    KEY,
    NOW_US,
    StateHarness,
    StateSuite,
    save,
    total,
)

__all__ = ["StateRefusalsSuite"]


def _calls(store: StateStore) -> list[Callable[[], Awaitable[object]]]:
    """One call of each method that needs an open store."""
    return [
        lambda: store.admit("tenant", "alice", epoch=EPOCH, now_us=NOW_US),
        lambda: store.load(KEY),
        lambda: save(store),
        lambda: store.delete(KEY, expected_version=1, epoch=EPOCH, now_us=NOW_US, by="test"),
        lambda: store.history(KEY, limit=1),
        lambda: store.trim_history(KEY, keep=1),
        lambda: store.list("tenant", "alice", limit=1),
        lambda: store.claim_due("tenant", now_us=NOW_US, limit=1, holder="h", seconds=1),
        lambda: store.erase("tenant", "alice"),
        lambda: store.erase("tenant", "alice", epoch=EPOCH),
        lambda: store.scan("tenant", "alice"),
        lambda: store.finish_erasure(),
    ]


class StateRefusalsSuite(StateSuite):
    """Closed stores, sizes, versions and limits that are not accepted, each with a clear error."""

    async def test_closed_store_refuses_everything(self, harness: StateHarness) -> None:
        """Before ``open`` and after ``aclose`` each method raises ``NotOpen``."""
        store = harness.make()
        for call in _calls(store):
            with pytest.raises(NotOpen):
                await call()
        await store.open()
        await store.admit("tenant", "alice", epoch=EPOCH, now_us=NOW_US)
        await save(store)
        await store.aclose()
        for call in _calls(store):
            with pytest.raises(NotOpen):
                await call()

    async def test_opening_and_closing_twice_is_harmless(self, harness: StateHarness) -> None:
        """A second ``open`` or ``aclose`` changes nothing, and a closed store opens again."""
        store = harness.make()
        await store.aclose()
        await store.open()
        await store.open()
        await store.admit("tenant", "bob", epoch=EPOCH, now_us=NOW_US)
        await store.aclose()
        await store.aclose()
        await store.open()
        await store.admit("tenant", "bob", epoch=EPOCH, now_us=NOW_US)
        await store.aclose()

    async def test_limits_below_1_are_refused(self, states: StateStore) -> None:
        """A limit of 0 or less is an error, not everything and not nothing."""
        await save(states, due_us=NOW_US)
        for limit in (0, -1, -100):
            for call in (
                states.history(KEY, limit=limit),
                states.list("tenant", "alice", limit=limit),
                states.claim_due("tenant", now_us=NOW_US, limit=limit, holder="h", seconds=1),
            ):
                with pytest.raises(InvalidValue, match="limit"):
                    await call

    async def test_versions_below_1_are_refused(self, states: StateStore) -> None:
        """0 is no version: neither "absent" nor "any"."""
        for there in (False, True):
            for expected in (0, -1, -(2**63)):
                with pytest.raises(InvalidValue, match="version"):
                    await save(states, expected=expected)
                with pytest.raises(InvalidValue, match="version"):
                    await states.delete(
                        KEY, expected_version=expected, epoch=EPOCH, now_us=NOW_US, by="test"
                    )
            if not there:
                await save(states)
        assert len(await states.history(KEY, limit=9)) == 1

    async def test_states_over_the_declared_size_are_refused(self, states: StateStore) -> None:
        """One byte over the declared size is ``TooLarge``, which says how many there were, and
        writes nothing; so many bytes exactly are kept."""
        most = states.capabilities.max_state_bytes
        before = await total(states)
        with pytest.raises(TooLarge) as caught:
            await save(states, bytes(most + 1), summary=b"")
        assert str(most + 1) in str(caught.value).replace(",", "")
        with pytest.raises(TooLarge):
            await save(states, bytes(most - 1), summary=b"{}")
        with pytest.raises(TooLarge):
            await save(states, b"", summary=bytes(most + 1))
        assert await total(states) == before
        body = b"\xff" * (most - 2)
        await save(states, body)
        found = await states.load(KEY)
        assert found is not None
        assert found.body == body
        (change,) = await states.history(KEY, limit=1)
        assert change.body == body
        with pytest.raises(TooLarge):
            await states.delete(
                KEY,
                expected_version=1,
                epoch=EPOCH,
                now_us=NOW_US,
                by="test",
                summary=bytes(most + 1),
            )

    async def test_numbers_over_64_bits_are_refused(self, states: StateStore) -> None:
        """A time or version that does not fit into 64 bits is refused, and nothing is written."""
        before = await total(states)
        for bad in (2**63, -(2**63) - 1):
            for call in (
                save(states, now_us=bad),
                save(states, due_us=bad),
                save(states, expires_us=bad),
                save(states, expected=bad),
            ):
                with pytest.raises(InvalidValue):
                    await call
        assert await total(states) == before
        saved = await save(states, now_us=-(2**63), due_us=2**63 - 1, expires_us=-(2**63))
        assert await states.load(KEY) == saved

    async def test_errors_do_not_show_what_is_kept(self, states: StateStore) -> None:
        """No refusal repeats a body, so that errors can be logged."""
        most = states.capabilities.max_state_bytes
        with pytest.raises(TooLarge) as caught:
            await save(states, b"secret" + bytes(most))
        assert "secret" not in str(caught.value)
