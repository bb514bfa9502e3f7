"""Gives agents their memory: any agent, and every agent that a session hands over to.

An agent gets a layer above its own class, so that its own ``llm_node``, hooks and name stay what
they are. The layer waits for what is being loaded, and has memory asked before a model is.
"""

from __future__ import annotations

import logging
import types
from collections.abc import AsyncIterable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar, cast

from livekit.agents import Agent, AgentSession, FlushSentinel, ModelSettings, llm

from secondcall.adapters.livekit.attached import AttachedMemory, give
from secondcall.errors import InvalidValue

if TYPE_CHECKING:
    from secondcall.adapters.livekit.source import MemorySource

__all__ = [
    "MemoryAgent",
    "attach_memory",
    "attached_to",
    "change_memory",
    "handoff_context",
    "with_memory",
]

_log = logging.getLogger("secondcall.livekit")
_SOURCE = "_secondcall_source"
_ATTACHED = "_secondcall_memory"
_LAYER = "_secondcall_layer"

AgentT = TypeVar("AgentT", bound=Agent)


class _Layer(Agent):
    """What stands above an agent's own class."""

    __slots__ = ()

    async def on_enter(self) -> None:
        memory = _memory_of(self)
        if memory is not None:
            await memory.enter(self)
        await super().on_enter()

    async def on_user_turn_completed(
        self, turn_ctx: llm.ChatContext, new_message: llm.ChatMessage
    ) -> None:
        memory = _memory_of(self)
        if memory is not None:
            await memory.in_hook(turn_ctx, new_message)
        await super().on_user_turn_completed(turn_ctx, new_message=new_message)

    async def llm_node(  # pyright: ignore[reportIncompatibleMethodOverride] - LiveKit awaits it, whichever of these it gives
        self, chat_ctx: llm.ChatContext, tools: list[llm.Tool], model_settings: ModelSettings
    ) -> AsyncIterable[llm.ChatChunk | str | FlushSentinel] | str | llm.ChatChunk | None:
        memory = _memory_of(self)
        if memory is not None:
            await memory.before_reply(self, chat_ctx)
        node = super().llm_node(chat_ctx, tools, model_settings)
        return await node if isinstance(node, Coroutine) else node


class MemoryAgent(Agent):
    """An agent that takes its memory at its making: ``class Receptionist(MemoryAgent)``.

    The rest is as ``Agent`` has it. Every agent that its session hands over to gets the same.
    """

    def __init__(self, *, memory: MemorySource | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        if memory is not None:
            with_memory(self, memory)


def with_memory(agent: AgentT, source: MemorySource) -> AgentT:
    """The same agent, with memory: it knows what was loaded, and looks up what the caller says.

    It is changed in place: its class becomes one that is derived from its own. Called again it
    takes the new source, and lets go of what it had from the old one. Every agent that its session
    hands over to, and every ``AgentTask``, gets the same.

    Raises: ``InvalidValue`` for an agent whose class allows no such change.
    """
    _install(agent)
    vars(agent)[_SOURCE] = source
    if source.preloaded is not None:
        plain = isinstance(agent.llm, llm.RealtimeModel)
        give(agent, source.preloaded, of=source.lookup.mark, plain=plain)
    return agent


def attach_memory(session: AgentSession[Any], source: MemorySource) -> AttachedMemory:
    """Give every agent of a session this memory, those of handoffs and of each ``AgentTask`` too.

    Before ``session.start``, or after it where the model is no realtime model. Called again the
    session draws on the new source. What an agent brings along by ``with_memory`` counts only where
    nothing was attached.

    Raises: ``InvalidValue`` as ``with_memory``, for the agent that is at work already.
    """
    known = attached_to(session)
    if known is not None and known.source is source:
        return known
    known = _attach(session, source)
    try:
        at_work = session.current_agent
    except RuntimeError:
        return known
    _install(at_work)
    known.provide(at_work)
    return known


def change_memory(session: AgentSession[Any], source: MemorySource) -> AttachedMemory:
    """``attach_memory`` for a session that runs: an agent at work whose class refuses the layer has
    what it is told, without lookups."""
    try:
        return attach_memory(session, source)
    except InvalidValue as error:
        _log.warning("an agent goes on without lookups", extra={"error": type(error).__name__})
        known = attached_to(session)
        assert known is not None  # attached before its agent is looked at
        return known


async def handoff_context(agent: Agent) -> llm.ChatContext:
    """What the next agent is to know of this conversation, for its ``chat_ctx``: the turns, and in
    a long call a summary with the newest ones. Instructions are left out, memory is kept.

    Raises: ``RuntimeError`` for an agent that is not running.
    """
    memory = _memory_of(agent)
    if memory is None:
        return agent.chat_ctx.copy(
            exclude_instructions=True, exclude_handoff=True, exclude_config_update=True
        )
    return await memory.keeper.handoff_context(agent)


def _attach(session: AgentSession[Any], source: MemorySource) -> AttachedMemory:
    known = attached_to(session)
    if known is None:
        known = AttachedMemory(session, source, bind=_install)
        vars(session)[_ATTACHED] = known
    else:
        known.change_source(source)
    source.entered(session)
    return known


def attached_to(session: AgentSession[Any]) -> AttachedMemory | None:
    """The memory at work in a session, ``None`` where there is none or it was closed."""
    found: object = vars(session).get(_ATTACHED)
    return found if isinstance(found, AttachedMemory) and found.active else None


def _memory_of(agent: Agent) -> AttachedMemory | None:
    """The memory that is at work in an agent's session; that of the agent is attached to it."""
    try:
        session = cast("AgentSession[Any]", agent.session)
        known = attached_to(session)
        source: MemorySource | None = vars(agent).get(_SOURCE)
        if known is None and source is not None:
            known = _attach(session, source)
    except Exception as error:  # an agent without its memory is better than none
        _log.warning("an agent has no memory", extra={"error": type(error).__name__})
        return None
    return known


def _install(agent: Agent) -> None:
    """Put the layer above an agent's class, if it is not there."""
    own = type(agent)
    if issubclass(own, _Layer):
        return
    try:
        agent.__class__ = _layered(own)
    except Exception as error:  # a class may refuse to be derived from by any error
        raise InvalidValue(
            f"memory cannot be put above the class {own.__name__!r} "
            f"({type(error).__name__}: {error}); derive it from "
            "Agent without __slots__ and without required class arguments"
        ) from None


def _layered(own: type[Agent]) -> type[Agent]:
    known: type[Agent] | None = vars(own).get(_LAYER)
    if known is not None:
        return known
    body = {
        "__slots__": (),
        "__module__": own.__module__,
        "__qualname__": own.__qualname__,
        "__doc__": own.__doc__,
    }
    made: type[Agent] = types.new_class(own.__name__, (_Layer, own), {}, lambda ns: ns.update(body))
    setattr(own, _LAYER, made)
    return made
