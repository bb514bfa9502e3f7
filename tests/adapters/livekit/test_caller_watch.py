"""Who is calling, once more is known: late attributes, late callers, a store that is back."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator

import pytest
from adapters.livekit.waiting import until

from secondcall import Memory, Message
from secondcall.abc import Document, Scope
from secondcall.adapters.livekit import caller as caller_module
from secondcall.adapters.livekit.caller import CallerWatch, ResolvedCaller, resolve_caller
from secondcall.errors import StoreUnavailable
from secondcall.stores.memory import MemoryStore
from secondcall.testing.livekit_room import room_job

pytestmark = pytest.mark.anyio

NUMBER = "+14155550100"


class _Switched(MemoryStore):
    """A store that can be switched off, or made slow."""

    def __init__(self) -> None:
        super().__init__()
        self.is_down = False
        self.gate: asyncio.Event | None = None
        self.reads = 0

    async def document(self, scope: Scope, kind: str, key: str) -> Document | None:
        """Fails while the store is down, waits while it is slow."""
        self.reads += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.is_down:
            raise StoreUnavailable("the store is switched off")
        return await super().document(scope, kind, key)


@pytest.fixture
def store() -> _Switched:
    """The store behind ``memory``."""
    return _Switched()


@pytest.fixture
async def memory(store: _Switched) -> AsyncGenerator[Memory]:
    """An empty memory over a store that can fail."""
    async with Memory.open(store) as opened:
        yield opened


class _Known:
    def __init__(self) -> None:
        self.seen: list[ResolvedCaller] = []

    def __call__(self, resolved: ResolvedCaller) -> None:
        self.seen.append(resolved)


async def test_a_number_that_comes_late_joins_the_call_to_its_caller(memory: Memory) -> None:
    """What was said before is the caller's, and what is said afterwards through the old handle
    too."""
    known, old = _Known(), await memory.identify(phone=NUMBER)
    with room_job() as job:
        job.join("sip_1", kind="sip")
        found = await resolve_caller(job.ctx, memory, attribute_seconds=0)
        assert found.caller.anonymous
        session = await memory.user(found.caller).session("call-1")
        await session.record(Message("user", "My boiler is leaking.", id="1"))
        watch = CallerWatch(job.ctx, memory, found, on_known=known)
        job.set_attributes("sip_1", {"sip.phoneNumber": NUMBER, "sip.ruleID": "SDR_1"})
        await until(lambda: bool(known.seen))
        await session.record(Message("user", "In the cellar.", id="2"))
        await watch.aclose()
    assert known.seen == [watch.resolved]
    assert watch.resolved.caller.user_id == old.user_id
    assert watch.resolved.source == "sip"
    items = [one.item async for one in memory.user(old).items()]
    texts = [one.text for one in items if isinstance(one, Message)]
    assert sorted(texts) == ["In the cellar.", "My boiler is leaking."]
    assert (await memory.audit(found.caller.user_id))[-1].reason == "recognised during the call"


async def test_a_number_that_came_between_finding_and_watching_is_seen(memory: Memory) -> None:
    """Nothing falls between the two."""
    known = _Known()
    with room_job() as job:
        job.join("sip_1", kind="sip")
        found = await resolve_caller(job.ctx, memory, attribute_seconds=0)
        job.set_attributes("sip_1", {"sip.phoneNumber": NUMBER})
        watch = CallerWatch(job.ctx, memory, found, on_known=known)
        await until(lambda: bool(known.seen))
        await watch.aclose()
    assert not watch.resolved.caller.anonymous


async def test_a_caller_who_comes_after_the_wait_is_recognised(memory: Memory) -> None:
    """The wait had an end; the watch has none."""
    known = _Known()
    with room_job() as job:
        found = await resolve_caller(job.ctx, memory, timeout_seconds=0)
        watch = CallerWatch(job.ctx, memory, found, on_known=known)
        job.call_in(NUMBER)
        await until(lambda: bool(known.seen))
        await watch.aclose()
    assert known.seen[0].participant == "sip_1"
    assert known.seen[0].caller.user_id == (await memory.identify(phone=NUMBER)).user_id


async def test_only_the_caller_is_watched(memory: Memory) -> None:
    """Somebody else who comes in is not taken for the anonymous caller, even when that one has
    left."""
    known = _Known()
    with room_job() as job:
        job.call_in("anonymous")
        found = await resolve_caller(job.ctx, memory)
        watch = CallerWatch(job.ctx, memory, found, on_known=known)
        job.join("supervisor-1")
        job.set_attributes("supervisor-1", {"user_id": "staff"})
        job.leave("sip_1")
        await watch.aclose()
    assert watch.resolved.caller == found.caller
    assert known.seen == []


async def test_the_first_to_come_stays_the_caller(memory: Memory) -> None:
    """Who comes late and withholds the number is the caller still when somebody else comes next."""
    known = _Known()
    with room_job() as job:
        found = await resolve_caller(job.ctx, memory, timeout_seconds=0)
        watch = CallerWatch(job.ctx, memory, found, on_known=known)
        job.call_in("anonymous")
        for _ in range(5):
            await asyncio.sleep(0)
        job.leave("sip_1")
        job.join("supervisor-1")
        await watch.aclose()
    assert watch.resolved.caller == found.caller
    assert known.seen == []


async def test_a_late_withheld_number_changes_nothing(memory: Memory) -> None:
    """A word in place of a number identifies nobody, early or late."""
    known = _Known()
    with room_job() as job:
        job.join("sip_1", kind="sip")
        found = await resolve_caller(job.ctx, memory, attribute_seconds=0)
        watch = CallerWatch(job.ctx, memory, found, on_known=known)
        job.set_attributes("sip_1", {"sip.phoneNumber": "Restricted"})
        await watch.aclose()
    assert watch.resolved.caller == found.caller
    assert known.seen == []


async def test_a_telephone_caller_whom_your_backend_proves_is_verified(memory: Memory) -> None:
    """An id set during the call verifies a known caller; no user is made twice."""
    known = _Known()
    first = await memory.identify(subject="cust-1", phone=NUMBER)
    with room_job() as job:
        job.call_in(NUMBER)
        found = await resolve_caller(job.ctx, memory)
        watch = CallerWatch(job.ctx, memory, found, on_known=known)
        job.set_attributes("sip_1", {"sip.phoneNumber": NUMBER, "user_id": "cust-1"})
        await until(lambda: bool(known.seen))
        await watch.aclose()
    assert (found.caller.user_id, found.caller.trust) == (first.user_id, "claimed")
    assert (known.seen[0].caller.user_id, known.seen[0].caller.trust) == (first.user_id, "verified")


async def test_who_proves_to_be_somebody_else_is_told_and_not_joined(memory: Memory) -> None:
    """A number that is another user's does not make two people one."""
    known = _Known()
    owner = await memory.identify(phone=NUMBER)
    guest = await memory.identify(subject="cust-2")
    with room_job() as job:
        job.call_in(NUMBER)
        found = await resolve_caller(job.ctx, memory)
        watch = CallerWatch(job.ctx, memory, found, on_known=known)
        job.set_attributes("sip_1", {"sip.phoneNumber": NUMBER, "user_id": "cust-2"})
        await until(lambda: bool(known.seen))
        await watch.aclose()
    assert found.caller.user_id == owner.user_id
    assert known.seen[0].caller.user_id == guest.user_id
    assert len(known.seen[0].caller.conflicts) == 1
    assert [one.action for one in await memory.audit(owner.user_id) if "merg" in one.action] == []


