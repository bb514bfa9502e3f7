"""What model and embedding calls used: written down for whom and what for, once, and bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from secondcall import InvalidValue, Memory, Message, StoreBusy, UserMemory, usage
from secondcall.abc import Batch, DocumentWrite, Embedder, Scope, Written
from secondcall.memory import metering
from secondcall.stores.memory import MemoryStore
from secondcall.testing.fakes import FrozenClock
from secondcall.usage import Call, UsageTotal


class PaidEmbedder(Embedder):
    """An embedder behind a network that reports a token for each word, and what it cost."""

    id = "paid"
    dimensions = 2
    local = False

    async def embed_documents(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Every text the same way."""
        words = sum(len(text.split()) for text in texts)
        usage.report(
            Call(
                model="paid-1",
                operation="embed",
                input_tokens=words,
                cost=words / 1_000,
                raw={"prompt_tokens": words},
            )
        )
        return np.tile(np.array([1, 0], np.float32), (len(texts), 1))

    async def embed_query(self, text: str) -> npt.NDArray[np.float32]:
        """The same way too."""
        return (await self.embed_documents([text]))[0]


@pytest.fixture
async def paid(url: str, clock: FrozenClock) -> AsyncIterator[Memory]:
    """A memory whose embedder reports what it uses."""
    async with Memory.open(url, embedder=PaidEmbedder(), clock=clock) as opened:
        yield opened


def _meter(memory: Memory) -> metering.Meter:
    return memory._shared.meter  # pyright: ignore[reportPrivateUsage] - there is no other way in


async def _spend(
    user: UserMemory, layer: Any = "buffer", session_id: str = "s", **call: Any
) -> None:
    """Report one call as whoever calls a model for this user would."""
    place = user._place  # pyright: ignore[reportPrivateUsage] - there is no other way in
    await place.epoch()
    with place.metered(layer, session_id):
        fields: dict[str, Any] = {"model": "m", "operation": "complete", "input_tokens": 10, **call}
        usage.report(Call(**fields))


async def test_a_query_is_put_down_to_recall(paid: Memory) -> None:
    """Embedding a question counts for recall, for the session that asked, with cost and raw."""
    session = await paid.user("ana").session("call-1")
    await session.record(Message("user", "four words are these"))
    await session.context("what are these", window=4_000)
    found = await paid.user("ana").usage()
    assert set(found.layers) == {"recall"}
    assert set(found.models) == {"paid-1"}
    assert "call-1" in found.sessions
    assert found.total.cost == pytest.approx(found.total.input_tokens / 1_000)
    asked = [one for one in found.recent if one.session_id == "call-1"]
    assert [one.call.raw for one in asked] == [{"prompt_tokens": 3}]
    assert [one.user_id for one in asked] == ["ana"]


async def test_indexing_is_put_down_to_recall(paid: Memory) -> None:
    """Embedding what was recorded, which is of no one session, counts for the user's recall."""
    session = await paid.user("ana").session("call-1")
    await session.record(*(Message("user", f"message number {number}") for number in range(300)))
    await paid.flush()
    found = await paid.user("ana").usage()
    assert found.layers["recall"].input_tokens >= 900
    assert "" in found.sessions


async def test_a_local_embedder_reports_nothing(memory: Memory) -> None:
    """With the embedder that comes along nothing is used and nothing is written."""
    session = await memory.user("ana").session("call-1")
    await session.record(Message("user", "hello"))
    await memory.user("ana").recall("hello")
    assert (await memory.user("ana").usage()).total == UsageTotal()


async def test_users_and_layers_are_kept_apart(memory: Memory) -> None:
    """Each user sees their own calls, by layer, session and model; no other tenant does."""
    ana, ben = memory.user("ana"), memory.user("ben")
    await _spend(ana, input_tokens=10, output_tokens=5, cost=0.5)
    await _spend(ana, "state", "t", input_tokens=20, model="n")
    await _spend(ben, input_tokens=1_000)
    found = await ana.usage()
    assert found.total == UsageTotal(calls=2, input_tokens=30, output_tokens=5, cost=0.5)
    assert found.layers == {
        "buffer": UsageTotal(calls=1, input_tokens=10, output_tokens=5, cost=0.5),
        "state": UsageTotal(calls=1, input_tokens=20),
    }
    assert {name: one.calls for name, one in found.sessions.items()} == {"s": 1, "t": 1}
    assert {name: one.calls for name, one in found.models.items()} == {"m": 1, "n": 1}
    assert (await memory.tenant("other").user("ana").usage()).total.calls == 0


async def test_calls_at_once_are_not_mixed_up(memory: Memory) -> None:
    """Of two calls that overlap each is put down to its own user."""
    ana, ben = memory.user("ana"), memory.user("ben")
    both = asyncio.Barrier(2)

    async def call(user: UserMemory, tokens: int) -> None:
        await both.wait()
        await _spend(user, input_tokens=tokens)

    await asyncio.gather(call(ana, 1), call(ben, 2))
    assert (await ana.usage()).total.input_tokens == 1
    assert (await ben.usage()).total.input_tokens == 2


