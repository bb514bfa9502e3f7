"""Agents driven by scripts, and memories that write down how they are called."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms import ChatMessage

from secondcall import Memory, UserMemory
from secondcall.adapters.llama_index.memory import SecondCallMemory
from secondcall.adapters.llama_index.places import place_of
from secondcall.testing.llama_index import Call, Reply, Script, ScriptedLLM
from secondcall.types import RecordedItem

__all__ = [
    "Watched",
    "agent_of",
    "calls",
    "contents",
    "look_up",
    "memory_of",
    "recorded",
    "roles",
    "run",
    "start",
    "user_of",
]


T = TypeVar("T")


class Watched(SecondCallMemory):
    """A memory that writes down its calls and what came of them."""

    _log: list[tuple[str, Any]] = PrivateAttr(default_factory=list[tuple[str, Any]])

    @property
    def log(self) -> list[tuple[str, Any]]:
        """The calls, each with its argument."""
        return self._log

    async def aget(
        self, input: str | ChatMessage | None = None, **kwargs: Any
    ) -> list[ChatMessage]:
        """Write down and get."""
        self._log.append(("aget", input))
        return await super().aget(input, **kwargs)

    async def aput(self, message: ChatMessage) -> None:
        """Write down and put."""
        self._log.append(("aput", message.role.value))
        await super().aput(message)

    async def aput_messages(self, messages: list[ChatMessage]) -> None:
        """Write down and put, unless it is ``aput`` that puts."""
        if not (self._log and self._log[-1] == ("aput", messages[0].role.value)):
            self._log.append(("aput_messages", roles(messages)))
        await super().aput_messages(messages)

    async def aset(self, messages: list[ChatMessage]) -> None:
        """Write down and set."""
        self._log.append(("aset", roles(messages)))
        await super().aset(messages)


async def look_up(number: int) -> str:
    """Look a number up; a smaller one takes longer."""
    for _ in range(20 - 4 * number):
        await asyncio.sleep(0)
    if number == 9:
        raise ValueError("there is no 9")
    return f"found {number}"


def calls(*numbers: int, **reply: Any) -> Reply:
    """An answer that looks these numbers up at once."""
    return Reply(calls=[Call("look_up", {"number": number}) for number in numbers], **reply)


def agent_of(
    script: Script, tools: Sequence[Callable[..., Any]] = (look_up,), **options: Any
) -> tuple[FunctionAgent, ScriptedLLM]:
    """An agent with a tool, and its model."""
    llm = ScriptedLLM(script)
    return FunctionAgent(tools=list(tools), llm=llm, **options), llm


def memory_of(url: str, **options: Any) -> Watched:
    """The memory of one conversation in the store."""
    given: dict[str, Any] = {"user_id": "u-1", "session_id": "s-1", "url": url, **options}
    return Watched.from_defaults(**given)


def roles(messages: Sequence[ChatMessage]) -> list[str]:
    """The roles, in order."""
    return [message.role.value for message in messages]


def contents(messages: Sequence[ChatMessage]) -> list[str | None]:
    """What the messages say."""
    return [message.content for message in messages]


def start(agent: Any, message: str | ChatMessage, **options: Any) -> Any:
    """The handler of a run that has begun."""
    return agent.run(user_msg=message, **options)


async def run(agent: Any, message: str | ChatMessage, **options: Any) -> Any:
    """What a run of the agent comes to."""
    return await start(agent, message, **options)


async def user_of(memory: SecondCallMemory, work: Callable[[UserMemory], Awaitable[T]]) -> T:
    """What ``work`` makes of the memory's user, in the memory's own loop."""

    async def on(opened: Memory) -> T:
        return await work(opened.tenant(memory.tenant_id).user(memory.user_id))

    return await place_of(str(memory.store)).run(on)


async def recorded(memory: SecondCallMemory) -> list[RecordedItem]:
    """The record of the memory's session, in reading order."""

    async def read(user: UserMemory) -> list[RecordedItem]:
        return await (await user.session(memory.session_id)).items()

    return await user_of(memory, read)
