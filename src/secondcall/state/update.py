"""Changing a state by compare-and-set: read, change, save, and again where another was faster.

Nothing is held while the change runs: no lock, no connection, no transaction. Pure but for what it
is handed.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio

from secondcall.abc_state import StateConflict
from secondcall.errors import InvalidValue
from secondcall.state.agent_state import AgentState

if TYPE_CHECKING:
    from secondcall.abc_state import StoredState

__all__ = ["Retry", "apply_change", "compare_and_set", "summary_of"]

F = TypeVar("F")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often a change is tried, and how long is waited between: up to ``base_seconds``, twice as
    long after each lost race, at most ``max_seconds``; ``jitter`` (0 to 1) chooses where below."""

    tries: int = 32
    base_seconds: float = 0.001
    max_seconds: float = 0.1
    jitter: Callable[[], float] = random.random
    sleep: Callable[[float], Awaitable[object]] = anyio.sleep

    def seconds(self, lost: int) -> float:
        """How long to wait after so many lost races, from 1."""
        return min(self.max_seconds, self.base_seconds * 2 ** min(lost - 1, 30)) * self.jitter()


async def compare_and_set(
    read: Callable[[], Awaitable[StoredState | None]],
    attempt: Callable[[StoredState | None], Awaitable[T]],
    retry: Retry,
) -> T:
    """What ``attempt`` gives for the state as it stands. Where another writer was faster it is
    called again with what that one wrote, which the conflict brought along: no further read.

    Raises: ``StateConflict`` when the tries are used up; whatever ``attempt`` raises.
    """
    current = await read()
    lost = 0
    while True:
        try:
            return await attempt(current)
        except StateConflict as conflict:
            lost += 1
            if lost >= retry.tries:
                raise
            current = conflict.current
        await retry.sleep(retry.seconds(lost))


def apply_change(
    change: Callable[[AgentState[F]], AgentState[F]], state: AgentState[F]
) -> AgentState[F]:
    """What a change makes of a state. Raises: ``InvalidValue`` for a function that waits, or gives
    something else than a state of the same owner; whatever the function raises."""
    if inspect.iscoroutinefunction(change):
        raise InvalidValue(_NOT_ASYNC)
    changed = cast("object", change(state))
    if inspect.isawaitable(changed):
        if inspect.iscoroutine(changed):
            changed.close()
        raise InvalidValue(_NOT_ASYNC)
    if not isinstance(changed, AgentState):
        raise InvalidValue(
            f"the change gave {type(changed).__name__}; it must return the new state, since a "
            "state itself never changes"
        )
    same = cast("AgentState[F]", changed)
    for name in ("tenant_id", "user_id", "session_id", "version", "updated_at", "now", "trust"):
        if getattr(same, name) != getattr(state, name):
            raise InvalidValue(f"a change cannot set {name}")
    return same


_NOT_ASYNC = (
    "the change must be a plain function: it may run several times, and nothing is held while it "
    "runs; do what waits before or after the update"
)


def summary_of(before: AgentState[Any], after: AgentState[Any], reason: str) -> dict[str, Any]:
    """What changed, by name: workflow and step from and to, names of slots, fields, preferences."""
    summary: dict[str, Any] = {"reason": reason} if reason else {}
    for name in ("workflow", "step"):
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            summary[name] = [old, new]
    slots = _different(before.slots, after.slots)
    if slots:
        summary["slots"] = slots
    if before.fields != after.fields:
        summary["fields"] = True
    if after.preferred:
        summary["preferences"] = sorted(one.name for one in after.preferred)
    return summary


def _different(old: Any, new: Any) -> list[str]:
    absent = object()
    return sorted(name for name in {*old, *new} if old.get(name, absent) != new.get(name, absent))
