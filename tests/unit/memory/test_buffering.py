from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest

from secondcall import (
    InvalidValue,
    Memory,
    Message,
    SessionMemory,
    SyncMemory,
    ToolCall,
    UserErased,
)
from secondcall.shortterm.buffer import ChatBuffer
from secondcall.shortterm.summary import SummarizingBuffer
from secondcall.testing.fakes import FrozenClock
from secondcall.testing.models import ScriptedModel

WORDS = "The garden is full of birds and the kitchen smells of paint in the morning."


async def _talk(session: SessionMemory, turns: int, *, begin: int = 0) -> None:
    for number in range(begin, begin + turns):
        await session.record(
            Message("user", f"The code of room {number} is {number * 7}. {WORDS}", id=f"u{number}"),
            Message("assistant", f"I see. {WORDS}", id=f"a{number}"),
        )


async def _opened(
    memory: Memory, turns: int, limit: int = 1_000, user_id: str = "ana"
) -> tuple[SessionMemory, SummarizingBuffer]:
    session = await memory.user(user_id).session("s")
    buffer = await session.buffer(limit)
    assert isinstance(buffer, SummarizingBuffer)
    await _talk(session, turns)
    await memory.flush()
    return session, buffer


def _ids(buffer: SummarizingBuffer | ChatBuffer) -> list[str | None]:
    return [one.id for one in buffer.get() if isinstance(one, Message)]


async def test_recording_feeds_the_buffer(memory: Memory) -> None:
    """What is recorded through any handle of the session is in the window, and summarised in the
    background; the record keeps all of it."""
    session, buffer = await _opened(memory, 30)
    other = await memory.user("ana").session("s")
    await other.record(Message("user", "One more thing.", id="last"))
    assert _ids(buffer)[-1] == "last"
    assert buffer.summaries
    assert buffer.tokens <= 1_000
    assert len(await session.items()) == 61
    assert await other.buffer(1_000) is buffer


async def test_a_summary_can_be_expanded(memory: Memory) -> None:
    """Each summary gives the items that it stands for, in order; together with the window they are
    the whole session."""
    session, buffer = await _opened(memory, 60)
    assert max(node.level for node in buffer.summaries) > 1
    found = [one for node in buffer.summaries for one in await buffer.expand(node.id)]
    ids = [one.key.id for one in found]
    everything = [one.key.id for one in await session.items()]
    assert ids == everything[: len(ids)]
    assert len(everything) - len(ids) <= len(_ids(buffer)) + 2
    with pytest.raises(LookupError):
        await buffer.expand("nothing")


async def test_moved_key_facts_are_recalled(memory: Memory) -> None:
    """A key fact that the list has no room for is a fact with its source, and recall finds it."""
    _, buffer = await _opened(memory, 60)
    (moved, *_) = buffer.left_out
    assert moved.text not in buffer.summary()
    assert "older key facts are kept as facts" in buffer.summary()
    found = await memory.user("ana").recall(moved.text)
    facts = [one.fact for one in found.facts if one.fact.value == moved.text]
    assert [tuple(fact.sources) for fact in facts] == [tuple(moved.sources)]
    assert moved.text in "".join(
        one.item.text for one in found.items if isinstance(one.item, Message)
    )


async def test_a_restart_goes_on(tmp_path: Path, clock: FrozenClock) -> None:
    """A second memory on the same file has the same summary, key facts and window."""
    url = f"sqlite:///{tmp_path / 'm.db'}"
    async with Memory.open(url, clock=clock) as memory:
        _, before = await _opened(memory, 40)
        summary, facts = before.summary(), before.key_facts
        ids = _ids(before)
    async with Memory.open(url, clock=clock) as memory:
        session = await memory.user("ana").session("s")
        after = await session.buffer(1_000)
        assert isinstance(after, SummarizingBuffer)
        assert after.summary() == summary
        assert after.key_facts == facts
        assert set(ids) <= set(_ids(after))
        await _talk(session, 40, begin=40)
        await memory.flush()
        assert after.tokens <= 1_000
        first = await after.expand(after.summaries[0].id)
        assert first[0].key.id == "u0"


