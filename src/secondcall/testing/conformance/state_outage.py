"""A place that cannot be reached for a while: errors of ours, and nothing acknowledged is lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio
import pytest
from anyio.lowlevel import checkpoint

from secondcall.abc_state import StateConflict, StateKey, StateStore
from secondcall.errors import StoreBusy, StoreUnavailable
from secondcall.testing.conformance.state_material import (
    KEY,
    StateHarness,
    StateSuite,
    all_history,
    save,
    session,
)

__all__ = ["StateOutageSuite"]

WRITERS = 8
_AWAY = (StoreUnavailable, StoreBusy)
_MOST_SECONDS = 60.0
_PAUSE_SECONDS = 0.02


@dataclass
class _Writer:
    """What one writer saw; ``since_back`` counts its saves after the outage."""

    key: StateKey
    acknowledged: list[int] = field(default_factory=list[int])
    failed: int = 0
    since_back: int = 0


async def _until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(_MOST_SECONDS):
        while not condition():  # noqa: ASYNC110 - it looks at several writers
            await anyio.sleep(_PAUSE_SECONDS)


async def _is_away(call: Callable[[], Awaitable[object]]) -> None:
    with anyio.fail_after(_MOST_SECONDS):
        with pytest.raises(_AWAY):
            await call()


def _needs_stopping(harness: StateHarness) -> None:
    if not harness.can_stop:
        pytest.skip("this harness cannot stop its place")


class StateOutageSuite(StateSuite):
    """While the place is away each save fails with ``StoreUnavailable`` or ``StoreBusy``; once it
    is back the same open store works on."""

    async def test_nothing_acknowledged_is_lost_in_an_outage(
        self, states: StateStore, harness: StateHarness
    ) -> None:
        """Stopped in the middle of updates, then back: all that was acknowledged is there, once."""
        _needs_stopping(harness)
        writers = [_Writer(session(f"s{number}")) for number in range(WRITERS)]
        back = False

        async def work(writer: _Writer) -> None:
            version: int | None = None
            while writer.since_back < 3:
                try:
                    with anyio.fail_after(_MOST_SECONDS):
                        found = await states.load(writer.key)
                        version = None if found is None else found.version
                        body = b"%d" % ((version or 0) + 1)
                        saved = await save(states, body, key=writer.key, expected=version)
                except (*_AWAY, StateConflict):
                    # It may have happened all the same, and may still be on its way.
                    writer.failed += 1
                    await anyio.sleep(_PAUSE_SECONDS)
                    continue
                await checkpoint()
                writer.acknowledged.append(saved.version)
                writer.since_back += back

        async with anyio.create_task_group() as tasks:
            for writer in writers:
                tasks.start_soon(work, writer)
            await _until(lambda: all(len(one.acknowledged) >= 3 for one in writers))
            await harness.stop()
            before = [one.failed for one in writers]
            await _until(
                lambda: all(one.failed > was for one, was in zip(writers, before, strict=True))
            )
            await harness.start()
            back = True
        for writer in writers:
            changes = await all_history(states, writer.key)
            assert [int(one.body or b"") for one in changes] == [one.version for one in changes]
            # A version that was acknowledged twice was lost in between.
            assert writer.acknowledged == sorted(set(writer.acknowledged))
            assert set(writer.acknowledged) <= {one.version for one in changes}
            assert len(changes) <= len(writer.acknowledged) + writer.failed

    async def test_store_that_is_away_says_so(
        self, states: StateStore, harness: StateHarness
    ) -> None:
        """While the place is away a save, and opening another store, fail in our words; what was
        open before works on afterwards."""
        _needs_stopping(harness)
        await save(states, b"before")
        await harness.stop()
        await _is_away(lambda: save(states, b"away", expected=1))
        other = harness.make()
        await _is_away(other.open)
        await harness.start()
        with anyio.fail_after(_MOST_SECONDS):
            await other.open()
            found = await states.load(KEY)
            assert found is not None
            saved = await save(states, b"after", expected=found.version)
            if states.capabilities.shared:
                assert await other.load(KEY) == saved
        await other.aclose()
