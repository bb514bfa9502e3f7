"""Models and embeddings for LlamaIndex that are driven by code: real agents without a network.

``ScriptedLLM`` answers by a script and keeps what it was asked, with tools or without, streamed or
not. ``check_history`` says what a provider would refuse of a list of messages.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from llama_index.core.base.llms import types as llms
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseAsyncGen,
    CompletionResponseGen,
    LLMMetadata,
    MessageRole,
)
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection

if TYPE_CHECKING:
    from llama_index.core.tools import BaseTool

__all__ = ["Call", "Reply", "Script", "ScriptedLLM", "check_history"]

_HAS_CALL_BLOCKS = hasattr(llms, "ToolCallBlock")


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call that a scripted model makes. Without an id it gets ``call_<request>_<place>``."""

    name: str
    arguments: Mapping[str, object]
    id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer: words, tool calls, seconds until it comes, or an error.

    ``forms`` says how its calls are written: as *blocks*, *beside* them in ``additional_kwargs``
    as OpenAI's library has them, or in *both*. Where the installed LlamaIndex has no such blocks
    they stand beside.
    """

    text: str = ""
    calls: Sequence[Call] = ()
    forms: str = "blocks"
    delay_seconds: float = 0.0
    error: BaseException | None = None


Answer: TypeAlias = Reply | ChatMessage | str
Script: TypeAlias = Callable[[Sequence[ChatMessage]], Answer] | Sequence[Answer]


class ScriptedLLM(FunctionCallingLLM):
    """Answers with what ``script`` gives for the messages, or with the next of a list.

    ``requests`` keeps a copy of every list of messages that it was asked with, ``tools`` the names
    of the tools that were offered. A list that is used up is answered with
    "(the script has ended)".
    """

    context_window: int = 32_000
    num_output: int = 256
    is_function_calling: bool = True
    _script: Script = PrivateAttr()
    _requests: list[list[ChatMessage]] = PrivateAttr()
    _tools: list[list[str]] = PrivateAttr()

    def __init__(self, script: Script = (), **fields: Any) -> None:
        super().__init__(**fields)
        self._script = script
        self._requests = []
        self._tools = []

    def script(self, script: Script) -> None:
        """Go on with another script, as if it had not been asked yet."""
        self._script = script
        self._requests.clear()
        self._tools.clear()

    @classmethod
    def class_name(cls) -> str:
        """``ScriptedLLM``."""
        return "ScriptedLLM"

    @property
    def requests(self) -> list[list[ChatMessage]]:
        """The messages of every request, oldest first."""
        return self._requests

    @property
    def tools(self) -> list[list[str]]:
        """The names of the tools of every request, oldest first."""
        return self._tools

    @property
    def metadata(self) -> LLMMetadata:
        """The window that it was made with."""
        return LLMMetadata(
            context_window=self.context_window,
            num_output=self.num_output,
            is_chat_model=True,
            is_function_calling_model=self.is_function_calling,
            model_name="scripted",
        )

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The next answer. Raises: what the script says."""
        return self._respond(self._next(messages, kwargs))

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The next answer, after its delay. Raises: what the script says."""
        reply = self._next(messages, kwargs)
        if isinstance(reply, Reply) and reply.delay_seconds:
            await asyncio.sleep(reply.delay_seconds)
        return self._respond(reply)

    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        """The next answer in one piece."""
        response = self.chat(messages, **kwargs)

        def pieces() -> ChatResponseGen:
            yield response

        return pieces()

    async def astream_chat(
        self, messages: Sequence[ChatMessage], **kwargs: Any
    ) -> ChatResponseAsyncGen:
        """The next answer in one piece."""

        async def pieces() -> AsyncGenerator[ChatResponse, None]:
            yield await self.achat(messages, **kwargs)

        return pieces()

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """The next answer, asked for as a user."""
        response = self.chat([ChatMessage(role="user", content=prompt)], **kwargs)
        return CompletionResponse(text=response.message.content or "")

    async def acomplete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponse:
        """The next answer, asked for as a user."""
        response = await self.achat([ChatMessage(role="user", content=prompt)], **kwargs)
        return CompletionResponse(text=response.message.content or "")

    def stream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseGen:
        """The next answer in one piece."""
        response = self.complete(prompt, formatted, **kwargs)

        def pieces() -> CompletionResponseGen:
            yield response

        return pieces()

    async def astream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseAsyncGen:
        """The next answer in one piece."""

        async def pieces() -> AsyncGenerator[CompletionResponse, None]:
            yield await self.acomplete(prompt, formatted, **kwargs)

        return pieces()

    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> list[ToolSelection]:
        """The calls of an answer, in whichever form they stand in it."""
        found = [
            ToolSelection(
                tool_id=block.tool_call_id or "",
                tool_name=block.tool_name,
                tool_kwargs=_arguments(block.tool_kwargs),
            )
            for block in cast("Sequence[Any]", response.message.blocks)
            if block.block_type == "tool_call"
        ]
        beside: Sequence[Any] = response.message.additional_kwargs.get("tool_calls", ())
        found = found or [
            ToolSelection(
                tool_id=call["id"],
                tool_name=call["function"]["name"],
                tool_kwargs=_arguments(call["function"]["arguments"]),
            )
            for call in beside
        ]
        if error_on_no_tool_call and not found:
            raise ValueError("the scripted answer calls no tool")
        return found

    def _prepare_chat_with_tools(
        self,
        tools: Sequence[BaseTool],
        user_msg: str | ChatMessage | None = None,
        chat_history: list[ChatMessage] | None = None,
        verbose: bool = False,
        allow_parallel_tool_calls: bool = False,
        tool_required: bool = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        messages = list(chat_history or ())
        if user_msg is not None:
            is_text = isinstance(user_msg, str)
            messages.append(ChatMessage(role="user", content=user_msg) if is_text else user_msg)
        return {"messages": messages, "tools": tools}

    def _next(
        self, messages: Sequence[ChatMessage], kwargs: Mapping[str, Any]
    ) -> Reply | ChatMessage:
        self._requests.append(copy.deepcopy(list(messages)))
        offered: Sequence[BaseTool] = kwargs.get("tools") or ()
        self._tools.append([tool.metadata.name or "" for tool in offered])
        number = len(self._requests) - 1
        if callable(self._script):
            reply = self._script(messages)
        elif number < len(self._script):
            reply = self._script[number]
        else:
            reply = "(the script has ended)"
        return Reply(text=reply) if isinstance(reply, str) else reply

    def _respond(self, reply: Reply | ChatMessage) -> ChatResponse:
        if isinstance(reply, ChatMessage):
            message = copy.deepcopy(reply)
        elif reply.error is not None:
            raise reply.error
        else:
            message = _message(reply, len(self._requests))
        return ChatResponse(message=message, delta=message.content or "")


def check_history(messages: Sequence[ChatMessage]) -> list[str]:
    """What a provider would refuse of these messages, one line each; empty for a valid list.

    Every call must be answered, each once, right behind the message that makes it; a result must
    have its call; the first that is no system message must be the user's.
    """
    found: list[str] = []
    open_calls: list[str] = []
    spoken = [one for one in messages if one.role not in (MessageRole.SYSTEM, "developer")]
    if spoken and spoken[0].role is not MessageRole.USER:
        found.append(f"begins with {spoken[0].role.value}")
    for place, message in enumerate(messages):
        if message.role in (MessageRole.TOOL, MessageRole.FUNCTION):
            call_id = message.additional_kwargs.get("tool_call_id")
            if call_id in open_calls:
                open_calls.remove(call_id)
            else:
                found.append(f"message {place}: result without its call")
            continue
        found += [f"before message {place}: a call without a result"] * len(open_calls)
        open_calls = _call_ids(message)
    return found + ["at the end: a call without a result"] * len(open_calls)


def _call_ids(message: ChatMessage) -> list[str]:
    blocks = cast("Sequence[Any]", message.blocks)
    ids = [str(block.tool_call_id) for block in blocks if block.block_type == "tool_call"]
    beside = message.additional_kwargs.get("tool_calls") or ()
    return list(dict.fromkeys([*ids, *(call["id"] for call in beside)]))


def _message(reply: Reply, number: int) -> ChatMessage:
    blocks: list[Any] = [llms.TextBlock(text=reply.text)] if reply.text or not reply.calls else []
    kwargs: dict[str, Any] = {}
    named = [
        (one, one.id if one.id is not None else f"call_{number}_{place}")
        for place, one in enumerate(reply.calls)
    ]
    if named and _HAS_CALL_BLOCKS and reply.forms != "beside":
        blocks += [
            llms.ToolCallBlock(
                tool_call_id=call_id, tool_name=one.name, tool_kwargs=dict(one.arguments)
            )
            for one, call_id in named
        ]
    if named and (reply.forms != "blocks" or not _HAS_CALL_BLOCKS):
        kwargs["tool_calls"] = [
            {
                "id": call_id,
                "type": "function",
                "function": {"name": one.name, "arguments": json.dumps(dict(one.arguments))},
            }
            for one, call_id in named
        ]
    return ChatMessage(role="assistant", blocks=blocks, additional_kwargs=kwargs)


def _arguments(given: object) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads(given) if isinstance(given, str) else given)