async def test_a_number_that_comes_after_the_backends_id_is_linked_to_it(memory: Memory) -> None:
    """The job's metadata say who it is before the telephone number is there; the next call may
    come by number alone."""
    with room_job(json.dumps({"user_id": "cust-1"})) as job:
        found = await resolve_caller(job.ctx, memory)
        watch = CallerWatch(job.ctx, memory, found)
        job.call_in(NUMBER)
        await until(lambda: watch.resolved.participant == "sip_1")
        await watch.aclose()
    assert (await memory.identify(phone=NUMBER)).user_id == found.caller.user_id


async def test_a_store_that_is_down_leaves_an_anonymous_caller_until_it_is_back(
    memory: Memory,
    store: _Switched,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The call goes on; with the store the caller comes back, even one who has hung up by then."""
    monkeypatch.setattr(caller_module, "_RETRY_SECONDS", (0.001,))
    known, owner = _Known(), await memory.identify(phone=NUMBER)
    store.is_down = True
    with room_job() as job, caplog.at_level(logging.WARNING):
        job.call_in(NUMBER)
        found = await resolve_caller(job.ctx, memory)
        assert (found.caller.anonymous, found.pending, found.source) == (True, True, "sip")
        watch = CallerWatch(job.ctx, memory, found, on_known=known)
        await until(lambda: "looked up again" in caplog.text)
        job.leave("sip_1")
        store.is_down = False
        await until(lambda: bool(known.seen))
        await watch.aclose()
    assert known.seen[0].caller.user_id == owner.user_id
    assert known.seen[0].pending is False
    assert NUMBER not in caplog.text


async def test_a_store_that_hangs_holds_nobody_up(memory: Memory, store: _Switched) -> None:
    """The look-up has a limit of its own, and is made again afterwards."""
    known = _Known()
    store.gate = asyncio.Event()
    with room_job() as job:
        job.call_in(NUMBER)
        found = await resolve_caller(job.ctx, memory, identify_seconds=0.01)
        assert (found.caller.anonymous, found.pending) == (True, True)
        store.gate.set()
        watch = CallerWatch(job.ctx, memory, found, on_known=known)
        await watch.aclose()
    assert [one.caller.anonymous for one in known.seen] == [False]


async def test_what_the_host_does_with_it_may_fail(
    memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    """An ``on_known`` that raises, async or not, ends neither the call nor the watch."""

    async def fails(_: ResolvedCaller) -> None:
        raise TypeError("the host's own mistake")

    with room_job() as job, caplog.at_level(logging.WARNING):
        found = await resolve_caller(job.ctx, memory, timeout_seconds=0)
        watch = CallerWatch(job.ctx, memory, found, on_known=fails)
        job.call_in(NUMBER)
        await until(lambda: "looked up again" in caplog.text)
        await watch.aclose()
    assert not watch.resolved.caller.anonymous
    assert "the host's own mistake" not in caplog.text


async def test_an_attribute_that_is_taken_away_takes_no_proof_away(
    memory: Memory, store: _Switched
) -> None:
    """Who was verified in this call stays so, with the attribute gone and after hanging up."""
    known = _Known()
    await memory.identify(subject="cust-1", phone=NUMBER)
    with room_job() as job:
        job.call_in(NUMBER)
        found = await resolve_caller(job.ctx, memory)
        watch = CallerWatch(job.ctx, memory, found, on_known=known)
        job.set_attributes("sip_1", {"sip.phoneNumber": NUMBER, "user_id": "cust-1"})
        await until(lambda: bool(known.seen))
        reads = store.reads
        job.set_attributes("sip_1", {"sip.phoneNumber": NUMBER})
        await until(lambda: store.reads > reads)
        job.leave("sip_1")
        await watch.aclose()
    assert len(known.seen) == 1
    assert watch.resolved.caller.trust == "verified"
    assert watch.resolved.participant == "sip_1"


async def test_a_beginning_that_cannot_be_joined_is_said_and_the_caller_is_told(
    memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    """When the join is refused the rest of the call is still the caller's."""
    known = _Known()
    owner = await memory.identify(phone=NUMBER)
    other = await memory.identify(subject="somebody else")
    with room_job() as job, caplog.at_level(logging.ERROR):
        found = await resolve_caller(job.ctx, memory, timeout_seconds=0)
        await memory.merge(found.caller.user_id, other.user_id)
        watch = CallerWatch(job.ctx, memory, found, on_known=known)
        job.call_in(NUMBER)
        await until(lambda: bool(known.seen))
        await watch.aclose()
    assert known.seen[0].caller.user_id == owner.user_id
    assert "could not be joined" in caplog.text


async def test_closing_takes_the_handlers_away(memory: Memory) -> None:
    """A closed watch hears nothing more, and closing it twice is harmless."""
    with room_job() as job:
        before = job.listeners()
        found = await resolve_caller(job.ctx, memory, timeout_seconds=0)
        watch = CallerWatch(job.ctx, memory, found)
        assert job.listeners() > before
        await watch.aclose()
        await watch.aclose()
        assert job.listeners() == before
        job.call_in(NUMBER)
        await asyncio.sleep(0)
    assert watch.resolved.caller.anonymous
