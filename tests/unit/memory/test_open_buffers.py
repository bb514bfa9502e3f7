"""A buffer that is open while the record, the facts, the policy or the person changes."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from secondcall import Caller, Memory, Message, SessionMemory, ToolCall
from secondcall.shortterm.buffer import ChatBuffer
from secondcall.shortterm.summary import SummarizingBuffer
from secondcall.testing.fakes import FrozenClock
from secondcall.types import ItemKey

WORDS = "The garden is full of birds and the kitchen smells of paint in the morning."


async def _talk(session: SessionMemory, turns: int, *, begin: int = 0) -> None:
    for number in range(begin, begin + turns):
        await session.record(
            Message("user", f"The code of room {number} is {number * 7}. {WORDS}", id=f"u{number}"),
            Message("assistant", f"I see. {WORDS}", id=f"a{number}"),
        )


def _ids(buffer: SummarizingBuffer | ChatBuffer) -> list[str | None]:
    return [one.id for one in buffer.get() if isinstance(one, Message)]


async def _key(session: SessionMemory, item_id: str) -> ItemKey:
    return next(one.key for one in await session.items() if one.key.id == item_id)


@pytest.fixture
async def caller(memory: Memory) -> Caller:
    """Somebody whose identity is only claimed."""
    return await memory.identify(phone="+1 415 555 0100")


@pytest.mark.parametrize("summarise", [True, False])
async def test_what_becomes_sensitive_leaves_an_open_buffer(
    memory: Memory, caller: Caller, summarise: bool
) -> None:
    """As soon as a sensitive fact names an item as its source, a claimed caller's open buffer has
    neither the item nor a summary or key fact of it; the verified one's goes on as it was."""
    verified = memory.user(caller.user_id)
    mine = await memory.user(caller).session("s")
    buffer = await mine.buffer(1_000, summarise=summarise)
    theirs = await (await verified.session("s")).buffer(1_000, summarise=summarise)
    await _talk(mine, 40)
    await memory.flush()
    newest = await _key(mine, "u39")
    sources = [newest]
    summarised, before = "", 0
    if isinstance(buffer, SummarizingBuffer):
        assert isinstance(theirs, SummarizingBuffer)
        summarised, before = buffer.summaries[0].id, len(theirs.summaries)
        sources.append((await buffer.expand(summarised))[0].key)
    assert "u39" in _ids(buffer)
    await verified.remember("room", "39", sensitive=True, sources=sources)
    assert "u39" not in _ids(buffer)
    assert "a39" in _ids(buffer)
    assert "u39" in _ids(theirs)
    if isinstance(buffer, SummarizingBuffer):
        assert isinstance(theirs, SummarizingBuffer)
        assert summarised not in [one.id for one in buffer.summaries]
        assert not [one for one in buffer.key_facts if not set(one.sources).isdisjoint(sources)]
        assert len(theirs.summaries) == before


@pytest.mark.parametrize("look", ["record", "context", "buffer"])
async def test_another_process_makes_something_sensitive(
    tmp_path: Path, clock: FrozenClock, look: str
) -> None:
    """What another process makes sensitive is gone after the next record, context or buffer."""
    url = f"sqlite:///{tmp_path / 'm.db'}"
    async with Memory.open(url, clock=clock) as here, Memory.open(url, clock=clock) as there:
        caller = await here.identify(phone="+1 415 555 0100")
        session = await here.user(caller).session("s")
        buffer = await session.buffer(1_000)
        await session.record(
            Message("user", "I have asthma.", id="a"), Message("user", "b", id="b")
        )
        source = await _key(session, "a")
        other = there.user(caller.user_id)
        await other.remember("diagnosis", "asthma", sensitive=True, sources=[source])
        if look == "record":
            await session.record(Message("user", "c", id="c"))
        elif look == "context":
            assert "asthma" not in str((await session.context("x", window=4_000)).items)
        else:
            assert await session.buffer(1_000) is buffer
        assert _ids(buffer) == (["b", "c"] if look == "record" else ["b"])


@pytest.mark.parametrize("summarise", [True, False])
async def test_another_process_removes_and_records(
    tmp_path: Path, clock: FrozenClock, summarise: bool
) -> None:
    """What another process removed, corrected and recorded shows after the next look."""
    url = f"sqlite:///{tmp_path / 'm.db'}"
    async with Memory.open(url, clock=clock) as here, Memory.open(url, clock=clock) as there:
        session = await here.user("ana").session("s")
        buffer = await session.buffer(1_000, summarise=summarise)
        await session.record(*(Message("user", text, id=text) for text in "abc"))
        other = await there.user("ana").session("s")
        await there.user("ana").remove([await _key(session, "a")])
        await other.record(Message("user", "B", id="b"), Message("user", "d", id="d"))
        await session.record(Message("user", "e", id="e"))
        assert _ids(buffer) == ["b", "c", "d", "e"]
        assert next(one.text for one in buffer.get() if isinstance(one, Message)) == "B"


