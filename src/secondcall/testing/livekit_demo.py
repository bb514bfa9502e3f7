"""An agent for LiveKit whose model knows no answers: it can only quote the memory it was given.

So what it says of earlier calls comes from memory or not at all. With ``OPENAI_API_KEY`` or
``OPENAI_BASE_URL`` set (and ``OPENAI_MODEL``), a real model is asked instead.
"""

# LiveKit leaves type arguments of its own classes open: what is unknown there is its own.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from livekit.agents import Agent, AgentSession, JobContext, function_tool, llm

from secondcall.adapters.livekit.call import LiveCall, call
from secondcall.adapters.livekit.chat import is_memory, memory_kind
from secondcall.adapters.livekit.settings import CallSettings
from secondcall.memory import Memory, UserMemory
from secondcall.testing.livekit import Reply, ScriptedLLM
from secondcall.types import Item, ToolCall

__all__ = ["Receptionist", "Staged", "answer_call", "model", "play_call", "quote_memory"]

UNKNOWN = "Hello! I don't think we have spoken before. How can I help?"
NOTHING = "I have nothing about that from you."
INSTRUCTIONS = (
    "You answer the phone of a bicycle workshop. Greet the caller; what you know of earlier calls "
    "stands between <memory> tags. Say what was promised and what is still open. Answer from it in "
    "one or two sentences, with the date, and say so when it holds nothing."
)
_WORD = re.compile(r"\w+")
_SHORTEST = 3
_PREFIX = 5
_COMMON = frozenset(
    _WORD.findall(
        "and are but did does for from have here how much not our should that the this use was "
        "were what when where which who why will with you your"
    )
)
_GREETED = ("promise, promised:", "issue, open:")
_LEAST = 1


class Receptionist(Agent):
    """Greets, and answers."""

    def __init__(self, *, greets: bool = True, tools: Sequence[llm.Tool] = ()) -> None:
        super().__init__(instructions=INSTRUCTIONS, tools=list(tools))
        self._greets = greets

    async def on_enter(self) -> None:
        """Say the first word."""
        if self._greets:
            await self.session.generate_reply(instructions="Greet the caller.")


async def answer_call(
    ctx: JobContext,
    memory: Memory,
    *,
    settings: CallSettings | None = None,
    before: Callable[[UserMemory], Awaitable[None]] | None = None,
    attached: bool = True,
) -> LiveCall[Any]:
    """Take a call with memory, or with the memory not ``attached``: what a broken agent does.

    ``before`` is called with the caller's handle before the session starts.
    """
    async with call(ctx, memory, settings=settings) as live:
        if before is not None:
            await before(live.user)
        agent = Receptionist()
        session = _text_session(model(), live)
        await session.start(live.agent(agent) if attached else agent, room=ctx.room)
        return live


@dataclass(frozen=True, slots=True)
class Staged:
    """A conversation as a call: what the caller says, and what the model answers to each of it."""

    lines: Sequence[str]
    replies: Sequence[Reply]
    outputs: Mapping[str, Sequence[str]]
    greets: bool

    @classmethod
    def of(cls, items: Iterable[Item]) -> Self:
        """The user messages, and between them the words and the tool calls of the assistant."""
        lines: list[str] = []
        replies: list[Reply] = []
        outputs: dict[str, list[str]] = {}
        said: list[str] = []
        called: list[ToolCall] = []
        greets = False

        def answer() -> None:
            if called:
                replies.append(Reply(tools=[(one.name, _arguments(one)) for one in called]))
            replies.append(Reply(text="\n".join(said)))
            said.clear()
            called.clear()

        for item in items:
            if isinstance(item, ToolCall):
                called.append(item)
                outputs.setdefault(item.name, []).append(item.output or "")
            elif item.role == "user":
                if lines or said or called:
                    greets = greets or not lines
                    answer()
                lines.append(item.text)
            elif item.role == "assistant":
                said.append(item.text)
        answer()
        return cls(lines, replies, outputs, greets)


