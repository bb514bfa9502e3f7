"""Who asks to be forgotten in a call is forgotten at once, and everywhere on this machine."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from adapters.livekit.calls import FailingStore
from adapters.livekit.jobs import ANN, end, talk, texts
from adapters.livekit.waiting import until
from livekit.agents import Agent

from secondcall import Memory, Message
from secondcall.adapters.livekit import CallNotes, CallSettings, Journals, call
from secondcall.adapters.livekit.replay import Replayed
from secondcall.errors import MissingExtra, StoreUnavailable
from secondcall.testing.livekit_room import room_job
from secondcall.types import JsonValue

pytestmark = pytest.mark.anyio


def _journals(folder: Path) -> list[Path]:
    return [*folder.rglob("*.journal")]


async def test_a_store_that_hangs_holds_forgetting_up_for_its_deadline_only(
    tmp_path: Path,
) -> None:
    """``forget`` raises after its deadline; from its beginning on the agent knows nothing of the
    caller, userdata are empty and nothing is recorded, and run again it completes."""
    store = FailingStore()
    async with Memory.open(store) as memory:
        ann = await memory.identify(phone=ANN)
        await memory.user(ann).remember("name", "Ann")
        with room_job() as job:
            job.call_in(ANN)
            settings = CallSettings(journal=tmp_path, preload_seconds=60)
            async with call(job.ctx, memory, settings=settings) as live:
                agent = live.agent(Agent(instructions="Be brief."))
                script = ["Hello Ann.", "Who?", "Gone."]
                async with talk(agent, script, userdata=live.userdata) as (session, model):
                    await session.run(user_input="Hello?")
                    live.userdata.update(lambda data: data.notes.update(name="Ann"))
                    store.hangs = True
                    with pytest.raises(StoreUnavailable, match=r"within 0\.05 s.*call forget"):
                        await live.forget(deadline_seconds=0.05)
                    await session.run(user_input="Do you know me?")
                    assert '"name" = "Ann"' in texts(model.requests[0])
                    assert '"name" = "Ann"' not in texts(model.requests[1])
                    assert live.userdata.data == CallNotes()
                    store.hangs = False
                    assert (await live.forget()).complete
                    assert await memory.users() == []
                    await session.run(user_input="And now?")
            await end(job.ctx)
            assert await memory.users() == []
    assert _journals(tmp_path) == []


async def test_who_asked_to_be_forgotten_is_not_recognised_meanwhile(tmp_path: Path) -> None:
    """While forgetting has not succeeded, a number that comes late brings nothing of the caller to
    the agent; called again, ``forget`` reaches what was known under that number."""
    store = FailingStore()
    async with Memory.open(store) as memory:
        ann = await memory.identify(phone=ANN)
        await memory.user(ann).remember("name", "Ann")
        with room_job() as job:
            job.call_in(None)
            settings = CallSettings(
                journal=tmp_path, preload_seconds=60, caller={"attribute_seconds": 0.01}
            )
            async with call(job.ctx, memory, settings=settings) as live:
                agent = live.agent(Agent(instructions="Be brief."))
                async with talk(agent, ["Who?", "Gone."], userdata=live.userdata) as (
                    session,
                    model,
                ):
                    store.hangs = True
                    with pytest.raises(StoreUnavailable):
                        await live.forget(deadline_seconds=0.05)
                    store.hangs = False
                    job.set_attributes("sip_1", {"sip.phoneNumber": ANN})
                    await until(lambda: live.user.user_id == ann.user_id)
                    await session.run(user_input="Do you know my name?")
                    assert '"Ann"' not in texts(model.requests[0])
                    assert (await live.forget()).complete
                    assert await memory.users() == []
            await end(job.ctx)


async def test_a_recorder_alone_waits_no_longer_either(tmp_path: Path) -> None:
    """``Recorder.forget`` has the same deadline."""
    store = FailingStore()
    async with Memory.open(store) as memory:
        with room_job() as job:
            job.call_in(ANN)
            settings = CallSettings(journal=tmp_path, preload_seconds=60)
            async with call(job.ctx, memory, settings=settings) as live:
                store.hangs = True
                async with asyncio.timeout(60):
                    with pytest.raises(StoreUnavailable):
                        await live.recorder.forget(deadline_seconds=0.01)
                store.hangs = False
                await live.aclose()


async def test_a_call_whose_store_was_down_throughout_is_forgotten_too(tmp_path: Path) -> None:
    """A journal that knows only the telephone number goes with the user whose number it is, so
    that no replay brings them back; the receipt counts it."""
    store = FailingStore()
    async with Memory.open(store) as memory:
        ann = await memory.identify(phone=ANN)
        await memory.user(ann).remember("name", "Ann")
        store.down = True
        with room_job() as job:
            job.call_in(ANN)
            settings = CallSettings(journal=tmp_path, preload_seconds=0.05, end_seconds=0.05)
            async with call(job.ctx, memory, settings=settings) as live:
                agent = live.agent(Agent(instructions="Be brief."))
                async with talk(agent, ["Hello."]) as (session, _):
                    await session.run(user_input="My secret is blue")
                    await until(lambda: live.recorder.progress.journal == 2)
            await live.aclose()
        assert len(_journals(tmp_path)) == 1
        store.down = False
        receipt = await memory.user(ann).forget()
        assert receipt.complete
        assert receipt.removed["journals"] == 1
        assert _journals(tmp_path) == []
        assert await Journals(memory, tmp_path).replay() == Replayed()
        assert await memory.users() == []


@pytest.mark.parametrize(
    ("who", "goes"),
    [
        ({"phone": "+1 (415) 555-0100"}, True),
        ({"sip": f"sip:{ANN}@carrier.example"}, True),
        ({"subject": "ann@shop"}, True),
        ({"device": "handset", "phone": ANN}, True),
        ({"phone": "+14155550101"}, False),
        ({"subject": "ben@shop", "phone": ANN}, False),
        ({"phone": "anonymous"}, False),
        ({"phone": 7, "colour": "red"}, False),
        ({}, False),
    ],
)
async def test_a_journal_goes_with_whom_a_replay_would_give_it_to(
    who: dict[str, JsonValue], goes: bool, tmp_path: Path
) -> None:
    """However a number is written; not with somebody whose number a proved caller called from, and
    what says nothing usable stays."""
    async with Memory.open("memory://") as memory:
        ann = await memory.identify(phone=ANN, subject="ann@shop")
        journals = Journals(memory, tmp_path)
        journal = journals.journal("call", who=who)
        journal.append([Message("user", "My secret is blue", id="a")])
        journal.close()
        receipt = await memory.user(ann).forget()
        assert receipt.complete
        assert (len(_journals(tmp_path)), receipt.removed["journals"]) == (not goes, goes)


async def test_a_national_number_is_read_as_the_call_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the region of the call a journal goes with the caller; where nothing can read such
    numbers the receipt is not complete, since the journal may be the user's."""
    pytest.importorskip("phonenumbers", reason="reads national numbers; an extra of its own")
    async with Memory.open("memory://") as memory:
        ann = await memory.identify(phone=ANN)
        journals = Journals(memory, tmp_path)
        journal = journals.journal("call", who={"phone": "(415) 555-0100", "default_region": "US"})
        journal.append([Message("user", "My secret is blue", id="a")])
        journal.close()
        with monkeypatch.context() as without:
            without.setattr("secondcall.identity.identifiers_from", _unable)
            assert not (await memory.user(ann).forget()).complete
        assert len(_journals(tmp_path)) == 1
        ann = await memory.identify(phone=ANN)
        assert (await memory.user(ann).forget()).complete
        assert _journals(tmp_path) == []


def _unable(**_: object) -> None:
    raise MissingExtra("pip install 'secondcall[phone]'")


async def test_another_tenants_journal_with_the_same_number_stays(tmp_path: Path) -> None:
    """The same caller of another tenant is somebody else."""
    async with Memory.open("memory://") as memory:
        ann = await memory.identify(phone=ANN)
        Journals(memory, tmp_path)
        journal = Journals(memory.tenant("other"), tmp_path).journal("call", who={"phone": ANN})
        journal.append([Message("user", "My secret is blue", id="a")])
        journal.close()
        await memory.user(ann).forget()
        assert len(_journals(tmp_path)) == 1
