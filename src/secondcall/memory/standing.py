"""The states of a session handle's context: read at each request, told anew when they changed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from secondcall.abc_state import StateKey, StoredState
from secondcall.checks import from_us
from secondcall.context.status import NO_STATUS, Status, status_of
from secondcall.errors import SchemaTooNew, UnknownName
from secondcall.state.body import Fields, decode_state

if TYPE_CHECKING:
    from secondcall.abc import Scope
    from secondcall.abc_state import StateStore
    from secondcall.memory.shared import Place
    from secondcall.state.agent_state import AgentState
    from secondcall.state.known import Workflows

__all__ = ["HeldStatus"]

_FIELDS: Fields[Mapping[str, Any]] = Fields()


@dataclass(frozen=True, slots=True)
class _Kept:
    """What was told, of which versions, with which workflows, and from when until when it holds."""

    versions: Sequence[tuple[StateKey, int, int]]
    workflows: Workflows
    since: datetime
    until: datetime | None
    status: Status


class HeldStatus:
    """The session's state and the user-wide one, each a read by key, and as text when they changed.

    They may be in a store of their own, where no header says whether anything changed.
    """

    def __init__(self, place: Place, session_id: str) -> None:
        self._place = place
        self._session_id = session_id
        self._scopes: tuple[Scope, ...] = ()
        self._kept: _Kept | None = None

    async def status(self, looking: asyncio.Task[None]) -> Status:
        """Where the workflows stand now. ``looking`` looks the partitions up; meanwhile those of
        the last time are read. Raises: ``StoreCorrupt``, ``SchemaTooNew``, store errors."""
        states, scopes = self._place.shared.states, self._scopes
        if states is None:
            return NO_STATUS
        found = await self._read(states, scopes)
        await asyncio.shield(looking)
        self._scopes = await self._place.scopes()
        if self._scopes != scopes:
            found = await self._read(states, self._scopes)
        return self._told(found) if found else NO_STATUS

    async def _read(self, states: StateStore, scopes: Sequence[Scope]) -> list[StoredState]:
        """The state of the partition that is written to, or else the newest of those merged into
        it: the session's and then the user-wide one, those that there are."""
        found = await asyncio.gather(
            *(_newest(states, scopes, session_id) for session_id in (self._session_id, None))
        )
        return [one for one in found if one is not None]

    def _told(self, found: Sequence[StoredState]) -> Status:
        shared, now = self._place.shared, self._place.shared.clock.now()
        versions = [(one.key, one.version, one.updated_us) for one in found]
        kept = self._kept
        if (
            kept is not None
            and kept.versions == versions
            and kept.workflows is shared.workflows
            and kept.since <= now
            and (kept.until is None or now < kept.until)
        ):
            return kept.status
        states = [self._decoded(one, now) for one in found if not _is_over(one, now)]
        ends = [from_us(one.expires_us) for one in found if one.expires_us is not None]
        ends = [one for one in (*ends, *map(_due, states)) if one is not None and one > now]
        self._kept = _Kept(
            versions, shared.workflows, now, min(ends, default=None), status_of(states)
        )
        return self._kept.status

    def _decoded(self, stored: StoredState, now: datetime) -> AgentState[Any]:
        place = self._place
        state = decode_state(
            stored, _FIELDS, now=now, trust=place.trust, known=place.shared.workflows
        )
        return replace(state, user_id=place.user_id)


async def _newest(
    states: StateStore, scopes: Sequence[Scope], session_id: str | None
) -> StoredState | None:
    keys = [StateKey(scope.tenant_id, scope.name, session_id) for scope in scopes]
    loaded = await asyncio.gather(*map(states.load, keys))
    there = [one for one in loaded if one is not None]
    if loaded and loaded[0] is not None:
        return loaded[0]
    return max(there, key=lambda one: one.updated_us, default=None)


def _is_over(stored: StoredState, now: datetime) -> bool:
    """Whether the state is past its time, by the later of the clock and its last change."""
    now = max(now, from_us(stored.updated_us))
    return stored.expires_us is not None and from_us(stored.expires_us) <= now


def _due(state: AgentState[Any]) -> datetime | None:
    try:
        return state.due_at
    except (UnknownName, SchemaTooNew):  # its innermost timer is stored beside it
        timers = [frame.extra.get("timer") for frame in state.frames]
        stored: list[Any] = [one for one in timers if one]
        return min((from_us(one["due_us"]) for one in stored), default=None)
