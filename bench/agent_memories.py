# pyright: reportUnknownMemberType=false
"""400 random histories of agents through LlamaIndex's memories and ours, with a limit of 60 words.

    bench/agent_memories.py [COUNT]

Each history in two endings, with the answer and with a new user message, put one by one
into ChatMemoryBuffer, ChatSummaryMemoryBuffer, Memory and SecondCallMemory, which count words. What
comes back is judged by ``chat_judge``, which knows no memory.

"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from chat_histories import Chat, History, make, words
from chat_judge import judge, least_words
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.llms import MockLLM
from llama_index.core.memory import (
    ChatMemoryBuffer,
    ChatSummaryMemoryBuffer,
)
from llama_index.core.memory import Memory as TheirMemory

from secondcall import Memory, OverBudget
from secondcall.abc import TokenCounter
from secondcall.adapters.llama_index.memory import SecondCallMemory

_LIMIT = 60
_ENDINGS = ("answer", "user message")
_JUDGED = {
    "right": "right",
    "refused": "refused, cannot fit",
    "wrongly_refused": "refused, could fit",
    "invalid": "invalid list",
    "over": "over the limit",
    "lost_system": "system message lost",
    "lost_newest_user": "newest user message lost",
}


class _Words(TokenCounter):
    id = "words"

    def count(self, text: str) -> int:
        return len(words(text))


def _ended(history: History, ending: str) -> History:
    """The history with a limit of 60 words and one of the two endings."""
    messages = list(history.messages)
    if ending == "user message" and messages[-1]["role"] != "user":
        if history.ends_in_turn:
            messages.append({"role": "assistant", "content": "done"})
        messages.append({"role": "user", "content": "w0 and what about the refund"})
    elif ending == "answer" and history.ends_in_turn:
        messages.append({"role": "assistant", "content": "w1 done"})
    return replace(history, messages=messages, token_limit=_LIMIT, ends_in_turn=False)


def _message(one: dict[str, Any]) -> ChatMessage:
    beside = {name: one[name] for name in ("tool_calls", "tool_call_id") if name in one}
    return ChatMessage(role=one["role"], content=one["content"], additional_kwargs=beside)


def _plain(message: ChatMessage) -> dict[str, Any]:
    beside = {name: message.additional_kwargs[name] for name in message.additional_kwargs}
    return {"role": message.role.value, "content": message.content, **beside}


async def _buffer(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    memory = ChatMemoryBuffer.from_defaults(token_limit=_LIMIT, tokenizer_fn=words)
    for message in messages:
        await memory.aput(message)
    return await memory.aget()


async def _summary(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    memory = ChatSummaryMemoryBuffer.from_defaults(
        llm=MockLLM(max_tokens=8), token_limit=_LIMIT, tokenizer_fn=words
    )
    for message in messages:
        await memory.aput(message)
    return await memory.aget()


async def _queue(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    memory = TheirMemory.from_defaults(token_limit=_LIMIT, tokenizer_fn=words)
    for message in messages:
        await memory.aput(message)
    return await memory.aget()


async def _ours(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    async with Memory.open("memory://", counter=_Words()) as opened:
        memory = SecondCallMemory.from_defaults(
            user_id="bench", session_id="s", memory=opened, token_limit=_LIMIT
        )
        for message in messages:
            await memory.aput(message)
            if message.role == MessageRole.USER:  # as an agent does; what it gives is not judged
                with suppress(OverBudget):
                    await memory.aget()
        return await memory.aget()


_MEMORIES: dict[str, Callable[[Sequence[ChatMessage]], Awaitable[list[ChatMessage]]]] = {
    "secondcall SecondCallMemory": _ours,
    "LlamaIndex ChatMemoryBuffer": _buffer,
    "LlamaIndex ChatSummaryMemoryBuffer": _summary,
    "LlamaIndex Memory": _queue,
}


async def _given(name: str, messages: Chat) -> list[dict[str, Any]] | None:
    try:
        return [_plain(one) for one in await _MEMORIES[name]([_message(one) for one in messages])]
    except (OverBudget, ValueError):
        return None


def _framing(history: History) -> int:
    """What ours counts beside the words: four for each message of system and newest turn."""
    begins = max(place for place, one in enumerate(history.messages) if one["role"] == "user")
    system = sum(one["role"] == "system" for one in history.messages[:begins])
    return 4 * (system + len(history.messages) - begins)


def _count(
    tally: Counter[str], history: History, given: list[dict[str, Any]] | None, framing: int
) -> None:
    if given is None:
        fits = least_words(history) + framing <= history.token_limit
        tally["wrongly_refused" if fits else "refused"] += 1
        return
    verdict = judge(history, given)
    tally["right"] += verdict.right
    tally["invalid"] += bool(verdict.invalid)
    tally["over"] += verdict.over
    tally["lost_system"] += verdict.lost_system
    tally["lost_newest_user"] += verdict.lost_newest_user


async def _stress(count: int) -> dict[tuple[str, str], Counter[str]]:
    tallies = {(name, ending): Counter[str]() for name in _MEMORIES for ending in _ENDINGS}
    for seed in range(count):
        for ending in _ENDINGS:
            history = _ended(make(seed), ending)
            for name in _MEMORIES:
                given = await _given(name, history.messages)
                framing = _framing(history) if name.startswith("secondcall") else 0
                _count(tallies[name, ending], history, given, framing)
    return tallies


def stress(count: int) -> int:
    """Print the table; the exit code judges ours: 0 invalid, 0 over, 0 lost."""
    tallies = asyncio.run(_stress(count))
    print(f"| memory | ends with | {' | '.join(_JUDGED.values())} |")
    print(f"| --- | --- |{' --- |' * len(_JUDGED)}")
    for (name, ending), tally in tallies.items():
        print(f"| {name} | {ending} | {' | '.join(str(tally[one]) for one in _JUDGED)} |")
    wrong = ("wrongly_refused", "invalid", "over", "lost_system", "lost_newest_user")
    ours = [tally for (name, _), tally in tallies.items() if name.startswith("secondcall")]
    return int(any(tally[one] for tally in ours for one in wrong))


def main() -> int:
    """Print the table; the exit code judges ours."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("count", type=int, nargs="?", default=400)
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    return stress(arguments.parse_args().count)


if __name__ == "__main__":
    sys.exit(main())
