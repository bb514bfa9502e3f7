"""A workflow to test with, and states out of nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

from secondcall.abc_state import StateKey, StoredState
from secondcall.checks import to_us
from secondcall.state import AgentState, Slot, Step, To, Workflow, Workflows
from secondcall.state.body import FORMAT, Fields, decode_state, encode_state, fresh_state

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
KEY = StateKey("default", "ana", "call-1")
UNTYPED: Fields[Mapping[str, Any]] = Fields()


class Size(Enum):
    """A size of a room."""

    SMALL = "s"
    LARGE = "l"


def _paid(state: AgentState[Any]) -> bool | str:
    return state.slots.get("amount") == Decimal(40) or "the amount is not 40"


CHECK = Workflow(
    "identity check",
    steps={
        "code": Step(expires="5m", then="failed"),
        "passed": Step(terminal=True, requires=["code"]),
        "failed": Step(terminal=True),
    },
    transitions={"code": ["passed", "failed"]},
    slots={"code": str},
)

BOOKING = Workflow(
    "booking",
    steps={
        "details": Step(description="which day and room"),
        "check": Step(
            requires=["date"], runs=CHECK, returns={"passed": "payment", "failed": "details"}
        ),
        "payment": Step(requires=["date"], expires="15m", then="abandoned"),
        "done": Step(terminal=True, requires=["amount"]),
        "abandoned": Step(terminal=True),
        "cancelled": Step(terminal=True),
    },
    transitions={
        "details": ["payment", "check"],
        "payment": [To("done", guards=["paid"], needs_confirmation=True), "details"],
        "*": ["cancelled"],
    },
    slots={
        "date": Slot(date, description="the first night"),
        "amount": Slot(Decimal, check=lambda amount: amount > 0 or "it must be above 0"),
        "size": Size,
    },
    guards={"paid": _paid},
    cancel="cancelled",
)


def fresh(now: datetime = NOW, known: Workflows | None = None) -> AgentState[Mapping[str, Any]]:
    """A state that nothing happened to yet."""
    return fresh_state(
        KEY, UNTYPED, now=now, trust="verified", known=Workflows() if known is None else known
    )


def stored(
    state: AgentState[Any], fields: Fields[Any] = UNTYPED, *, version: int = 1
) -> StoredState:
    """The state as a store would give it back."""
    return StoredState(
        key=KEY,
        version=version,
        body=encode_state(state, fields, max_bytes=1_000_000),
        updated_us=to_us("now", state.now),
        updated_by="host",
        schema=FORMAT,
    )


def reloaded(
    state: AgentState[Any],
    fields: Fields[Any] = UNTYPED,
    *,
    now: datetime | None = None,
    known: Workflows | None = None,
) -> AgentState[Any]:
    """The state, saved and read again."""
    return decode_state(
        stored(state, fields),
        fields,
        now=state.now if now is None else now,
        trust="verified",
        known=state.known if known is None else known,
    )
