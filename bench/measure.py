"""Timing helpers: percentiles, the machine's name, the loop's lag."""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections.abc import Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

__all__ = ["Lag", "loop_lag", "machine", "percentile", "report"]


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile, ``share`` in 0..1."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def machine() -> str:
    """One line on where this ran."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            model = next(
                (line.split(":", 1)[1].strip() for line in file if line.startswith("model name")),
                model,
            )
    except OSError:
        pass
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}{load}"


def report(name: str, seconds: Sequence[float], *, promise: str = "") -> str:
    """One printed line: p50 and p99 in milliseconds, with the promise beside."""
    line = (
        f"{name:<44} p50 {1e3 * percentile(seconds, 0.5):8.2f} ms   "
        f"p99 {1e3 * percentile(seconds, 0.99):8.2f} ms   n={len(seconds)}"
    )
    if promise:
        line += f"   (promised {promise})"
    print(line, flush=True)
    return line


@dataclass
class Lag:
    """How late the loop woke a task that slept 1 ms, in seconds."""

    seconds: list[float] = field(default_factory=list[float])


@asynccontextmanager
async def loop_lag():
    """Measure the running loop's lag while the body runs."""
    lag = Lag()

    async def watch() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            lag.seconds.append(time.perf_counter() - before - 0.001)

    task = asyncio.create_task(watch())
    try:
        yield lag
    finally:
        task.cancel()
