"""A memory in a ``Context``: used again, copied, written down and found in another process."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from adapters.llama_index.agents import agent_of, calls, contents, look_up, memory_of, run
from llama_index.core.llms import ChatMessage
from llama_index.core.workflow import Context, JsonSerializer
from workflows.context.serializers import PickleSerializer

import secondcall
from secondcall import InvalidValue, Memory, UnknownName
from secondcall.adapters.llama_index.memory import SecondCallMemory
from secondcall.adapters.llama_index.places import close_places

pytestmark = pytest.mark.anyio

_LEGS = Path(__file__).parent / "legs.py"


def _user(text: str) -> ChatMessage:
    return ChatMessage(role="user", content=text)


async def test_a_second_run_on_one_context(url: str) -> None:
    """Two runs on one context are one conversation, in the same object, without ``memory=``."""
    agent, llm = agent_of([calls(1), "one", "two", "three"])
    memory = memory_of(url)
    ctx = Context(agent)
    for text in ("first", "second", "third"):
        await run(agent, text, memory=memory if text == "first" else None, ctx=ctx)
    assert await ctx.store.get("memory") is memory
    assert contents(llm.requests[-1]) == [
        "first", None, "found 1", "one", "second", "two", "third"
    ]  # fmt: skip


async def test_a_tool_that_edits_the_state(url: str) -> None:
    """A tool that edits the context's store in the middle of a run costs the memory nothing."""

    async def note(ctx: Context, number: int) -> str:
        """Note a number."""
        async with ctx.store.edit_state() as state:
            state["noted"] = number
        return "noted"

    note.__annotations__["ctx"] = Context  # LlamaIndex does not read annotations that are text
    agent, _ = agent_of([call_of("note", number=7), "done", "bye"], tools=[note, look_up])
    memory = memory_of(url)
    ctx = Context(agent)
    await run(agent, "note 7", memory=memory, ctx=ctx)
    assert await ctx.store.get("noted") == 7
    assert await ctx.store.get("memory") is memory
    await run(agent, "bye", ctx=ctx)
    assert contents(await memory.aget_all()) == ["note 7", None, "noted", "done", "bye", "bye"]


def call_of(name: str, **arguments: Any) -> Any:
    """An answer that calls this tool."""
    from secondcall.testing.llama_index import Call, Reply

    return Reply(calls=[Call(name, arguments)])


async def test_copies_are_the_same_memory(url: str) -> None:
    """Copying, shallow or deep, gives the very object: what is put into a copy is not lost."""
    memory = memory_of(url)
    assert copy.copy(memory) is memory
    assert copy.deepcopy({"memory": memory})["memory"] is memory
    assert bool(memory)
    assert not hasattr(memory, "__len__")


@pytest.mark.parametrize("serializer", [JsonSerializer, PickleSerializer])
async def test_a_context_that_was_written_down(
    url: str, serializer: type[JsonSerializer | PickleSerializer]
) -> None:
    """A context restored in the same process goes on with the same object."""
    agent, llm = agent_of(["one", "two"])
    memory = memory_of(url)
    ctx = Context(agent)
    await run(agent, "first", memory=memory, ctx=ctx)
    written = json.loads(json.dumps(ctx.to_dict(serializer=serializer())))
    again = Context.from_dict(agent, written, serializer=serializer())
    assert await again.store.get("memory") is memory
    await run(agent, "second", ctx=again)
    assert contents(llm.requests[-1]) == ["first", "one", "second"]


async def test_what_is_written_down(tmp_path: Path) -> None:
    """Neither the dump, nor any of pydantic's forms, nor the repr has a URL, a secret or a word of
    what was said."""
    secret = f"sqlite:///{tmp_path / 'memory.db'}?key=hunter2"
    secondcall.configure(vault=lambda: Memory.open(f"sqlite:///{tmp_path / 'memory.db'}"))
    memory = SecondCallMemory.from_defaults(user_id="u", session_id="s", name="vault")
    await memory.aput(_user("my pin is 4711"))
    await memory.aget()
    named = SecondCallMemory.from_defaults(user_id="u", session_id="s", url=secret)
    agent, _ = agent_of([])
    ctx = Context(agent)
    await ctx.store.set("memory", memory)
    for text in (
        json.dumps(ctx.to_dict()),
        memory.model_dump_json(),
        repr(memory),
        str(memory.to_dict()),
        repr(named),
        named.to_json(),
        PickleSerializer().serialize(named),
        PickleSerializer().serialize(memory),
    ):
        assert not any(word in text for word in ("4711", "sqlite", "hunter2", str(tmp_path)))
    assert memory.to_dict()["store"] == "vault"
    secondcall.configure(vault=None)