@pytest.mark.parametrize("summarise", [True, False])
async def test_what_runs_out_leaves_by_itself(
    url: str, clock: FrozenClock, summarise: bool
) -> None:
    """When the time of an item is over the next ``get`` is without it, and so are summary and key
    facts, without any look at the store; each kind by its own time."""
    retain = {"message": "30d", "tool_call": "10d"}
    async with Memory.open(url, clock=clock, retain=retain) as memory:
        session = await memory.user("ana").session("s")
        buffer = await session.buffer(1_000, summarise=summarise)
        await session.record(
            Message("user", "old", id="old"), ToolCall("look", {}, call_id="c", output="x")
        )
        assert len(buffer.get()) == 2
        clock.advance(timedelta(days=11))
        assert _ids(buffer) == ["old"]
        assert len(buffer.get()) == 1
        await _talk(session, 40)
        await memory.flush()
        if isinstance(buffer, SummarizingBuffer):
            assert buffer.summaries
            assert buffer.key_facts
        clock.advance(timedelta(days=20))
        await session.record(Message("user", "new", id="new"))
        clock.advance(timedelta(days=11))
        assert _ids(buffer) == ["new"]
        assert buffer.tokens < 40
        if isinstance(buffer, SummarizingBuffer):
            assert (buffer.summary(), buffer.summaries, buffer.key_facts) == ("", (), ())


async def test_a_policy_set_meanwhile_counts(memory: Memory, clock: FrozenClock) -> None:
    """A user's own policy holds in an open buffer from the next look on, and lifted it is over."""
    user = memory.user("ana")
    session = await user.session("s")
    buffer = await session.buffer(1_000)
    await session.record(Message("user", "old", id="old"))
    clock.advance(timedelta(days=3))
    await user.retain("2d")
    assert (await session.context("x", window=4_000)).items == ()
    assert _ids(buffer) == []
    await user.retain(None)
    assert await session.buffer(1_000) is buffer
    assert _ids(buffer) == ["old"]


async def test_the_context_is_without_what_ran_out(url: str, clock: FrozenClock) -> None:
    """The held conversation of ``context`` loses an item in the moment in which it runs out."""
    async with Memory.open(url, clock=clock, retain="40s") as memory:
        session = await memory.user("ana").session("s")
        await session.record(Message("user", "secret", id="a"))
        assert len((await session.context("x", window=4_000)).items) == 1
        clock.advance(timedelta(seconds=41))
        assert (await session.context("x", window=4_000)).items == ()


@pytest.mark.parametrize("summarise", [True, False])
async def test_a_merge_does_not_starve_an_open_buffer(
    memory: Memory, clock: FrozenClock, summarise: bool
) -> None:
    """After a merge, and after it is taken back, recording through either handle feeds the buffers
    that it belongs to; nobody else's."""
    ana, other = await memory.user("ana").session("s"), await memory.user("ben").session("s")
    buffer, his = (
        await ana.buffer(1_000, summarise=summarise),
        await other.buffer(1_000, summarise=summarise),
    )
    await ana.record(Message("user", "one", id="1"))
    clock.advance(timedelta(seconds=1))
    await other.record(Message("user", "two", id="2"))
    assert (_ids(buffer), _ids(his)) == (["1"], ["2"])
    await memory.merge("ana", "ben")
    fresh = await memory.user("ana").session("s")
    await fresh.record(Message("user", "three", id="3"))
    assert _ids(buffer) == _ids(his) == ["1", "2", "3"]
    await memory.unmerge("ana")
    await (await memory.user("ana").session("s")).record(Message("user", "four", id="4"))
    assert _ids(buffer) == ["1", "4"]
    await (await memory.user("ben").session("s")).record(Message("user", "five", id="5"))
    assert _ids(his) == ["2", "3", "5"]
    assert _ids(buffer) == ["1", "4"]


async def test_a_correction_while_it_is_summarised_counts(memory: Memory) -> None:
    """An item that is corrected while its turn is being summarised is summarised once more."""
    session = await memory.user("ana").session("s")
    buffer = await session.buffer(1_000)
    assert isinstance(buffer, SummarizingBuffer)
    await _talk(session, 30)
    await session.record(Message("user", f"The code of room 0 is really 4711. {WORDS}", id="u0"))
    await memory.flush()
    assert buffer.summaries
    texts = [one.text for one in (*buffer.key_facts, *buffer.left_out)]
    assert "The code of room 0 is really 4711" in texts
    assert "The code of room 0 is 0" not in [one.text for one in buffer.key_facts]
