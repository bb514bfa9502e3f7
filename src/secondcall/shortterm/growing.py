"""The steps on a single value: count up, append with a limit, find by path. They change nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import cast

from secondcall.errors import InvalidValue
from secondcall.shortterm.copying import Bounds, copied, weighed

__all__ = ["appended", "at_path", "incremented"]


def incremented(name: str, value: object, by: object) -> int:
    """The sum of two whole numbers. Raises: ``InvalidValue``."""
    if isinstance(by, bool) or not isinstance(by, int):
        raise InvalidValue(f"increment takes a whole number, not {type(by).__name__}")
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidValue(f"{name} is a {type(value).__name__}; only whole numbers count up")
    return value + by


def appended(
    name: str, values: object, value: object, *, limit: int | None, bounds: Bounds
) -> tuple[object, int]:
    """A copy of a list with one value more, and how many of the oldest went for it.

    Raises: ``InvalidValue``; ``TooLarge`` when the value does not fit alone.
    """
    if not isinstance(values, list | deque):
        raise InvalidValue(f"{name} is a {type(values).__name__}; append needs a list")
    copied([value], name, bounds)
    new = copied(cast("list[object] | deque[object]", values))
    before = len(new)
    new.append(copied(value))
    sizes = [weighed(one, name) for one in new]
    most = min(bounds.entries, limit or bounds.entries)
    entries, characters = sum(one.entries for one in sizes), sum(one.characters for one in sizes)
    for size in sizes:
        if len(new) <= most and entries <= bounds.entries and characters <= bounds.characters:
            break
        _drop_oldest(new)
        entries, characters = entries - size.entries, characters - size.characters
    return new, before + 1 - len(new)


def _drop_oldest(values: list[object] | deque[object]) -> None:
    if isinstance(values, deque):
        values.popleft()
    else:
        del values[0]


def at_path(value: object, path: str, default: object) -> object:
    """What a dotted path leads to: attributes, keys and positions; ``default`` where it ends."""
    for step in path.split("."):
        found = _step(value, step)
        if found is _NOTHING:
            return default
        value = found
    return value


_NOTHING = object()


def _step(value: object, step: str) -> object:
    if isinstance(value, Mapping):
        return cast("Mapping[object, object]", value).get(step, _NOTHING)
    if isinstance(value, list | tuple | deque) and step.isdecimal():
        parts = cast("Sequence[object]", value)
        return parts[int(step)] if int(step) < len(parts) else _NOTHING
    if step.startswith("_"):
        return _NOTHING
    return getattr(cast("object", value), step, _NOTHING)