_KILLED = """
import asyncio, os, sys
from secondcall import Memory, Message

async def main():
    async with Memory.open(sys.argv[1]) as memory:
        session = await memory.user("ana").session("s")
        buffer = await session.buffer(1_000)
        for number in range(60):
            await session.record(
                Message("user", f"The code of room {number} is {number * 7}. " + "birds " * 20,
                        id=f"u{number}"),
                Message("assistant", "I see. " + "paint " * 20, id=f"a{number}"),
            )
            await asyncio.sleep(0)
        os._exit(9)

asyncio.run(main())
"""


async def test_a_killed_process_leaves_what_it_summarised(tmp_path: Path) -> None:
    """After a process was killed the next one finds its summaries and all the rest in the record:
    every key fact is in the context or is recalled."""
    url = f"sqlite:///{tmp_path / 'm.db'}"
    done = await anyio.run_process([sys.executable, "-c", _KILLED, url], check=False)
    assert done.returncode == 9
    async with Memory.open(url) as memory:
        user = memory.user("ana")
        session = await user.session("s")
        buffer = await session.buffer(1_000)
        await memory.flush()
        assert isinstance(buffer, SummarizingBuffer)
        assert buffer.summaries
        assert len(await session.items()) == 120
        turns = "".join(one.text for one in buffer.get() if isinstance(one, Message))
        for number in range(60):
            clause = f"The code of room {number} is {number * 7}"
            if clause not in buffer.summary() and clause not in turns:
                assert clause in (await user.recall(clause)).text


async def test_what_is_removed_goes_from_the_summaries(memory: Memory) -> None:
    """Removing an item takes its words out of summaries, key facts, moved facts and the window, in
    open buffers and kept ones; the rest is summarised anew."""
    session, buffer = await _opened(memory, 60)
    user = memory.user("ana")
    keys = [one.key for one in await session.items() if one.key.id in ("u0", "u45", "u59")]
    assert len(keys) == 3
    await user.remove(keys)
    await memory.flush()
    for shown in (buffer, await session.buffer(1_001)):
        assert isinstance(shown, SummarizingBuffer)
        await memory.flush()
        text = shown.summary() + "".join(
            one.text for one in shown.get() if isinstance(one, Message)
        )
        for number in (0, 45, 59):
            assert f"The code of room {number} is" not in text
        expanded = [one.key.id for node in shown.summaries for one in await shown.expand(node.id)]
        assert "u1" in expanded
        assert "u0" not in expanded
        assert all(node.text for node in shown.summaries)
    for number in (0, 45, 59):
        clause = f"The code of room {number} is {number * 7}"
        assert clause not in [fact.value for fact in await user.facts()]
        assert clause not in (await user.recall(clause)).text


async def test_forgetting_empties_the_buffer(memory: Memory) -> None:
    """After ``forget`` an open buffer holds nothing, and nothing of it is left in the store."""
    session, buffer = await _opened(memory, 40)
    receipt = await memory.user("ana").forget()
    assert receipt.complete
    assert (buffer.get(), buffer.summary()) == ([], "")
    with pytest.raises(UserErased):
        await session.record(Message("user", "hello"))
    again = await (await memory.user("ana").session("s")).buffer(1_000)
    assert again.get() == []


async def test_a_claimed_caller_sees_no_summary_of_sensitive_items(
    url: str, clock: FrozenClock
) -> None:
    """What rests on a sensitive item stands in no summary, key fact or window of a caller whose
    identity is only claimed; once it is verified it does."""
    async with Memory.open(url, clock=clock) as memory:
        caller = await memory.identify(phone="+1 415 555 0100")
        user = memory.user(caller.user_id)
        _, buffer = await _opened(memory, 40, user_id=caller.user_id)
        first = (await buffer.expand(buffer.summaries[0].id))[0]
        await user.remember("room", "0", sensitive=True, sources=[first.key])
        claimed = await (await memory.user(caller).session("s")).buffer(1_000)
        verified = await (await user.session("s")).buffer(1_002)
        assert isinstance(claimed, SummarizingBuffer)
        assert isinstance(verified, SummarizingBuffer)
        assert buffer.summaries[0].id not in [one.id for one in claimed.summaries]
        assert len(claimed.summaries) < len(verified.summaries)
        assert first.key not in [key for fact in claimed.key_facts for key in fact.sources]


