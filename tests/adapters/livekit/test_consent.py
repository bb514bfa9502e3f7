"""What may be recorded: consent, off the record, forgetting in mid-call."""

from __future__ import annotations

from pathlib import Path

import pytest
from adapters.livekit.calls import FailingStore, recording, said, talking
from adapters.livekit.waiting import until
from livekit.agents import Agent, function_tool

from secondcall.adapters.livekit.consent import Consent
from secondcall.errors import StoreUnavailable
from secondcall.testing.livekit import Reply, ScriptedLLM
from secondcall.types import Message

pytestmark = pytest.mark.anyio


async def test_nothing_is_recorded_before_consent(tmp_path: Path) -> None:
    """Before consent the store has not even the user, and no journal; what was said then is not
    made up for, also not from the history at the end."""
    consent = Consent(given=False)
    async with recording(tmp_path, consent=consent) as call:
        async with talking(ScriptedLLM(["May I?", "Thanks."])) as session:
            call.recorder.attach(session)
            await session.run(user_input="my secret")
            assert await call.memory.users() == []
            assert call.files() == []
            consent.give()
            await session.run(user_input="you may")
        finished = await call.recorder.finish()
        found = await call.items()
    assert said(found) == [("user", "you may"), ("assistant", "Thanks.")]
    assert finished.withheld == 2
    assert call.opened


async def test_a_call_without_consent_leaves_nothing(tmp_path: Path) -> None:
    """A call in which consent never came makes no user, no session and no file."""
    async with recording(tmp_path, consent=Consent(given=False)) as call:
        async with talking(ScriptedLLM(["Hello."])) as session:
            call.recorder.attach(session)
            await session.run(user_input="hi")
        assert (await call.recorder.finish()).complete
        assert await call.memory.users() == []
        assert call.opened == []
        assert call.files() == []


async def test_off_the_record_is_left_out(tmp_path: Path) -> None:
    """What is said off the record is in no item, journal or final comparison; before and after
    are."""
    script = ScriptedLLM(["one", "two", "three"])
    async with recording(tmp_path) as call, talking(script) as session:
        call.recorder.attach(session)
        await session.run(user_input="before")
        call.recorder.consent.off_the_record()
        await session.run(user_input="between us")
        call.recorder.consent.back_on_the_record()
        await session.run(user_input="after")
        await call.recorder.finish()
        await call.recorder.finish()
        found = await call.items()
    assert [text for _, text in said(found)] == ["before", "one", "after", "three"]


async def test_a_tool_goes_off_the_record_in_mid_turn(tmp_path: Path) -> None:
    """The reply to "off the record" is off it already, and so is the tool's own output."""

    class _Discreet(Agent):
        @function_tool
        async def off_the_record(self) -> str:
            """Stops recording."""
            call.recorder.consent.off_the_record()
            return "stopped"

    script = ScriptedLLM([Reply(tools=[("off_the_record", {})]), "Between us, then."])
    async with recording(tmp_path) as call:
        async with talking(script, _Discreet(instructions="Be brief.")) as session:
            call.recorder.attach(session)
            await session.run(user_input="off the record please")
        await call.recorder.finish()
        found = [one.item for one in await call.items()]
    assert said(found) == [("user", "off the record please")]
    assert "stopped" not in str(found)


async def test_forgetting_in_mid_call(tmp_path: Path) -> None:
    """On request everything of the caller goes at once: the record, what waits, the journal; what
    is said afterwards is not recorded, and the final comparison brings nothing back."""
    async with recording(tmp_path) as call, talking(ScriptedLLM(["one", "two"])) as session:
        await (await call.memory.user("ana").session("last week")).record(Message("user", "old"))
        call.recorder.attach(session)
        await session.run(user_input="before")
        receipt = await call.recorder.forget()
        await session.run(user_input="after")
        assert (await call.recorder.finish()).complete
        assert receipt.complete
        assert await call.memory.users() == []
        assert call.files() == []


async def test_a_forgotten_caller_may_begin_anew(tmp_path: Path) -> None:
    """With a new consent the rest of the call is recorded, under a new epoch, and only that."""
    async with recording(tmp_path) as call, talking(ScriptedLLM(["one", "two"])) as session:
        call.recorder.attach(session)
        await session.run(user_input="before")
        await call.recorder.forget()
        call.recorder.consent.give()
        await session.run(user_input="after")
        assert (await call.recorder.finish()).complete
        assert said(await call.items()) == [("user", "after"), ("assistant", "two")]


async def test_forgetting_needs_the_store(tmp_path: Path) -> None:
    """While the store is down the request fails and can be repeated; meanwhile nothing is
    recorded, and what waited here is gone."""
    store = FailingStore()
    async with recording(tmp_path, store) as call:
        call.recorder.record(Message("user", "before"))
        await until(lambda: call.recorder.progress.store == 1)
        store.down = True
        call.recorder.record(Message("user", "waiting"))
        await until(lambda: call.recorder.progress.journal == 1)
        with pytest.raises(StoreUnavailable):
            await call.recorder.forget()
        call.recorder.record(Message("user", "after"))
        assert call.recorder.progress.waiting == 0
        assert call.files() == []
        store.down = False
        assert (await call.recorder.forget()).complete
        assert await call.memory.users() == []


def test_what_began_off_the_record_stays_off() -> None:
    """An item counts from its beginning to its end; touching a time off the record is enough."""
    now = [0.0]
    consent = Consent(clock=lambda: now[0])
    now[0] = 10.0
    consent.off_the_record()
    now[0] = 20.0
    consent.back_on_the_record()
    consent.give()
    assert consent.recording
    assert [consent.allows(begun, ended) for begun, ended in (
        (5.0, 9.0), (5.0, 12.0), (12.0, 15.0), (15.0, 25.0), (5.0, 30.0), (21.0, 22.0)
    )] == [True, False, False, False, False, True]  # fmt: skip
    assert [consent.allows(moment) for moment in (9.0, 11.0, 21.0)] == [True, False, True]
    now[0] = 30.0
    consent.withdraw()
    consent.withdraw()
    assert [consent.allows(25.0), consent.allows(31.0), consent.allows(25.0, 26.0)] == [
        True, False, False
    ]  # fmt: skip
