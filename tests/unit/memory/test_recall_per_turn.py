"""How often a session's context asks the record within a turn."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from secondcall import ItemKey, Memory, Message, SessionMemory, UserErased, UserMemory
from secondcall.memory import asking, contextual

pytestmark = pytest.mark.anyio


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The questions that were searched for."""
    found: list[str] = []

    async def counted(place: Any, question: Any, started: float) -> Any:
        found.append(question.query)
        return await asking.ask(place, question, started)

    monkeypatch.setattr(contextual, "ask", counted)
    return found


async def test_a_turn_asks_once(asked: list[str]) -> None:
    """Within a turn the record is asked once for a question, whatever the window, and its answer
    is as good; the same words in the next turn are asked anew."""
    async with Memory.open("memory://") as memory:
        user = memory.user("u")
        await (await user.session("old")).record(Message("user", "My cat is Miso."))
        session = await user.session("new")
        await session.record(Message("user", "What is my cat called?"))
        first = await session.context(window=4_000)
        await session.record(Message("assistant", "Let me see."))
        second = await session.context("What is my cat called?", window=2_500)
        assert "Miso" in first.state + first.recall
        assert second.recall == first.recall
        assert len(asked) == 1
        await session.record(Message("user", "What is my cat called?"))
        await session.context(window=4_000)
        assert len(asked) == 2


async def test_what_others_write_is_seen(asked: list[str]) -> None:
    """When the record changed otherwise, the same turn asks again and finds it."""
    async with Memory.open("memory://") as memory:
        user = memory.user("u")
        session = await user.session("new")
        await session.record(Message("user", "What is my cat called?"))
        await session.context(window=4_000)
        await (await user.session("old")).record(Message("user", "My cat is called Miso."))
        found = await session.context(window=4_000)
        assert "Miso" in found.state + found.recall
        assert len(asked) == 2


async def test_a_question_asked_again_brings_its_answer() -> None:
    """What is recalled of a turn is the turn: the same question finds what was answered to it."""
    async with Memory.open("memory://") as memory:
        user = memory.user("ana")
        first = await user.session("first")
        asked = "What is the code of the office door?"
        await first.record(Message("user", asked), Message("assistant", "It is tulip42."))
        second = await user.session("second")
        await second.record(Message("user", asked))
        context = await second.context(window=4_000)
        assert "tulip42" in context.recalled.text
        assert context.recalled.text.count(asked) == 1


async def test_a_turn_that_is_too_long_leaves_its_best_item() -> None:
    """Where the whole turn does not fit into the share of recall, what was found of it does."""
    async with Memory.open("memory://") as memory:
        user = memory.user("ana")
        first = await user.session("first")
        await first.record(
            Message("user", "The door code is tulip42."), Message("assistant", "Noted. " * 400)
        )
        second = await user.session("second")
        context = await second.context("What is the door code?", window=2_000)
        assert "tulip42" in context.recalled.text
        assert "Noted." not in context.recalled.text


async def _told(session: SessionMemory) -> str:
    found = await session.context(window=4_000)
    return found.state + found.recall


async def _asking(user: UserMemory, question: str) -> SessionMemory:
    session = await user.session("new")
    await session.record(Message("user", question))
    return session


async def test_a_fact_that_changed_within_the_turn() -> None:
    """After a fact changed, by this process or by another handle, the same turn is told the new
    value and not the old one."""
    async with Memory.open("memory://") as memory:
        user = memory.user("u")
        await user.remember("seat", "aisle", kind="preference")
        session = await _asking(user, "Which seat do I like?")
        assert "aisle" in await _told(session)
        await memory.user("u").remember("seat", "window", kind="preference")
        told = await _told(session)
        assert "window" in told
        assert '"aisle"' not in told