async def test_a_late_correction_is_summarised_again(memory: Memory) -> None:
    """When an item that was summarised is corrected, its old words go and its new ones count."""
    session, buffer = await _opened(memory, 40)
    await session.record(Message("user", f"The code of room 0 is really 4711. {WORDS}", id="u0"))
    await memory.flush()
    assert "The code of room 0 is 0" not in buffer.summary()
    texts = [fact.text for fact in (*buffer.key_facts, *buffer.left_out)]
    assert "The code of room 0 is really 4711" in texts
    assert "The code of room 0 is 0" not in [fact.text for fact in buffer.key_facts]


async def test_two_processes_do_not_summarise_the_same(tmp_path: Path) -> None:
    """Of two memories on one file, the one with the older boundary gives way: each item is under
    exactly one summary."""
    url = f"sqlite:///{tmp_path / 'm.db'}"
    async with Memory.open(url) as one, Memory.open(url) as two:
        session, first = await _opened(one, 15)
        second = await (await two.user("ana").session("s")).buffer(1_000)
        assert isinstance(second, SummarizingBuffer)
        await _talk(session, 30, begin=15)
        await _talk(await two.user("ana").session("s"), 15, begin=45)
        await one.flush()
        await two.flush()
        await first.settle()
        await second.settle()
        await second.reload()
        ids = [item.key.id for node in second.summaries for item in await second.expand(node.id)]
        assert len(ids) == len(set(ids))
        assert ids[:2] == ["u0", "a0"]


async def test_what_has_run_out_is_not_shown(url: str, clock: FrozenClock) -> None:
    """A summary and a key fact of what retention has ended are not shown, before any sweep."""
    async with Memory.open(url, clock=clock, retain="30d") as memory:
        await _opened(memory, 40)
        clock.advance(timedelta(days=31))
        buffer = await (await memory.user("ana").session("s")).buffer(1_001)
        assert buffer.get() == []
        assert isinstance(buffer, SummarizingBuffer)
        assert (buffer.summary(), buffer.summaries, buffer.key_facts) == ("", (), ())
        await memory.sweep()
        assert buffer.summary() == ""


async def test_the_model_writes_in_the_background(url: str, clock: FrozenClock) -> None:
    """With a model recording does not wait for it, and its failure is nobody's."""
    model = ScriptedModel(lambda prompt: "The user spoke of the garden.")
    async with Memory.open(url, clock=clock, model=model, extract=False) as memory:
        _, buffer = await _opened(memory, 30)
        assert {node.made_by for node in buffer.summaries} == {"model"}
        assert "Keep verbatim:\n- The code of room 0 is 0" in model.prompts[0].user
    broken = ScriptedModel(lambda prompt: RuntimeError("down"))
    async with Memory.open(url, clock=clock, model=broken, extract=False) as memory:
        session = await memory.user("bob").session("s")
        buffer = await session.buffer(1_000)
        await _talk(session, 30)
        await memory.flush()
        assert _ids(buffer)[-1] == "a29"


async def test_a_plain_buffer_can_be_had(memory: Memory) -> None:
    """Without summaries it is a ``ChatBuffer`` over the record, fed and corrected all the same."""
    session = await memory.user("ana").session("s")
    await session.record(Message("system", "Be kind.", id="sys"))
    await _talk(session, 40)
    buffer = await session.buffer(500, summarise=False)
    assert type(buffer) is not SummarizingBuffer
    assert _ids(buffer)[0] == "sys"
    assert _ids(buffer)[-1] == "a39"
    await session.record(ToolCall("look", {}, call_id="c"), Message("user", "And?", id="last"))
    await session.record(ToolCall("look", {}, call_id="c", output="done"))
    assert buffer.explain().counts["kept"] == len(buffer.get())
    (last,) = [one.key for one in await session.items() if one.key.id == "last"]
    await memory.user("ana").remove([last])
    assert "last" not in _ids(buffer)
    with pytest.raises(InvalidValue):
        await session.buffer(0)


