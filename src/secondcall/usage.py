"""What calls of models and embedders used, reported where they are made and collected above.

Whoever calls a model does so inside ``collecting``; whoever implements one calls ``report``. The
collector travels in the task's context, so two calls at once are never mixed up. ``Usage`` is what
``user.usage()`` makes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from secondcall.types import JsonValue

__all__ = ["Call", "Layer", "Usage", "UsageCall", "UsageTotal", "collecting", "report"]

Operation = Literal["complete", "embed"]
Layer = Literal["buffer", "recall", "facts", "state"]
"""What a call was made for: summaries, search, finding facts, recaps and state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request to a model. ``raw`` is the ``usage`` object as the endpoint sent it; ``cost`` is
    what the gateway says that it cost, in its own currency, or ``None``."""

    model: str
    operation: Operation
    input_tokens: int
    output_tokens: int = 0
    cost: float | None = None
    raw: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageCall:
    """One call as it was written down, for whom and what for.

    ``session_id`` is empty where it was not made for one session, such as a search segment.
    """

    at: datetime
    user_id: str
    session_id: str
    layer: Layer
    call: Call


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotal:
    """Some calls added up. ``cost`` is ``None`` when no gateway reported any."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a user's memory used since a time: all of it, and by layer, session and model.

    ``recent`` are the newest calls one by one, oldest first, with the ``usage`` object that the
    endpoint sent; older ones are kept as daily totals.
    """

    total: UsageTotal
    layers: Mapping[str, UsageTotal]
    sessions: Mapping[str, UsageTotal]
    models: Mapping[str, UsageTotal]
    recent: Sequence[UsageCall] = ()
    since: datetime | None = None


_collector: ContextVar[Callable[[Call], None] | None] = ContextVar("collector", default=None)


@contextmanager
def collecting(collect: Callable[[Call], None]) -> Generator[None]:
    """What is reported inside goes to ``collect``, and to no collector around it."""
    token = _collector.set(collect)
    try:
        yield
    finally:
        _collector.reset(token)


def report(call: Call) -> None:
    """Tell the collector of one request; nobody has to be collecting."""
    collect = _collector.get()
    if collect is not None:
        collect(call)
