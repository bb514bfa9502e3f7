"""System text stays in a session's window, however far into the session it was recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from secondcall import Memory, Message

pytestmark = pytest.mark.anyio


def _turns(first: int, count: int) -> list[Message]:
    return [
        Message(role, f"{role} says {number} and some more words to fill the window")
        for number in range(first, first + count)
        for role in ("user", "assistant")
    ]


@pytest.mark.parametrize("summarise", [False, True])
async def test_a_later_process_keeps_system_text(tmp_path: Path, summarise: bool) -> None:
    """A system message in mid-session is in the window of whoever takes the session up."""
    url = f"sqlite:///{tmp_path / 'm.db'}"
    rule = Message("system", "Never name a price.")
    async with Memory.open(url) as memory:
        session = await memory.user("ana").session("call")
        await session.record(*_turns(0, 30), rule, *_turns(30, 60))
    async with Memory.open(url) as memory:
        session = await memory.user("ana").session("call")
        buffer = await session.buffer(300, summarise=summarise)
        shown = [one for one in buffer.get() if isinstance(one, Message)]
        assert [one.text for one in shown if one.text == rule.text] == [rule.text]
        assert len(shown) < 60


async def test_a_later_context_keeps_system_text(tmp_path: Path) -> None:
    """So it is in the items of a context."""
    url = f"sqlite:///{tmp_path / 'm.db'}"
    rule = Message("system", "Never name a price.")
    async with Memory.open(url) as memory:
        session = await memory.user("ana").session("call")
        await session.record(*_turns(0, 30), rule, *_turns(30, 60))
    async with Memory.open(url) as memory:
        session = await memory.user("ana").session("call")
        context = await session.context("what was said?", window=1_500, reserve=500)
        shown = [one.text for one in context.items if isinstance(one, Message)]
        assert shown.count(rule.text) == 1


async def test_sessions_do_not_share_it() -> None:
    """Sessions whose ids begin alike, and other users, have their own."""
    async with Memory.open("memory://") as memory:
        for user, name in (("ana", "call"), ("ana", "call:1"), ("ana", "4:call"), ("bob", "call")):
            session = await memory.user(user).session(name)
            await session.record(*_turns(0, 15), Message("system", f"{user} {name}"))
            await session.record(*_turns(15, 40))
        for user, name in (("ana", "call"), ("ana", "call:1"), ("ana", "4:call"), ("bob", "call")):
            session = await memory.user(user).session(name)
            items = (await session.buffer(300, summarise=False)).get()
            system = [
                one.text for one in items if isinstance(one, Message) and one.role == "system"
            ]
            assert system == [f"{user} {name}"]


async def test_what_is_removed_is_not_kept() -> None:
    """A removed system message is gone from later windows."""
    async with Memory.open("memory://") as memory:
        user = memory.user("ana")
        session = await user.session("call")
        told = await session.record(Message("system", "Never name a price."), *_turns(0, 40))
        await user.remove([told.keys[0]])
        items = (await (await user.session("call")).buffer(300, summarise=False)).get()
        assert not [one for one in items if isinstance(one, Message) and one.role == "system"]