async def play_call(
    ctx: JobContext, memory: Memory, staged: Staged, *, settings: CallSettings | None = None
) -> LiveCall[Any]:
    """Take a call in which the model answers as it is staged."""
    async with call(ctx, memory, settings=settings) as live:
        tools = [_tool(name, list(outputs)) for name, outputs in staged.outputs.items()]
        agent = Receptionist(greets=staged.greets, tools=tools)
        session = _text_session(ScriptedLLM(staged.replies), live)
        await session.start(live.agent(agent), room=ctx.room)
        return live


def _arguments(called: ToolCall) -> Mapping[str, object]:
    arguments = called.arguments
    return arguments if isinstance(arguments, Mapping) else {"arguments": arguments}


def _tool(name: str, outputs: list[str]) -> llm.Tool:
    """A tool of any arguments that gives its outputs one after the other."""

    async def run(raw_arguments: dict[str, object]) -> str:
        del raw_arguments
        return outputs.pop(0) if outputs else ""

    schema = {"name": name, "description": "staged", "parameters": {"type": "object"}}
    return function_tool(run, raw_schema=schema)


def _text_session(asked: llm.LLM[Any], live: LiveCall[Any]) -> AgentSession[Any]:
    """A session without speech, for this call."""
    return AgentSession[Any](
        llm=asked, vad=None, userdata=live.userdata, turn_handling={"turn_detection": None}
    )


def model() -> llm.LLM[Any]:
    """A real model where one is configured, else one that quotes.

    Raises: ``ImportError`` when one is configured and ``livekit-plugins-openai`` is not there.
    """
    if not (os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL")):
        return ScriptedLLM(quote_memory)
    from livekit.plugins import openai

    return openai.LLM(
        model=os.environ.get("OPENAI_MODEL", "gpt-4.1-mini"),
        api_key=os.environ.get("OPENAI_API_KEY") or "none",
    )


def quote_memory(chat_ctx: llm.ChatContext) -> str:
    """A greeting of promises and open issues, or the remembered line that has most words of the
    caller's question; nothing that does not stand in the memory of ``chat_ctx``."""
    remembered = [one for one in chat_ctx.messages() if is_memory(one)]
    lines = [line for message in remembered for line in _lines(message)]
    question = _question(chat_ctx)
    if question is None:
        return _greeting(lines)
    words = _words(question)
    shared = [(len(words & _words(line)), line) for line in lines]
    most, best = max(shared, key=lambda one: one[0], default=(0, ""))
    return f"From our earlier calls: {best}" if most >= _LEAST else NOTHING


def _lines(message: llm.ChatMessage) -> list[str]:
    """What a message of the memory holds: lines between fences, or a turn that was taken up."""
    text = message.text_content or ""
    if memory_kind(message) == "turn":
        return [f"{message.role}: {text}"]
    return [line.removeprefix("- ") for line in text.splitlines() if line.startswith("- ")]


def _question(chat_ctx: llm.ChatContext) -> str | None:
    """The caller's newest words, unless they have been answered."""
    for item in reversed(chat_ctx.items):
        if isinstance(item, llm.ChatMessage) and not is_memory(item):
            if item.role == "assistant":
                return None
            if item.role == "user":
                return item.text_content or ""
    return None


def _greeting(lines: Iterable[str]) -> str:
    known = list(lines)
    if not known:
        return UNKNOWN
    told = [line for line in known if any(kind in line for kind in _GREETED)]
    return " ".join(["Welcome back.", *(f"I have noted: {line}." for line in told)])


def _words(text: str) -> set[str]:
    """The words that say something, short enough that their endings do not count."""
    found = (word for word in _WORD.findall(text.casefold()) if len(word) >= _SHORTEST)
    return {word[:_PREFIX] for word in found if word not in _COMMON}
