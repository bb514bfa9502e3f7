"""Memory at work in one session: it reaches every agent that enters, and every reply."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

from livekit.agents import (
    Agent,
    AgentSession,
    AgentStateChangedEvent,
    CloseEvent,
    ConversationItemAddedEvent,
    UserInputTranscribedEvent,
    llm,
)

from secondcall.adapters.livekit.chat import is_memory
from secondcall.adapters.livekit.keeping import ContextKeeper, context_of, model_of
from secondcall.adapters.livekit.window import begins_turn, is_summary, is_summary_of

if TYPE_CHECKING:
    from secondcall.adapters.livekit.preload import Preloaded
    from secondcall.adapters.livekit.source import MemorySource

__all__ = ["AttachedMemory", "give", "put"]

_log = logging.getLogger("secondcall.livekit")
_GIVEN = "_secondcall_given"
_TELL_SECONDS = 5.0
"""A realtime model whose server does not confirm its context is not waited for any longer."""
_AGAIN_SECONDS = (1.0, 30.0)
"""Until it is told again: at first, and at most; each time twice as long, or after a reply."""


class AttachedMemory:
    """Made by ``attach_memory``. None of what it does raises into the session."""

    def __init__(
        self, session: AgentSession[Any], source: MemorySource, *, bind: Callable[[Agent], None]
    ) -> None:
        self._session = session
        self._source = source
        self._bind = bind
        self.active = True
        """Whether it is at work; not after the session was closed."""
        self._keeper = ContextKeeper(session, source)
        self._owes = False
        self._pause = _AGAIN_SECONDS[0]
        self._waiting: asyncio.TimerHandle | None = None
        self._telling: asyncio.Future[bool] | None = None
        session.on("conversation_item_added", self._on_item)
        session.on("user_input_transcribed", self._on_words)
        session.on("agent_state_changed", self._on_state)
        session.on("close", self._on_close)

    @property
    def source(self) -> MemorySource:
        """What the agents of the session draw on."""
        return self._source

    @property
    def keeper(self) -> ContextKeeper:
        """What keeps a long call within its window."""
        return self._keeper

    def change_source(self, source: MemorySource) -> None:
        """Draw on another source from now on, with the agent that is speaking now."""
        if source is not self._source:
            self._source.lookup.cancel()
            self._source = source
            self._keeper.change_source(source)

    def detach(self) -> None:
        """Take memory's hands off the session."""
        self.active = False
        self._session.off("conversation_item_added", self._on_item)
        self._session.off("user_input_transcribed", self._on_words)
        self._session.off("agent_state_changed", self._on_state)
        self._session.off("close", self._on_close)
        self._source.lookup.cancel()
        self._keeper.cancel()
        if self._waiting is not None:
            self._waiting.cancel()

    async def enter(self, agent: Agent) -> None:
        """Before an agent's ``on_enter``: what is loaded is there, or its time is over."""
        with _reported("an agent enters without what was loaded"):
            await self._source.ready()
            if self.provide(agent):
                await self._update(agent)

    async def tell(self) -> bool:
        """Give what is known now to the agent that is at work, and to a realtime model, which keeps
        a context of its own. Whether it has it; a model that does not take it is told again."""
        with _reported("the agent at work goes on with what it was told before"):
            agent = self._session.current_agent
            self.provide(agent)
            await self._update(agent)
        return not self._owes

    async def _update(self, agent: Agent) -> None:
        if not isinstance(model_of(self._session, agent), llm.RealtimeModel):
            self._owes = False
            return
        self._owes = True
        try:
            async with asyncio.timeout(_TELL_SECONDS):
                await agent.update_chat_ctx(
                    context_of(agent).copy(), exclude_invalid_function_calls=False
                )
            self._owes, self._pause = False, _AGAIN_SECONDS[0]
        finally:
            if self._owes and self.active:
                loop = asyncio.get_running_loop()
                self._waiting = loop.call_later(self._pause, self._tell_again)
                self._pause = min(2 * self._pause, _AGAIN_SECONDS[1])

    def _tell_again(self) -> None:
        """Tell the model at work what it has not taken, if that is not under way."""
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        if self._owes and self.active and (self._telling is None or self._telling.done()):
            self._telling = asyncio.ensure_future(self.tell())

    async def before_reply(self, agent: Agent, chat_ctx: llm.ChatContext) -> None:
        """Put what memory has into the context of one reply, which is the reply's own copy."""
        with _reported("a reply goes on without memory"):
            await self._source.ready()
            preloaded = self._source.preloaded
            # A reply that was begun before this was loaded has a copy from before it.
            if preloaded is not None and (self.provide(agent) or _lacks(chat_ctx, preloaded)):
                mark = self._source.lookup.mark
                put(agent, chat_ctx, preloaded, of=mark, plain=False, tools=self._session.tools)
            await self._keeper.fit(agent, chat_ctx)
            await self._look_up(chat_ctx)

    async def in_hook(self, turn_ctx: llm.ChatContext, message: llm.ChatMessage) -> None:
        """Put what is found for a spoken turn into the hook's context."""
        if self._source.lookup.options.where != "hook":
            return
        with _reported("a reply goes on without memory"):
            lookup = self._source.lookup
            found = await lookup.for_turn(message, since=_begins(turn_ctx.items))
            if found is not None and lookup is self._source.lookup:  # else it is another's call now
                turn_ctx.insert(found)

    def provide(self, agent: Agent) -> bool:
        """Give an agent what was loaded, once; whether it had not had it."""
        preloaded = self._source.preloaded
        if preloaded is None:
            return False
        plain = isinstance(model_of(self._session, agent), llm.RealtimeModel)
        mark = self._source.lookup.mark
        given = give(agent, preloaded, of=mark, plain=plain, tools=self._session.tools)
        if given:
            self._keeper.recount()
        return given

    async def _look_up(self, chat_ctx: llm.ChatContext) -> None:
        lookup, items = self._source.lookup, chat_ctx.items
        position = _newest(items)
        if position is None:
            return
        message = items[position]
        assert isinstance(message, llm.ChatMessage)
        spoken = message.transcript_confidence is not None
        if not lookup.known(message):
            answered = any(_is_said(one) for one in items[position + 1 :])
            if answered or (spoken and lookup.options.where == "hook"):
                return
        found = await lookup.for_turn(message, since=_begins(items))
        if lookup is not self._source.lookup:
            return  # the call is another caller's now
        if found is not None and all(one.id != found.id for one in items[position - 1 : position]):
            items.insert(position, found)

    def _entering(self) -> Agent:
        # The agent of a second handoff may stand in ``current_agent`` while the first is starting.
        activity = self._session._activity  # pyright: ignore[reportPrivateUsage] - no public name has the agent that is entering
        return self._session.current_agent if activity is None else activity.agent

    def _on_item(self, event: ConversationItemAddedEvent) -> None:
        with _reported("an agent enters without memory"):
            if isinstance(event.item, llm.AgentHandoff):
                self._source.lookup.warm()
                entering = self._entering()
                with _reported("an agent enters without lookups"):
                    self._bind(entering)
                self.provide(entering)
            elif isinstance(event.item, llm.ChatMessage) and event.item.role == "user":
                self._source.lookup.committed(event.item.id)
                self._keeper.hearing = False
            elif isinstance(event.item, llm.ChatMessage) and event.item.role == "assistant":
                self._tell_again()  # without audio no change of state says that a reply is over

    def _on_words(self, event: UserInputTranscribedEvent) -> None:
        with _reported("words were not looked up early"):
            self._keeper.hearing = True
            self._source.lookup.hear(event.transcript, final=event.is_final)

    def _on_state(self, event: AgentStateChangedEvent) -> None:
        with _reported("a long call is not summarised"):
            if event.new_state == "listening":
                self._tell_again()
                self._source.lookup.rest()
                self._keeper.between_replies()

    def _on_close(self, event: CloseEvent) -> None:
        del event
        with _reported("memory is still attached to a session that is closed"):
            self.detach()


