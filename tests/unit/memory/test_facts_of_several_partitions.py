"""Facts of merged users, of several writers and of readers in between: nothing is lost or leaks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import pytest

from secondcall import Fact, ItemKey, Memory, Message
from secondcall.abc import Document, Scope
from secondcall.facts.read import all_facts, history
from secondcall.stores.memory import MemoryStore
from secondcall.testing.fakes import FrozenClock

pytestmark = pytest.mark.anyio

DAY = timedelta(days=1)


def _values(facts: Sequence[Fact]) -> list[object]:
    return [fact.value for fact in facts]


async def _merged(memory: Memory, clock: FrozenClock) -> None:
    """Ann's older city, Bob's newer one; Bob is merged into Ann."""
    await memory.user("ann").remember("city", "Leeds")
    clock.advance(DAY)
    await memory.user("bob").remember("city", "Hull")
    clock.advance(DAY)
    await memory.merge("bob", "ann")


async def test_what_was_true_before_comes_back(memory: Memory, clock: FrozenClock) -> None:
    """Told again after another partition said otherwise, a value is true again."""
    await _merged(memory, clock)
    user = memory.user("ann")
    assert _values(await user.facts()) == ["Hull"]
    await user.remember("city", "Leeds")
    assert _values(await user.facts()) == ["Leeds"]
    assert _values(await user.history("city")) == ["Leeds", "Hull", "Leeds"]
    clock.advance(DAY)
    again = await user.remember("city", "Leeds")
    assert len(await user.history("city")) == 3
    assert again.valid_from == clock.now() - DAY


async def test_a_start_is_not_moved_over_what_another_partition_says(
    memory: Memory, clock: FrozenClock
) -> None:
    """What Bob said lies between: then the value becomes a fact of its own."""
    start = clock.now()
    await memory.user("bob").remember("city", "Hull")
    clock.advance(2 * DAY)
    await memory.user("ann").remember("city", "Leeds")
    await memory.merge("bob", "ann")
    user = memory.user("ann")
    await user.remember("city", "Leeds", valid_from=start - DAY)
    assert _values(await user.facts(as_of=start + DAY)) == ["Hull"]
    assert _values(await user.facts(as_of=start - DAY / 2)) == ["Leeds"]


async def test_retracting_ends_what_holds(memory: Memory, clock: FrozenClock) -> None:
    """Of several partitions the one is changed whose fact holds; afterwards nothing does."""
    await _merged(memory, clock)
    user = memory.user("ann")
    gone = await user.retract("city")
    assert gone.value == "Hull"
    assert await user.facts() == []


async def test_settling_moves_what_stands(memory: Memory, clock: FrozenClock) -> None:
    """A promise that was kept in one partition does not hide the newer one in another."""
    await memory.user("ann").remember("refund", "20 euros", kind="promise")
    await memory.user("ann").settle("refund", "kept")
    clock.advance(DAY)
    await memory.user("bob").remember("refund", "50 euros", kind="promise")
    await memory.merge("bob", "ann")
    user = memory.user("ann")
    kept = await user.settle("refund", "kept")
    assert kept.value == "50 euros"
    assert (await user.brief(deadline_seconds=None)).promises == []


async def test_a_history_of_merged_users_is_one(memory: Memory, clock: FrozenClock) -> None:
    """The newer fact of one partition ends the older one of the other in the history too."""
    await _merged(memory, clock)
    for predicate in ("city", None):
        first, second = await memory.user("ann").history(predicate)
        assert (first.invalid_at, first.superseded_by) == (second.valid_from, second.id)
        assert second.invalid_at is None


async def test_secrets_told_during_a_merge_stay_secret(memory: Memory) -> None:
    """What a sensitive fact of another partition rests on is withheld at once from an index that
    was open all along, also after the merge is taken back."""
    caller = await memory.identify(phone="+14155550100")
    session = await memory.user(caller.user_id).session("s")
    await session.record(Message("user", "My card number is 4711.", id="card"))
    assert (await memory.user(caller).recall("card number")).items
    await memory.user("ann").remember("name", "Ann")
    await memory.merge(caller.user_id, "ann")
    await memory.user("ann").remember(
        "card", "4711", sensitive=True, sources=[ItemKey(caller.user_id, "s", "message", "card")]
    )
    await memory.unmerge(caller.user_id)
    again = await memory.identify(phone="+14155550100")
    assert again.user_id == caller.user_id
    assert (await memory.user(again).recall("card number")).items == ()


class _Meanwhile(MemoryStore):
    """A store in which something happens between reading the heads and the history."""

    happens: Callable[[], Awaitable[object]] | None = None

    async def documents(
        self, scope: Scope, kind: str, *, prefix: str = "", after: str = "", limit: int
    ) -> Sequence[Document]:
        found = await super().documents(scope, kind, prefix=prefix, after=after, limit=limit)
        happens, self.happens = self.happens, None
        if kind == "fact" and happens is not None:
            await happens()
        else:
            self.happens = happens
        return found


@pytest.mark.parametrize("changes", [1, 3])
async def test_reading_during_a_change_shows_one_truth(clock: FrozenClock, changes: int) -> None:
    """Whoever reads while the chain changes sees each fact once, and one that holds."""
    store = _Meanwhile()
    scope = Scope("default", "user", "ann")
    async with Memory.open(store, clock=clock) as memory:
        user = memory.user("ann")
        await user.remember("city", "Leeds")
        clock.advance(DAY)

        async def change() -> None:
            for number in range(changes):
                clock.advance(DAY)
                await user.remember("city", f"Hull {number}")

        for reading in (
            lambda: all_facts(store, [scope]),
            lambda: history(store, [scope], "city", subject="user"),
        ):
            store.happens = change
            found = await reading()
            assert len({fact.id for fact in found}) == len(found)
            assert [fact.invalid_at for fact in found][-1] is None
            assert sum(fact.invalid_at is None for fact in found) == 1
