"""Where states are kept: with the records, or in a store of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from secondcall import InvalidValue, Memory, NotOpen, StoreUnavailable, UnknownName
from secondcall.abc import Scope, Store
from secondcall.abc_state import StateKey, StateStore
from secondcall.errors import UserErased
from secondcall.memory.shared import Shared
from secondcall.registry import state_store_from_url
from secondcall.stores.memory import MemoryStore, state_store

pytestmark = pytest.mark.anyio

NOW_US = 1_767_225_600_000_000


def _shared(memory: Memory) -> Shared:
    return memory._shared  # pyright: ignore[reportPrivateUsage] - below the handles


async def _epoch(memory: Memory, user_id: str = "ana") -> bytes:
    """The epoch that the user's record was made under."""
    await memory.user(user_id).remember("diet", "vegan")
    header = await _shared(memory).store.header(Scope("default", "user", user_id))
    assert header is not None
    return header.epoch


async def _save(states: StateStore, epoch: bytes, *, user_id: str = "ana") -> None:
    await states.save(
        StateKey("default", user_id, "s"),
        b"{}",
        expected_version=None,
        epoch=epoch,
        now_us=NOW_US,
        by="test",
    )


async def test_states_are_kept_with_the_records(memory: Memory) -> None:
    """By default a user's states are under the epoch of the record, and one erasure covers both."""
    states = _shared(memory).state_store()
    await _save(states, await _epoch(memory))
    assert await states.load(StateKey("default", "ana", "s")) is not None
    receipt = await memory.user("ana").forget()
    assert (receipt.removed["states"], receipt.removed["state_history"]) == (1, 1)
    assert not any(place.startswith("state.") for place in receipt.removed)
    assert await states.load(StateKey("default", "ana", "s")) is None


async def test_states_may_be_kept_apart(url: str, tmp_path: Path) -> None:
    """With ``state=`` they are in another store; forgetting covers both and names each place."""
    place = f"sqlite:///{tmp_path / 'state.db'}" if url.startswith("sqlite") else "memory://"
    states = state_store_from_url(place)
    async with Memory.open(url, state=states) as memory:
        epoch = await _epoch(memory)
        with pytest.raises(UserErased):
            await _save(states, epoch)
        await states.admit("default", "ana", epoch=epoch, now_us=NOW_US)
        await _save(states, epoch)
        receipt = await memory.user("ana").forget()
        assert receipt.complete
        assert receipt.removed["state.states"] == receipt.removed["state.state_history"] == 1
        assert (receipt.removed["partitions"], receipt.removed["state.partitions"]) == (1, 1)
        assert receipt.removed["states"] == 0
        with pytest.raises(UserErased):
            await _save(states, epoch)
        await states.admit("default", "ana", epoch=await _epoch(memory), now_us=NOW_US)
        assert await memory.problems() == []
    with pytest.raises(NotOpen):
        await states.load(StateKey("default", "ana", "s"))


async def test_epoch_of_a_user_without_states_is_refused_afterwards(tmp_path: Path) -> None:
    """Whoever was about to save the first state of a user who is forgotten meanwhile cannot."""
    async with Memory.open("memory://", state=f"sqlite:///{tmp_path / 'state.db'}") as memory:
        epoch = await _epoch(memory)
        await memory.user("ana").forget()
        with pytest.raises(UserErased):
            await _shared(memory).state_store().admit("default", "ana", epoch=epoch, now_us=NOW_US)


async def test_merged_users_lose_their_states_too(memory: Memory) -> None:
    """Forgetting a user also erases the states of whoever was merged into it."""
    states = _shared(memory).state_store()
    await _save(states, await _epoch(memory))
    await _save(states, await _epoch(memory, "bob"), user_id="bob")
    await memory.merge("bob", "ana")
    receipt = await memory.user("ana").forget()
    assert receipt.removed["states"] == 2
    assert list(await states.list("default", "bob", limit=9)) == []


async def test_erasure_apart_that_was_cut_off_is_done_again(tmp_path: Path) -> None:
    """When the state store is away nothing counts as forgotten, and repeating it finishes."""

    states = state_store("memory://")
    async with Memory.open(f"sqlite:///{tmp_path / 'm.db'}", state=states) as memory:
        epoch = await _epoch(memory)
        await states.admit("default", "ana", epoch=epoch, now_us=NOW_US)
        await _save(states, epoch)
        await states.aclose()
        with pytest.raises(NotOpen):
            await memory.user("ana").forget()
        await states.open()
        receipt = await memory.user("ana").forget()
        assert receipt.complete
        assert receipt.removed["state.states"] == 1
        with pytest.raises(UserErased):
            await states.admit("default", "ana", epoch=epoch, now_us=NOW_US)


async def test_naming_the_same_place_is_no_split(tmp_path: Path) -> None:
    """The URL of the records as ``state`` means what leaving it out means."""
    url = f"sqlite:///{tmp_path / 'm.db'}"
    async with Memory.open(url, state=url) as memory:
        await _save(_shared(memory).state_store(), await _epoch(memory))
        assert (await memory.user("ana").forget()).removed["states"] == 1


async def test_failed_opening_leaves_nothing_open(tmp_path: Path) -> None:
    """If the states cannot be opened, the store of records is closed again."""
    store = MemoryStore()
    memory = Memory.open(store, state=f"sqlite:///{tmp_path}/no/state.db")
    with pytest.raises(StoreUnavailable):
        await memory.__aenter__()
    with pytest.raises(NotOpen):
        await store.header(Scope("default", "user", "ana"))


def test_wrong_state_stores_are_named() -> None:
    """An unknown scheme and an object of another kind get an error that says what is expected."""
    with pytest.raises(UnknownName, match=r"'nosuch'.*memory://.*sqlite://"):
        Memory.open("memory://", state="nosuch://secret@host")
    with pytest.raises(InvalidValue, match="StateStore, not MemoryStore"):
        Memory.open("memory://", state=MemoryStore())  # pyright: ignore[reportArgumentType] - on purpose


def test_store_without_states_says_what_to_do() -> None:
    """A store of records alone works, and says ``state=`` when states are asked for."""

    class Plain(Store):
        """A store as others may have written it."""

    Plain.__abstractmethods__ = frozenset()
    shared = _shared(Memory.open(Plain()))  # pyright: ignore[reportAbstractUsage] - nothing is called
    assert shared.states is None
    with pytest.raises(InvalidValue, match="state='sqlite"):
        shared.state_store()
