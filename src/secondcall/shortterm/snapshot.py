"""What a short-term memory holds, as JSON, and what became of it when it was taken up again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from secondcall.checks import to_us
from secondcall.errors import InvalidValue
from secondcall.shortterm.recent import checked_message
from secondcall.types import JsonValue, Message

__all__ = [
    "FORMAT",
    "Dropped",
    "Restored",
    "Snapshot",
    "checked_snapshot",
    "message_from_json",
    "message_json",
    "seconds_left",
]

FORMAT = 1
_SECTIONS: Mapping[str, type] = {
    "fields": dict,
    "flags": dict,
    "intent": dict,
    "messages": list,
    "names": list,
}


class Snapshot(dict[str, JsonValue]):
    """JSON-safe: ``json.dumps`` takes it as it is, and ``restore`` takes what ``json.loads`` gives.

    It holds the ``format`` number, the aware UTC time ``at`` which it was taken and, beside each
    value, the seconds that it had left (``null``: it never expires).
    """

    @property
    def skipped(self) -> Mapping[str, str]:
        """The fields that could not be held, each with the reason."""
        return cast("Mapping[str, str]", self["skipped"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What ``restore`` did, field by field.

    ``restored`` came back; ``expired`` ran out since the snapshot and are at their defaults.
    ``missing`` are fields that the snapshot does not hold (new ones, and those that it skipped):
    they keep what they had. ``unknown`` stand in the snapshot and are no fields any more.
    ``refused`` were of another type or over a limit, each with the reason; they are at their
    defaults.
    """

    restored: Sequence[str] = ()
    expired: Sequence[str] = ()
    missing: Sequence[str] = ()
    unknown: Sequence[str] = ()
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    elapsed_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """What the limits cost so far, by container (a field, ``messages``, ``flags``).

    ``entries`` counts what had to go for something newer, ``refused`` what was not let in;
    ``shortened_messages`` those of which only the beginning is held.
    """

    entries: Mapping[str, int] = field(default_factory=dict[str, int])
    refused: Mapping[str, int] = field(default_factory=dict[str, int])
    shortened_messages: int = 0


def checked_snapshot(snapshot: object) -> tuple[Mapping[str, Any], datetime]:
    """A snapshot's sections, each of its type, and when it was taken. Raises: ``InvalidValue``."""
    if not isinstance(snapshot, Mapping):
        raise InvalidValue(f"a snapshot must be a dict, not {type(snapshot).__name__}")
    held = cast("Mapping[str, Any]", snapshot)
    if held.get("format") != FORMAT:
        raise InvalidValue(
            f"the snapshot has format {str(held.get('format'))[:20]!r}, this release reads "
            f"{FORMAT}; upgrade secondcall or start with an empty memory"
        )
    for name, kind in _SECTIONS.items():
        if not isinstance(held.get(name), kind):
            raise InvalidValue(f"the snapshot's {name} must be a {kind.__name__}")
    try:
        at = datetime.fromisoformat(held["at"])
        to_us("at", at)
    except (KeyError, TypeError, ValueError):
        raise InvalidValue("the snapshot's 'at' must be an aware time in ISO 8601") from None
    return held, at.astimezone(UTC)


def seconds_left(held: object) -> float | None:
    """The remaining life beside a value. Raises: ``ValueError`` if it is not one."""
    left = cast("Mapping[str, object]", held)["left_seconds"]
    if left is None:
        return None
    if isinstance(left, bool) or not isinstance(left, int | float) or not left >= 0:
        raise ValueError("left_seconds")
    return float(left)


def message_json(message: Message) -> dict[str, JsonValue]:
    """A message as JSON."""
    return {
        "role": message.role,
        "text": message.text,
        "id": message.id,
        "speaker": message.speaker,
        "at": None if message.at is None else message.at.isoformat(),
        "interrupted": message.interrupted,
        "metadata": message.metadata,
    }


def message_from_json(field: str, held: Mapping[str, Any]) -> Message:
    """The way back from ``message_json``. Raises: ``ValueError``, ``KeyError``, ``TypeError``."""
    message = Message(
        held["role"],
        held["text"],
        id=held["id"],
        speaker=held["speaker"],
        at=None if held["at"] is None else datetime.fromisoformat(held["at"]),
        interrupted=held["interrupted"],
        metadata=held["metadata"],
    )
    return checked_message(field, message)
