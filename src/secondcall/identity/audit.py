"""The audit trail of a user's identities: append-only documents, written with what they report."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from secondcall.abc import Document, DocumentWrite
from secondcall.checks import from_us
from secondcall.errors import InvalidValue, StoreCorrupt, TooLarge
from secondcall.types import Trust

__all__ = ["AuditEntry", "Event", "audit_write", "checked_note", "read_event"]

KIND = "identity_audit"
Action = Literal["linked", "verified", "unlinked", "merged", "absorbed", "unmerged", "released"]
"""``merged`` and ``unmerged`` stand with the user merged, ``absorbed`` and ``released`` with the
one that it was merged into."""

MAX_ACTOR_CHARACTERS = 200
MAX_REASON_CHARACTERS = 1000

_OFFSET = 2**62
"""Added to the time, so that keys of times before 1970 sort too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What happened to a user's identities, by whom and why."""

    action: Action
    actor: str
    reason: str = ""
    identity: str = ""
    trust: Trust | None = None
    other_user_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One entry of the trail. ``identity`` is the kind and the masked value, or empty.

    ``user_id`` is the user whose partition holds the entry; ``other_user_id`` the other side of a
    merge or unmerge.
    """

    at: datetime
    user_id: str
    action: Action
    actor: str
    reason: str
    identity: str
    trust: Trust | None
    other_user_id: str | None


def checked_note(actor: str, reason: str) -> tuple[str, str]:
    """Who and why, as the host gives them. Raises: ``InvalidValue``, ``TooLarge``."""
    if not actor.strip():
        raise InvalidValue("actor is empty; say who makes the change")
    for name, text, most in (
        ("actor", actor, MAX_ACTOR_CHARACTERS),
        ("reason", reason, MAX_REASON_CHARACTERS),
    ):
        if len(text) > most:
            raise TooLarge(f"{name} has {len(text)} characters, at most {most}")
    return actor, reason


def audit_write(event: Event, *, now_us: int, version: int, place: int) -> DocumentWrite:
    """The write that appends an event: a key in order of time that was never used.

    ``version`` is that of the identity document written with it, ``place`` the event's in there.
    """
    body = {
        "at_us": now_us,
        "action": event.action,
        "actor": event.actor,
        "reason": event.reason,
        "identity": event.identity,
        "trust": event.trust,
        "other": event.other_user_id,
    }
    key = f"{now_us + _OFFSET:020d}-{version:010d}-{place:04d}"
    text = json.dumps(body, separators=(",", ":"))
    return DocumentWrite(kind=KIND, key=key, body=text.encode(), expected_version=None)


def read_event(user_id: str, document: Document) -> AuditEntry:
    """The entry that a document holds. Raises: ``StoreCorrupt``."""
    try:
        data = json.loads(document.body)
        return AuditEntry(
            at=from_us(data["at_us"]),
            user_id=user_id,
            action=data["action"],
            actor=data["actor"],
            reason=data["reason"],
            identity=data["identity"],
            trust=data["trust"],
            other_user_id=data["other"],
        )
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise StoreCorrupt(
            f"an audit entry of user {user_id!r} cannot be read ({type(error).__name__})"
        ) from None
