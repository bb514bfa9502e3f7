"""Work that nobody waits for: loading, sealing and embedding beside the conversation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Hashable
from typing import Any

from secondcall.errors import SecondcallError

__all__ = ["Background"]

_log = logging.getLogger("secondcall")


class Background:
    """Runs coroutines as tasks of the running event loop, at most one for each key.

    What is asked for again while it runs is done once more afterwards. Failures of the library's
    own kind are logged and tried again with the next occasion; the record has lost nothing.
    """

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Task[None]] = {}
        self._again: set[Hashable] = set()
        self._closed = False

    def start(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Do ``work`` soon, unless the same key is at it already."""
        if self._closed:
            return
        key = (key, id(asyncio.get_running_loop()))
        if key in self._tasks:
            self._again.add(key)
            return
        self._tasks[key] = asyncio.create_task(self._run(key, work))

    def adopt(self, task: asyncio.Future[Any]) -> None:
        """See a task to its end that its caller could not wait for."""

        async def finish() -> None:
            await task

        self.start(("adopted", id(task)), finish)

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until everything that was started on this loop is done, at most ``seconds``."""
        loop = asyncio.get_running_loop()
        while tasks := [task for task in self._tasks.values() if task.get_loop() is loop]:
            _, pending = await asyncio.wait(tasks, timeout=seconds)
            if pending:
                return

    def open(self) -> None:
        """Take work, again after ``aclose``."""
        self._closed = False

    async def aclose(self, seconds: float) -> None:
        """Wait at most ``seconds``, then stop what still runs: it can all be done again later."""
        self._closed = True
        await self.wait(seconds)
        loop = asyncio.get_running_loop()
        tasks = [task for task in self._tasks.values() if task.get_loop() is loop]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        try:
            while True:
                self._again.discard(key)
                try:
                    await work()
                except SecondcallError as error:
                    _log.warning(
                        "background work failed and will be tried again later",
                        extra={"error": type(error).__name__},
                    )
                    return
                if key not in self._again:
                    return
        finally:
            self._again.discard(key)
            self._tasks.pop(key, None)
