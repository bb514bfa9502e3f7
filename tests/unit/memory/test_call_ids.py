"""Tool calls whose ids are used again: told apart in the record as in the buffer."""

from __future__ import annotations

from secondcall import Memory, Message, SessionMemory, ToolCall
from secondcall.memory.calling import MAX_CALLS, CallIds


async def _calls(session: SessionMemory) -> dict[str, str | None]:
    return {
        one.key.id: one.item.output
        for one in await session.items()
        if isinstance(one.item, ToolCall)
    }


async def test_a_used_id_does_not_mask_the_first_call(memory: Memory) -> None:
    """Another call with the id of an answered one is a second item, in the record as in the
    buffer; the result names it."""
    session = await memory.user("ana").session("s")
    buffer = await session.buffer(summarise=False)
    await session.record(ToolCall("look", {"n": 1}, call_id="c", output="one"))
    done = await session.record(ToolCall("look", {"n": 2}, call_id="c", output="two"))
    assert (done.added, done.corrected, done.keys[0].id) == (1, 0, "c#2")
    await session.record(ToolCall("find", {"n": 1}, call_id="c"))
    await session.record(ToolCall("find", {"n": 1}, call_id="c", output="three"))
    assert await _calls(session) == {"c": "one", "c#2": "two", "c#3": "three"}
    shown = [one.call_id for one in buffer.get() if isinstance(one, ToolCall)]
    assert shown == ["c", "c#2", "c#3"]


async def test_a_correction_stays_one(memory: Memory) -> None:
    """The same call again, with whatever output, and any call under an id without its output yet,
    correct what is there, the right one of several."""
    session = await memory.user("ana").session("s")
    await session.record(ToolCall("look", {"n": 0}, call_id="c"))
    await session.record(ToolCall("look", {"n": 1}, call_id="c", output="one"))
    await session.record(ToolCall("look", {"n": 2}, call_id="c", output="two"))
    await session.record(ToolCall("look", {"n": 1}, call_id="c", output="ONE"))
    await session.record(ToolCall("look", {"n": 2}, call_id="c", output="TWO", is_error=True))
    assert await _calls(session) == {"c": "ONE", "c#2": "TWO"}
    same = await session.record(ToolCall("look", {"n": 1}, call_id="c", output="ONE"))
    assert same.unchanged == 1


async def test_one_batch_may_use_an_id_twice(memory: Memory) -> None:
    """Within one ``record`` two different calls with one id are two items."""
    session = await memory.user("ana").session("s")
    await session.record(
        ToolCall("look", {"n": 1}, call_id="c", output="one"),
        ToolCall("look", {"n": 2}, call_id="c", output="two"),
    )
    assert await _calls(session) == {"c": "one", "c#2": "two"}


async def test_what_was_loaded_is_known(memory: Memory) -> None:
    """A new handle knows the calls that its buffer, or its context, loaded."""
    session = await memory.user("ana").session("s")
    await session.record(
        Message("user", "Look."), ToolCall("look", {"n": 1}, call_id="c", output="one")
    )
    with_buffer = await memory.user("ana").session("s")
    await with_buffer.buffer(1_001)
    await with_buffer.record(ToolCall("look", {"n": 2}, call_id="c", output="two"))
    with_context = await memory.user("ana").session("s")
    await with_context.context("x", window=4_000)
    await with_context.record(ToolCall("look", {"n": 3}, call_id="c", output="three"))
    assert await _calls(session) == {"c": "one", "c#2": "two", "c#3": "three"}


async def test_sessions_have_ids_of_their_own(memory: Memory) -> None:
    """The same id in another session is another call, under its own id."""
    user = memory.user("ana")
    for name in ("s", "t"):
        session = await user.session(name)
        await session.record(ToolCall("look", name, call_id="c", output="x"))
        assert list(await _calls(session)) == ["c"]


def test_only_the_newest_are_known() -> None:
    """Memory is bounded: a call older than the newest 1,000 is not told apart any more."""
    ids = CallIds()
    ids.learn([ToolCall("look", 0, call_id="first", output="x")])
    ids.learn(
        ToolCall("look", number, call_id=str(number), output="x") for number in range(MAX_CALLS)
    )
    (again,) = ids.named([ToolCall("look", 1, call_id="first", output="y")])
    (known,) = ids.named([ToolCall("look", "other", call_id="999", output="y")])
    assert isinstance(again, ToolCall)
    assert isinstance(known, ToolCall)
    assert (again.call_id, known.call_id) == ("first", "999#2")
