"""What calls of models and embedders used, reported where they are made and collected above.

Whoever calls a model does so inside ``collecting``; whoever implements one calls ``report``. The
collector travels in the task's context, so two calls at once are never mixed up.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal

from secondcall.types import JsonValue

__all__ = ["Call", "collecting", "report"]

Operation = Literal["complete", "embed"]


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
