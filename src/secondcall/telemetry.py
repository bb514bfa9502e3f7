"""OpenTelemetry spans and metrics of what memory does: counts, durations and tokens, no content.

A program that exports spans has loaded ``opentelemetry`` to set its exporters up; from there it is
taken. Nothing here imports it: where nobody set it up, every call below returns at once. What was
said, and whose memory it is, stands in no span unless ``capture_content`` was called.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from opentelemetry import metrics, trace

__all__ = [
    "Measured",
    "capture_content",
    "count_late",
    "count_left_out",
    "count_unwritten",
    "count_usage",
    "operation",
]

Name = Literal[
    "brief",
    "context",
    "extract",
    "forget",
    "preload",
    "recall",
    "record",
    "remember",
    "summarise",
]
Value: TypeAlias = "str | bool | int | float"

_GEN_AI: Mapping[str, str] = {
    "forget": "delete_memory",
    "recall": "search_memory",
    "record": "create_memory",
    "remember": "upsert_memory",
}
"""The names that OpenTelemetry's GenAI conventions have for the same operations (2026)."""

_content = False


def capture_content(on: bool = True) -> None:
    """Put what is asked, and whose memory it is, into spans from now on; off at the start.

    Wherever the spans go, what callers said then goes too, and ``forget`` does not reach it there.
    """
    global _content
    _content = on


class Measured:
    """An operation under way: what is told of it goes into its span."""

    def __init__(self, span: trace.Span | None) -> None:
        self._span = span

    def set(self, **values: Value) -> None:
        """Counts, tokens and flags, by name."""
        if self._span is not None:
            for name, value in values.items():
                self._span.set_attribute(f"secondcall.{name}", value)

    def content(self, **texts: str) -> None:
        """Texts and ids, which are dropped unless ``capture_content`` was called."""
        if self._span is not None and _content:
            for name, text in texts.items():
                self._span.set_attribute(f"secondcall.content.{name}", text)


_UNSEEN = Measured(None)


@contextmanager
def operation(name: Name, *, store: str) -> Generator[Measured]:
    """Measure what is inside: a span ``secondcall.<name>`` and its duration, with the store's URL
    scheme and the outcome (``ok``, or the class of the error)."""
    api = _tracing()
    if api is None:
        yield _UNSEEN
        return
    attributes: dict[str, Value] = {"secondcall.operation": name, "secondcall.store": store}
    started = time.perf_counter()
    outcome = "ok"
    with api.get_tracer("secondcall").start_as_current_span(
        f"secondcall.{name}", record_exception=False, set_status_on_exception=False
    ) as span:
        for key, value in attributes.items():
            span.set_attribute(key, value)
        if name in _GEN_AI:
            span.set_attribute("gen_ai.operation.name", _GEN_AI[name])
        try:
            yield Measured(span)
        except BaseException as error:  # cancelled too is an outcome; raised on
            outcome = type(error).__name__
            span.set_status(api.StatusCode.ERROR)
            raise
        finally:
            seconds = time.perf_counter() - started
            span.set_attribute("secondcall.outcome", outcome)
            span.set_attribute("secondcall.ms", round(1e3 * seconds, 3))
            instruments = _metering()
            if instruments is not None:
                instruments.duration.record(seconds, {**attributes, "secondcall.outcome": outcome})


def count_late(name: Name, part: str) -> None:
    """A part of a read that the deadline cut off."""
    instruments = _metering()
    if instruments is not None:
        instruments.late.add(1, {"secondcall.operation": name, "secondcall.part": part})


def count_left_out(layer: str, reason: Literal["dropped", "oversized"], count: int = 1) -> None:
    """What did not fit into a layer's tokens: dropped whole, or shortened for its size."""
    instruments = _metering()
    if instruments is not None:
        instruments.left_out.add(count, {"secondcall.layer": layer, "secondcall.reason": reason})


def count_unwritten(state: Literal["late", "lost"], reason: str, count: int = 1) -> None:
    """Items that the store did not take at once: late ones wait, lost ones were given up."""
    instruments = _metering()
    if instruments is not None:
        instruments.unwritten.add(count, {"secondcall.state": state, "secondcall.reason": reason})


def count_usage(
    layer: str,
    operation: str,
    *,
    input_tokens: int,
    output_tokens: int = 0,
    cost: float | None = None,
) -> None:
    """The tokens of one call of a model or embedder, and what it cost if that was reported."""
    instruments = _metering()
    if instruments is None:
        return
    where = {"secondcall.layer": layer, "secondcall.operation": operation}
    instruments.tokens.add(max(0, input_tokens), {**where, "secondcall.direction": "input"})
    if output_tokens > 0:
        instruments.tokens.add(output_tokens, {**where, "secondcall.direction": "output"})
    if cost is not None and cost > 0:
        instruments.cost.add(cost, where)


@dataclass(frozen=True, slots=True)
class _Instruments:
    duration: metrics.Histogram
    late: metrics.Counter
    left_out: metrics.Counter
    unwritten: metrics.Counter
    tokens: metrics.Counter
    cost: metrics.Counter


_instruments: _Instruments | None = None


def _tracing() -> Any:
    """``opentelemetry.trace``, once somebody has loaded it whole."""
    api = sys.modules.get("opentelemetry.trace")
    return api if hasattr(api, "get_tracer") else None


def _metering() -> _Instruments | None:
    """The instruments, once somebody has loaded ``opentelemetry.metrics``; made a single time."""
    global _instruments
    api: Any = sys.modules.get("opentelemetry.metrics")
    if _instruments is None and hasattr(api, "get_meter"):
        meter: metrics.Meter = api.get_meter("secondcall")
        _instruments = _Instruments(
            duration=meter.create_histogram(
                "secondcall.operation.duration", "s", "How long an operation took."
            ),
            late=meter.create_counter(
                "secondcall.late_reads", "{read}", "Parts that a deadline cut off."
            ),
            left_out=meter.create_counter(
                "secondcall.left_out", "{item}", "What did not fit into a layer's tokens."
            ),
            unwritten=meter.create_counter(
                "secondcall.unwritten", "{item}", "Items that the store did not take at once."
            ),
            tokens=meter.create_counter(
                "secondcall.tokens", "{token}", "Tokens of model and embedding calls."
            ),
            cost=meter.create_counter(
                "secondcall.cost", "{unit}", "What calls cost, in the gateway's currency."
            ),
        )
    return _instruments
