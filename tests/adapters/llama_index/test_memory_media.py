"""Messages that are more than words: pictures, long thinking, outputs larger than an item."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from adapters.llama_index.agents import (
    agent_of,
    contents,
    memory_of,
    recorded,
    run,
    user_of,
)
from llama_index.core.base.llms import types as llms
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock

from secondcall import OverBudget, UserMemory
from secondcall.adapters.llama_index.outputs import MEDIA_TOKENS, tokens_of
from secondcall.adapters.llama_index.places import close_places
from secondcall.testing.llama_index import Call, Reply, ScriptedLLM, check_history

pytestmark = pytest.mark.anyio

_READ = """
import asyncio, hashlib, sys
from secondcall.adapters.llama_index.memory import SecondCallMemory
memory = SecondCallMemory.from_defaults(user_id="u-1", session_id="s-1", url=sys.argv[1])
shown = asyncio.run(memory.aget())
print(hashlib.sha256(shown[0].blocks[1].image).hexdigest())
from secondcall.adapters.llama_index.places import close_places
close_places()
"""


def _picture(size: int, number: int = 0) -> ImageBlock:
    image = base64.b64encode(bytes([number, 255]) * (size // 2))
    return ImageBlock(image=image, image_mimetype="image/png")


def _seen(size: int, text: str = "see", number: int = 0) -> ChatMessage:
    return ChatMessage(role="user", blocks=[TextBlock(text=text), _picture(size, number)])


def _said(text: str) -> ChatMessage:
    return ChatMessage(role="assistant", content=text)


@pytest.mark.parametrize("size", [100, 2_000, 40_000, 3_000_000])
async def test_a_picture_outlives_its_process(url: str, size: int) -> None:
    """A picture given inline, of any size, is the same in the next process's list and view."""
    messages = [_seen(size), _said("nice")]
    await memory_of(url).aput_messages(messages)
    close_places()
    again = memory_of(url)
    assert await again.aget_all() == messages
    assert await again.aget() == messages


def test_another_process_sees_the_picture(url: str) -> None:
    """A process that never saw the picture gives it to its model."""
    message = _seen(300_000)
    memory_of(url).put_messages([message, _said("nice")])
    close_places()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _READ, url],
        capture_output=True,
        text=True,
        env={**os.environ},
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    image = _picture(300_000).image
    assert isinstance(image, bytes)
    assert done.stdout.strip() == hashlib.sha256(image).hexdigest()


async def test_more_than_any_cache_holds(url: str) -> None:
    """One message of 70 MiB comes back whole in another process's memory."""
    message = _seen(54 * 1024 * 1024)
    memory = memory_of(url)
    await memory.aput_messages([message, _said("large")])
    close_places()
    (back, _) = await memory_of(url).aget_all()
    assert back == message


async def test_pictures_count_once(url: str) -> None:
    """Each picture takes room in what a get gives, so that of many the newest are shown, within the
    window as it is counted for what is sent."""
    memory = memory_of(url, window=6_000, reserve=0, summarise=False)
    for number in range(8):
        await memory.aput_messages([_seen(200, f"picture {number}", number), _said("ok")])
    shown = await memory.aget()
    taken = sum(map(tokens_of, shown))
    assert MEDIA_TOKENS < taken <= 6_000
    assert [one.blocks[1] for one in shown if len(one.blocks) == 2] == [
        _picture(200, 6),
        _picture(200, 7),
    ]


async def test_a_picture_that_does_not_fit(url: str) -> None:
    """A newest picture that is larger than the window is an error that names it, and not lost."""
    memory = memory_of(url, token_limit=500)
    await memory.aput(_seen(200))
    with pytest.raises(OverBudget, match="newest user message takes 2,1"):
        await memory.aget()
    assert await memory.aget_all() == [_seen(200)]


@pytest.mark.parametrize("size", [200, 60_000])
async def test_a_tool_that_answers_with_a_picture(url: str, size: int) -> None:
    """A tool's result that holds a picture comes back in another process, with its call."""
    llm = ScriptedLLM([Reply(calls=[Call("draw", {"x": 1})])])
    result = ChatMessage(
        role="tool",
        blocks=[TextBlock(text="drawn"), _picture(size)],
        additional_kwargs={"tool_call_id": "call_1_0"},
    )
    messages = [
        ChatMessage(role="user", content="draw"),
        llm.chat([]).message,
        result,
        _said("there"),
    ]
    await memory_of(url).aput_messages(messages)
    close_places()
    again = memory_of(url)
    assert await again.aget_all() == messages
    shown = await again.aget()
    assert check_history(shown) == []
    assert shown[2] == result


async def test_a_result_whose_call_another_process_put(url: str) -> None:
    """A picture that answers a call of another process joins it, and both come back."""
    llm = ScriptedLLM([Reply(calls=[Call("draw", {"x": 1})])])
    asked = llm.chat([]).message
    await memory_of(url).aput_messages([ChatMessage(role="user", content="draw"), asked])
    close_places()
    result = ChatMessage(
        role="tool", blocks=[_picture(60_000)], additional_kwargs={"tool_call_id": "call_1_0"}
    )
    await memory_of(url).aput_messages([result, _said("there")])
    close_places()
    assert (await memory_of(url).aget_all())[1:] == [asked, result, _said("there")]


