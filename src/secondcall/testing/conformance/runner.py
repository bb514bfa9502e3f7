"""The suite without pytest's collection: which of its tests a store fails."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import cast

import pytest

from secondcall.testing.conformance.material import StoreFactory
from secondcall.testing.conformance.suite import StoreConformance

__all__ = ["failures"]

_TEST_SECONDS = 60.0


def failures(
    make_factory: Callable[[], StoreFactory], *, only: Iterable[str] | None = None
) -> list[str]:
    """The names of the tests that fail, in order.

    ``make_factory`` is called once for each test and gives the ``store_factory`` over an empty
    place. ``only`` limits the run to tests of these names. A test that takes over 60 s fails.
    """
    wanted = None if only is None else set(only)
    suite = StoreConformance()
    return [
        name
        for name, _ in inspect.getmembers(StoreConformance, inspect.isfunction)
        if name.startswith("test_")
        and (wanted is None or name in wanted)
        and not asyncio.run(_passes(suite, name, make_factory()))
    ]


async def _passes(suite: StoreConformance, name: str, factory: StoreFactory) -> bool:
    test = cast("Callable[..., Awaitable[None]]", getattr(suite, name))
    store = factory()
    try:
        await store.open()
        known = {"store": store, "store_factory": factory}
        wanted = inspect.signature(test).parameters
        await asyncio.wait_for(test(**{one: known[one] for one in wanted}), _TEST_SECONDS)
        return not await store.problems()
    except pytest.skip.Exception:
        return True
    except (Exception, pytest.fail.Exception):
        return False
    finally:
        await store.aclose()
