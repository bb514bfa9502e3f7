"""The suites without pytest's collection: which of their tests a store fails."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import cast

import pytest

from secondcall.testing.conformance.material import StoreFactory
from secondcall.testing.conformance.state_material import EPOCH, KEY, NOW_US, StateHarness
from secondcall.testing.conformance.state_suite import StateConformance
from secondcall.testing.conformance.suite import StoreConformance

__all__ = ["failures", "state_failures"]

_TEST_SECONDS = 60.0
_Fixtures = AbstractAsyncContextManager[dict[str, object]]


def failures(
    make_factory: Callable[[], StoreFactory], *, only: Iterable[str] | None = None
) -> list[str]:
    """The names of the tests that fail, in order.

    ``make_factory`` is called once for each test and gives the ``store_factory`` over an empty
    place. ``only`` limits the run to tests of these names. A test that takes over 60 s fails.
    """
    return _failures(StoreConformance(), lambda: _store_fixtures(make_factory()), only)


def state_failures(
    make_harness: Callable[[], StateHarness], *, only: Iterable[str] | None = None
) -> list[str]:
    """As ``failures``, of the suite of states; ``make_harness`` gives a harness over an empty
    place, once for each test."""
    return _failures(StateConformance(), lambda: _state_fixtures(make_harness()), only)


def _failures(
    suite: object, fixtures: Callable[[], _Fixtures], only: Iterable[str] | None
) -> list[str]:
    wanted = None if only is None else set(only)
    return [
        name
        for name, test in inspect.getmembers(suite, inspect.ismethod)
        if name.startswith("test_")
        and (wanted is None or name in wanted)
        and not asyncio.run(_passes(test, fixtures()))
    ]


@asynccontextmanager
async def _store_fixtures(factory: StoreFactory) -> AsyncGenerator[dict[str, object]]:
    store = factory()
    try:
        await store.open()
        yield {"store": store, "store_factory": factory}
        assert list(await store.problems()) == []
    finally:
        await store.aclose()


@asynccontextmanager
async def _state_fixtures(harness: StateHarness) -> AsyncGenerator[dict[str, object]]:
    store = harness.make()
    try:
        await store.open()
        await store.admit(KEY.tenant_id, KEY.user_id, epoch=EPOCH, now_us=NOW_US)
        yield {"states": store, "harness": harness}
        assert list(await store.problems()) == []
    finally:
        await store.aclose()


async def _passes(test: Callable[..., object], fixtures: _Fixtures) -> bool:
    run = cast("Callable[..., Awaitable[None]]", test)
    try:
        async with fixtures as known:
            wanted = inspect.signature(run).parameters
            await asyncio.wait_for(run(**{one: known[one] for one in wanted}), _TEST_SECONDS)
    except pytest.skip.Exception:
        return True
    except (Exception, pytest.fail.Exception):
        return False
    return True