def give(
    agent: Agent,
    preloaded: Preloaded,
    *,
    of: str,
    plain: bool,
    tools: Sequence[llm.Tool | llm.Toolset] = (),
) -> bool:
    """Put what was loaded into the context that an agent keeps; false when it had it before."""
    before: tuple[Preloaded, bool] | None = vars(agent).get(_GIVEN)
    if before is not None and before[0] is preloaded and before[1] == plain:
        return False
    put(agent, context_of(agent), preloaded, of=of, plain=plain, tools=tools)
    vars(agent)[_GIVEN] = (preloaded, plain)
    return True


def put(
    agent: Agent,
    chat_ctx: llm.ChatContext,
    preloaded: Preloaded,
    *,
    of: str,
    plain: bool,
    tools: Sequence[llm.Tool | llm.Toolset] = (),
) -> None:
    """Put what was loaded into a context, in place; a summary of this call stays behind it, unless
    it was made from another memory than the one marked ``of``: that caller's, or a forgotten one.

    ``tools`` are those that the agent has from its session.
    """
    known = llm.ToolContext([*tools, *agent.tools])
    names = list[str](known.function_tools)  # pyright: ignore[reportUnknownArgumentType] - LiveKit leaves the tools open
    items = preloaded.context(chat_ctx, tools=names, plain=plain).items
    there = {one.id for one in items}
    summaries = [one for one in chat_ctx.items if is_summary_of(one, of) and one.id not in there]
    behind = next(
        (n for n, one in enumerate(items) if not (is_memory(one) or _is_instructions(one))),
        len(items),
    )
    chat_ctx.items[:] = [*items[:behind], *summaries, *items[behind:]]