async def test_calls_with_large_things_beside(url: str) -> None:
    """What stands beside calls comes back, however large, before and after their results."""
    llm = ScriptedLLM([Reply(calls=[Call("draw", {"x": 1})])])
    asked = llm.chat([]).message
    asked.additional_kwargs["raw"] = "r" * 50_000
    result = ChatMessage(
        role="tool",
        blocks=[TextBlock(text="ok"), _picture(50_000)],
        additional_kwargs={"tool_call_id": "call_1_0"},
    )
    memory = memory_of(url)
    await memory.aput_messages([ChatMessage(role="user", content="draw"), asked])
    await memory.aput_messages([result])
    close_places()
    assert (await memory_of(url).aget_all())[1:] == [asked, result]


async def test_long_thinking_outlives_its_process(url: str) -> None:
    """Thinking that is more than an item takes is whole in another process, and is counted."""
    if not hasattr(llms, "ThinkingBlock"):
        assert not hasattr(llms, "ToolCallBlock")  # this release has no thinking
        return
    thought: Any = llms.ThinkingBlock(content="hm, " * 12_000)
    message = ChatMessage(role="assistant", blocks=[thought, TextBlock(text="so")])
    question = ChatMessage(role="user", content="why?")
    await memory_of(url).aput_messages([question, message])
    close_places()
    again = memory_of(url, window=60_000)
    assert await again.aget_all() == [question, message]
    shown = await again.aget()
    assert shown == [question, message]
    small = memory_of(url, window=8_000, reserve=0, summarise=False)
    await small.aput(ChatMessage(role="user", content="and?"))
    assert sum(map(tokens_of, await small.aget())) <= 8_000


async def test_pictures_are_forgotten(url: str, tmp_path: Path) -> None:
    """Resetting a session, removing a message and forgetting the user leave no byte of a picture in
    the store."""
    mark = base64.b64encode(b"unmistakable" * 5_000)
    message = ChatMessage(
        role="user", blocks=[TextBlock(text="see"), ImageBlock(image=mark, image_mimetype="a/b")]
    )
    memory = memory_of(url)
    for way in ("reset", "remove", "forget"):
        await memory.aput_messages([message, _said("ok")])
        if way == "reset":
            await memory.areset()
        elif way == "remove":
            keys = [one.key for one in await recorded(memory)]
            await user_of(memory, lambda user, keys=keys: user.remove(keys))
        else:
            receipt = await user_of(memory, UserMemory.forget)
            assert receipt.complete
        close_places()
        assert not _in_files(tmp_path, mark[:60])
        memory = memory_of(url)
        assert await memory.aget() == []


def _in_files(folder: Path, data: bytes) -> bool:
    return any(data in path.read_bytes() for path in folder.iterdir() if path.is_file())


async def test_pictures_of_users_are_apart(url: str) -> None:
    """The same picture of two users is stored for each, and removing one's leaves the other's."""
    ours, theirs = memory_of(url), memory_of(url, user_id="u-2")
    for memory in (ours, theirs):
        await memory.aput_messages([_seen(50_000), _said("ok")])
    await user_of(theirs, UserMemory.forget)
    close_places()
    assert await memory_of(url).aget() == [_seen(50_000), _said("ok")]


async def test_setting_pictures(url: str) -> None:
    """Setting the list that is there writes nothing, with pictures too; another picture is another
    message, and comes back."""
    memory = memory_of(url)
    messages = [_seen(50_000), _said("ok")]
    await memory.aput_messages(messages)
    await memory.aset(messages)
    await memory.aset([*messages, _seen(50_000, "more", 1)])
    assert len(await recorded(memory)) == 3
    other = [_seen(50_000, number=7), _said("ok")]
    await memory.aset(other)
    close_places()
    again = memory_of(url)
    assert await again.aget_all() == other
    assert await again.aget() == other


async def test_an_agent_is_shown_the_picture(url: str) -> None:
    """The model of a second run, in another process, is sent the picture of the first."""
    agent, _ = agent_of(["a cat"])
    await run(agent, _seen(80_000, "what is it?"), memory=memory_of(url))
    close_places()
    agent, llm = agent_of(["black"])
    await run(agent, "its colour?", memory=memory_of(url))
    assert llm.requests[0][0] == _seen(80_000, "what is it?")
    assert json.dumps(contents(llm.requests[0])) == '["what is it?", "a cat", "its colour?"]'


async def test_an_export_holds_the_pictures(url: str, tmp_path: Path) -> None:
    """``secondcall export`` writes what is attached to a user's items, and ``import`` brings it
    into another store, byte for byte; importing again changes nothing."""
    memory, long = memory_of(url), "word " * 1_000_000
    given = [_seen(40_000), _said("nice"), ChatMessage(role="user", content="and?")]
    await memory.aput_messages(given)
    agent, _ = agent_of([Reply(calls=[Call("read", {})]), "done"], tools=[_reader(long)])
    await run(agent, "look", memory=memory)
    whole = await memory.aget_all()
    close_places()
    file, other = tmp_path / "user.jsonl", f"sqlite:///{tmp_path / 'other.db'}"
    for arguments in (
        ("export", "--url", url, "--output", str(file)),
        ("import", "--url", other, str(file)),
        ("import", "--url", other, str(file)),
    ):
        command = [sys.executable, "-m", "secondcall.cli", arguments[0], "--user", "u-1"]
        await anyio.run_process([*command, *arguments[1:]])
    again = memory_of(other)
    assert await again.aget_all() == whole
    assert (await again.aget_all())[0] == given[0]
    assert len(await recorded(again)) == 6


def _reader(text: str) -> Any:
    async def read() -> str:
        """Read."""
        return text

    return read
