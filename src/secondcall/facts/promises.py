"""The lives of promises and issues: which status may follow which. Pure."""

from __future__ import annotations

from secondcall.errors import InvalidValue
from secondcall.types import Fact, FactKind, FactStatus

__all__ = ["check_transition", "first_status"]

_FIRST: dict[FactKind, FactStatus] = {"promise": "promised", "issue": "open"}
_NEXT: dict[FactKind, dict[FactStatus, tuple[FactStatus, ...]]] = {
    "promise": {"promised": ("kept", "broken", "withdrawn"), "broken": ("kept", "promised")},
    "issue": {"open": ("resolved",), "resolved": ("open",)},
}


def first_status(kind: FactKind) -> FactStatus:
    """What a fact of this kind starts as: *promised*, *open*, or *current* for the others."""
    return _FIRST.get(kind, "current")


def check_transition(fact: Fact, status: FactStatus) -> None:
    """Refuse a status that may not follow the fact's own.

    Raises: ``InvalidValue`` naming what is allowed from here.
    """
    allowed = _NEXT.get(fact.kind, {}).get(fact.status, ())
    if status not in allowed:
        options = ", ".join(allowed) or "nothing"
        raise InvalidValue(
            f"{fact.kind} {fact.predicate!r} is {fact.status}; from there it may become {options}, "
            f"not {status!r}"
        )