def _lacks(chat_ctx: llm.ChatContext, preloaded: Preloaded) -> bool:
    """Whether something was loaded and nothing of it stands before the conversation."""
    if not preloaded.turns and (preloaded.brief is None or not preloaded.brief.text):
        return False
    for one in chat_ctx.items:
        if is_memory(one) and not is_summary(one):
            return False
        if isinstance(one, llm.ChatMessage) and not (is_memory(one) or _is_instructions(one)):
            return True
    return True


def _is_instructions(item: llm.ChatItem) -> bool:
    return isinstance(item, llm.ChatMessage) and item.role in ("system", "developer")


def _is_said(item: llm.ChatItem) -> bool:
    return isinstance(item, llm.ChatMessage) and item.role == "assistant" and not is_memory(item)


def _newest(items: Sequence[llm.ChatItem]) -> int | None:
    """Where the caller's newest words of this call stand."""
    for position in range(len(items) - 1, -1, -1):
        if begins_turn(items[position]) and not is_memory(items[position]):
            return position
    return None


def _begins(items: Sequence[llm.ChatItem]) -> float | None:
    """When what this call holds in the context begins."""
    for one in items:
        if isinstance(one, llm.ChatMessage) and not (is_memory(one) or _is_instructions(one)):
            return one.created_at
    return None


def _is_cancelled() -> bool:
    """Whether this very task is cancelled, and not something that it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


@contextlib.contextmanager
def _reported(what: str) -> Generator[None]:
    """Inside, no error reaches LiveKit, which would drop the caller's turn, the reply or the end of
    the session for it. Only a task that is really cancelled ends by that."""
    try:
        yield
    except asyncio.CancelledError:
        if _is_cancelled():
            raise
        _report(what, None)
    except Exception as error:  # whatever memory fails with, the call goes on; it is logged
        _report(what, error)


def _report(what: str, error: BaseException | None) -> None:
    name = "CancelledError" if error is None else type(error).__name__
    _log.warning("memory failed inside a call", extra={"outcome": what, "error": name})
