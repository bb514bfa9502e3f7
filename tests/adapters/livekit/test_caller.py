"""Who is calling: which of the things that a room tells are believed."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from livekit.agents.ipc.mock_room import create_mock_room
from livekit.agents.testing import fake_job_context

from secondcall import Memory
from secondcall.adapters.livekit.caller import resolve_caller
from secondcall.errors import InvalidValue
from secondcall.testing.livekit_room import Kind, room_job

pytestmark = pytest.mark.anyio

NUMBER = "+14155550100"


@pytest.fixture
async def memory() -> AsyncGenerator[Memory]:
    """An empty memory."""
    async with Memory.open("memory://") as opened:
        yield opened


async def _subject(memory: Memory, subject: str) -> str:
    return (await memory.identify(subject=subject)).user_id


async def _phone(memory: Memory, number: str) -> str:
    return (await memory.identify(phone=number)).user_id


async def test_an_id_in_the_jobs_metadata_is_verified_and_nobody_is_waited_for(
    memory: Memory,
) -> None:
    """Your backend's id in the job's metadata says who it is, verified, before anybody comes."""
    user_id = await _subject(memory, "cust-1")
    with room_job(json.dumps({"user_id": "cust-1"})) as job:
        async with asyncio.timeout(30):
            found = await resolve_caller(job.ctx, memory, timeout_seconds=600)
    assert found.caller.user_id == user_id
    assert found.caller.trust == "verified"
    assert (found.source, found.participant) == ("job_metadata", None)


async def test_an_id_in_the_jobs_attributes_counts_like_one_in_its_metadata(memory: Memory) -> None:
    """The attributes of a dispatch are your backend's too."""
    with room_job() as job:
        job.ctx.job.attributes["customer_id"] = "cust-1"
        found = await resolve_caller(job.ctx, memory)
    assert found.caller.user_id == await _subject(memory, "cust-1")
    assert found.source == "job_metadata"


async def test_a_whole_number_is_an_id(memory: Memory) -> None:
    """A database's number in the metadata is the same id as its digits."""
    with room_job(json.dumps({"user_id": 4711})) as job:
        found = await resolve_caller(job.ctx, memory)
    assert found.caller.user_id == await _subject(memory, "4711")


@pytest.mark.parametrize("value", [None, True, 1.5, [], {"id": "x"}, "", "  "])
async def test_a_user_id_of_another_type_is_no_id(memory: Memory, value: object) -> None:
    """What is no text and no whole number identifies nobody; the call goes on by its number."""
    with room_job(json.dumps({"user_id": value})) as job:
        job.call_in(NUMBER)
        found = await resolve_caller(job.ctx, memory)
    assert found.fields.subject is None
    assert found.caller.user_id == await _phone(memory, NUMBER)