@pytest.mark.parametrize(("limit", "summarise"), [(500, False), (300, True), (1_000, True)])
async def test_a_correction_from_before_the_window_is_no_news(
    tmp_path: Path, limit: int, summarise: bool
) -> None:
    """What is corrected of before the oldest item that a buffer was filled with is not shown as the
    newest, whoever corrects it; of what it holds, corrections are shown in their place."""
    url = f"sqlite:///{tmp_path / 'm.db'}"
    async with Memory.open(url) as memory, Memory.open(url) as elsewhere:
        await _talk(await memory.user("ana").session("s"), 40)
        session = await memory.user("ana").session("s")
        buffer = await session.buffer(limit, summarise=summarise)
        other = await elsewhere.user("ana").session("s")
        shown = _ids(buffer)
        for number, by in enumerate((session, other)):
            await by.record(Message("user", f"Code {number} is not 7.", id=f"u{number}"))
            await session.context(window=4_000)
            assert _ids(buffer)[-1] == "a39"
            await by.record(Message("assistant", f"So it is, {number}.", id="a39"))
            await session.context(window=4_000)
            last = buffer.get()[-1]
            assert isinstance(last, Message)
            assert last.text == f"So it is, {number}."
        assert set(_ids(buffer)) >= set(shown[-4:])


async def test_the_record_fills_it_and_nobody_else(memory: Memory) -> None:
    """Putting items into a session's buffer by hand is refused: they would not be recorded."""
    _, buffer = await _opened(memory, 1)
    with pytest.raises(InvalidValue, match=r"session\.record"):
        buffer.put(Message("user", "hello"))


async def test_edits_are_kept(tmp_path: Path) -> None:
    """A pinned and a replaced key fact are there after a restart."""
    url = f"sqlite:///{tmp_path / 'm.db'}"
    async with Memory.open(url) as memory:
        _, buffer = await _opened(memory, 40)
        fact = buffer.key_facts[-1]
        await buffer.edit_key_facts(lambda facts: facts.replace(fact.id, "the code is secret"))
        await buffer.edit_key_facts(lambda facts: facts.pin(fact.id))
    async with Memory.open(url) as memory:
        buffer = await (await memory.user("ana").session("s")).buffer(1_000)
        assert isinstance(buffer, SummarizingBuffer)
        (kept,) = [one for one in buffer.key_facts if one.id == fact.id]
        assert (kept.text, kept.pinned, kept.edited) == ("the code is secret", True, True)
        assert "the code is secret" in buffer.summary()


async def test_times_given_by_the_host_order_it(memory: Memory) -> None:
    """An item recorded late with an earlier time is in its place after a reload."""
    session = await memory.user("ana").session("s")
    start = datetime(2026, 5, 1, tzinfo=UTC)
    for number in (0, 2, 1):
        at = start + timedelta(minutes=number)
        await session.record(Message("user", f"number {number}", id=str(number), at=at))
    assert _ids(await session.buffer()) == ["0", "1", "2"]


def test_the_blocking_face_gives_the_buffer(tmp_path: Path) -> None:
    """``SyncSession.buffer`` gives the buffer object, which is read without waiting."""
    with SyncMemory.open(f"sqlite:///{tmp_path / 'm.db'}") as memory:
        session = memory.user("ana").session("s")
        buffer = session.buffer(1_000)
        for number in range(40):
            session.record(Message("user", f"{number}: {WORDS}"), Message("assistant", WORDS))
        memory.flush()
        assert buffer.tokens <= 1_000
        assert isinstance(buffer, SummarizingBuffer)
        assert buffer.summary()


@pytest.mark.parametrize("token_limit", [5, 30, 399])
async def test_a_small_buffer_holds_the_newest_turn(memory: Memory, token_limit: int) -> None:
    """A session's buffer too small for summaries still holds the newest turn of the record."""
    session = await memory.user("ana").session("small")
    await session.record(
        Message("user", "Please move me to an aisle seat on the flight."),
        Message("assistant", "Done."),
    )
    again = await memory.user("ana").session("small")
    report = (await again.buffer(token_limit)).explain()
    assert [item.label for item in report.items] == ["user", "assistant"]
