"""The application's own screen over what was found: after ours, within the deadline.

A screen that fails or is late leaves the items as they were, and the answer says so: whoever must
not show anything unscreened looks at ``Recalled.warnings``.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias

import anyio.to_thread

from secondcall.types import RecalledItem

__all__ = ["Screen", "screened"]

_log = logging.getLogger("secondcall")
_RESERVE_SECONDS = 0.002

Screen: TypeAlias = Callable[
    [list[RecalledItem]], Sequence[RecalledItem] | Awaitable[Sequence[RecalledItem]]
]
"""Takes the items found, best first, with their scores, and returns those that shall come out, in
their order. A plain function runs in a worker thread."""


async def screened(
    items: Sequence[RecalledItem], screen: Screen | None, *, until: float | None
) -> tuple[list[RecalledItem], list[str]]:
    """What ``screen`` lets pass, and a warning if it could not. ``until`` is the deadline on the
    performance counter."""
    if screen is None or not items:
        return list(items), []
    timeout = None
    if until is not None:
        timeout = max(0.0, until - time.perf_counter() - _RESERVE_SECONDS)
    try:
        async with asyncio.timeout(timeout):
            passed = await _run(screen, list(items))
        return _checked(passed, items), []
    except TimeoutError:
        why = "the deadline came before it was done"
    except Exception as error:  # whatever it raises, an answer is due
        why = f"it failed with {type(error).__name__}"
    _log.warning("a screen was left out", extra={"reason": why})
    return list(items), [f"the items are not screened by the application: {why}"]


async def _run(screen: Screen, items: list[RecalledItem]) -> object:
    if inspect.iscoroutinefunction(screen):
        return await screen(items)
    passed = await anyio.to_thread.run_sync(partial(screen, items), abandon_on_cancel=True)
    return await passed if inspect.isawaitable(passed) else passed


def _checked(passed: object, items: Sequence[RecalledItem]) -> list[RecalledItem]:
    """The items that passed. Raises: ``TypeError``, ``ValueError`` for anything else."""
    if not isinstance(passed, Sequence):
        raise TypeError("a screen must return a list of recalled items")
    found: list[RecalledItem] = []
    keys = {item.key for item in items}
    for one in passed:  # pyright: ignore[reportUnknownVariableType] - checked here
        if not isinstance(one, RecalledItem) or one.key not in keys:
            raise ValueError("a screen may only return items that it was given")
        found.append(one)
    return found
