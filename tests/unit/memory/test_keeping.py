"""Short-term memory that is kept: taken up again, never overwritten, gone with its user."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from secondcall import (
    KeptShortTerm,
    Memory,
    Message,
    SchemaTooNew,
    StoreCorrupt,
    SyncMemory,
    UserErased,
    VersionConflict,
)
from secondcall.abc import ANY_VERSION, Batch, DocumentWrite, Epoch, Scope, Written
from secondcall.stores.memory import MemoryStore
from secondcall.testing.fakes import FrozenClock

pytestmark = pytest.mark.anyio

ANN = Scope("default", "user", "ann")


@dataclass
class CallData:
    tries: int = 0
    code: str | None = None
    items: list[str] = field(default_factory=list[str])


async def _kept(memory: Memory, user_id: str = "ann") -> KeptShortTerm[CallData]:
    session = await memory.user(user_id).session("call-1")
    return await session.shortterm(CallData, ttl_seconds={"code": 60})


async def test_a_crashed_process_goes_on(memory: Memory, clock: FrozenClock) -> None:
    """What was saved is there in a new handle, less the time in between; the rest is not."""
    kept = await _kept(memory)
    assert (kept.version, kept.restored) == (None, None)
    kept.memory.set(tries=2, code="1234")
    kept.memory.add(Message("user", "hi"))
    assert await kept.save() == 1
    kept.memory.increment("tries")  # and here the process dies
    clock.advance(timedelta(seconds=60))
    again = await _kept(memory)
    assert again.version == 1
    assert again.restored is not None
    assert (again.restored.restored, again.restored.expired) == (("tries",), ("code",))
    assert again.memory.data == CallData(tries=2)
    assert [one.text for one in again.memory.messages] == ["hi"]
    assert await again.save() == 2


async def test_loading_writes_nothing(memory: Memory) -> None:
    """Looking for what was kept does not make a user."""
    await _kept(memory)
    assert await memory.users() == []


async def test_a_lost_race_is_reported(memory: Memory) -> None:
    """Of two that save, the second is told; after ``reload`` it goes on from what is kept."""
    first, second = await _kept(memory), await _kept(memory)
    first.memory.set(tries=1)
    await first.save()
    second.memory.set(tries=10)
    with pytest.raises(VersionConflict, match="session 'call-1'") as caught:
        await second.save()
    assert (caught.value.expected, caught.value.found) == (None, 1)
    assert second.memory.data.tries == 10
    with pytest.raises(VersionConflict):
        await second.save()
    await second.reload()
    assert second.memory.increment("tries") == 2
    assert await second.save() == 2
    with pytest.raises(VersionConflict):
        await first.save()


async def test_tasks_may_save_at_once(memory: Memory) -> None:
    """Three tools that save the same memory at once all succeed, and the last state is kept."""
    kept = await _kept(memory)

    async def tool() -> None:
        for _ in range(5):
            kept.memory.increment("tries")
            await kept.save()

    await asyncio.gather(tool(), tool(), tool())
    assert (await _kept(memory)).memory.data.tries == 15


async def test_many_saves_at_once_do_not_starve_each_other(memory: Memory) -> None:
    """However many tools save one memory again and again, none is told of a conflict with another
    process."""
    kept = await _kept(memory)

    async def work() -> None:
        for _ in range(10):
            kept.memory.increment("tries")
            await kept.save()

    await asyncio.gather(*(work() for _ in range(8)))
    assert (await _kept(memory)).memory.data.tries == 80
    assert kept.version == 80


async def test_an_empty_memory_is_not_kept(memory: Memory, clock: FrozenClock) -> None:
    """Saving an empty memory removes what was kept, and saving goes on afterwards."""
    kept = await _kept(memory)
    assert await kept.save() is None
    kept.memory.set(tries=1)
    await kept.save()
    kept.memory.clear()
    assert await kept.save() is None
    assert (await _kept(memory)).restored is None
    kept.memory.set(tries=2)
    await kept.save()
    clock.advance(timedelta(seconds=300))
    late = await _kept(memory)
    assert (late.restored, late.memory.data) == (None, CallData())
    late.memory.set(tries=3)
    assert await late.save() is not None


async def test_a_forgotten_user_stays_forgotten(memory: Memory) -> None:
    """After ``forget`` nothing is kept, and an older handle can keep nothing more."""
    kept = await _kept(memory)
    kept.memory.set(tries=1)
    await kept.save()
    await memory.user("ann").forget()
    with pytest.raises(UserErased):
        await kept.save()
    fresh = await _kept(memory)
    assert fresh.memory.data == CallData()
    assert not await memory.user("ann").known()


async def test_a_loaded_memory_does_not_bring_a_user_back(memory: Memory) -> None:
    """A handle that only loaded before the user was forgotten saves nothing afterwards."""
    await (await memory.user("ann").session("call-1")).record(Message("user", "hi"))
    kept = await _kept(memory)
    kept.memory.set(tries=1)
    await memory.user("ann").forget()
    with pytest.raises(UserErased):
        await kept.save()


async def test_users_and_sessions_do_not_meet(memory: Memory) -> None:
    """The same session id under another user is another memory."""
    kept = await _kept(memory)
    kept.memory.set(tries=1)
    await kept.save()
    assert (await _kept(memory, "bob")).restored is None


async def test_a_merged_user_keeps_the_conversation(memory: Memory) -> None:
    """After a merge the session's memory is found, and saved with its new user."""
    kept = await _kept(memory)
    kept.memory.set(tries=1)
    await kept.save()
    await (await memory.user("bob").session("x")).record(Message("user", "hi"))
    await memory.merge("ann", "bob")
    moved = await _kept(memory, "bob")
    assert moved.memory.data.tries == 1
    moved.memory.increment("tries")
    await moved.save()
    assert (await _kept(memory, "bob")).memory.data.tries == 2