async def test_a_memory_that_is_no_longer_there(url: str) -> None:
    """What was written down finds its store by name when the object is gone."""
    secondcall.configure({"my store": url})
    data = _written("my store")
    found = SecondCallMemory.from_dict(data)
    assert contents(await found.aget_all()) == ["hello"]
    assert (found.window, found.user_id) == (9_000, "u")
    secondcall.configure({"my store": None})


def _written(name: str) -> dict[str, Any]:
    memory = SecondCallMemory.from_defaults(user_id="u", session_id="s", name=name, window=9_000)
    memory.put(_user("hello"))
    return memory.to_dict()


async def test_a_name_that_nobody_knows(url: str) -> None:
    """A store that is not configured where a context is restored is named in the error, with what
    to do."""
    agent, _ = agent_of([])
    ctx = Context(agent)
    secondcall.configure(elsewhere=url)
    await ctx.store.set(
        "memory",
        SecondCallMemory.from_defaults(user_id="u", session_id="s", name="elsewhere"),
    )
    written = ctx.to_dict()
    del ctx
    secondcall.configure(elsewhere=None)
    close_places()
    written = json.loads(json.dumps(written).replace('\\"handle\\": \\"', '\\"handle\\": \\"x'))
    with pytest.raises((ValueError, UnknownName), match=r"'elsewhere'.*secondcall\.configure"):
        await Context.from_dict(agent, written).store.get("memory")


async def test_a_memory_of_the_hosts_own(url: str) -> None:
    """A memory that the host opened is found in its process; others are told what to give."""
    async with Memory.open(url) as opened:
        memory = SecondCallMemory.from_defaults(user_id="u", session_id="s", memory=opened)
        await memory.aput(_user("hello"))
        data = memory.to_dict()
        assert SecondCallMemory.from_dict(data) is memory
        with pytest.raises(InvalidValue, match="url= or name="):
            SecondCallMemory.from_dict({**data, "handle": "another"})


async def test_what_a_later_release_wrote(url: str) -> None:
    """Fields that this release does not know are passed over, whatever they hold."""
    secondcall.configure(later=url)
    data = _written("later")
    found = SecondCallMemory.from_dict({**data, "colour": {"of": "blue"}, "handle": "gone"})
    assert contents(await found.aget_all()) == ["hello"]
    secondcall.configure(later=None)


async def test_another_scope_under_one_handle(url: str) -> None:
    """A dump that was changed to another user does not lead to the first one's object."""
    memory = memory_of(url)
    secondcall.configure({str(memory.store): url})
    other = SecondCallMemory.from_dict({**memory.to_dict(), "user_id": "u-2"})
    assert other is not memory
    assert other.user_id == "u-2"
    secondcall.configure({str(memory.store): None})


@pytest.mark.parametrize("how", ["json", "pickle"])
@pytest.mark.parametrize("known", ["configured", "environment"])
def test_another_process_goes_on(tmp_path: Path, how: str, known: str) -> None:
    """A context written down in one process goes on in another, which finds the store by the name
    that it was given there or by ``SECONDCALL_URL``; without either the error names it."""
    path = tmp_path / "context.json"
    first = _leg("begin", how, known, path, tmp_path)
    assert first == ["begun"]
    assert "memory.db" not in path.read_text()
    second = _leg("go-on", how, known, path, tmp_path)
    assert second == ["my name is Ann", "hello Ann", "who am I?"]
    lost = _leg("lost", how, known, path, tmp_path)
    assert f"'{'main' if known == 'configured' else 'default'}'" in lost[0]
    assert "secondcall.configure" in lost[0]


def _leg(what: str, how: str, known: str, path: Path, folder: Path) -> list[str]:
    places = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}
    if known == "environment" and what != "lost":
        environment["SECONDCALL_URL"] = f"sqlite:///{folder / 'memory.db'}"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(_LEGS), what, how, known, str(path), str(folder)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))
