"""What is written beside a state: its next timer and what changed; and timers of merged users."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from secondcall.abc_state import StateConflict
from secondcall.checks import from_us, to_us
from secondcall.errors import UserErased
from secondcall.state.body import FORMAT, MAX_STATE_BYTES, Fields, decode_state, encode_state
from secondcall.state.update import summary_of

if TYPE_CHECKING:
    from secondcall.abc import Scope
    from secondcall.abc_state import StateKey
    from secondcall.memory.shared import Place
    from secondcall.state.agent_state import AgentState

__all__ = ["SUMMARY_ROOM", "due_us", "encode_summary", "settle_merged"]

SUMMARY_ROOM = 16_384
"""So many bytes at most say what a version changed."""
_WRITER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def due_us(state: AgentState[Any]) -> int | None:
    """When a timer goes off next, as far as the workflows are known here."""
    due: datetime | None
    if all(state.known.at(one.workflow, one.version, one.step) for one in state.frames):
        due = state.due_at
    else:
        timers = [cast("Any", (one.stored or {}).get("timer")) for one in state.frames]
        due = min((from_us(one["due_us"]) for one in timers if one), default=None)
    return None if due is None else to_us("due_at", due)


def encode_summary(summary: Mapping[str, Any]) -> bytes:
    """Its JSON, with as many names as there is room for."""
    while True:
        encoded = _WRITER.encode(summary).encode()
        names = {one: part for one in ("slots", "preferences") if (part := summary.get(one))}
        if len(encoded) <= SUMMARY_ROOM or not names:
            return encoded
        most = max(names, key=lambda one: len(names[one]))
        summary = {**summary, most: names[most][: len(names[most]) // 2], "cut": True}


async def settle_merged(
    place: Place, fields: Fields[Any], key: StateKey, scope: Scope, by: str
) -> None:
    """Save in a merged user's own partition what timers did to the state there, so that it is due
    no more."""
    states, shared = place.shared.state_store(), place.shared
    stored, header = await states.load(key), await shared.store.header(scope)
    if stored is None or header is None or stored.due_us is None:
        return
    state = decode_state(
        stored, fields, now=shared.clock.now(), trust=place.trust, known=shared.workflows
    )
    if state.origin is None or state.frames == state.origin[1].frames:
        return
    with suppress(StateConflict, UserErased):  # somebody else was faster
        await states.save(
            key,
            encode_state(state, fields, max_bytes=MAX_STATE_BYTES),
            expected_version=stored.version,
            epoch=header.epoch,
            now_us=to_us("now", state.now),
            by=by,
            summary=encode_summary(summary_of(state.origin[1], state, "")),
            schema=FORMAT,
            expires_us=stored.expires_us,
            due_us=due_us(state),
        )
