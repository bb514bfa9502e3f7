"""What is recorded while a question is on its way does not make it search again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from secondcall import Memory, Message
from secondcall.abc import Glance, Header, Scope, Written
from secondcall.memory import asking
from secondcall.memory.overtaking import OwnWrites
from secondcall.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio

ANA = Scope("default", "user", "ana")


class HeldStore(MemoryStore):
    """A store whose next glance waits once it is told to hold it."""

    def __init__(self) -> None:
        super().__init__("memory://")
        self.holds = False
        self.free = asyncio.Event()
        self.looked = asyncio.Event()

    async def glance(self, scope: Scope, **asked: Any) -> Glance:
        """See ``Store.glance``."""
        if self.holds:
            self.holds = False
            self.looked.set()
            await self.free.wait()
        return await super().glance(scope, **asked)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The questions that were searched for, each time."""
    found: list[str] = []
    search = asking._search  # pyright: ignore[reportPrivateUsage] - counted where it happens

    async def counted(place: Any, question: Any, *rest: Any) -> Any:
        found.append(question.query)
        return await search(place, question, *rest)

    monkeypatch.setattr(asking, "_search", counted)
    return found


async def test_words_recorded_meanwhile_cost_no_search(searches: list[str]) -> None:
    """A question that is overtaken by this process's own record is answered by its first search,
    and the next question finds what was recorded."""
    store = HeldStore()
    async with Memory.open(store) as memory:
        user = memory.user("ana")
        session = await user.session("call")
        await session.record(Message("user", "My bicycle is green."))
        await user.recall("Which colour is the bicycle?")
        searches.clear()
        store.holds = True
        asked = asyncio.ensure_future(user.recall("Which colour is the bicycle?"))
        await store.looked.wait()
        await session.record(Message("user", "And the bicycle has a red bell."))
        store.free.set()
        found = await asked
        assert [one.item.text for one in found.items if isinstance(one.item, Message)] == [
            "My bicycle is green."
        ]
        assert len(searches) == 1
        assert not found.stale
        later = await user.recall("Which bell has the bicycle?")
        assert "red bell" in later.text


async def test_what_others_wrote_is_searched_for(searches: list[str]) -> None:
    """A change that this process did not make may have been there before the question."""
    store = HeldStore()
    async with Memory.open(store) as memory, Memory.open(store) as elsewhere:
        user = memory.user("ana")
        await (await user.session("call")).record(Message("user", "My bicycle is green."))
        session = await elsewhere.user("ana").session("other")
        await session.record(Message("user", "It has two wheels."))
        await user.recall("Which colour is the bicycle?")
        searches.clear()
        store.holds = True
        asked = asyncio.ensure_future(user.recall("Which bell has the bicycle?"))
        await store.looked.wait()
        await session.record(Message("user", "The bicycle has a red bell."))
        store.free.set()
        assert "red bell" in (await asked).text
        assert len(searches) == 2


async def test_what_was_acknowledged_before_is_found() -> None:
    """Whoever asks after ``record`` returned finds what was recorded."""
    async with Memory.open("memory://") as memory:
        user = memory.user("ana")
        session = await user.session("call")
        for number in range(40):
            await session.record(Message("user", f"The code of door {number} is key{number}."))
            found = await user.recall(f"What is the code of door {number}?", limit=1)
            assert f"key{number}" in found.text


EPOCH = b"e" * 16


def _noted(writes: Sequence[tuple[int, int]], *, epoch: bytes = EPOCH) -> OwnWrites:
    own = OwnWrites()
    for first, last in writes:
        written = Written(outcomes=(), entry_changes=(), removed=0, first_change=first, change=last)
        own.note(ANA, epoch, written)
    return own


@pytest.mark.parametrize(
    ("writes", "behind", "change", "expected"),
    [
        ([(3, 4), (5, 5)], 2, 5, True),
        ([(5, 5), (3, 4)], 2, 5, True),
        ([(3, 4), (6, 6)], 2, 6, False),
        ([(4, 4)], 2, 4, False),
        ([(3, 3)], 2, 4, False),
        ([(1, 2), (3, 3)], 2, 3, True),
        ([(3, 2)], 2, 2, True),
        ([], 2, 3, False),
    ],
)
def test_changes_are_own_without_a_gap(
    writes: list[tuple[int, int]], behind: int, change: int, expected: bool
) -> None:
    """Every change from the one that is held to the newest must be of an own write."""
    own = _noted(writes)
    header = Header(epoch=EPOCH, change=change)
    assert own.are_all(ANA, header, behind=behind, since=0.0) is expected


def test_what_was_acknowledged_or_of_another_time_does_not_count() -> None:
    """Writes that the asker could know of, and those under another epoch, are no excuse."""
    header = Header(epoch=EPOCH, change=3)
    assert not _noted([(3, 3)]).are_all(ANA, header, behind=2, since=float("inf"))
    assert not _noted([(3, 3)], epoch=b"o" * 16).are_all(ANA, header, behind=2, since=0.0)
