"""States under retention: those past their time go, and what their history keeps is bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from secondcall.errors import UserErased, VersionConflict

if TYPE_CHECKING:
    from secondcall.abc import Epoch, Scope
    from secondcall.abc_state import StateKey, StateStore
    from secondcall.memory.shared import Place

__all__ = ["HISTORY_KEPT", "sweep_states", "trim"]

HISTORY_KEPT = 1_000
"""So many versions of a state are kept; older ones go with later saves and with every sweep."""
_PAGE = 500
_VERSIONS = 100
_BY = "retention"


async def sweep_states(
    place: Place, scope: Scope, epoch: Epoch, *, cutoff_us: int | None, dry_run: bool
) -> int:
    """Delete the states of a partition that are past ``expires_at``, with their history but for the
    row that says so, and of the others the versions from before ``cutoff_us`` and those beyond the
    newest 1,000; how many states and versions there were.

    A state that somebody saves meanwhile stays.
    """
    states = place.shared.states
    if states is None:
        return 0
    total = 0
    after: StateKey | None = None
    while page := await states.list(scope.tenant_id, scope.name, after=after, limit=_PAGE):
        for key in page:
            total += await _sweep(place, states, key, epoch, cutoff_us, dry_run=dry_run)
        after = page[-1]
    return total


async def trim(place: Place, key: StateKey) -> None:
    """Let go of versions beyond the newest 1,000, unless the user is under a legal hold."""
    if not (await place.retention()).hold:
        await place.shared.state_store().trim_history(key, keep=HISTORY_KEPT)


async def _sweep(
    place: Place,
    states: StateStore,
    key: StateKey,
    epoch: Epoch,
    cutoff_us: int | None,
    *,
    dry_run: bool,
) -> int:
    stored = await states.load(key)
    if stored is None:
        return 0
    now_us = max(place.shared.now_us(), stored.updated_us)
    if stored.expires_us is None or stored.expires_us > now_us:
        if dry_run:
            return await _beyond(states, key, cutoff_us)
        return await states.trim_history(key, keep=HISTORY_KEPT, older_than_us=cutoff_us)
    if dry_run:
        return 1
    try:
        await states.delete(
            key,
            expected_version=stored.version,
            epoch=epoch,
            now_us=now_us,
            by=_BY,
            summary=b'{"reason": "expired"}',
        )
    except (VersionConflict, UserErased):
        return 0
    await states.trim_history(key, keep=1)
    return 1


async def _beyond(states: StateStore, key: StateKey, cutoff_us: int | None) -> int:
    """How many versions a trimming would remove."""
    seen = beyond = 0
    before: int | None = None
    while page := await states.history(key, limit=_VERSIONS, before=before):
        for one in page:
            seen += 1
            is_old = cutoff_us is not None and one.at_us < cutoff_us
            beyond += seen > HISTORY_KEPT or is_old
        before = page[-1].version
    return beyond
