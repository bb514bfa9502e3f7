# pyright: basic, reportMissingImports=false
"""LlamaIndex's memories over the histories of ``chat_histories``: one JSON line each, to stdout.

Run by ``buffers.py`` with a Python that has llama-index-core; it needs nothing of secondcall.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from importlib.metadata import version
from typing import Any

from chat_histories import History, make, words
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms import MockLLM
from llama_index.core.memory import ChatMemoryBuffer, ChatSummaryMemoryBuffer, Memory

_NAMES = ("ChatMemoryBuffer", "ChatSummaryMemoryBuffer", "Memory")


def _message(one: dict[str, Any]) -> ChatMessage:
    beside = {name: one[name] for name in ("tool_calls", "tool_call_id") if name in one}
    return ChatMessage(role=one["role"], content=one["content"], additional_kwargs=beside)


def _plain(message: ChatMessage) -> dict[str, Any]:
    return {
        "role": message.role.value,
        "content": message.content,
        **{name: message.additional_kwargs[name] for name in message.additional_kwargs},
    }


async def _get(name: str, history: History) -> list[ChatMessage]:
    messages = [_message(one) for one in history.messages]
    limit = history.token_limit
    if name == "ChatMemoryBuffer":
        buffer = ChatMemoryBuffer.from_defaults(token_limit=limit, tokenizer_fn=words)
    elif name == "ChatSummaryMemoryBuffer":
        buffer = ChatSummaryMemoryBuffer.from_defaults(
            llm=MockLLM(max_tokens=8), token_limit=limit, tokenizer_fn=words
        )
    else:
        memory = Memory.from_defaults(token_limit=limit, tokenizer_fn=words)
        for message in messages:
            await memory.aput(message)
        return await memory.aget()
    for message in messages:
        await buffer.aput(message)
    return await buffer.aget()


async def _run(count: int) -> None:
    print(json.dumps({"version": version("llama-index-core"), "names": _NAMES}))
    for seed in range(count):
        history = make(seed)
        for name in _NAMES:
            try:
                given = [_plain(message) for message in await _get(name, history)]
                print(json.dumps({"name": name, "seed": seed, "given": given}))
            except ValueError as error:
                print(json.dumps({"name": name, "seed": seed, "error": type(error).__name__}))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(_run(int(sys.argv[1])))
