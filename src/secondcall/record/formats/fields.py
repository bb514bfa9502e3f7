"""Reads JSON objects field by field, and says where the file is wrong.

An error names the file, the place in it, the field, what was expected and the *kind* of what was
found, never the text that stands there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NoReturn, cast

from secondcall.errors import InvalidValue
from secondcall.types import JsonValue, Metadata

__all__ = ["Fields", "Place", "parse_json"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where in which file something stands: ``Place("chat.json", "messages[3]")``."""

    file: str
    path: str = ""

    def inside(self, part: str) -> Place:
        """The place of a part of what stands here."""
        dotted = (
            f"{self.path}.{part}" if self.path and not part.startswith("[") else self.path + part
        )
        return Place(self.file, dotted)

    def refuse(self, problem: str) -> NoReturn:
        """Raise ``InvalidValue`` with this place in front."""
        raise InvalidValue(f"{self}: {problem}")

    def __str__(self) -> str:
        return f"{self.file}, {self.path}" if self.path else self.file


def parse_json(text: str, place: Place) -> object:
    """The JSON value of a text. Raises: ``InvalidValue`` with line and column, never the text."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        place.refuse(f"not JSON at line {error.lineno}, column {error.colno} ({error.msg})")
    except RecursionError:
        place.refuse("nested too deeply to be read")
    except ValueError as error:
        place.refuse(f"not JSON ({error})")


class Fields:
    """One JSON object, read field by field."""

    __slots__ = ("_values", "place")

    def __init__(self, value: object, place: Place, *, what: str = "an object") -> None:
        if not isinstance(value, dict):
            place.refuse(f"expected {what}, found {_kind(value)}")
        self._values = cast("dict[str, object]", value)
        self.place = place

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def names(self) -> Sequence[str]:
        """The names of the fields, in file order."""
        return tuple(self._values)

    def raw(self, name: str) -> object:
        """The value of a field as it stands, ``None`` if absent."""
        return self._values.get(name)

    def text(self, name: str) -> str:
        """A field that must be a string."""
        value = self._values.get(name)
        if not isinstance(value, str):
            self.refuse(name, "a string")
        return value

    def optional_text(self, name: str) -> str | None:
        """A field that may be a string, ``null`` or absent."""
        return self.text(name) if name in self else None

    def flag(self, name: str) -> bool:
        """A field that may be ``true``, ``false``, ``null`` or absent (then false)."""
        value = self._values.get(name)
        if value is not None and not isinstance(value, bool):
            self.refuse(name, "true or false")
        return bool(value)

    def entries(self, name: str) -> Sequence[object]:
        """A field that must be a list."""
        value = self._values.get(name)
        if not isinstance(value, list):
            self.refuse(name, "a list")
        return cast("list[object]", value)

    def metadata(self, name: str) -> Metadata:
        """A field that may be an object, ``null`` or absent (then empty)."""
        value = self._values.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.refuse(name, "an object")
        return cast("Metadata", value)

    def json(self, name: str) -> JsonValue:
        """A field that may hold any JSON value."""
        return cast("JsonValue", self._values.get(name))

    def choice(self, name: str, options: Sequence[str]) -> str:
        """A field that must be one of a few words."""
        value = self._values.get(name)
        if not isinstance(value, str) or value not in options:
            self.refuse(name, f"one of {', '.join(options)}")
        return value

    def iso_time(self, name: str) -> datetime | None:
        """A field that may be an ISO 8601 time with an offset."""
        if name not in self:
            return None
        try:
            at = datetime.fromisoformat(self.text(name))
        except ValueError:
            self.refuse(name, "an ISO 8601 time such as 2026-03-01T09:30:00Z")
        if at.tzinfo is None:
            self.refuse(name, "a time with an offset such as +02:00 or Z")
        return self._utc(name, at)

    def unix_time(self, name: str) -> datetime | None:
        """A field that may be seconds since 1970 as a number."""
        value = self._values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(name, "seconds since 1970 as a number")
        try:
            return datetime.fromtimestamp(value, UTC)
        except (ValueError, OverflowError, OSError):
            self.refuse(name, "seconds since 1970 within the years 1 to 9999")

    def refuse(self, name: str, expected: str) -> NoReturn:
        """Raise ``InvalidValue`` for a field."""
        found = _kind(self._values[name]) if name in self._values else "nothing"
        self.place.inside(name).refuse(f"expected {expected}, found {found}")

    def _utc(self, name: str, at: datetime) -> datetime:
        try:
            return at.astimezone(UTC)
        except OverflowError:
            self.refuse(name, "a time within the years 1 to 9999 in UTC")


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, str):
        return "another string" if value else "an empty string"
    if isinstance(value, int | float):
        return "a number"
    return "an object" if isinstance(value, Mapping) else "a list"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
