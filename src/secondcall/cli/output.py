"""Printing: safe on every terminal, one JSON object where asked for, progress for people only."""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Self

import click

from secondcall.types import Fact, Item, JsonValue, Message, RecalledItem, RecordedItem

__all__ = [
    "Progress",
    "allow_any_text",
    "fact_json",
    "item_json",
    "item_lines",
    "print_json",
    "printable",
    "recalled_json",
    "say",
    "stamp",
    "to_json",
]

# What glues emoji and Arabic or Indic letters together is no danger to a terminal.
_JOINERS = "\u200c\u200d"
_REDRAW_SECONDS = 0.1


def allow_any_text() -> None:
    """Let the standard streams print what their encoding does not have, as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def printable(text: str) -> str:
    """``text`` with control characters as escapes, so that it cannot steer the terminal."""
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character in "\n\t" or character in _JOINERS
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def say(text: str = "", *, bold: bool = False, dim: bool = False) -> None:
    """Print a line for people."""
    click.echo(click.style(printable(text), bold=bold or None, dim=dim or None))


def print_json(value: object) -> None:
    """Print one JSON object, in ASCII, so that any pipe can carry it."""
    click.echo(to_json(value, indent=2))


def to_json(value: object, *, indent: int | None = None) -> str:
    """JSON in ASCII, times in ISO 8601."""
    return json.dumps(value, indent=indent, default=_plain)


def stamp(at: datetime) -> str:
    """A time as people read it."""
    return f"{at:%Y-%m-%d %H:%M} UTC" if at.year >= 1000 else at.isoformat()


def item_json(recorded: RecordedItem | RecalledItem) -> dict[str, object]:
    """A recorded item as JSON."""
    return {
        "user_id": recorded.key.user_id,
        "session_id": recorded.key.session_id,
        "kind": recorded.key.kind,
        "id": recorded.key.id,
        "at": recorded.at,
        **_item_json(recorded.item),
    }


def recalled_json(found: RecalledItem) -> dict[str, object]:
    """A recalled item as JSON."""
    return {
        **item_json(found),
        "score": round(found.score, 6),
        "features": dict(found.features),
        "stale": found.stale,
        "to_confirm": found.to_confirm,
        "before": [item_json(one) for one in found.before],
        "after": [item_json(one) for one in found.after],
        "matched": list(found.matched),
    }


def fact_json(fact: Fact) -> dict[str, object]:
    """A fact as JSON."""
    return {
        "id": fact.id,
        "kind": fact.kind,
        "subject": fact.subject,
        "predicate": fact.predicate,
        "value": fact.value,
        "status": fact.status,
        "valid_from": fact.valid_from,
        "invalid_at": fact.invalid_at,
        "recorded_at": fact.recorded_at,
        "superseded_by": fact.superseded_by,
        "due_at": fact.due_at,
        "multi": fact.multi,
        "rests_on": list(fact.rests_on),
        "to_confirm": fact.to_confirm,
        "sensitive": fact.sensitive,
        "sources": [key._asdict() for key in fact.sources],
        "metadata": fact.metadata,
    }


def item_lines(recorded: RecordedItem | RecalledItem, *, note: str = "") -> list[str]:
    """An item in two lines: when, who and where; and the words."""
    item = recorded.item
    if isinstance(item, Message):
        who = item.role if item.speaker is None else f"{item.role} ({item.speaker})"
        who += ", interrupted" if item.interrupted else ""
        words = item.text
    else:
        who = f"tool {item.name}"
        output = "no output" if item.output is None else item.output
        words = f"{_compact(item.arguments)} -> {'error: ' if item.is_error else ''}{output}"
    place = f"{recorded.key.session_id} / {recorded.key.id}"
    head = f"{stamp(recorded.at)}  {who}  [{place}]{note}"
    return [head, *(f"  {line}" for line in words.split("\n"))]


class Progress:
    """A line on standard error that counts up while long work runs; silent without a terminal."""

    def __init__(self, what: str, total: int | None = None) -> None:
        self._what = what
        self._total = total
        self._done = 0
        self._drawn_at = 0.0
        self._shown = sys.stderr.isatty()

    def __enter__(self) -> Self:
        self._draw(force=True)
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._shown:
            click.echo("\r\x1b[K", nl=False, err=True)

    def advance(self, by: int = 1) -> None:
        """So many more are done."""
        self.reach(self._done + by, self._total)

    def reach(self, done: int, total: int | None) -> None:
        """So many are done of so many."""
        self._done, self._total = done, total
        self._draw()

    def _draw(self, *, force: bool = False) -> None:
        now = time.monotonic()
        if not self._shown or (not force and now - self._drawn_at < _REDRAW_SECONDS):
            return
        self._drawn_at = now
        if self._total is not None:
            count = f": {self._done:,} of {self._total:,}"
        else:
            count = f": {self._done:,}" if self._done else " ..."
        click.echo(f"\r\x1b[K{self._what}{count}", nl=False, err=True)


def _item_json(item: Item) -> dict[str, object]:
    if isinstance(item, Message):
        return {
            "role": item.role,
            "speaker": item.speaker,
            "text": item.text,
            "interrupted": item.interrupted,
            "metadata": item.metadata,
        }
    return {
        "name": item.name,
        "arguments": item.arguments,
        "output": item.output,
        "is_error": item.is_error,
        "metadata": item.metadata,
    }


def _compact(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, Mapping):
        return dict(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - json walks it
    if isinstance(value, Sequence):
        return list(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - json walks it
    raise TypeError(f"{type(value).__name__} is not JSON")
