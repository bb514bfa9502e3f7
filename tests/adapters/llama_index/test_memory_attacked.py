"""Memories under what hosts do to them: two processes, strange ids, stores that fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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
from llama_index.core.llms import ChatMessage
from llama_index.core.workflow import Context

from secondcall import Memory, OverBudget
from secondcall.adapters.llama_index.memory import SecondCallMemory
from secondcall.adapters.llama_index.places import close_places
from secondcall.errors import StoreUnavailable
from secondcall.stores.sqlite import SqliteStore
from secondcall.testing.llama_index import Call, Reply, ScriptedLLM, check_history

pytestmark = pytest.mark.anyio

_STRANGE = [
    " ",
    "a/b",
    "../../etc",
    "a\tb\nc",
    "ü" * 500,
    "%_*?[]",
    "'; drop table items; --",
    "{}",
    "\u202e",
    "a:b",
    "😀",
    "None",
]

_PUTS = """
import asyncio, sys
from llama_index.core.llms import ChatMessage
from secondcall.adapters.llama_index.memory import SecondCallMemory
from secondcall.adapters.llama_index.places import close_places
name, url = sys.argv[1:]
memory = SecondCallMemory.from_defaults(user_id="u-1", session_id="s-1", url=url)
for number in range(15):
    memory.put(ChatMessage(role="user", content=f"{name} asks {number}"))
    memory.get()
    memory.put(ChatMessage(role="assistant", content=f"{name} hears {number}"))
