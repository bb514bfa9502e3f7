"""The blocking face."""

from __future__ import annotations

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from secondcall import (
    InvalidValue,
    Memory,
    Message,
    NotOpen,
    Retry,
    SessionMemory,
    StateHandle,
    Step,
    SyncMemory,
    SyncState,
    UserMemory,
    Workflow,
)
from secondcall.memory.listed import Arrangement, ListedSession
from secondcall.sync import SyncListed, SyncSession, SyncUser


@dataclass(frozen=True)
class Point:
    """Fields of a state."""

    x: int = 0


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A URL for each embedded store."""
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'm.db'}"


def test_every_verb_works_without_a_loop(url: str) -> None:
    """A script records, remembers, recalls, is briefed and forgets."""
    with SyncMemory.open(url) as memory:
        caller = memory.identify(phone="+14155550100")
        user = memory.user(caller)
        session = user.session("call-1")
        session.record(Message("user", "My dog is called Rex."))
        user.remember("dog", "Rex")
        assert [item.item for item in user.items()] == [item.item for item in session.items()]
        assert user.recall("what is my dog called?").items
        assert "Rex" in user.brief(deadline_seconds=None).text
        assert user.forget().complete
        assert list(user.items()) == []


def test_it_works_inside_a_running_loop(url: str) -> None:
    """Called from a coroutine it blocks, but does not fail."""

    async def main() -> bool:
        with SyncMemory.open(url) as memory:
            memory.user("ann").session("s").record(Message("user", "hello"))
            return memory.user("ann").known()

    assert asyncio.run(main())


def test_handles_work_from_any_thread(url: str) -> None:
    """Ten threads record through one memory and nothing is lost."""
    with SyncMemory.open(url) as memory:

        def record(number: int) -> None:
            session = memory.user("ann").session(f"s{number}")
            for turn in range(10):
                session.record(Message("user", f"{number} {turn}"))

        with ThreadPoolExecutor(10) as pool:
            list(pool.map(record, range(10)))
        assert len(list(memory.user("ann").items())) == 100


def test_errors_come_through_as_they_are(url: str) -> None:
    """A refused call raises the same error as the asynchronous one."""
    with SyncMemory.open(url) as memory, pytest.raises(InvalidValue, match="limit is 0"):
        memory.user("ann").recall("x", limit=0)


def test_a_closed_one_says_so(url: str) -> None:
    """Before entering and after closing, a call says how to open it; closing twice is fine."""
    memory = SyncMemory.open(url)
    with pytest.raises(NotOpen, match=r"with SyncMemory\.open"):
        memory.users()
    with memory:
        assert memory.users() == []
    memory.close()
    with pytest.raises(NotOpen):
        memory.users()


def test_state_works_without_a_loop(url: str) -> None:
    """A script loads, changes, saves and deletes a state, of its own class and with its history."""
    workflow = Workflow("w", {"a": Step(), "b": Step(terminal=True)}, {"a": "b"})
    with SyncMemory.open(url) as memory:
        user = memory.user("ann")
        state = user.session("s").state
        assert state.load() is None
        assert state.update(lambda one: one.start(workflow)).step == "a"
        loaded = state.load()
        assert loaded is not None
        assert state.save(loaded.advance("b")).version == 2
        assert [one.version for one in state.history()] == [2, 1]
        settled = state.settle()
        assert settled is not None
        assert settled.version == 2
        assert state.delete()
        assert user.state.retrying(Retry(tries=1)).of(Point).load() is None
        assert user.state.of(Point).update(lambda one: one.with_fields(x=1)).fields == Point(1)
        assert (state.session_id, state.user_id, state.trust) == ("s", "ann", "verified")
        assert memory.due_states() == []


@pytest.mark.parametrize(
    ("asynchronous", "blocking"),
    [
        (Memory, SyncMemory),
        (UserMemory, SyncUser),
        (SessionMemory, SyncSession),
        (StateHandle, SyncState),
        (ListedSession, SyncListed),
    ],
)
def test_no_verb_is_missing(asynchronous: type, blocking: type) -> None:
    """Every public verb of an asynchronous handle has its blocking twin."""
    verbs = {
        name
        for name, _ in inspect.getmembers(asynchronous, inspect.isfunction)
        if not name.startswith("_") and name != "aclose"
    }
    assert verbs <= {name for name, _ in inspect.getmembers(blocking)}


def test_a_session_is_a_list_for_blocking_code() -> None:
    """What is recorded is read, rearranged and removed through the blocking list."""
    with SyncMemory.open("memory://") as memory:
        session = memory.user("ana").session("call")
        session.record(Message("user", "one"), Message("user", "two"))
        listed = session.listed()
        assert not listed.is_rearranged()
        listed.arrange(lambda stands: Arrangement(active=list(reversed(stands.active))))
        items = [one.item for one in listed.read().active]
        assert [one.text for one in items if isinstance(one, Message)] == ["two", "one"]
        assert listed.is_rearranged()
        buffer = listed.buffer(400)
        buffer.put(*items)
        listed.settle(buffer)
        assert [one.text for one in buffer.get() if isinstance(one, Message)] == ["two", "one"]
        assert listed.remove([listed.read().active[0].key]) == 1
        assert listed.clear() == 1
