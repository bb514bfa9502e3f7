"""Predicates that have several values at a time."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from secondcall import InvalidValue, Memory, UnknownName
from secondcall.testing.fakes import FrozenClock

pytestmark = pytest.mark.anyio


async def _values(memory: Memory, predicate: str = "allergy") -> list[str]:
    found = await memory.user("ann").facts()
    return sorted(str(fact.value) for fact in found if fact.predicate == predicate)


async def test_each_value_has_a_life_of_its_own(memory: Memory, clock: FrozenClock) -> None:
    """Values are added, ended one by one and come back; each time can be asked for."""
    user = memory.user("ann")
    start = clock.now()
    for value in ("nuts", "milk"):
        await user.remember("allergy", value, multi=True)
    clock.advance(timedelta(days=10))
    gone = await user.retract("allergy", value="nuts")
    assert (gone.value, gone.invalid_at, gone.superseded_by) == ("nuts", clock.now(), None)
    assert await _values(memory) == ["milk"]
    clock.advance(timedelta(days=10))
    await user.remember("allergy", "nuts")
    assert await _values(memory) == ["milk", "nuts"]
    then = await user.facts(as_of=start + timedelta(days=15))
    assert [fact.value for fact in then] == ["milk"]
    history = await user.history("allergy")
    assert [fact.value for fact in history if fact.invalid_at is not None] == ["nuts"]
    assert len(history) == 3
    assert all(fact.multi for fact in history)


async def test_the_same_value_again_changes_nothing(memory: Memory, clock: FrozenClock) -> None:
    """Known from the first telling, the predicate keeps each value once."""
    user = memory.user("ann")
    first = await user.remember("Allergy", "nuts", multi=True)
    clock.advance(timedelta(days=1))
    assert await user.remember("allergy", "nuts") == first
    assert await user.remember("allergy ", "nuts", multi=True) == first
    assert len(await user.history("allergy")) == 1


async def test_one_and_several_do_not_mix(memory: Memory) -> None:
    """A predicate stays what it was told to be; the error says which."""
    user = memory.user("ann")
    await user.remember("city", "Porto")
    await user.remember("allergy", "nuts", multi=True)
    with pytest.raises(InvalidValue, match="'city' has one value at a time"):
        await user.remember("city", "Lyon", multi=True)
    with pytest.raises(InvalidValue, match="'allergy' has several values"):
        await user.remember("allergy", "milk", multi=False)
    with pytest.raises(InvalidValue, match="cannot be one of several 'allergy'"):
        await user.remember("allergy", None)
    with pytest.raises(InvalidValue, match="several values; give the value= meant"):
        await user.retract("allergy")
    with pytest.raises(UnknownName, match="'allergy' stands"):
        await user.retract("allergy", value="kiwi")
    with pytest.raises(UnknownName, match="'city' stands"):
        await user.retract("city", value="Lyon")
    assert (await _values(memory), await _values(memory, "city")) == (["nuts"], ["Porto"])


async def test_a_race_makes_no_mixture(memory: Memory) -> None:
    """Told as one and as several at once, a new predicate becomes one of them, and no value of the
    other is kept."""
    tells = [
        memory.user("ann").remember("pet", f"pet {number}", multi=bool(number % 2))
        for number in range(8)
    ]
    done = await asyncio.gather(*tells, return_exceptions=True)
    history = await memory.user("ann").history("pet")
    assert len({fact.multi for fact in history}) == 1
    assert len(history) == sum(not isinstance(one, BaseException) for one in done) == 4


async def test_values_told_at_once_are_all_kept(memory: Memory) -> None:
    """Twenty values told at once, and told again, are twenty facts."""
    for _ in range(2):
        user = memory.user("ann")
        await asyncio.gather(*(user.remember("tag", number, multi=True) for number in range(20)))
    assert len(await memory.user("ann").facts()) == 20
    assert (
        len((await memory.user("ann").brief(max_tokens=4_000, deadline_seconds=None)).facts) == 20
    )


async def test_true_is_not_one_of_several_ones(memory: Memory) -> None:
    """Values are told apart by type."""
    user = memory.user("ann")
    for value in (1, True, 1.0, "1"):
        await user.remember("code", value, multi=True)
    assert len(await user.facts()) == 4


async def test_one_of_several_issues_is_resolved(memory: Memory) -> None:
    """An issue of several is settled by its value; the others stay open."""
    user = memory.user("ann")
    for value in ("parcel", "invoice"):
        await user.remember("complaint", value, kind="issue", multi=True)
    await user.settle("complaint", "resolved", value="parcel")
    brief = await user.brief(deadline_seconds=None)
    assert [fact.value for fact in brief.issues] == ["invoice"]
    with pytest.raises(InvalidValue, match="give the value= meant"):
        await user.settle("complaint", "resolved")


async def test_a_late_value_ends_where_it_was_taken_back(
    memory: Memory, clock: FrozenClock
) -> None:
    """One of several, told late for a time before it was taken back, is not current."""
    user = memory.user("ann")
    start = clock.now()
    clock.advance(timedelta(days=20))
    await user.remember("access", "Rolf", multi=True, valid_from=start + timedelta(days=5))
    await user.retract("access", value="Rolf", at=start + timedelta(days=10))
    late = await user.remember("access", "Rolf", valid_from=start)
    assert late.valid_from == start
    assert await _values(memory, "access") == []
    assert [fact.value for fact in await user.facts(as_of=start + timedelta(days=2))] == ["Rolf"]


async def test_several_values_are_restored(memory: Memory, clock: FrozenClock) -> None:
    """A history of several values comes back in another user as it was, and may grow there."""
    user = memory.user("ann")
    for value in ("nuts", "milk"):
        await user.remember("allergy", value, multi=True)
    clock.advance(timedelta(days=1))
    await user.retract("allergy", value="nuts")
    exported = await user.history()
    other = memory.user("bob")
    assert await other.restore(exported) == 2
    assert await other.history() == exported
    await other.remember("allergy", "kiwi")
    assert {str(fact.value) for fact in await other.facts()} == {"milk", "kiwi"}


async def test_merged_users_have_all_values(memory: Memory) -> None:
    """Of several values those of both partitions hold, and the new one is told as they were."""
    await memory.user("ann").remember("allergy", "nuts", multi=True)
    await memory.user("bob").remember("seat", "aisle")
    await memory.merge("ann", "bob")
    user = memory.user("bob")
    assert (await user.remember("allergy", "milk")).multi
    found = {str(fact.value) for fact in await user.facts() if fact.predicate == "allergy"}
    assert found == {"nuts", "milk"}
    await user.retract("allergy", value="nuts")
    assert {str(fact.value) for fact in await user.facts()} == {"milk", "aisle"}
