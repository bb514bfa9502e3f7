"""``SecondCallMemory``: what it gives, for whom, and how it is called."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest
from adapters.llama_index.agents import (
    agent_of,
    calls,
    contents,
    memory_of,
    recorded,
    roles,
    run,
    user_of,
)
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.llms import ChatMessage, ImageBlock, MockLLM, TextBlock

from secondcall import Caller, InvalidValue, Memory, OverBudget, TooLarge, UnknownName, UserErased
from secondcall.adapters.llama_index import window
from secondcall.adapters.llama_index.memory import SecondCallMemory
from secondcall.adapters.llama_index.outputs import tokens_of
from secondcall.adapters.llama_index.places import close_places, place_of
from secondcall.errors import StoreUnavailable, UsageError
from secondcall.memory import SessionMemory, UserMemory, asking, contextual
from secondcall.testing.llama_index import Call, Reply, ScriptedLLM, check_history

pytestmark = pytest.mark.anyio


def _said(role: str, text: str) -> ChatMessage:
    return ChatMessage(role=role, content=text)


def _turn(question: str, answer: str) -> list[ChatMessage]:
    return [_said("user", question), _said("assistant", answer)]


async def test_what_earlier_sessions_said_is_recalled(url: str) -> None:
    """What another session said that answers the question stands fenced before it, in a message of
    its own, and is stored as nobody's words."""
    await memory_of(url, session_id="old").aput_messages(
        _turn("My daughter's violin teacher is Mrs Okonkwo.", "Noted.")
    )
    memory = memory_of(url)
    await memory.aput(_said("user", "Who is my daughter's violin teacher?"))
    shown = await memory.aget()
    assert roles(shown) == ["user", "user"]
    assert str(shown[0].content).startswith("<memory")
    assert "Okonkwo" in str(shown[0].content)
    assert contents(await memory.aget_all()) == ["Who is my daughter's violin teacher?"]
    assert len(await recorded(memory)) == 1


async def test_memory_can_stand_in_the_system_role(url: str) -> None:
    """With ``insert="system"`` what is remembered is a system message."""
    await memory_of(url, session_id="old").aput_messages(_turn("My cat is Miso.", "Nice."))
    memory = memory_of(url, insert="system")
    await memory.aput(_said("user", "What is my cat called?"))
    assert roles(await memory.aget()) == ["system", "user"]


async def test_state_is_shown_and_not_stored(url: str) -> None:
    """The state of the session is shown as it is at each get, also after a tool changed it, and is
    in no message of the conversation."""
    memory = memory_of(url)
    await memory.aput(_said("user", "book a seat"))

    async def save(user: UserMemory, seat: str) -> None:
        session = await user.session(memory.session_id)
        await user.remember("seat", seat, kind="preference")
        assert session.session_id == "s-1"

    await user_of(memory, lambda user: save(user, "aisle"))
    assert "aisle" in str(contents(await memory.aget()))
    await user_of(memory, lambda user: save(user, "window"))
    assert "window" in str(contents(await memory.aget()))
    assert contents(await memory.aget_all()) == ["book a seat"]


