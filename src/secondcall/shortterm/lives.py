"""How long each value lives, by its name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from secondcall.errors import InvalidValue
from secondcall.shortterm.shape import OWN_NAMES, Shape

__all__ = ["DEFAULT_TTL_SECONDS", "Forward", "Lives", "left"]

DEFAULT_TTL_SECONDS = 300.0
_REST = "*"


class Forward:
    """A clock that only goes forward, made of one that may have been put back: from there on it
    counts what passes. Not safe from threads; its owner locks."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._last = -math.inf
        self._lost = 0.0

    def __call__(self) -> float:
        """The seconds now."""
        now = self.clock()
        if now < self._last:
            self._lost += self._last - now
        self._last = now
        return now + self._lost

    def copy(self) -> Forward:
        """Another one that shows the same time."""
        other = Forward(self.clock)
        other._last, other._lost = self._last, self._lost
        return other


class Lives:
    """The TTL of each field and of ``messages``, ``intent`` and ``flags``.

    Raises: ``InvalidValue`` for what is no time span, ``UnknownName`` for what is no field.
    """

    def __init__(
        self, setting: float | Mapping[str, float | None] | None, shape: Shape[Any]
    ) -> None:
        self.setting = dict(setting) if isinstance(setting, Mapping) else setting
        by_name = setting if isinstance(setting, Mapping) else {_REST: setting}
        shape.check_names(
            "ttl_seconds", {name: None for name in by_name if name not in (_REST, *OWN_NAMES)}
        )
        rest = _seconds(_REST, by_name.get(_REST, DEFAULT_TTL_SECONDS))
        self._seconds = dict.fromkeys((*shape.names, *OWN_NAMES), rest)
        for name, value in by_name.items():
            self._seconds[name] = _seconds(name, value)

    def seconds(self, name: str) -> float:
        """The TTL of a name; infinite when it never expires."""
        return self._seconds[name]

    def end(self, name: str, now: float) -> float:
        """When a value that is written now runs out."""
        return now + self._seconds[name]

    def end_again(self, name: str, now: float, left: float | None, elapsed: float) -> float:
        """When a value that had ``left`` seconds runs out, ``elapsed`` seconds later; the shorter
        of its old and its present TTL counts."""
        return now + min(math.inf if left is None else left, self._seconds[name]) - elapsed


def left(ends_at: float, now: float) -> float | None:
    """The seconds that are left; ``None`` for ever."""
    return None if math.isinf(ends_at) else max(0.0, ends_at - now)


def _seconds(name: str, value: object) -> float:
    if value is None:
        return math.inf
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValue(f"ttl_seconds of {name!r} must be a number, not {type(value).__name__}")
    if not 0 < value < math.inf:
        raise InvalidValue(
            f"ttl_seconds of {name!r} is {value}, expected more than 0, or None for ever"
        )
    return float(value)
