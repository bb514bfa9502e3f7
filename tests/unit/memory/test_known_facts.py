"""The view of facts that recall keeps: brought up to date by what changed, never read anew."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from secondcall import ItemKey, Memory, Message
from secondcall.abc import Document, Scope
from secondcall.context.known import Known, know
from secondcall.facts.read import all_facts, sensitive_items
from secondcall.stores.memory import MemoryStore
from secondcall.testing.fakes import FrozenClock

pytestmark = pytest.mark.anyio

SCOPE = Scope("default", "user", "ann")


class _Counting(MemoryStore):
    """A store that counts how often all facts are read."""

    whole = 0

    async def documents(
        self, scope: Scope, kind: str, *, prefix: str = "", after: str = "", limit: int
    ) -> Sequence[Document]:
        self.whole += kind == "fact" and not prefix
        return await super().documents(scope, kind, prefix=prefix, after=after, limit=limit)


async def _view(memory: Memory, *scopes: Scope) -> Known:
    shared = memory._shared  # pyright: ignore[reportPrivateUsage] - the view is what is tested
    return await shared.known_of(await shared.cache.fresh(scopes or (SCOPE,)))


async def _is_whole(memory: Memory, *scopes: Scope) -> None:
    """The view is the one that would be made of everything."""
    store = memory._shared.store  # pyright: ignore[reportPrivateUsage] - as above
    found = await _view(memory, *scopes)
    facts = await all_facts(store, scopes or (SCOPE,))
    anew = know(facts, await sensitive_items(store, scopes or (SCOPE,)))
    assert found.facts == anew.facts
    assert found.chains == anew.chains
    assert found.by_source == anew.by_source
    assert found.sensitive_items == anew.sensitive_items
    assert len(found.index) == len(anew.index)


async def test_only_changed_chains_are_read(clock: FrozenClock) -> None:
    """After the first view, changes of any kind are read by their keys."""
    store = _Counting()
    async with Memory.open(store, clock=clock) as memory:
        user = memory.user("ann")
        source = ItemKey("ann", "s", "message", "m")
        await user.remember("city", "Leeds", sources=[source])
        await user.remember("guest", "Tom", multi=True)
        await user.remember("parcel", "missing", kind="issue")
        await _view(memory)
        read = store.whole
        for number in range(3):
            clock.advance(timedelta(days=1))
            await user.remember("city", f"Hull {number}", sources=[source], sensitive=number == 1)
            await user.remember("guest", f"Ada {number}", multi=True)
            await _view(memory)
        await user.settle("parcel", "resolved")
        await user.retract("guest", value="Tom")
        await user.remember("new", "predicate")
        found = await _view(memory)
        assert store.whole == read
        assert source in found.sensitive_items
        await _is_whole(memory)


async def test_changes_of_several_partitions_are_joined(memory: Memory, clock: FrozenClock) -> None:
    """Of merged users a changed chain is read in each partition and joined."""
    await memory.user("ann").remember("city", "Leeds")
    clock.advance(timedelta(days=1))
    await memory.user("bob").remember("city", "Hull")
    await memory.user("bob").remember("job", "baker")
    await memory.merge("bob", "ann")
    scopes = (SCOPE, Scope("default", "user", "bob"))
    await _view(memory, *scopes)
    clock.advance(timedelta(days=1))
    await memory.user("ann").remember("city", "York")
    await memory.user("ann").retract("job")
    await _is_whole(memory, *scopes)
    assert len((await _view(memory, *scopes)).facts) == 4


async def test_views_made_at_once_end_in_the_newest(memory: Memory) -> None:
    """Questions and changes side by side leave a view of all that was told."""
    user = memory.user("ann")
    session = await user.session("s")
    await session.record(Message("user", "We talked about cities."))

    async def tell(number: int) -> None:
        await user.remember(f"city {number % 7}", f"Hull {number}")

    await asyncio.gather(
        *(tell(number) for number in range(30)), *(user.recall("city") for _ in range(30))
    )
    await _is_whole(memory)
    found = await user.recall("Which cities?", limit=50)
    assert len({one.fact.predicate for one in found.facts}) == 7


async def test_too_many_changes_are_read_at_once(clock: FrozenClock) -> None:
    """After more changed chains than it is worth, all facts are read once."""
    store = _Counting()
    async with Memory.open(store, clock=clock) as memory:
        user = memory.user("ann")
        await user.remember("city", "Leeds")
        await _view(memory)
        read = store.whole
        for number in range(70):
            await user.remember(f"city {number}", "Leeds")
        await _is_whole(memory)
        assert store.whole == read + 2  # once for the view, once by this test


async def test_swept_facts_are_gone_from_the_view(url: str, clock: FrozenClock) -> None:
    """What a sweep removed is not kept in memory, ended facts alone included."""
    async with Memory.open(url, clock=clock, retain={"fact": "10d"}) as memory:
        user = memory.user("ann")
        await user.remember("city", "Leeds")
        clock.advance(timedelta(days=8))
        await user.remember("city", "Hull")
        assert len((await _view(memory)).facts) == 2
        clock.advance(timedelta(days=3))
        assert await user.sweep() == 1
        (left,) = (await _view(memory)).facts
        assert left.value == "Hull"
        await _is_whole(memory)
