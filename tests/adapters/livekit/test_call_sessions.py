"""A call with more than one session of agents: each is recorded, and each knows the caller."""

from __future__ import annotations

from pathlib import Path

import pytest
from adapters.livekit.jobs import ANN, calls, end, settings_in, talk, texts, words_of
from livekit.agents import Agent

from secondcall import Memory, Message
from secondcall.adapters.livekit import call
from secondcall.testing.livekit_room import room_job

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("ann_is_known")]


def _journals(folder: Path) -> list[Path]:
    return [*folder.rglob("*.journal")]


async def test_two_sessions_at_once_are_both_recorded(memory: Memory, tmp_path: Path) -> None:
    """Two sessions that are open together are told who calls and recorded to the last word, by the
    times of what was said, though one ends before the other; so is what no event told."""
    with room_job() as job:
        job.call_in(ANN)
        async with call(job.ctx, memory, settings=settings_in(tmp_path)) as live:
            one, two = (live.agent(Agent(instructions="Be brief.")) for _ in range(2))
            async with talk(two, ["Two.", "Four."]) as (second, of_two):
                async with talk(one, ["One.", "Three."]) as (first, of_one):
                    await first.run(user_input="a")
                    await second.run(user_input="b")
                    await first.run(user_input="c")
                    first.history.add_message(role="user", content="missed")
                assert live.is_running
                assert not live.is_over
                await second.run(user_input="d")
            assert live.is_over
        await end(job.ctx)
        assert '"name" = "Ann"' in texts(of_one.requests[0])
        assert '"name" = "Ann"' in texts(of_two.requests[0])
        said = words_of(await live.session.items())
    assert said == ["a", "One.", "b", "Two.", "c", "Three.", "missed", "d", "Four."]
    assert _journals(tmp_path) == []


async def test_a_tool_names_the_newest_words_of_all_sessions(
    memory: Memory, tmp_path: Path
) -> None:
    """What a tool remembers has its source in what the caller said last, in whichever session."""
    with room_job() as job:
        job.call_in(ANN)
        async with call(job.ctx, memory, settings=settings_in(tmp_path)) as live:
            tools = await live.tools()
            one = live.agent(Agent(instructions="Be brief.", tools=[*tools]))
            two = live.agent(Agent(instructions="Be brief."))
            script = calls(("remember", {"name": "seat", "value": "aisle"}))
            async with talk(one, script) as (first, _), talk(two, ["Yes?"]) as (second, _):
                await second.run(user_input="Hello?")
                await first.run(user_input="The aisle")
        await end(job.ctx)
        fact = next(one for one in await live.user.facts() if one.predicate == "seat")
        source = next(one for one in await live.session.items() if one.key in fact.sources)
    assert isinstance(source.item, Message)
    assert source.item.text == "The aisle"


async def test_forgetting_reaches_both_sessions(memory: Memory, tmp_path: Path) -> None:
    """After ``forget`` neither session's agent is told anything of the caller."""
    with room_job() as job:
        job.call_in(ANN)
        async with call(job.ctx, memory, settings=settings_in(tmp_path)) as live:
            one, two = (live.agent(Agent(instructions="Be brief.")) for _ in range(2))
            async with (
                talk(one, ["One.", "Three."]) as (first, of_one),
                talk(two, ["Two.", "Four."]) as (second, of_two),
            ):
                await first.run(user_input="a")
                await second.run(user_input="b")
                assert (await live.forget()).complete
                await first.run(user_input="c")
                await second.run(user_input="d")
        await end(job.ctx)
        assert '"Ann"' not in texts(of_one.requests[1]) + texts(of_two.requests[1])
        assert await memory.users() == []
