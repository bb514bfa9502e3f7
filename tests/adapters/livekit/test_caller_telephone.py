"""Who is calling by telephone, or is called."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator

import pytest

from secondcall import Memory
from secondcall.adapters.livekit.caller import resolve_caller
from secondcall.testing.livekit_room import room_job

pytestmark = pytest.mark.anyio

NUMBER = "+14155550100"
OTHER = "+14155550111"


@pytest.fixture
async def memory() -> AsyncGenerator[Memory]:
    """An empty memory."""
    async with Memory.open("memory://") as opened:
        yield opened


async def _phone(memory: Memory, number: str) -> str:
    return (await memory.identify(phone=number)).user_id


async def test_a_telephone_caller_is_known_by_the_number_and_only_claimed(memory: Memory) -> None:
    """An inbound caller is the number that calls, claimed; the number that was dialled is not."""
    with room_job() as job:
        job.call_in(NUMBER)
        found = await resolve_caller(job.ctx, memory)
    assert found.caller.user_id == await _phone(memory, NUMBER)
    assert (found.caller.trust, found.source, found.outbound) == ("claimed", "sip", False)


async def test_the_same_number_written_in_another_way_is_the_same_caller(memory: Memory) -> None:
    """Spaces, a ``sip_`` identity and an address of the number give one caller."""
    seen: set[str] = set()
    for number, identity in (
        ("+1 (415) 555-0100", "sip_1"),
        ("sip:+14155550100@trunk.example", "sip_1"),
        (None, f"sip_{NUMBER}"),
    ):
        with room_job() as job:
            job.call_in(number, identity=identity)
            seen.add((await resolve_caller(job.ctx, memory)).caller.user_id)
    assert seen == {await _phone(memory, NUMBER)}


async def test_a_national_number_is_read_with_the_region(memory: Memory) -> None:
    """``default_region`` reads what a trunk sends without a country code."""
    pytest.importorskip("phonenumbers", reason="reads national numbers; an extra of its own")
    with room_job() as job:
        job.call_in("(415) 555-0100")
        found = await resolve_caller(job.ctx, memory, default_region="US")
    assert found.caller.user_id == await _phone(memory, NUMBER)


async def test_a_name_at_a_host_is_a_sip_address(memory: Memory) -> None:
    """A caller without a number is the address: the name with the host that it called from."""
    with room_job() as job:
        job.join(
            "sip_alice",
            kind="sip",
            attributes={"sip.phoneNumber": "alice", "sip.hostname": "pbx.example"},
        )
        found = await resolve_caller(job.ctx, memory)
    assert found.caller.user_id == (await memory.identify(sip="sip:alice@pbx.example")).user_id


async def test_a_backends_id_and_a_number_are_linked(memory: Memory) -> None:
    """Who comes with both is one user, and is known by the number alone the next time."""
    with room_job(json.dumps({"user_id": "cust-1"})) as job:
        job.call_in(NUMBER)
        first = await resolve_caller(job.ctx, memory)
    with room_job() as job:
        job.call_in(NUMBER)
        second = await resolve_caller(job.ctx, memory)
    assert first.caller.user_id == second.caller.user_id
    assert (first.caller.trust, second.caller.trust) == ("verified", "claimed")


@pytest.mark.parametrize(
    "number", ["", "anonymous", "Restricted", "unknown", "+266696687", "1001", "0000000000", "n/a"]
)
async def test_callers_who_withhold_their_number_share_nothing(memory: Memory, number: str) -> None:
    """Each withheld or unusable number is a person of this call alone."""
    seen: set[str] = set()
    for _ in range(2):
        with room_job() as job:
            job.call_in(number)
            found = await resolve_caller(job.ctx, memory, attribute_seconds=0)
        assert found.caller.anonymous
        assert found.source == "anonymous"
        seen.add(found.caller.user_id)
    assert len(seen) == 2


async def test_a_hidden_number_is_anonymous_and_not_waited_for(memory: Memory) -> None:
    """A dispatch rule that hides numbers leaves a hash as identity; by default it says nothing."""
    with room_job() as job:
        job.call_in(None, identity=_hidden(NUMBER))
        async with asyncio.timeout(30):
            found = await resolve_caller(
                job.ctx, memory, timeout_seconds=600, attribute_seconds=600
            )
    assert found.caller.anonymous


async def test_a_hidden_number_may_have_a_stable_pseudonym(memory: Memory) -> None:
    """An attribute that you name, or LiveKit's hash if you ask for it, tells hidden callers
    apart."""
    seen: list[str] = []
    for number in (NUMBER, NUMBER, OTHER):
        with room_job() as job:
            job.call_in(None, identity=_hidden(number))
            found = await resolve_caller(job.ctx, memory, hidden_identity=True)
            assert (found.source, found.caller.trust) == ("pseudonym", "claimed")
            seen.append(found.caller.user_id)
    assert seen[0] == seen[1] != seen[2]
    with room_job() as job:
        job.join("sip_x", kind="sip", attributes={"crm.caller": "c-9", "sip.callID": "1"})
        one = await resolve_caller(job.ctx, memory, pseudonym_keys=["crm.caller"])
        two = await resolve_caller(job.ctx, memory, pseudonym_keys=["crm.caller"])
    assert one.caller.user_id == two.caller.user_id
    assert one.source == "pseudonym"
    assert (await memory.identify(device="c-9")).user_id != one.caller.user_id


@pytest.mark.parametrize("word", ["anonymous", "Anonymous", "Restricted", "", "+266696687", "1001"])
async def test_the_hash_of_a_withheld_number_is_no_pseudonym(memory: Memory, word: str) -> None:
    """LiveKit hashes the word that stands for a withheld number too; that hash is nobody's."""
    with room_job() as job:
        job.call_in(None, identity=_hidden(word))
        found = await resolve_caller(job.ctx, memory, hidden_identity=True)
    assert found.caller.anonymous


