"""The first write of a user, when the store cannot make up its mind."""

from __future__ import annotations

import asyncio

import pytest

from secondcall import Memory, Message
from secondcall.abc import Batch, Epoch, Scope, Written
from secondcall.errors import StoreBusy, UserErased
from secondcall.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio


class _Refusing(MemoryStore):
    """Says that nothing is stored, and that whoever writes was erased."""

    async def write(
        self, scope: Scope, batch: Batch, *, epoch: Epoch, now_us: int, create: bool = False
    ) -> Written:
        """See ``Store.write``."""
        if create:
            raise UserErased("so it says")
        return await super().write(scope, batch, epoch=epoch, now_us=now_us, create=create)


async def test_a_store_that_always_says_erased_is_given_up() -> None:
    """It is tried a few times and then raised as busy; meanwhile others have their turn."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with Memory.open(_Refusing("memory://")) as memory:
        session = await memory.user("ana").session("call")
        beside = asyncio.create_task(others())
        with pytest.raises(StoreBusy, match="ana"):
            await session.record(Message("user", "hello"))
        beside.cancel()
    assert turns > 10
