"""Recording: durable, idempotent, corrected, refused whole."""

from __future__ import annotations

from datetime import timedelta

import pytest

from secondcall import InvalidValue, Memory, Message, ToolCall, UserErased
from secondcall.testing.fakes import FrozenClock

pytestmark = pytest.mark.anyio


async def test_what_is_recorded_is_read_back_in_order(memory: Memory) -> None:
    """Items come back word for word, in the order of recording."""
    session = await memory.user("ann").session("call-1")
    await session.record(Message("user", "One"), Message("assistant", "Two"))
    await session.record(ToolCall("find", {"q": 1}, call_id="c", output="three"))
    found = [item.item for item in await session.items()]
    assert [type(item) for item in found] == [Message, Message, ToolCall]
    assert [item.text for item in found if isinstance(item, Message)] == ["One", "Two"]


async def test_recording_the_same_item_again_changes_nothing(memory: Memory) -> None:
    """The same id with the same content takes no change number."""
    session = await memory.user("ann").session("call-1")
    first = await session.record(Message("user", "Hello", id="m"))
    second = await session.record(Message("user", "Hello", id="m"))
    assert (first.added, second.added, second.unchanged) == (1, 0, 1)
    assert first.change == second.change


async def test_a_correction_keeps_its_place(memory: Memory, clock: FrozenClock) -> None:
    """A tool call recorded again with its output stays where the call began."""
    session = await memory.user("ann").session("call-1")
    await session.record(ToolCall("find", {}, call_id="c"))
    clock.advance(timedelta(seconds=5))
    await session.record(Message("assistant", "Let me see.", id="m"))
    clock.advance(timedelta(seconds=5))
    done = await session.record(ToolCall("find", {}, call_id="c", output="found"))
    found = await session.items()
    assert done.corrected == 1
    assert [item.key.id for item in found] == ["c", "m"]
    assert isinstance(found[0].item, ToolCall)
    assert found[0].item.output == "found"


async def test_late_items_sort_into_their_time(memory: Memory, clock: FrozenClock) -> None:
    """An item that arrives late stands where it was said."""
    session = await memory.user("ann").session("call-1")
    await session.record(Message("assistant", "Answer", id="2"))
    early = clock.now() - timedelta(minutes=1)
    await session.record(Message("user", "Question", id="1", at=early))
    assert [item.key.id for item in await session.items()] == ["1", "2"]


async def test_a_batch_with_a_bad_item_writes_nothing(memory: Memory) -> None:
    """One refused item refuses the whole batch."""
    session = await memory.user("ann").session("call-1")
    with pytest.raises(InvalidValue, match=r"items\[1\]"):
        await session.record(Message("user", "fine"), Message("user", "x", id=""))
    assert await session.items() == []
    assert not await memory.user("ann").known()


async def test_recording_nothing_is_an_error(memory: Memory) -> None:
    """An empty record call is a mistake of the caller and says so."""
    with pytest.raises(InvalidValue, match="record got no items"):
        await (await memory.user("ann").session("s")).record()


async def test_the_same_session_id_under_two_users_is_two_sessions(memory: Memory) -> None:
    """Sessions belong to their user: equal ids do not meet."""
    await (await memory.user("ann").session("s")).record(Message("user", "Ann's", id="1"))
    await (await memory.user("bob").session("s")).record(Message("user", "Bob's", id="1"))
    found = [item.item async for item in memory.user("ann").items()]
    assert [item.text for item in found if isinstance(item, Message)] == ["Ann's"]


async def test_the_same_item_id_in_two_sessions_is_two_items(memory: Memory) -> None:
    """A host that counts its ids from 1 in every session loses nothing."""
    user = memory.user("ann")
    await (await user.session("a")).record(Message("user", "First", id="1"))
    await (await user.session("b")).record(Message("user", "Second", id="1"))
    assert len([item async for item in user.items()]) == 2


async def test_tenants_do_not_meet(memory: Memory) -> None:
    """The same user id in another tenant is another person."""
    await (await memory.user("ann").session("s")).record(Message("user", "secret"))
    other = memory.tenant("other")
    assert [item async for item in other.user("ann").items()] == []
    assert await other.users() == []


async def test_a_handle_from_before_an_erasure_writes_no_more(memory: Memory) -> None:
    """After forget, an older handle is refused and a new one starts anew."""
    old = await memory.user("ann").session("s")
    await old.record(Message("user", "one"))
    await memory.user("ann").forget()
    with pytest.raises(UserErased, match="was forgotten"):
        await old.record(Message("user", "two"))
    await (await memory.user("ann").session("s")).record(Message("user", "three"))
    assert len([item async for item in memory.user("ann").items()]) == 1


async def test_two_handles_may_make_a_user_at_once(memory: Memory) -> None:
    """Two handles that both write a user's first item both succeed."""
    first = await memory.user("ann").session("a")
    second = await memory.user("ann").session("b")
    await first.record(Message("user", "one"))
    await second.record(Message("user", "two"))
    assert len([item async for item in memory.user("ann").items()]) == 2