@pytest.mark.parametrize("text", ["{broken", "[1, 2]", '"cust-1"', "cust-1", "[" * 9_000, "\x00"])
async def test_metadata_that_is_no_json_object_is_left_out_and_said(
    memory: Memory, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The call goes on by the number, and the log says which metadata were no use, not what."""
    with room_job(text) as job, caplog.at_level(logging.WARNING):
        job.call_in(NUMBER)
        found = await resolve_caller(job.ctx, memory)
    assert found.caller.user_id == await _phone(memory, NUMBER)
    problems = [getattr(record, "problems", []) for record in caplog.records]
    assert any("the job's metadata" in one for several in problems for one in several)
    assert not any(text in one for several in problems for one in several)


@pytest.mark.parametrize(
    ("attributes", "metadata", "source"),
    [
        ({"user_id": "cust-1"}, "", "attributes"),
        ({}, '{"userId": "cust-1"}', "participant_metadata"),
        ({"customerId": "cust-1"}, "no json", "attributes"),
    ],
)
async def test_an_id_in_the_token_is_verified(
    memory: Memory, attributes: dict[str, str], metadata: str, source: str
) -> None:
    """Attributes and metadata that came with the token are your backend's word."""
    with room_job() as job:
        job.join("web-77", attributes=attributes, metadata=metadata)
        found = await resolve_caller(job.ctx, memory)
    assert found.caller.user_id == await _subject(memory, "cust-1")
    assert (found.caller.trust, found.source, found.participant) == ("verified", source, "web-77")


async def test_what_a_participant_may_write_itself_proves_nothing(memory: Memory) -> None:
    """Of one who may change its own attributes and metadata, only the token's identity counts."""
    with room_job() as job:
        job.join(
            "web-77",
            attributes={"user_id": "victim", "sip.phoneNumber": NUMBER},
            metadata='{"user_id": "victim"}',
            edits_itself=True,
        )
        found = await resolve_caller(job.ctx, memory)
    assert found.caller.user_id == await _subject(memory, "web-77")
    assert found.source == "participant"
    assert found.fields.phone is None


async def test_the_identity_in_the_token_is_the_users_id_unless_told_otherwise(
    memory: Memory,
) -> None:
    """Your token's identity is verified; where identities are random it can be left out."""
    with room_job() as job:
        job.join("cust-1")
        by_identity = await resolve_caller(job.ctx, memory)
        without = await resolve_caller(
            job.ctx, memory, participant_identity=False, attribute_seconds=0
        )
    assert by_identity.caller.user_id == await _subject(memory, "cust-1")
    assert by_identity.source == "participant"
    assert without.caller.anonymous
    assert without.participant == "cust-1"


@pytest.mark.parametrize("identity", ["user", "guest", "test", "default", "anonymous", "unknown"])
async def test_an_identity_that_many_share_is_nobodys(memory: Memory, identity: str) -> None:
    """A placeholder in the token opens no memory: each such call is for itself."""
    with room_job() as job:
        job.join(identity)
        one, two = await resolve_caller(job.ctx, memory), await resolve_caller(job.ctx, memory)
    assert one.caller.anonymous
    assert two.caller.anonymous
    assert one.caller.user_id != two.caller.user_id


async def test_the_rooms_metadata_count_only_if_the_application_says_so(memory: Memory) -> None:
    """All in a room share its metadata, so by default they name nobody."""
    with room_job(room_metadata='{"user_id": "cust-1"}') as job:
        job.join("web-77")
        without = await resolve_caller(job.ctx, memory)
        asked = await resolve_caller(job.ctx, memory, room_metadata=True)
    assert without.caller.user_id == await _subject(memory, "web-77")
    assert asked.caller.user_id == await _subject(memory, "cust-1")
    assert (asked.source, asked.caller.trust) == ("room_metadata", "verified")


async def test_the_name_of_the_room_says_nothing(memory: Memory) -> None:
    """A room that is called like a number or a user identifies nobody."""
    for name in (NUMBER, f"call-_{NUMBER}_abc", "cust-1"):
        with room_job(room_name=name) as job:
            found = await resolve_caller(job.ctx, memory, timeout_seconds=0)
        assert found.caller.anonymous


async def test_the_agents_own_identity_is_never_the_caller(
    memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither in the room nor as an id in the metadata: all callers would share one memory."""
    with room_job(json.dumps({"user_id": "agent-7"})) as job:
        job.agent_is("agent-7")
        job.join("agent-7")
        with caplog.at_level(logging.WARNING):
            found = await resolve_caller(job.ctx, memory, timeout_seconds=0)
    assert found.caller.anonymous
    assert any("agent's own" in str(getattr(one, "problems", "")) for one in caplog.records)


@pytest.mark.parametrize("kind", ["agent", "egress"])
async def test_agents_and_recorders_are_not_callers(memory: Memory, kind: Kind) -> None:
    """Another agent, a recorder, an avatar and a hidden listener are passed over for the person."""
    with room_job() as job:
        job.join("machine", kind=kind, attributes={"user_id": "wrong"})
        job.join("avatar", attributes={"lk.publish_on_behalf": "agent-7", "user_id": "wrong"})
        job.join("listener", hidden=True)
        job.join("cust-1")
        found = await resolve_caller(job.ctx, memory)
    assert found.participant == "cust-1"
    assert found.caller.user_id == await _subject(memory, "cust-1")


async def test_of_several_people_the_first_counts_or_the_one_that_is_named(memory: Memory) -> None:
    """The first is the one that the session links; another one can be asked for by name."""
    with room_job() as job:
        job.join("cust-1")
        job.join("cust-2", attributes={"user_id": "two"})
        first = await resolve_caller(job.ctx, memory)
        named = await resolve_caller(job.ctx, memory, participant="cust-2")
        job.ctx.job.participant.identity = "cust-2"
        published = await resolve_caller(job.ctx, memory)
    assert first.participant == "cust-1"
    assert named.caller.user_id == await _subject(memory, "two")
    assert published.participant == "cust-2"


async def test_somebody_who_comes_late_is_waited_for(memory: Memory) -> None:
    """The entrypoint often runs before the caller is in the room."""
    with room_job() as job:
        before = job.listeners()
        waiting = asyncio.create_task(resolve_caller(job.ctx, memory, timeout_seconds=60))
        await asyncio.sleep(0)
        job.join("machine", kind="agent")
        await asyncio.sleep(0)
        assert not waiting.done()
        job.call_in(NUMBER)
        found = await waiting
        assert job.listeners() == before
    assert found.caller.user_id == await _phone(memory, NUMBER)


async def test_attributes_that_come_after_the_participant_are_waited_for(memory: Memory) -> None:
    """A SIP participant without attributes gets a moment for them."""
    with room_job() as job:
        job.join("sip_1", kind="sip")
        waiting = asyncio.create_task(resolve_caller(job.ctx, memory, attribute_seconds=60))
        await asyncio.sleep(0)
        job.set_attributes("sip_1", {"sip.phoneNumber": NUMBER, "sip.ruleID": "SDR_1"})
        found = await waiting
    assert found.caller.user_id == await _phone(memory, NUMBER)


async def test_attributes_that_do_not_come_are_waited_for_a_moment_only(memory: Memory) -> None:
    """Who is there is not kept waiting as long as one who is not."""
    with room_job() as job:
        job.join("sip_1", kind="sip")
        async with asyncio.timeout(30):
            found = await resolve_caller(
                job.ctx, memory, timeout_seconds=600, attribute_seconds=0.01
            )
    assert (found.caller.anonymous, found.participant) == (True, "sip_1")


async def test_when_nobody_comes_the_caller_is_anonymous(memory: Memory) -> None:
    """The wait has an end, and the room's handlers go with it."""
    with room_job() as job:
        before = job.listeners()
        found = await resolve_caller(job.ctx, memory, timeout_seconds=0.01)
        assert job.listeners() == before
    assert found.caller.anonymous
    assert (found.source, found.participant, found.pending) == ("anonymous", None, False)


async def test_when_the_room_closes_nobody_is_waited_for_any_more(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A room that goes while the caller is awaited ends the wait at once."""
    with room_job() as job:
        monkeypatch.setattr(job.ctx.room, "isconnected", lambda: True)
        waiting = asyncio.create_task(resolve_caller(job.ctx, memory, timeout_seconds=60))
        await asyncio.sleep(0)
        # A fake job's room is never connected; from here on it is one that was.
        monkeypatch.setattr(job.ctx, "is_fake_job", lambda: False)
        monkeypatch.setattr(job.ctx.room, "isconnected", lambda: False)
        job.close()
        async with asyncio.timeout(10):
            found = await waiting
    assert found.caller.anonymous


async def test_a_connection_that_hangs_counts_against_the_wait(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connecting is left to go on, and the session's start waits for it; who calls is not."""
    gate = asyncio.Event()
    with room_job() as job:
        monkeypatch.setattr(job.ctx, "connect", gate.wait)
        async with asyncio.timeout(10):
            found = await resolve_caller(job.ctx, memory, timeout_seconds=0.01)
        gate.set()
    assert found.caller.anonymous


async def test_a_connection_that_fails_is_the_jobs_to_tell(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a room there is no call: the error comes up as from ``ctx.connect()``."""

    async def refused() -> None:
        raise ConnectionRefusedError("no server")

    with room_job() as job:
        monkeypatch.setattr(job.ctx, "connect", refused)
        with pytest.raises(ConnectionRefusedError):
            await resolve_caller(job.ctx, memory)


async def test_the_stand_in_room_of_console_and_simulated_jobs_is_understood(
    memory: Memory,
) -> None:
    """There metadata, attributes and permissions are no texts at all; the job's metadata count, and
    without them the one participant that LiveKit makes up."""
    room = create_mock_room()
    for metadata, subject in (('{"user_id": "cust-1"}', "cust-1"), ("", "mock_user")):
        with fake_job_context(room=room, job_metadata=metadata) as ctx:
            found = await resolve_caller(ctx, memory, phone_keys=["sip.phoneNumber"])
            ctx._tempdir.cleanup()  # pyright: ignore[reportPrivateUsage] - only a job's own process does it
        assert found.caller.user_id == await _subject(memory, subject)


async def test_wrong_options_are_refused(memory: Memory) -> None:
    """A text where names are expected, a time without an end and a region that is none."""
    with room_job() as job:
        job.call_in(NUMBER)
        with pytest.raises(InvalidValue, match="user_id_keys"):
            await resolve_caller(job.ctx, memory, user_id_keys="user_id")
        with pytest.raises(InvalidValue, match="deadline_seconds"):
            await resolve_caller(job.ctx, memory, timeout_seconds=-1)
        with pytest.raises(TypeError):
            await resolve_caller(job.ctx, memory, user_key="user_id")  # pyright: ignore[reportCallIssue] - the mistake


async def test_nothing_that_is_printed_or_logged_holds_the_number(
    memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    """A resolved caller can be put into a log."""
    with room_job("no json") as job, caplog.at_level(logging.DEBUG, logger="secondcall"):
        job.call_in(NUMBER)
        found = await resolve_caller(job.ctx, memory)
    logged = " ".join(str(one.__dict__) for one in caplog.records)
    assert NUMBER not in repr(found)
    assert NUMBER not in logged


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
_KEYS = st.sampled_from(["user_id", "sip.phoneNumber", "sip.hostname", "phone_number", "crm"])
_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@settings(max_examples=60, deadline=None)
@given(
    metadata=_TEXT | st.dictionaries(_KEYS, _JSON).map(json.dumps),
    attributes=st.dictionaries(_KEYS, _TEXT),
    about=_TEXT | st.dictionaries(_KEYS, _JSON).map(json.dumps),
    kind=st.sampled_from(["standard", "sip", "connector"]),
    identity=_TEXT,
)
async def test_whatever_a_room_tells_there_is_a_caller(
    metadata: str, attributes: dict[str, str], about: str, kind: Kind, identity: str
) -> None:
    """No metadata, attributes or identity stop a call, and all that identify nobody are
    anonymous."""
    async with Memory.open("memory://") as memory:
        with room_job(metadata) as job:
            job.join(identity, kind=kind, attributes=attributes, metadata=about)
            found = await resolve_caller(
                job.ctx, memory, attribute_seconds=0, outbound=True, pseudonym_keys=["crm"]
            )
        assert found.caller.user_id
        assert found.caller.anonymous is (found.source == "anonymous")
        assert len(await memory.users()) == (0 if found.caller.anonymous else 1)