async def test_sweeping_removes_what_ran_out(clock: FrozenClock) -> None:
    """A sweep deletes kept memories in which everything ran out, and no others."""
    store = MemoryStore()
    async with Memory.open(store, clock=clock) as memory:
        user = memory.user("ann")
        for number, ttl in enumerate((10, 1_000, None)):
            kept = await (await user.session(f"s{number}")).shortterm(CallData, ttl_seconds=ttl)
            kept.memory.set(tries=1)
            await kept.save()
        clock.advance(timedelta(seconds=10))
        await user.sweep(dry_run=True)
        assert len(await store.documents(ANN, "shortterm", limit=9)) == 3
        await user.sweep()
        left = [one.key for one in await store.documents(ANN, "shortterm", limit=9)]
        assert left == ["s1", "s2"]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"{", StoreCorrupt),
        (b"[]", StoreCorrupt),
        (b'{"writer": "x", "snapshot": {"format": 1}}', StoreCorrupt),
        (b'{"writer": "x", "snapshot": {"format": 99}}', SchemaTooNew),
    ],
)
async def test_what_cannot_be_read(clock: FrozenClock, body: bytes, error: type[Exception]) -> None:
    """Damaged bytes and those of a newer release are told apart, and name the session."""
    store = MemoryStore()
    async with Memory.open(store, clock=clock) as memory:
        await (await memory.user("ann").session("call-1")).record(Message("user", "hi"))
        header = await store.header(ANN)
        assert header is not None
        write = DocumentWrite(
            kind="shortterm", key="call-1", body=body, expected_version=ANY_VERSION
        )
        await store.write(ANN, Batch(documents=[write]), epoch=header.epoch, now_us=0)
        with pytest.raises(error, match="session 'call-1'"):
            await _kept(memory)


class _LosesAnswers(MemoryStore):
    """Writes, and then fails to say so, as a connection that breaks does."""

    losing = False

    async def write(
        self, scope: Scope, batch: Batch, *, epoch: Epoch, now_us: int, create: bool = False
    ) -> Written:
        written = await super().write(scope, batch, epoch=epoch, now_us=now_us, create=create)
        if self.losing and batch.documents:
            raise ConnectionError
        return written


async def test_a_save_whose_answer_was_lost(clock: FrozenClock) -> None:
    """A save that happened without anybody hearing of it is no conflict with itself."""
    store = _LosesAnswers()
    async with Memory.open(store, clock=clock) as memory:
        kept = await _kept(memory)
        kept.memory.set(tries=1)
        store.losing = True
        with pytest.raises(ConnectionError):
            await kept.save()
        store.losing = False
        kept.memory.increment("tries")
        assert await kept.save() == 2
        bodies: Sequence[bytes] = [
            one.body for one in await store.documents(ANN, "shortterm", limit=2)
        ]
        assert [json.loads(one)["snapshot"]["fields"]["tries"]["value"] for one in bodies] == [2]


def test_blocking(url: str) -> None:
    """The blocking face keeps and takes up the same memory."""
    with SyncMemory.open(url) as memory:
        kept = memory.user("ann").session("call-1").shortterm(CallData, ttl_seconds=None)
        assert kept.memory.increment("tries") == 1
        assert kept.save() == 1
        again = memory.user("ann").session("call-1").shortterm(CallData)
        assert (again.memory.data.tries, again.version) == (1, 1)
        assert again.restored is not None
        assert again.reload() is not None