close_places()
"""


def _said(role: str, text: str) -> ChatMessage:
    return ChatMessage(role=role, content=text)


def test_processes_at_once_on_one_session(url: str) -> None:
    """Three processes that put and get in one session at once lose nothing, and each one's messages
    keep their order."""
    memory_of(url).put(_said("user", "begin"))
    close_places()
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _PUTS, name, url],
            stderr=subprocess.PIPE,
            env={**os.environ},
        )
        for name in "abc"
    ]
    for one in started:
        _, errors = one.communicate(timeout=180)
        assert one.returncode == 0, errors.decode()
    kept = [str(one) for one in contents(memory_of(url).get_all())]
    assert len(kept) == 91
    for name in "abc":
        own = [one for one in kept if one.startswith(f"{name} ")]
        wanted = [f"{name} {what} {n}" for n in range(15) for what in ("asks", "hears")]
        assert own == wanted


@pytest.mark.parametrize("field", ["user_id", "session_id", "tenant_id"])
async def test_strange_ids_are_apart(url: str, field: str) -> None:
    """Ids of any characters are told apart, whatever a file system or a query makes of them."""
    memories = [memory_of(url, **{field: one}) for one in _STRANGE]
    for number, memory in enumerate(memories):
        await memory.aput(_said("user", f"mine {number}"))
    for number, memory in enumerate(memories):
        assert contents(await memory.aget_all()) == [f"mine {number}"]
        again = SecondCallMemory.from_dict(json.loads(json.dumps(memory.to_dict())))
        assert again is memory


async def test_half_characters(url: str) -> None:
    """Text with half a surrogate pair, as a cut stream leaves it, loses no turn."""
    memory = memory_of(url)
    await memory.aput_messages([_said("user", "hi \ud83d"), _said("assistant", "ho")])
    assert contents(await memory.aget())[-1] == "ho"


async def test_a_window_of_one_token(url: str) -> None:
    """With room for one token an agent's run fails by an error that names the part, and what was
    asked is recorded."""
    memory = memory_of(url, token_limit=1)
    agent, llm = agent_of(["never"])
    with pytest.raises(Exception, match="newest user message takes") as caught:
        await run(agent, "hello there", memory=memory)
    assert isinstance(caught.value, OverBudget) or "tokens" in str(caught.value)
    assert llm.requests == []
    assert contents(await memory.aget_all()) == ["hello there"]
    assert await memory_of(url, token_limit=1, session_id="empty").aget() == []


async def test_an_agent_on_a_store_that_is_down(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``degrade`` an agent answers while its store is down, knows what was said meanwhile, and
    all of it is written when the store is back; otherwise the run fails."""
    soft, strict = memory_of(url, on_failure="degrade"), memory_of(url, session_id="s-2")
    agent, llm = agent_of([calls(1), "one", "two", "three"])
    await soft.aput_messages([_said("user", "before"), _said("assistant", "yes")])
    await soft.aget()

    async def down(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("the store is down")

    with monkeypatch.context() as broken:
        for name in ("write", "read", "header", "entries", "document", "changes", "glance"):
            broken.setattr(SqliteStore, name, down)
        await run(agent, "first", memory=soft)
        await run(agent, "second", memory=soft)
        other, _ = agent_of(["never"])
        with pytest.raises(Exception, match="the store is down"):
            await run(other, "lost", memory=strict)
    assert [check_history(one) for one in llm.requests] == [[]] * 3
    assert contents(llm.requests[-1]) == [
        "before", "yes", "first", None, "found 1", "one", "second"
    ]  # fmt: skip
    await run(agent, "third", memory=soft)
    assert contents(await soft.aget_all()) == [
        "before", "yes", "first", None, "found 1", "one", "second", "two", "third", "three"
    ]  # fmt: skip


async def test_two_megabytes_from_a_tool_in_a_run(url: str) -> None:
    """A run whose tool gives 2 MB is stored whole, and the next run's request is within the
    window."""
    text = "word " * 400_000

    def big() -> str:
        """Much."""
        return text

    llm = ScriptedLLM([Reply(calls=[Call("big", {})]), "done", "yes"])
    agent, _ = agent_of([], tools=[big])
    agent.llm = llm
    memory = memory_of(url)
    await run(agent, "read", memory=memory)
    await run(agent, "sure?", memory=memory)
    assert check_history(llm.requests[-1]) == []
    assert (await memory.aget_all())[2].content == text


async def test_messages_without_words(url: str) -> None:
    """Runs that ask with nothing, and models that answer with nothing, keep a history that is valid
    for the next."""
    memory = memory_of(url)
    agent, llm = agent_of(["", "yes"])
    await run(agent, ChatMessage(role="user", blocks=[]), memory=memory)
    await run(agent, "well?", memory=memory)
    assert roles(llm.requests[-1]) == ["user", "assistant", "user"]
    assert check_history(llm.requests[-1]) == []
    assert len(await recorded(memory)) == 4


async def test_a_context_of_a_newer_release(url: str) -> None:
    """A context that a newer release wrote, with settings that are not known here, goes on; one
    whose scope is no scope is refused."""
    agent, llm = agent_of(["one", "two"])
    memory = memory_of(url)
    ctx = Context(agent)
    await run(agent, "first", memory=memory, ctx=ctx)
    text = json.dumps(ctx.to_dict())
    assert '\\"recall_limit\\": 3' in text
    newer = text.replace('\\"recall_limit\\": 3', '\\"recall_limit\\": 3, \\"colour\\": [1]')
    again = Context.from_dict(agent, json.loads(newer))
    await run(agent, "second", ctx=again)
    assert contents(llm.requests[-1]) == ["first", "one", "second"]
    for field, value in (("user_id", ""), ("window", "wide"), ("trust", "divine")):
        with pytest.raises(ValueError, match=field):
            SecondCallMemory.from_dict({**memory.to_dict(), "handle": "gone", field: value})


async def test_a_memory_whose_host_closed_it(url: str) -> None:
    """A memory of the host's own that was closed is an error that says so, not a hang."""
    async with Memory.open(url) as opened:
        memory = SecondCallMemory.from_defaults(user_id="u", session_id="s", memory=opened)
        await memory.aput(_said("user", "one"))
    with pytest.raises(Exception, match=r"open|closed"):
        await memory.aput(_said("user", "two"))


async def test_a_get_changes_nothing_that_was_said(url: str) -> None:
    """However often a window that is too small is got, with summaries made beside it, the record
    and the list are what they were."""
    memory = memory_of(url, window=600, reserve=0)
    given = [ChatMessage(role="system", content="Answer in rhyme.")]
    for number in range(40):
        given.append(ChatMessage(role="user", content=f"question {number} " + "word " * 30))
        given.append(ChatMessage(role="assistant", content=f"answer {number}"))
    await memory.aput_messages(given)
    before = await recorded(memory)
    for _ in range(20):
        assert len(await memory.aget()) < len(given)
    assert await recorded(memory) == before
    assert await memory.aget_all() == given


async def test_a_reset_leaves_nothing_of_its_session(url: str) -> None:
    """After a reset nothing recalls what the session said, what other sessions said stays, and what
    code remembered of the user stays until the user is forgotten."""
    memory, other = memory_of(url), memory_of(url, session_id="s-2")
    await memory.aput(ChatMessage(role="user", content="My cat is called Miso."))
    await other.aput(ChatMessage(role="user", content="My violin teacher is Mrs Okonkwo."))
    sources = [one.key for one in await recorded(memory)]
    await user_of(memory, lambda user: user.remember("city", "Oslo", sources=sources))
    await memory.areset()
    asking = memory_of(url, session_id="s-3")
    told = str(await asking.aget("What is my cat called, and who teaches the violin?"))
    assert "Miso" not in told
    assert "Okonkwo" in told
    assert "Oslo" in told
    await user_of(memory, lambda user: user.forget())
    assert await memory_of(url, session_id="s-4").aget("Who teaches the violin?") == []
