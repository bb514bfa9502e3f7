"""The history of a state, as it is shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from secondcall.abc_state import StateKey, StoredState
from secondcall.checks import from_us
from secondcall.errors import SecondcallError
from secondcall.state.agent_state import AgentState
from secondcall.state.body import Fields, decode_state
from secondcall.state.known import Workflows

if TYPE_CHECKING:
    from secondcall.abc_state import StateChange
    from secondcall.types import JsonValue, Trust

__all__ = ["StateRecord", "record_of"]

F = TypeVar("F")


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRecord(Generic[F]):
    """One version in the history of a state: when, by whom, and what changed by name.

    ``state`` is ``None`` when this version deleted it, or when its bytes cannot be read; then
    ``problem`` says why. Timers are not applied: it is what was stored.
    """

    version: int
    at: datetime
    by: str
    changed: Mapping[str, JsonValue]
    deleted: bool
    state: AgentState[F] | None
    problem: str = ""


def record_of(
    key: StateKey,
    change: StateChange,
    fields: Fields[F],
    *,
    trust: Trust,
    known: Workflows,
    seen: Callable[[str], bool],
) -> StateRecord[F]:
    """A row of a state's history, read as far as it can be; of the preferences that changed only
    names that may be ``seen``."""
    state: AgentState[F] | None = None
    problem = ""
    if change.body is not None:
        stored = StoredState(
            key=key,
            version=change.version,
            body=change.body,
            updated_us=change.at_us,
            updated_by=change.by,
            schema=change.schema,
        )
        try:
            state = decode_state(
                stored, fields, now=from_us(change.at_us), trust=trust, known=known
            )
        except SecondcallError as error:
            problem = str(error)
    return StateRecord(
        version=change.version,
        at=from_us(change.at_us),
        by=change.by,
        changed=_read_summary(change.summary, seen),
        deleted=change.body is None,
        state=state,
        problem=problem,
    )


def _read_summary(raw: bytes, seen: Callable[[str], bool]) -> Mapping[str, JsonValue]:
    try:
        found: object = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    changed = cast("dict[str, JsonValue]", found) if isinstance(found, dict) else {}
    names = changed.get("preferences")
    if isinstance(names, list):
        shown = [one for one in names if isinstance(one, str) and seen(one)]
        changed = {**changed, "preferences": shown}
        if not shown:
            del changed["preferences"]
    return changed
