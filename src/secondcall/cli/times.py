"""Times on the command line."""

from __future__ import annotations

from datetime import UTC, datetime

import click

__all__ = ["time"]


def time(text: str) -> datetime:
    """An ISO 8601 time; without an offset it is UTC. Raises: ``click.BadParameter``."""
    try:
        at = datetime.fromisoformat(text)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is not a time such as 2026-03-01 or 2026-03-01T09:30:00Z"
        ) from None