async def test_nothing_is_lost_at_closing(tmp_path: Any, clock: FrozenClock) -> None:
    """What was used in the last moment before closing is there for the next process."""
    url = f"sqlite:///{tmp_path / 'm.db'}"
    async with Memory.open(url, clock=clock) as memory:
        for _ in range(250):
            await _spend(memory.user("ana"))
    async with Memory.open(url, clock=clock) as memory:
        assert (await memory.user("ana").usage()).total.calls == 250


class BusyStore(MemoryStore):
    """Refuses so many writes of usage."""

    def __init__(self, url: str = "memory://") -> None:
        super().__init__(url)
        self.refusals = 0

    async def write(self, scope: Scope, batch: Batch, **kwargs: Any) -> Written:
        """As it is, or ``StoreBusy``."""
        if self.refusals and any(one.kind == "usage" for one in batch.documents):
            self.refusals -= 1
            raise StoreBusy("busy")
        return await super().write(scope, batch, **kwargs)


async def test_a_busy_store_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """What could not be written is written the next time, once."""
    store = BusyStore()
    async with Memory.open(store) as memory:
        await _spend(memory.user("ana"), input_tokens=7)
        store.refusals = 1
        assert (await memory.user("ana").usage()).total.calls == 0
        assert (await memory.user("ana").usage()).total.input_tokens == 7
        assert (await memory.user("ana").usage()).total.calls == 1
    assert "could not be written" in caplog.text


async def test_a_stranger_is_not_made_known(paid: Memory) -> None:
    """Asking about somebody unknown writes nothing: reading makes no user."""
    await paid.user("nobody").recall("who is this")
    await _meter(paid).flush()
    assert await paid.users() == []


async def test_usage_goes_with_the_user(memory: Memory) -> None:
    """After forgetting nothing of it is left, what was not written yet included."""
    ana = memory.user("ana")
    await _spend(ana)
    await ana.usage()
    await _spend(ana)
    assert (await ana.forget()).complete
    await _meter(memory).flush()
    again = memory.user("ana")
    await (await again.session("s")).record(Message("user", "hello again"))
    assert (await again.usage()).total.calls == 0


async def test_late_usage_of_a_forgotten_user_is_not_written(memory: Memory) -> None:
    """A call that ends after the erasure is not put down to the user who returned."""
    ana = memory.user("ana")
    await _spend(ana)
    await ana.usage()
    await ana.forget()
    again = memory.user("ana")
    await (await again.session("s")).record(Message("user", "hello again"))
    await _spend(ana)
    assert (await again.usage()).total.calls == 0


async def test_since_leaves_out_what_was_before(memory: Memory, clock: FrozenClock) -> None:
    """``since`` takes calls from then on; 90 days back is the end of it."""
    ana = memory.user("ana")
    start = clock.now()
    await _spend(ana, input_tokens=1)
    await _meter(memory).flush()
    clock.advance(timedelta(days=2))
    await _spend(ana, input_tokens=2)
    assert (await ana.usage()).total.input_tokens == 3
    assert (await ana.usage(since=start + timedelta(days=1))).total.input_tokens == 2
    assert (await ana.usage(since=start)).since == start
    clock.advance(timedelta(days=89))
    assert (await ana.usage()).total.input_tokens == 2
    with pytest.raises(InvalidValue, match="since"):
        await ana.usage(since=datetime(2026, 1, 1))  # noqa: DTZ001 - refused for that


async def test_a_batch_over_midnight_is_counted_on_both_sides(
    memory: Memory, clock: FrozenClock
) -> None:
    """Calls that were written together are counted each at its own time, also where a day ends
    between them."""
    ana = memory.user("ana")
    midnight = datetime(2026, 5, 5, tzinfo=UTC)
    clock.set(midnight - timedelta(milliseconds=100))
    await _spend(ana, input_tokens=1)
    clock.set(midnight + timedelta(milliseconds=100))
    await _spend(ana, input_tokens=2)
    assert (await ana.usage(since=midnight)).total.input_tokens == 2
    assert (await ana.usage()).total.calls == 2
    assert len(await _documents(memory, "ana")) == 1


async def _documents(memory: Memory, user_id: str) -> list[str]:
    scope = Scope("default", "user", user_id)
    store = memory._shared.store  # pyright: ignore[reportPrivateUsage] - there is no other way in
    return [one.key for one in await store.documents(scope, "usage", limit=10_000)]


async def test_many_documents_are_added_up_by_day(memory: Memory, clock: FrozenClock) -> None:
    """Over a bound older calls become totals of their day: fewer documents, the same sums."""
    ana = memory.user("ana")
    for number in range(300):
        await _spend(ana, session_id=f"s{number % 3}", input_tokens=number, cost=0.25)
        await _meter(memory).flush()
        clock.advance(timedelta(minutes=20))
    found = await ana.usage()
    assert found.total == UsageTotal(
        calls=300, input_tokens=sum(range(300)), output_tokens=0, cost=75.0
    )
    assert {name: one.calls for name, one in found.sessions.items()} == {
        "s0": 100,
        "s1": 100,
        "s2": 100,
    }
    keys = await _documents(memory, "ana")
    assert len(keys) < 150
    assert any(key.endswith(".day") for key in keys)
    clock.advance(timedelta(days=100))
    await _spend(ana)
    _meter(memory)._documents.clear()  # pyright: ignore[reportPrivateUsage] - as a new process
    await ana.usage()
    assert len(await _documents(memory, "ana")) == 1


