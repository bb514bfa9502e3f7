"""Copies plain values, in and out, and holds each field to its bounds; live objects are shared.

Plain are the values that a snapshot can hold: text, numbers, times, enums, containers, dataclasses
and pydantic models. A client, a socket or a lock inside a field is not copied: it stays the one
object that it is.
"""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, TypeVar, cast

from secondcall.errors import InvalidValue, TooLarge

__all__ = [
    "MAX_DEPTH",
    "Bounds",
    "copied",
    "copy_beside",
    "is_model",
    "is_namedtuple",
    "record_fields",
    "weighed",
]

MAX_DEPTH = 32
_BESIDE = ("__dict__", "__pydantic_private__")
_DECIMAL_BYTES = 128
"""What a decimal of usual length takes; only what is longer counts."""

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much one field may hold, everything inside it counted as often as it stands there:
    entries of containers, and characters of text and bytes."""

    entries: int
    characters: int


def copied(value: V, field: str = "value", bounds: Bounds | None = None) -> V:
    """A copy that shares nothing plain with ``value``.

    Raises: ``TooLarge`` naming the field when it holds more than ``bounds``; ``InvalidValue`` when
    it is more than 32 levels deep.
    """
    return cast("V", _Walk(field, bounds).copy(value, 0))


def weighed(value: object, field: str = "value") -> Bounds:
    """How much a value holds, itself one entry. Raises: ``InvalidValue`` as ``copied``."""
    walk = _Walk(field, None)
    walk.copy(value, 0)
    return Bounds(walk.entries + 1, walk.characters)


def copy_beside(
    value: object, new: object, names: Collection[str], copy: Callable[[str, object], object]
) -> None:
    """Give ``new`` copies of what ``value`` holds beside the fields ``names``: attributes that its
    class sets itself, and private ones of a model."""
    for store in _BESIDE:
        held: object = getattr(value, store, None)
        if isinstance(held, dict):
            others = cast("dict[str, object]", held).items()
            copies = {name: copy(name, one) for name, one in others if name not in names}
            cast("dict[str, object]", getattr(new, store)).update(copies)


def is_model(kind: Any) -> bool:
    """Whether a class is a pydantic model; pydantic is not imported to find out."""
    base: object = getattr(sys.modules.get("pydantic"), "BaseModel", None)
    return isinstance(base, type) and issubclass(kind, base) and hasattr(kind, "model_fields")


def is_namedtuple(kind: Any) -> bool:
    """Whether a class was made by ``NamedTuple`` or ``namedtuple``."""
    fields: object = getattr(kind, "_fields", None)
    return issubclass(kind, tuple) and isinstance(fields, tuple)


def record_fields(kind: Any) -> tuple[str, ...] | None:
    """The names of the fields of a dataclass or pydantic model; ``None`` for any other class."""
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    if is_model(kind):
        return tuple(kind.model_fields)
    return None


class _Walk:
    def __init__(self, field: str, bounds: Bounds | None) -> None:
        self.field = field
        self.bounds = bounds
        self.entries = 0
        self.characters = 0
        self._seen: dict[int, tuple[object, object]] = {}
        """By identity: what was copied, kept alive, and its copy."""
        self._weights: dict[int, Bounds] = {}

    def copy(self, value: object, depth: int) -> object:
        if depth > MAX_DEPTH:
            raise InvalidValue(f"{self.field} is more than {MAX_DEPTH} levels deep")
        if value is None or isinstance(value, str | bytes | int | float | Enum | Decimal):
            self._count_characters(value)
            return value
        if id(value) in self._seen:
            self._count_again(value)
            return self._seen[id(value)][1]
        before = Bounds(self.entries, self.characters)
        new = self._copy_parts(value, depth + 1)
        self._seen.setdefault(id(value), (value, new))
        self._weights[id(value)] = Bounds(
            self.entries - before.entries, self.characters - before.characters
        )
        return new

    def _copy_parts(self, value: object, depth: int) -> object:
        for kind, method in _METHODS:
            if isinstance(value, kind):
                return method(self, value, depth)
        names = record_fields(type(value))
        return value if names is None else self._record(value, names, depth)

    def _count_again(self, value: object) -> None:
        """What stands in several places counts in each: a snapshot holds it as often."""
        weight = self._weights.get(id(value))
        if weight is not None:
            self._add_entries(weight.entries)
            self._add_characters(weight.characters)

    def _count_characters(self, value: object) -> None:
        if isinstance(value, str | bytes):
            self._add_characters(len(value))
        elif isinstance(value, int):
            self._add_characters(value.bit_length() // 8)
        elif isinstance(value, Decimal):
            self._add_characters(max(0, sys.getsizeof(value) - _DECIMAL_BYTES))

    def _add_characters(self, count: int) -> None:
        self.characters += count
        if self.bounds is not None and self.characters > self.bounds.characters:
            raise TooLarge(
                f"{self.field} holds more than {self.bounds.characters:,} characters of text and "
                "bytes; keep it elsewhere and a reference here, or raise max_characters"
            )

    def _add_entries(self, count: int) -> None:
        self.entries += count
        if self.bounds is not None and self.entries > self.bounds.entries:
            raise TooLarge(
                f"{self.field} holds more than {self.bounds.entries:,} entries; use append, which "
                "lets the oldest go, or raise max_entries"
            )

    def _bytearray(self, value: bytearray, depth: int) -> bytearray:
        self._add_characters(len(value))
        return bytearray(value)

    def _list(self, value: list[object], depth: int) -> list[object]:
        self._add_entries(len(value))
        new = copy.copy(value)
        self._seen[id(value)] = value, new
        new[:] = [self.copy(one, depth) for one in value]
        return new

    def _deque(self, value: deque[object], depth: int) -> deque[object]:
        self._add_entries(len(value))
        new = copy.copy(value)
        self._seen[id(value)] = value, new
        parts = [self.copy(one, depth) for one in value]
        new.clear()
        new.extend(parts)
        return new

    def _dict(self, value: dict[object, object], depth: int) -> dict[object, object]:
        self._add_entries(len(value))
        new = copy.copy(value)
        self._seen[id(value)] = value, new
        for key, one in value.items():
            self.copy(key, depth)
            new[key] = self.copy(one, depth)
        return new

    def _set(self, value: set[object] | frozenset[object], depth: int) -> object:
        self._add_entries(len(value))
        for one in value:
            self.copy(one, depth)
        return value if isinstance(value, frozenset) else copy.copy(value)

    def _tuple(self, value: tuple[object, ...], depth: int) -> object:
        self._add_entries(len(value))
        parts = [self.copy(one, depth) for one in value]
        if type(value) is tuple:
            return tuple(parts)
        kind: Any = type(value)
        return kind(*parts) if is_namedtuple(kind) else value

    def _record(self, value: object, names: tuple[str, ...], depth: int) -> object:
        if isinstance(value, type):
            return value
        new = copy.copy(value)
        self._seen[id(value)] = value, new
        for name in names:
            if hasattr(value, name):
                object.__setattr__(new, name, self.copy(getattr(value, name), depth))
        copy_beside(value, new, names, lambda _, one: self.copy(one, depth))
        extra: object = getattr(value, "__pydantic_extra__", None)
        if isinstance(extra, dict):
            cast("Any", new).__pydantic_extra__.update(self._dict(cast("Any", extra), depth))
        return new


_METHODS: tuple[tuple[Any, Callable[[_Walk, Any, int], object]], ...] = (
    (bytearray, _Walk._bytearray),  # pyright: ignore[reportPrivateUsage] - the class above
    (list, _Walk._list),  # pyright: ignore[reportPrivateUsage] - the class above
    (dict, _Walk._dict),  # pyright: ignore[reportPrivateUsage] - the class above
    ((set, frozenset), _Walk._set),  # pyright: ignore[reportPrivateUsage] - the class above
    (tuple, _Walk._tuple),  # pyright: ignore[reportPrivateUsage] - the class above
    (deque, _Walk._deque),  # pyright: ignore[reportPrivateUsage] - the class above
)