async def test_recall_is_asked_once_a_turn(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often an agent gets within a turn, the record is searched once for it."""
    asked: list[str] = []
    ask = asking.ask

    async def counted(place: Any, question: Any, started: float) -> Any:
        asked.append(question.query)
        return await ask(place, question, started)

    monkeypatch.setattr(contextual, "ask", counted)
    agent, _ = agent_of([calls(1), calls(2), calls(3), "done", "well"])
    memory = memory_of(url)
    await run(agent, "look it up", memory=memory)
    assert [name for name, _ in memory.log].count("aget") == 5
    assert asked == ["look it up"]
    await run(agent, "look it up", memory=memory)
    assert asked == ["look it up"] * 2


async def test_users_sessions_and_tenants_are_apart(url: str) -> None:
    """The same session id under two users or tenants is two conversations, and nothing that one
    user said is shown to another."""
    scopes = [("u-1", "default"), ("u-2", "default"), ("u-1", "acme")]
    for user_id, tenant_id in scopes:
        memory = memory_of(url, user_id=user_id, tenant_id=tenant_id)
        await memory.aput_messages(_turn(f"my code is {user_id} {tenant_id}", "kept"))
    for user_id, tenant_id in scopes:
        memory = memory_of(url, user_id=user_id, tenant_id=tenant_id)
        await memory.aput(_said("user", "what is my code?"))
        shown = str(contents(await memory.aget()))
        for other in scopes:
            assert (f"{other[0]} {other[1]}" in shown) == (other == (user_id, tenant_id))


async def test_a_caller_brings_its_trust(url: str) -> None:
    """A caller whose identity is only claimed is not shown what is sensitive."""
    known = memory_of(url)
    await user_of(known, lambda user: user.remember("diagnosis", "asthma", sensitive=True))
    claimed = memory_of(url, user_id=Caller(user_id="u-1", trust="claimed", known=True))
    for memory in (known, claimed):
        await memory.aput(_said("user", "what is my diagnosis?"))
    assert "asthma" in str(contents(await known.aget()))
    assert "asthma" not in str(contents(await claimed.aget()))


async def test_copies_in_and_out(url: str) -> None:
    """Changing a message after it was put, or one that was got, changes nothing that is stored."""
    memory = memory_of(url)
    mine = _said("user", "as it was")
    await memory.aput(mine)
    mine.blocks[0] = TextBlock(text="changed")
    for got in (await memory.aget(), await memory.aget_all()):
        got[-1].blocks[0] = TextBlock(text="changed")
        got[-1].additional_kwargs["x"] = 1
    assert await memory.aget() == await memory.aget_all() == [_said("user", "as it was")]


async def test_the_window_is_kept(url: str) -> None:
    """However long the conversation, a get is within the window less the reserve, begins with the
    summary of what is older, and ends with the newest question."""
    memory = memory_of(url, window=1_200, reserve=200)
    for number in range(40):
        await memory.aput_messages(_turn(f"question {number} " * 20, f"answer {number} " * 20))
    await memory.aput(_said("user", "the last one"))
    shown = await memory.aget()
    assert sum(map(tokens_of, shown)) <= 1_000
    assert shown[-1].content == "the last one"
    assert len(shown) > 3
    assert check_history(shown) == []
    assert len(await memory.aget_all()) == 81


async def test_a_limit_of_one_token(url: str) -> None:
    """A limit that nothing fits into is an error that says what is too large, and loses nothing."""
    memory = memory_of(url, token_limit=1)
    await memory.aput(_said("user", "hello there"))
    with pytest.raises(OverBudget, match="newest user message takes 6 tokens"):
        await memory.aget()
    assert contents(await memory.aget_all()) == ["hello there"]


async def test_a_question_larger_than_its_share(url: str) -> None:
    """A question that is larger than the buffer's share is shown whole as long as it fits at
    all."""
    memory = memory_of(url, window=1_000, reserve=100)
    await memory.aput_messages(_turn("before", "yes"))
    question = "word " * 780
    await memory.aput(_said("user", question))
    assert (await memory.aget())[-1].content == question


def test_the_window_is_the_models(url: str) -> None:
    """The window is the model's less its output, the tools and the system prompt."""
    llm = ScriptedLLM(context_window=10_000, num_output=1_000)
    plain = memory_of(url, llm=llm)
    assert (plain.window, plain.reserve) == (10_000, 1_000)

    def tool(name: str) -> str:
        """Do something with a name."""
        return name

    whole = memory_of(url, llm=llm, tools=[tool], system_prompt="Be brief. " * 100)
    assert whole.reserve > 1_200
    assert memory_of(url, llm=llm, window=5_000).window == 5_000
    with pytest.raises(OverBudget, match="system prompt and the tools"):
        memory_of(url, window=100, reserve=0, system_prompt="Be brief. " * 100)


def test_the_librarys_default_window_is_warned_of_once(
    url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that reports the library's own default of 3,900 brings one warning, not one for each
    memory; a window that is given brings none."""
    monkeypatch.setattr(window, "_warned", set[str]())
    with caplog.at_level(logging.WARNING, "secondcall"):
        memory_of(url, llm=MockLLM(), window=8_000)
        assert caplog.messages == []
        made = [memory_of(url, llm=MockLLM()) for _ in range(3)]
    assert made[0].window == 3_900
    assert len(caplog.messages) == 1
    assert "default context window" in caplog.messages[0]


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ({"user_id": ""}, InvalidValue, "user_id"),
        ({"session_id": "s" * 2_000}, TooLarge, "session_id"),
        ({"window": 0}, InvalidValue, "window"),
        ({"token_limit": 5, "window": 9}, InvalidValue, "token_limit"),
        ({"recall_limit": 0}, InvalidValue, "recall_limit"),
        ({"shares": {"buffer": 2.0}}, InvalidValue, "shares"),
        ({"deadline_seconds": -1}, InvalidValue, "deadline_seconds"),
        ({"chat_history": []}, InvalidValue, "chat_history"),
    ],
)
def test_wrong_settings(
    url: str, given: dict[str, Any], error: type[Exception], match: str
) -> None:
    """A wrong setting is refused as the memory is made, and the error names it."""
    with pytest.raises(error, match=match):
        memory_of(url, **given)


def test_a_name_that_is_not_configured() -> None:
    """A name that means nothing here is refused as the memory is made."""
    with pytest.raises(UnknownName, match="'nobody'"):
        SecondCallMemory.from_defaults(user_id="u", session_id="s", name="nobody")


async def test_a_session_id_of_a_thousand_characters(url: str) -> None:
    """A long id, with characters of any kind, is a session like any other."""
    memory = memory_of(url, session_id="../ü:" * 200)
    await memory.aput_messages(_turn("hi", "ho"))
    assert contents(await memory.aget()) == ["hi", "ho"]


async def test_strange_messages(url: str) -> None:
    """Empty batches, messages without text, with only a picture, and tool outputs of 2 MB are
    recorded; what is got fits and is valid."""
    llm = ScriptedLLM([Reply(calls=[Call("big", {})])])
    memory = memory_of(url)
    await memory.aput_messages([])
    await memory.aput(ChatMessage(role="user", blocks=[]))
    await memory.aput(
        ChatMessage(role="user", blocks=[ImageBlock(url="https://example.org/a.png")])
    )
    big = ChatMessage(
        role="tool", content="word " * 400_000, additional_kwargs={"tool_call_id": "call_1_0"}
    )
    await memory.aput_messages([_said("user", "big"), llm.chat([]).message, big])
    shown = await memory.aget()
    assert check_history(shown) == []
    assert sum(map(tokens_of, shown)) <= memory.window
    kept = await memory.aget_all()
    assert kept[-1] == big
    assert [one.content for one in kept[:2]] == [None, None]


async def test_an_output_that_no_item_takes(url: str) -> None:
    """A tool's output of 6 MB, more than an item takes, is kept whole; a model is shown what
    fits."""
    llm = ScriptedLLM()
    llm.script([Reply(calls=[Call("big", {})])])
    memory = memory_of(url)
    result = ChatMessage(
        role="tool", content="word " * 1_200_000, additional_kwargs={"tool_call_id": "call_1_0"}
    )
    await memory.aput_messages([_said("user", "q"), llm.chat([]).message, result])
    assert (await memory.aget_all())[-1] == result
    shown = await memory.aget()
    assert check_history(shown) == []
    assert sum(map(tokens_of, shown)) <= memory.window


async def test_setting_and_resetting(url: str) -> None:
    """Setting makes the conversation what is given and keeps the record; resetting empties the
    session alone, from the record too."""
    other = memory_of(url, session_id="s-2", tenant_id="other")
    await other.aput_messages(_turn("elsewhere", "yes"))
    memory = memory_of(url)
    await memory.aput_messages([*_turn("one", "1"), *_turn("two", "2")])
    await memory.aset([*_turn("one", "1"), _said("user", "two, but other")])
    assert contents(await memory.aget_all()) == ["one", "1", "two, but other"]
    assert contents(await memory.aget()) == ["one", "1", "two, but other"]
    assert len(await recorded(memory)) == 5
    await memory.aset(_turn("two", "2"))
    assert contents(await memory.aget_all()) == ["two", "2"]
    await memory.areset()
    assert await memory.aget_all() == await memory.aget() == []
    assert await recorded(memory) == []
    assert contents(await other.aget_all()) == ["elsewhere", "yes"]
    await memory.aput_messages(_turn("anew", "ok"))
    assert contents(await memory.aget()) == ["anew", "ok"]


async def test_a_user_who_is_forgotten(url: str) -> None:
    """After the user was forgotten the conversation is refused once and then begins anew."""
    memory = memory_of(url)
    await memory.aput_messages(_turn("one", "1"))
    await user_of(memory, lambda user: user.forget())
    with pytest.raises(UserErased):
        await memory.aput(_said("user", "two"))
    await memory.aput(_said("user", "three"))
    assert contents(await memory.aget()) == ["three"]


async def test_blocking_calls_inside_a_loop(url: str) -> None:
    """Every blocking method works inside a running loop, and agrees with its other face."""
    memory = memory_of(url)
    memory.put(_said("user", "one"))
    memory.put_messages([_said("assistant", "1")])
    assert memory.get() == await memory.aget() == memory.get_all() == await memory.aget_all()
    memory.set(_turn("one", "1")[:1])
    assert contents(memory.get()) == ["one"]
    memory.reset()
    assert memory.get_all() == []


def test_blocking_calls_without_a_loop(url: str) -> None:
    """A script without a loop can use the memory, also through a chat engine."""
    memory = memory_of(url)
    llm = ScriptedLLM(["hello", "again"])
    engine = SimpleChatEngine.from_defaults(llm=llm, memory=memory)
    engine.chat("hi")
    engine.chat("hi again")
    assert contents(memory.get_all()) == ["hi", "hello", "hi again", "again"]
    assert contents(llm.requests[1]) == ["hi", "hello", "hi again"]


def test_threads_and_loops(url: str) -> None:
    """Threads with and without loops of their own use one memory at once and lose nothing."""
    memory = memory_of(url)

    def blocking(number: int) -> None:
        memory.put_messages(_turn(f"t{number}", "ok"))

    def looping(number: int) -> None:
        asyncio.run(memory.aput_messages(_turn(f"l{number}", "ok")))

    threads = [
        threading.Thread(target=work, args=(number,))
        for number in range(6)
        for work in (blocking, looping)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = contents(memory.get_all())
    assert len(kept) == 24
    assert {str(one) for one in kept} == {"ok", *(f"{a}{n}" for a in "tl" for n in range(6))}
    for place in range(0, 24, 2):
        assert kept[place + 1] == "ok"


async def test_fifty_puts_at_once(url: str) -> None:
    """Puts that overlap are all kept."""
    memory = memory_of(url)
    await asyncio.gather(*(memory.aput(_said("user", f"m{n}")) for n in range(50)))
    assert {str(one) for one in contents(await memory.aget_all())} == {f"m{n}" for n in range(50)}


async def test_a_memory_of_the_host(url: str) -> None:
    """A memory that the host has open is used in the host's loop; a blocking call in it, which
    would wait for itself, is refused and says what to do."""
    async with Memory.open(url) as opened:
        memory = SecondCallMemory.from_defaults(user_id="u", session_id="s", memory=opened)
        await memory.aput_messages(_turn("hi", "ho"))
        assert contents(await memory.aget()) == ["hi", "ho"]
        with pytest.raises(UsageError, match="url= or name="):
            memory.get()
        assert contents(await asyncio.to_thread(memory.get)) == ["hi", "ho"]
        elsewhere = asyncio.to_thread(lambda: asyncio.run(memory.aget()))
        assert contents(await elsewhere) == ["hi", "ho"]
        with pytest.raises(InvalidValue, match="one of"):
            SecondCallMemory.from_defaults(user_id="u", session_id="s", memory=opened, url=url)


async def test_a_store_that_is_down(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that fails stops the run; with ``degrade`` the conversation goes on, and what is held
    is written with the next message."""
    strict, soft = memory_of(url, session_id="a"), memory_of(url, on_failure="degrade")
    await soft.aput_messages(_turn("one", "1"))
    assert contents(await soft.aget()) == ["one", "1"]

    async def down(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("the store is down")

    with monkeypatch.context() as broken:
        broken.setattr(SessionMemory, "record", down)
        broken.setattr(SessionMemory, "context", down)
        with pytest.raises(StoreUnavailable):
            await strict.aput(_said("user", "lost"))
        with pytest.raises(StoreUnavailable):
            await strict.aget()
        await soft.aput(_said("user", "two"))
        assert contents(await soft.aget()) == ["one", "1", "two"]
    await soft.aput(_said("assistant", "2"))
    assert contents(await soft.aget_all()) == ["one", "1", "two", "2"]


async def test_a_store_that_cannot_be_opened(tmp_path: Any) -> None:
    """A store that cannot be opened is an error at each call, and works once it can be."""
    folder = tmp_path / "later"
    memory = memory_of(f"sqlite:///{folder / 'memory.db'}")
    with pytest.raises(OSError):  # noqa: PT011 - the store says which
        await memory.aput(_said("user", "one"))
    folder.mkdir()
    await memory.aput(_said("user", "two"))
    assert contents(await memory.aget_all()) == ["two"]


async def test_a_place_that_was_closed(url: str) -> None:
    """After the places were closed the next call opens the store again."""
    memory = memory_of(url)
    await memory.aput_messages(_turn("one", "1"))
    close_places()
    await memory.aput_messages(_turn("two", "2"))
    assert contents(await memory.aget()) == ["one", "1", "two", "2"]
    place_of(str(memory.store), url)


async def test_input_is_the_question(url: str) -> None:
    """A question that is not recorded yet, as text or as a message, is what is recalled for, and
    is not added to the messages."""
    await memory_of(url, session_id="old").aput_messages(_turn("My cat is Miso.", "Nice."))
    memory = memory_of(url)
    for question in ("What is my cat called?", _said("user", "What is my cat called?")):
        shown = await memory.aget(question, initial_token_count=3)
        assert len(shown) == 1
        assert "Miso" in str(shown[0].content)
