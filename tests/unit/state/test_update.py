"""Changing by compare-and-set: how often it is tried and what a change may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from state_kit import BOOKING, fresh, stored

from secondcall import InvalidValue, VersionConflict
from secondcall.abc_state import StateConflict, StoredState
from secondcall.state.update import Retry, apply_change, compare_and_set, summary_of

pytestmark = pytest.mark.anyio


async def test_a_lost_race_is_tried_again_without_a_read() -> None:
    """After a conflict the change is applied to what the conflict brought, without a read."""
    reads, waits, seen = 0, list[float](), list[int | None]()

    async def read() -> StoredState | None:
        nonlocal reads
        reads += 1
        return None

    async def attempt(current: StoredState | None) -> str:
        seen.append(None if current is None else current.version)
        if len(seen) < 4:
            raise StateConflict(expected=seen[-1], current=stored(fresh(), version=len(seen)))
        return "done"

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    retry = Retry(base_seconds=1, max_seconds=3, jitter=lambda: 0.5, sleep=sleep)
    assert await compare_and_set(read, attempt, retry) == "done"
    assert (reads, seen, waits) == (1, [None, 1, 2, 3], [0.5, 1.0, 1.5])


async def test_tries_are_bounded() -> None:
    """When the tries are used up the conflict is raised, with both versions and what is there."""
    tries = 0

    async def attempt(current: StoredState | None) -> None:
        nonlocal tries
        tries += 1
        raise StateConflict(expected=1, current=stored(fresh(), version=2))

    async def read() -> None:
        return None

    async def sleep(seconds: float) -> None:
        assert seconds <= 0.1

    with pytest.raises(VersionConflict) as lost:
        await compare_and_set(read, attempt, Retry(tries=5, sleep=sleep))
    assert (tries, lost.value.expected, lost.value.found) == (5, 1, 2)
    assert isinstance(lost.value, StateConflict)
    assert lost.value.current is not None


async def _async(state: Any) -> Any:
    return state


CHANGES: list[tuple[Callable[[Any], Any], str]] = [
    (_async, "must be a plain function"),
    (lambda state: _async(state), "must be a plain function"),
    (lambda state: None, "gave NoneType; it must return the new state"),
    (lambda state: {"step": "done"}, "gave dict"),
    (lambda state: replace(state, user_id="bob"), "cannot set user_id"),
    (lambda state: replace(state, tenant_id="other"), "cannot set tenant_id"),
    (lambda state: replace(state, version=9), "cannot set version"),
    (lambda state: replace(state, trust="claimed"), "cannot set trust"),
]


@pytest.mark.parametrize(("change", "words"), CHANGES)
def test_what_is_no_change_is_refused(change: Any, words: str) -> None:
    """A change that waits, returns no state or sets whose it is, is refused by name."""
    with pytest.raises(InvalidValue, match=words):
        apply_change(change, fresh())


def test_a_summary_names_what_changed_and_no_values() -> None:
    """The summary in the history names slots and fields, without what is in them."""
    before = fresh()
    after = before.start(BOOKING, date="2026-12-01").with_fields(note="a secret")
    assert summary_of(before, after.prefer("diet", "vegan"), "why") == {
        "reason": "why",
        "workflow": [None, "booking"],
        "step": [None, "details"],
        "slots": ["date"],
        "fields": True,
        "preferences": ["diet"],
    }