async def test_the_called_one_is_remembered_in_an_outbound_call(memory: Memory) -> None:
    """A SIP participant without a dispatch rule was called: its number is the callee's."""
    with room_job() as job:
        job.call_in(NUMBER, rule="")
        found = await resolve_caller(job.ctx, memory)
    assert found.caller.user_id == await _phone(memory, NUMBER)
    assert (found.outbound, found.source, found.caller.trust) == (True, "callee", "claimed")


async def test_the_number_to_call_is_taken_from_the_job_before_it_is_dialled(
    memory: Memory,
) -> None:
    """With ``outbound`` the brief can be there before the telephone rings."""
    with room_job(json.dumps({"phone_number": NUMBER})) as job:
        async with asyncio.timeout(30):
            found = await resolve_caller(job.ctx, memory, outbound=True, timeout_seconds=600)
    assert found.caller.user_id == await _phone(memory, NUMBER)
    assert (found.outbound, found.source, found.participant) == (True, "callee", None)


async def test_a_number_in_the_jobs_metadata_is_not_an_inbound_callers(memory: Memory) -> None:
    """The metadata of a dispatch rule are the same for all its callers: the number that calls
    counts. Only of one who was called, under a hidden number, they tell it."""
    with room_job(json.dumps({"phone_number": OTHER})) as job:
        job.call_in(NUMBER)
        known = await resolve_caller(job.ctx, memory)
        for unusable in ("anonymous", None):
            job.leave("sip_1")
            job.call_in(unusable)
            assert (await resolve_caller(job.ctx, memory)).caller.anonymous
        job.leave("sip_1")
        job.call_in(None, rule="")
        called = await resolve_caller(job.ctx, memory)
    assert known.caller.user_id == await _phone(memory, NUMBER)
    assert called.caller.user_id == await _phone(memory, OTHER)


def _hidden(number: str) -> str:
    """The identity that LiveKit's SIP service gives a caller whose number its rule hides."""
    return f"sip_{hashlib.sha256(number.encode()).hexdigest()[:16]}"