async def test_nothing_is_recalled_of_who_was_forgotten() -> None:
    """After the user was forgotten, here or through another handle, the same turn recalls nothing
    of before; a new handle neither."""
    async with Memory.open("memory://") as memory:
        user = memory.user("u")
        await (await user.session("old")).record(Message("user", "My cat is Miso."))
        session = await _asking(user, "What is my cat called?")
        assert "Miso" in await _told(session)
        await memory.user("u").forget()
        with contextlib.suppress(UserErased):
            assert "Miso" not in await _told(session)
        again = await _asking(memory.user("u"), "What is my cat called?")
        assert "Miso" not in await _told(again)


async def test_a_merge_within_the_turn() -> None:
    """What a merged user said is recalled in the turn that is going on, and no more when the two
    are parted."""
    async with Memory.open("memory://") as memory:
        await (await memory.user("v").session("old")).record(Message("user", "My cat is Miso."))
        session = await _asking(memory.user("u"), "What is my cat called?")
        assert "Miso" not in await _told(session)
        await memory.merge("v", "u")
        assert "Miso" in await _told(session)
        await memory.unmerge("v")
        assert "Miso" not in await _told(session)


async def test_a_removal_within_the_turn() -> None:
    """What was removed from the record is not recalled in the turn that is going on."""
    async with Memory.open("memory://") as memory:
        user = memory.user("u")
        await (await user.session("old")).record(Message("user", "My cat is Miso.", id="m"))
        session = await _asking(user, "What is my cat called?")
        assert "Miso" in await _told(session)
        await user.remove([ItemKey("u", "old", "message", "m")])
        assert "Miso" not in await _told(session)


async def test_a_correction_by_the_handle_itself() -> None:
    """What the session's own handle corrects is not told as it was, in the same turn."""
    async with Memory.open("memory://") as memory:
        user = memory.user("u")
        session = await user.session("new")
        await session.record(Message("user", "My cat is called Miso.", id="m"))
        for number in range(40):
            await session.record(Message("user", f"turn {number} " + "word " * 60))
        await session.record(Message("user", "What is my cat called?"))
        question = "What is my cat called?"
        first = await session.context(question, window=2_000)
        assert "Miso" in first.recall
        await session.record(Message("user", "My cat is called Tofu.", id="m"))
        second = await session.context(question, window=2_000)
        assert "Miso" not in second.recall
        assert "Tofu" in second.recall + str(second.items)


async def test_users_do_not_share_what_is_recalled() -> None:
    """The same question of two users, in sessions of the same name, is answered from each one's
    own record, at once and again."""
    async with Memory.open("memory://") as memory:
        sessions: list[SessionMemory] = []
        for user_id, cat in (("u", "Miso"), ("v", "Tofu")):
            user = memory.user(user_id)
            await (await user.session("old")).record(Message("user", f"My cat is {cat}."))
            sessions.append(await _asking(user, "What is my cat called?"))
        for _ in range(2):
            ours, theirs = await asyncio.gather(*map(_told, sessions))
            assert ("Miso" in ours, "Tofu" in ours) == (True, False)
            assert ("Miso" in theirs, "Tofu" in theirs) == (False, True)


async def test_what_changes_while_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that was begun before a change is not kept as one of after it, when another request
    saw the change meanwhile."""
    async with Memory.open("memory://") as memory:
        user = memory.user("u")
        session = await _asking(user, "What is my cat called?")
        begun, go_on = asyncio.Event(), asyncio.Event()
        first: list[Any] = []

        async def slow(place: Any, question: Any, started: float) -> Any:
            found = await asking.ask(place, question, started)
            if not first:
                first.append(found)
                begun.set()
                await go_on.wait()
            return found

        monkeypatch.setattr(contextual, "ask", slow)
        late = asyncio.ensure_future(_told(session))
        await begun.wait()
        await (await user.session("old")).record(Message("user", "My cat is called Miso."))
        assert "Miso" in await _told(session)
        go_on.set()
        await late
        assert "Miso" in await _told(session)
