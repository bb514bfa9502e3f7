"""Spans and metrics, read from OpenTelemetry's own in-memory exporters."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from secondcall import InvalidValue, Memory, Message, telemetry

SPANS = InMemorySpanExporter()
READER = InMemoryMetricReader()


@pytest.fixture(scope="module", autouse=True)
def _providers() -> None:
    """The process's providers, which can be set only once."""
    tracing = TracerProvider(shutdown_on_exit=False)
    tracing.add_span_processor(SimpleSpanProcessor(SPANS))
    trace.set_tracer_provider(tracing)
    metrics.set_meter_provider(MeterProvider([READER], shutdown_on_exit=False))


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    SPANS.clear()
    yield
    telemetry.capture_content(False)
    SPANS.clear()


def _spans() -> dict[str, ReadableSpan]:
    return {span.name: span for span in SPANS.get_finished_spans()}


def _points(name: str) -> list[tuple[Mapping[str, Any], Any]]:
    """Attributes and value of every point of a metric."""
    data = READER.get_metrics_data()
    assert data is not None
    return [
        (dict(point.attributes or {}), getattr(point, "value", None) or getattr(point, "count", 0))
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == name
        for point in metric.data.data_points
    ]


async def test_every_verb_leaves_a_span() -> None:
    """Recording, remembering, recalling, a brief, a context and forgetting each give one span with
    counts, milliseconds, the store's scheme and the outcome, and no word of what was said."""
    async with Memory.open("memory://") as memory:
        user = memory.user("ana-4711")
        session = await user.session("call-77")
        await session.record(Message("user", "My dog is called Rex."))
        await user.remember("dog", "Rex")
        await session.context(window=4_000, reserve=500)
        await user.recall("what is my dog called?")
        await user.brief(deadline_seconds=None)
        await user.forget()
    spans = _spans()
    verbs = ("record", "remember", "recall", "brief", "context", "forget")
    assert {f"secondcall.{verb}" for verb in verbs} <= set(spans)
    for verb in verbs:
        attributes = dict(spans[f"secondcall.{verb}"].attributes or {})
        assert attributes["secondcall.store"] == "memory"
        assert attributes["secondcall.outcome"] == "ok"
        assert float(str(attributes["secondcall.ms"])) >= 0
        said = str(attributes)
        assert not any(word in said for word in ("Rex", "dog", "ana-4711", "call-77"))
    assert dict(spans["secondcall.record"].attributes or {})["secondcall.items"] == 1
    assert dict(spans["secondcall.recall"].attributes or {})["secondcall.found_items"] == 1
    assert int(str((spans["secondcall.brief"].attributes or {})["secondcall.tokens"])) > 0


async def test_summarising_leaves_a_span() -> None:
    """A round of summarising in the background is a span of its own."""
    async with Memory.open("memory://") as memory:
        session = await memory.user("ana").session("call-77")
        await session.buffer(500)
        for number in range(40):
            await session.record(
                Message("user", f"My number {number} is {1_000 + number}."),
                Message("assistant", f"Noted, number {number} it is, please go on."),
            )
        await memory.flush()
    attributes = dict(_spans()["secondcall.summarise"].attributes or {})
    assert attributes["secondcall.outcome"] == "ok"
    assert "Noted" not in str(attributes)


async def test_content_is_an_opt_in() -> None:
    """Only after ``capture_content`` do the question and the user stand in a span."""
    telemetry.capture_content()
    async with Memory.open("memory://") as memory:
        await memory.user("ana-4711").recall("what is my dog called?")
    attributes = dict(_spans()["secondcall.recall"].attributes or {})
    assert attributes["secondcall.content.query"] == "what is my dog called?"
    assert attributes["secondcall.content.user_id"] == "ana-4711"


async def test_failure_is_named_and_not_quoted() -> None:
    """The span of a refused call holds the class of the error and none of its text."""
    async with Memory.open("memory://") as memory:
        session = await memory.user("ana").session("call-1")
        with pytest.raises(InvalidValue):
            await session.record(Message("user", 12345))  # pyright: ignore[reportArgumentType] - on purpose
    span = _spans()["secondcall.record"]
    assert (span.attributes or {})["secondcall.outcome"] == "InvalidValue"
    assert span.status.status_code is trace.StatusCode.ERROR
    assert span.status.description is None
    assert span.events == ()


async def test_durations_are_measured_by_operation() -> None:
    """Each operation gives one point of the duration histogram, with its outcome."""
    async with Memory.open("memory://") as memory:
        session = await memory.user("ana").session("call-1")
        await session.record(Message("user", "hello"))
    wanted = {
        "secondcall.operation": "record",
        "secondcall.store": "memory",
        "secondcall.outcome": "ok",
    }
    assert any(attributes == wanted for attributes, _ in _points("secondcall.operation.duration"))


def test_usage_is_counted_by_layer_and_operation() -> None:
    """Tokens are counted in and out, cost where it was reported; late and dropped parts too."""
    telemetry.count_usage("buffer", "complete", input_tokens=70, output_tokens=30, cost=0.5)
    telemetry.count_usage("recall", "embed", input_tokens=11)
    telemetry.count_late("context", "recall")
    telemetry.count_left_out("state", "dropped", 3)
    telemetry.count_unwritten("late", "StoreBusy", 2)

    def found(name: str) -> set[tuple[tuple[Any, ...], Any]]:
        return {(tuple(attributes.values()), value) for attributes, value in _points(name)}

    assert {
        (("buffer", "complete", "input"), 70),
        (("buffer", "complete", "output"), 30),
        (("recall", "embed", "input"), 11),
    } <= found("secondcall.tokens")
    assert (("buffer", "complete"), 0.5) in found("secondcall.cost")
    assert (("context", "recall"), 1) in found("secondcall.late_reads")
    assert (("state", "dropped"), 3) in found("secondcall.left_out")
    assert (("late", "StoreBusy"), 2) in found("secondcall.unwritten")


_WITHOUT = """
import asyncio, sys
from secondcall import Memory, Message, telemetry
async def main():
    async with Memory.open("memory://") as memory:
        session = await memory.user("ana").session("s")
        await session.record(Message("user", "hello"))
        await session.context(window=1000, reserve=0)
asyncio.run(main())
telemetry.count_usage("recall", "embed", input_tokens=1)
telemetry.count_late("recall", "record")
telemetry.count_left_out("recall", "dropped")
telemetry.count_unwritten("lost", "refused")
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""


def test_it_is_not_loaded_by_us() -> None:
    """A program that does not use OpenTelemetry never gets it loaded, whatever it calls."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _WITHOUT], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