async def test_sweeping_removes_what_has_run_out(memory: Memory, clock: FrozenClock) -> None:
    """After 90 days the documents go with the next sweep, and not in a dry run."""
    await _spend(memory.user("ana"))
    await _meter(memory).flush()
    clock.advance(timedelta(days=91))
    await memory.sweep(dry_run=True)
    assert len(await _documents(memory, "ana")) == 1
    await memory.sweep()
    assert await _documents(memory, "ana") == []


async def test_days_are_added_up_again_and_again(memory: Memory, clock: FrozenClock) -> None:
    """A day that was added up takes further calls of that day; nothing is counted twice."""
    ana = memory.user("ana")
    for _ in range(3):
        for _ in range(260):
            await _spend(ana, input_tokens=1)
            await _meter(memory).flush()
            clock.advance(timedelta(seconds=1))
    assert (await ana.usage()).total.input_tokens == 780
    assert len(await _documents(memory, "ana")) <= 257


async def test_numbers_that_endpoints_send_are_made_sound(memory: Memory) -> None:
    """Negative, missing and absurd numbers count as nothing; a huge raw object is not kept."""
    ana = memory.user("ana")
    await _spend(ana, input_tokens=-5, output_tokens=None, cost=float("nan"))
    await _spend(ana, input_tokens=True, cost="1.5", raw={"x": "y" * 10_000})
    await _spend(ana, input_tokens=3, cost=0.0, raw={"odd": float("inf")})
    found = await ana.usage()
    assert found.total == UsageTotal(calls=3, input_tokens=3, output_tokens=0, cost=0.0)
    assert [one.call.raw for one in found.recent] == [{}, {}, {}]


@pytest.mark.parametrize(
    "call",
    [{"model": "x" * 30_000_000}, {"input_tokens": 10**5_000}, {"model": "m\ud800"}],
    ids=["name", "number", "surrogate"],
)
async def test_one_call_that_cannot_be_kept_stops_no_other(
    memory: Memory, call: dict[str, Any]
) -> None:
    """Whatever an endpoint calls itself or says that it used, the calls before and after it are
    written."""
    ana = memory.user("ana")
    await _spend(ana, input_tokens=1)
    await _spend(ana, **call)
    await _meter(memory).flush()
    await _spend(ana, input_tokens=1)
    found = await ana.usage()
    assert found.total.calls == 3
    assert found.total.input_tokens in (2, 12)
    assert _meter(memory)._waiting == 0  # pyright: ignore[reportPrivateUsage] - all is written


@pytest.mark.parametrize("which", ["call", "day"])
async def test_what_cannot_be_read_is_left_alone(
    memory: Memory, clock: FrozenClock, which: str
) -> None:
    """Documents of a release to come, or damaged ones, are neither deleted nor written over when
    calls are added up; the others are."""
    ana = memory.user("ana")
    day_us = clock.now().replace(hour=0).timestamp() * 1_000_000
    name = f"{int(day_us) + 10**17:018d}"
    key = f"{name}.day" if which == "day" else f"{name}.abc"
    await _spend(ana)
    await _meter(memory).flush()
    store = memory._shared.store  # pyright: ignore[reportPrivateUsage] - there is no other way in
    scope = Scope("default", "user", "ana")
    header = await store.header(scope)
    assert header is not None
    write = DocumentWrite(kind="usage", key=key, body=b"{}", expected_version=None)
    await store.write(scope, Batch(documents=[write]), epoch=header.epoch, now_us=0)
    for _ in range(300):
        await _spend(ana, input_tokens=1)
        await _meter(memory).flush()
        clock.advance(timedelta(minutes=15))
    assert (await ana.usage()).total.calls == 301
    left = await store.document(scope, "usage", key)
    assert left is not None
    assert left.body == b"{}"
    assert len(await _documents(memory, "ana")) < 257


async def test_merged_users_are_counted_together(memory: Memory) -> None:
    """The canonical user's usage has that of the users merged into it."""
    await _spend(memory.user("old"), input_tokens=1)
    await _spend(memory.user("ana"), input_tokens=2)
    await _meter(memory).flush()
    await memory.merge("old", "ana")
    assert (await memory.user("ana").usage()).total.input_tokens == 3


def test_times_before_1970_sort_too() -> None:
    """Keys sort by time over the whole range of dates."""
    times = [datetime(1, 1, 2, tzinfo=UTC), datetime(1969, 1, 1, tzinfo=UTC), datetime.now(UTC)]
    from secondcall.checks import to_us
    from secondcall.memory.tally import first_key

    keys = [first_key(to_us("at", one)) for one in times]
    assert keys == sorted(keys)
    assert len({len(key) for key in keys}) == 1
