"""What a question reads of the store before it is answered."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from secondcall import Memory, Message
from secondcall.stores.sqlite_threads import Readers
from secondcall.testing.fakes import FrozenClock

pytestmark = pytest.mark.anyio


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One entry for each job that is given to SQLite's readers."""
    found: list[None] = []
    read = Readers.read

    async def counted(readers: Readers, work: Callable[..., Any]) -> Any:
        found.append(None)
        return await read(readers, work)

    monkeypatch.setattr(Readers, "read", counted)
    return found


async def _fill(memory: Memory, user_id: str = "ann") -> None:
    session = await memory.user(user_id).session("s")
    await session.record(Message("user", "I like green tea.", id="tea"))


async def test_a_warm_question_is_one_read(tmp_path: Path, reads: list[None]) -> None:
    """Where nothing has changed, whether it has and what was found are looked up together."""
    async with Memory.open(f"sqlite:///{tmp_path / 'm.db'}") as memory:
        await _fill(memory)
        user = memory.user("ann")
        await user.recall("warm")
        await memory.flush()
        reads.clear()
        for query in ("tea", "something green"):
            found = await user.recall(query)
            assert [item.key.id for item in found.items] == ["tea"]
        assert len(reads) == 2


async def test_what_another_process_wrote_is_found_by_the_next_question(
    tmp_path: Path, reads: list[None]
) -> None:
    """A change since the last question costs the reading of what is new, and a second search."""
    url = f"sqlite:///{tmp_path / 'm.db'}"
    async with Memory.open(url) as memory, Memory.open(url) as other:
        await _fill(memory)
        user = memory.user("ann")
        await user.recall("warm")
        session = await other.user("ann").session("t")
        await session.record(Message("user", "I drink black tea now.", id="black"))
        assert {item.key.id for item in (await user.recall("tea")).items} == {"tea", "black"}
        black = [item.key for item in (await user.recall("tea")).items if item.key.id == "black"]
        await other.user("ann").remove(black)
        assert {item.key.id for item in (await user.recall("tea")).items} == {"tea"}
        await other.flush()
        await memory.flush()
        reads.clear()
        await user.recall("tea")
        assert len(reads) == 1


async def test_a_merge_since_the_last_question_is_followed(memory: Memory) -> None:
    """The next question is asked of both partitions, and after ``unmerge`` of its own again."""
    await _fill(memory)
    session = await memory.user("bob").session("s")
    await session.record(Message("user", "White tea is best.", id="white"))
    ann, bob = memory.user("ann"), memory.user("bob")
    assert {item.key.id for item in (await bob.recall("tea")).items} == {"white"}
    assert {item.key.id for item in (await ann.recall("tea")).items} == {"tea"}
    await memory.merge("bob", "ann")
    for user in (ann, bob, ann, bob):
        assert {item.key.id for item in (await user.recall("tea")).items} == {"tea", "white"}
    await memory.unmerge("bob")
    assert {item.key.id for item in (await bob.recall("tea")).items} == {"white"}
    assert {item.key.id for item in (await ann.recall("tea")).items} == {"tea"}


async def test_a_policy_set_since_the_last_question_holds(
    memory: Memory, clock: FrozenClock
) -> None:
    """What has run out by a policy that another handle set is not found any more."""
    await _fill(memory)
    clock.advance(timedelta(days=2))
    user = memory.user("ann")
    assert (await user.recall("tea")).items
    await memory.user("ann").retain("1d")
    assert not (await user.recall("tea")).items
    await memory.user("ann").retain(None)
    assert (await user.recall("tea")).items
