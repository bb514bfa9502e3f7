"""Keeps the context of a session's agents within its window: between replies for good, and for a
reply that would be too long by what it is shown."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, cast

from livekit.agents import Agent, AgentSession, llm

from secondcall.adapters.livekit.chat import item_of
from secondcall.adapters.livekit.window import Tally, condensed, tokens_of
from secondcall.shortterm.buffer import ChatBuffer
from secondcall.shortterm.summary import SummarizingBuffer
from secondcall.types import Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from secondcall.abc import TokenCounter
    from secondcall.adapters.livekit.source import MemorySource
    from secondcall.adapters.livekit.window import WindowOptions
    from secondcall.types import Item

__all__ = ["ContextKeeper", "context_of", "model_of"]

_log = logging.getLogger("secondcall.livekit")
_FOLLOWED_FROM = 0.25
"""From so much of the window on its summary is followed: all turns are still in the context."""
_DUE_FROM = 0.85
_GROWN_BY = 0.05
"""What is large in spite of the summary is looked at again when it has grown by so much."""
_COUNTED_AT_ONCE = 256
"""Items that are counted before others have their turn: a few milliseconds."""
_SETTLE_SECONDS = 30.0
_MAX_ROUNDS = 64


def context_of(agent: Agent) -> llm.ChatContext:
    """The context that an agent keeps, itself and not a copy."""
    return agent._chat_ctx  # pyright: ignore[reportPrivateUsage] - the public view copies every item, every time


def model_of(session: AgentSession[Any], agent: Agent) -> object:
    """The model that answers for an agent."""
    own, shared = cast("object", agent.llm), cast("object", session.llm)
    return own if isinstance(own, llm.LLM | llm.RealtimeModel) else shared  # pyright: ignore[reportUnknownVariableType] - LiveKit leaves LLM open


class ContextKeeper:
    """The window of one session. ``source`` says how large it may be."""

    def __init__(self, session: AgentSession[Any], source: MemorySource) -> None:
        self._session = session
        self._source = source
        self._tally = Tally()
        self._buffer: SummarizingBuffer | ChatBuffer | None = None
        self._own: SummarizingBuffer | None = None
        self._fed: set[str] = set()
        self._summary = ""
        self._left = 0
        self._task: asyncio.Task[None] | None = None
        self.hearing = False
        """Whether the caller is saying something that is not in the conversation yet."""
        self.condensed = 0
        """How often older turns were put into the summary."""

    @property
    def busy(self) -> bool:
        """Whether it is at work on the context."""
        return self._task is not None and not self._task.done()

    @property
    def _counter(self) -> TokenCounter:
        return self._source.lookup.counter

    def recount(self) -> None:
        """Something was put into the middle of an agent's context: count it anew."""
        self._tally = Tally()

    def change_source(self, source: MemorySource) -> None:
        """Go by another source from now on."""
        if source is not self._source:
            self._source, self._buffer, self._own, self._summary = source, None, None, ""
            self._fed.clear()

    async def fit(self, agent: Agent, chat_ctx: llm.ChatContext) -> None:
        """Cut what a reply is shown, where it is over the window. ``chat_ctx`` is the reply's own
        copy; what the agent keeps stays as it is until the reply is over."""
        options = self._source.window
        if options is None:
            return
        limit = self._limit(options)
        if await self._tokens(agent, chat_ctx) <= limit:
            return
        # Nobody waits here for a summary: what is cut beyond it is there again for the next reply.
        summary = self._summary
        if isinstance(self._buffer, SummarizingBuffer):
            summary = self._buffer.summary() or summary
        chat_ctx.items[:] = condensed(
            chat_ctx.items,
            max_tokens=limit,
            counter=self._counter,
            summary=summary,
            of=self._source.lookup.mark,
        )

    def between_replies(self) -> None:
        """A reply is over: put older turns into the summary, if it is time to. Returns at once."""
        options = self._source.window
        if options is None or self.busy:
            return
        if isinstance(model_of(self._session, self._session.current_agent), llm.LLM):
            self._task = asyncio.ensure_future(self._tidy(options))
            self._task.add_done_callback(_seen)

    async def handoff_context(self, agent: Agent) -> llm.ChatContext:
        """What the next agent is to know of the conversation: all of it where that is short, else
        the summary and the newest turns; without instructions."""
        given = agent.chat_ctx.copy(
            exclude_instructions=True, exclude_handoff=True, exclude_config_update=True
        )
        options = self._source.window
        if options is None:
            return given
        tokens = sum(tokens_of(one, self._counter) for one in given.items)
        if tokens > options.kept_tokens:
            covered = await self._covered(given.items, options)
            given.items[:] = self._shortened(given.items, covered, options)
        return given

    def cancel(self) -> None:
        """Stop what is under way."""
        if self._task is not None:
            self._task.cancel()

    async def _tidy(self, options: WindowOptions) -> None:
        tokens = await self._kept_tokens(self._session.current_agent)
        self._left = min(self._left, tokens)
        grown = tokens > self._left + _GROWN_BY * options.max_tokens
        if not (grown and tokens > _DUE_FROM * self._limit(options)):
            if tokens > _FOLLOWED_FROM * options.max_tokens:
                await self._follow(options)
            return
        speech = self._session.current_speech
        if speech is not None:
            async with asyncio.timeout(_SETTLE_SECONDS):
                await speech.wait_for_playout()
        covered = await self._covered(context_of(self._session.current_agent).items, options)
        agent = self._session.current_agent
        if not self._quiet():
            return
        # No other task runs between this look and the change, so nothing said meanwhile is lost.
        items = context_of(agent).items
        kept = self._shortened(items, covered, options)
        if len(kept) < len(items):
            await agent.update_chat_ctx(llm.ChatContext(kept), exclude_invalid_function_calls=False)
            self.condensed += 1
        self._left = await self._kept_tokens(agent)

    def _quiet(self) -> bool:
        session = self._session
        return (
            session.agent_state == "listening"
            and session.current_speech is None
            and session.user_state != "speaking"
            and not self.hearing
        )

    def _shortened(
        self, items: Sequence[llm.ChatItem], covered: set[str] | None, options: WindowOptions
    ) -> list[llm.ChatItem]:
        limit = options.max_tokens if covered is None else self._limit(options)
        if covered is None:
            limit = options.kept_tokens
        return condensed(
            items,
            max_tokens=limit,
            counter=self._counter,
            summary=self._summary,
            of=self._source.lookup.mark,
            covered=covered,
        )

    async def _covered(
        self, items: Sequence[llm.ChatItem], options: WindowOptions
    ) -> set[str] | None:
        """Bring the summary up to date; the ids of the user messages that it does not stand for,
        or ``None`` where there is no summary to go by."""
        try:
            buffer = await self._follow(options)
            ids = {one.id for one in items}
            shown = await self._settled(buffer)
            if shown.isdisjoint(ids):
                buffer = self._feed_own(items, options)
                shown = await self._settled(buffer)
            self._summary = buffer.summary() if isinstance(buffer, SummarizingBuffer) else ""
        except Exception as error:  # a call goes on with fewer turns and without a summary
            _log.warning("a long call is not summarised", extra={"error": type(error).__name__})
            return None
        return None if shown.isdisjoint(ids) else shown

    async def _follow(self, options: WindowOptions) -> SummarizingBuffer | ChatBuffer | None:
        """The session's own buffer, opened once."""
        session = self._source.session
        if self._buffer is None and session is not None:
            self._buffer = await session.buffer(options.kept_tokens)
        return self._buffer

    async def _settled(self, buffer: SummarizingBuffer | ChatBuffer | None) -> set[str]:
        """The ids of the user messages that a buffer shows, when it has summarised what is due."""
        if buffer is None:
            return set()
        if isinstance(buffer, SummarizingBuffer):
            async with asyncio.timeout(_SETTLE_SECONDS):
                for _ in range(_MAX_ROUNDS):
                    if not buffer.due() or not await buffer.settle():
                        break
        return {
            one.id
            for one in buffer.get()
            if isinstance(one, Message) and one.role == "user" and one.id is not None
        }

    def _feed_own(self, items: Sequence[llm.ChatItem], options: WindowOptions) -> SummarizingBuffer:
        """A buffer of this object's own, for a call that nothing records."""
        if self._own is None:
            self._own = SummarizingBuffer(options.kept_tokens, counter=self._counter)
        outputs = {one.call_id: one for one in items if isinstance(one, llm.FunctionCallOutput)}
        fresh: list[Item] = []
        for one in items:
            if one.id in self._fed:
                continue
            output = outputs.get(one.call_id) if isinstance(one, llm.FunctionCall) else None
            said = item_of(one, output)
            if said is not None and not (isinstance(said, Message) and said.role == "system"):
                fresh.append(said)
                self._fed.add(one.id)
        self._own.put(*fresh)
        return self._own

    async def _kept_tokens(self, agent: Agent) -> int:
        """The tokens of what an agent keeps, counting only what is new since the last time."""
        items = context_of(agent).items
        while self._tally.behind(items) > _COUNTED_AT_ONCE:
            self._tally.of(items, self._counter, at_most=_COUNTED_AT_ONCE)
            await asyncio.sleep(0)
        return self._tally.of(items, self._counter)

    async def _tokens(self, agent: Agent, chat_ctx: llm.ChatContext) -> int:
        """The tokens of a reply's context, of which most is what its agent keeps."""
        own, items = context_of(agent).items, chat_ctx.items
        if len(items) < len(own):
            return sum(tokens_of(one, self._counter) for one in items)
        known = await self._kept_tokens(agent)
        return known + sum(
            tokens_of(items[position], self._counter) for position in range(len(own), len(items))
        )

    def _limit(self, options: WindowOptions) -> int:
        """The window without what a lookup may add."""
        if self._source.user is None:
            return options.max_tokens
        return max(
            options.max_tokens // 2, options.max_tokens - self._source.lookup.options.max_tokens
        )


def _seen(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("a long call is not summarised", extra={"error": type(error).__name__})
