"""One fact, or one policy, that others change at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from secondcall import Memory, VersionConflict
from secondcall.abc import Batch, Store
from secondcall.types import Fact

pytestmark = pytest.mark.anyio

RIVALS = 60
"""More often than this nobody was overtaken in a row where sixteen processes told one predicate."""


def _store(memory: Memory) -> Store:
    return memory._shared.store  # pyright: ignore[reportPrivateUsage] - to get in between


def _rivals_first(
    memory: Memory, kind: str, times: int, rival: Callable[[int], Awaitable[object]]
) -> None:
    """Let a rival write just before each of the next ``times`` writes of a document of ``kind``."""
    store = _store(memory)
    write = store.write
    left = times

    async def overtaken(scope: Any, batch: Batch, **named: Any) -> Any:
        nonlocal left
        if left and any(one.kind == kind for one in batch.documents):
            left -= 1
            store.write = write
            await rival(left)
            store.write = overtaken
        return await write(scope, batch, **named)

    store.write = overtaken


@pytest.fixture
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lost races are run again at once."""
    monkeypatch.setattr("secondcall.races._LONGEST_PAUSE_SECONDS", 0.0)


@pytest.mark.usefixtures("without_pauses")
async def test_a_fact_is_told_however_often_others_are_faster(memory: Memory) -> None:
    """After sixty lost races in a row the value stands, and those of the rivals are history."""
    user, other = memory.user("ann"), memory.user("ann")
    await user.remember("seat", "aisle")
    _rivals_first(memory, "fact", RIVALS, lambda n: other.remember("seat", f"rival {n}"))
    told = await user.remember("seat", "window")
    assert told.value == "window"
    assert [fact.value for fact in await user.facts()] == ["window"]
    assert len(await user.history("seat")) == RIVALS + 2


@pytest.mark.usefixtures("without_pauses")
async def test_a_policy_is_set_however_often_others_are_faster(memory: Memory) -> None:
    """After sixty lost races in a row the policy that was set last is in force."""
    user, other = memory.user("ann"), memory.user("ann")
    await user.remember("seat", "aisle")
    _rivals_first(memory, "retention", RIVALS, lambda n: other.retain(f"{n + 1}d"))
    await user.retain("400d")
    keep = cast("dict[str, float]", (await user.retention())["keep_seconds"])
    assert keep["message"] == 400 * 86_400


async def test_a_race_that_is_never_won_is_given_up(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the time for lost races is used up the conflict is raised, and what stood stands."""
    user = memory.user("ann")
    await user.remember("seat", "aisle")
    monkeypatch.setattr("secondcall.races.Race.goes_on", _never)

    async def refused(*_: Any, **__: Any) -> Any:
        raise VersionConflict("document", expected=1, found=2)

    write = _store(memory).write
    monkeypatch.setattr(_store(memory), "write", refused)
    with pytest.raises(VersionConflict):
        await user.remember("seat", "window")
    monkeypatch.setattr(_store(memory), "write", write)
    assert [fact.value for fact in await user.facts()] == ["aisle"]


async def test_many_tasks_tell_one_predicate_at_once(memory: Memory) -> None:
    """Sixty values told at once are all told, and one of them stands."""

    async def tell(number: int) -> Fact:
        return await memory.user("ann").remember("seat", f"value {number}")

    told = await asyncio.gather(*(tell(number) for number in range(60)))
    assert len({fact.id for fact in told}) == 60
    assert len(await memory.user("ann").history("seat")) == 60


async def _never(_: object) -> bool:
    return False
