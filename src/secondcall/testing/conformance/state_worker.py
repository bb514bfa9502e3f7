"""A process that writes states, for tests that need several or one to kill.

``python -m secondcall.testing.conformance.state_worker`` reads one line of JSON, an ``Order``.
Without ``until_killed`` each task adds 1 to the state ``KEY``, ``count`` times; with it, each saves
a state of its own again and again, whose body is its version, and a line ``session version`` is
written for each save that was acknowledged.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from secondcall.abc_state import StateStore
from secondcall.registry import state_store_from_url
from secondcall.testing.conformance.state_material import add, save, session
from secondcall.testing.conformance.state_processes import Order


async def _save_for_ever(store: StateStore, name: str) -> None:
    key = session(name)
    found = await store.load(key)
    version = None if found is None else found.version
    while True:
        saved = await save(store, b"%d" % ((version or 0) + 1), key=key, expected=version)
        version = saved.version
        # One call, so that a killed process leaves whole lines.
        os.write(1, f"{name} {version}\n".encode())


async def _work(order: Order) -> None:
    store = state_store_from_url(order["url"])
    await store.open()
    try:
        names = [f"{order['name']}-{number}" for number in range(order["tasks"])]
        if order["until_killed"]:
            await asyncio.gather(*(_save_for_ever(store, name) for name in names))
        else:
            await asyncio.gather(*(add(store, order["count"], by=name) for name in names))
    finally:
        await store.aclose()


if __name__ == "__main__":
    asyncio.run(_work(json.loads(sys.stdin.readline())))
