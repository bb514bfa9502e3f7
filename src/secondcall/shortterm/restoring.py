"""Reads a snapshot against the user's type as it is now, and names all that does not fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from secondcall.checks import check_id
from secondcall.errors import InvalidValue
from secondcall.shortterm.copying import Bounds, copied
from secondcall.shortterm.encoding import Undecodable, decode
from secondcall.shortterm.hints import Types, fits, hints_of
from secondcall.shortterm.lives import Lives
from secondcall.shortterm.shape import Shape
from secondcall.shortterm.snapshot import (
    Restored,
    checked_snapshot,
    message_from_json,
    seconds_left,
)
from secondcall.types import Message

__all__ = ["Found", "read_snapshot"]

_MAX_NAMED = 100
"""So many unknown names and refusals are named at most: the report is bounded too."""


@dataclass(slots=True)
class Found:
    """What a snapshot still gives: values and their lives in seconds from now, and the report."""

    values: dict[str, object] = field(default_factory=dict[str, object])
    lives: dict[str, float] = field(default_factory=dict[str, float])
    flags: dict[str, float] = field(default_factory=dict[str, float])
    intent: tuple[str, float] | None = None
    messages: list[tuple[Message, float]] = field(default_factory=list[tuple[Message, float]])
    report: Restored = field(default_factory=Restored)


def read_snapshot(
    snapshot: object, shape: Shape[Any], lives: Lives, bounds: Bounds, *, wall_now: datetime
) -> Found:
    """What is left of a snapshot at ``wall_now``. Raises: ``InvalidValue`` if it is none."""
    held, at = checked_snapshot(snapshot)
    elapsed = max(0.0, (wall_now - at).total_seconds())
    reader = _Reader(shape, lives, bounds, elapsed)
    for name, one in held["fields"].items():
        reader.read(str(name), lambda name=name, one=one: reader.field(str(name), one))
    for name, one in held["flags"].items():
        reader.read("flags", lambda name=name, one=one: reader.flag(name, one))
    if held["intent"]:
        reader.read("intent", lambda: reader.intent(held["intent"]))
    for number, one in enumerate(held["messages"]):
        path = f"messages[{number}]"
        reader.read(path, lambda path=path, one=one: reader.message(path, one))
    found, names = reader.found, {str(name) for name in held["names"]}
    found.report = Restored(
        restored=tuple(sorted(found.values)),
        expired=tuple(reader.expired),
        missing=tuple(
            name for name in shape.names if name not in names and name not in held["fields"]
        ),
        unknown=tuple(sorted((names | set(held["fields"])) - set(shape.names)))[:_MAX_NAMED],
        refused=reader.refused,
        elapsed_seconds=elapsed,
    )
    return found


class _Reader:
    def __init__(self, shape: Shape[Any], lives: Lives, bounds: Bounds, elapsed: float) -> None:
        fresh = shape.fresh()
        self.found = Found()
        self.expired: list[str] = []
        self.refused: dict[str, str] = {}
        self._shape, self._lives, self._bounds, self._elapsed = shape, lives, bounds, elapsed
        self._types, self._hints = Types(fresh), hints_of(shape.kind)

    def read(self, path: str, step: Callable[[], None]) -> None:
        """Do a step; if its part of the snapshot cannot be read, say why and go on."""
        try:
            step()
        except (Undecodable, InvalidValue) as error:
            self._refuse(path, str(error))
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
            self._refuse(path, f"{path} is malformed ({type(error).__name__})")

    def field(self, name: str, held: Mapping[str, object]) -> None:
        if name not in self._shape.names:
            return
        life = self._life(name, held)
        if life <= 0:
            self.expired.append(name)
            return
        value = decode(held["value"], name, self._types)
        if not fits(value, self._hints.get(name)):
            raise Undecodable(f"{name} is now of another type than {type(value).__name__}")
        self.found.values[name] = copied(value, name, self._bounds)
        self.found.lives[name] = life

    def flag(self, name: object, held: object) -> None:
        life = self._life("flags", {"left_seconds": held})
        if life > 0:
            self.found.flags[check_id("flag", name)] = life

    def intent(self, held: Mapping[str, object]) -> None:
        life = self._life("intent", held)
        if life > 0:
            self.found.intent = check_id("intent", held["value"]), life

    def message(self, path: str, held: Mapping[str, Any]) -> None:
        life = self._life("messages", held)
        if life > 0:
            self.found.messages.append((message_from_json(path, held), life))

    def _life(self, name: str, held: object) -> float:
        left = seconds_left(cast("Mapping[str, object]", held))
        return self._lives.end_again(name, 0.0, left, self._elapsed)

    def _refuse(self, path: str, why: str) -> None:
        if len(self.refused) < _MAX_NAMED:
            self.refused[path] = why
