"""The running turn of an agent, which no memory sees: kept within the window, and cleared.

LlamaIndex holds the calls and results of a turn in the ``Context`` (the scratchpad) until the agent
answers, and sends them behind what memory gives, whatever their size. ``bound_running_turn`` makes
an agent send what fits. When a run fails they stay there and are sent once more behind the next
question; ``clear_failed_run`` takes them away.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from llama_index.core.agent.workflow.base_agent import BaseWorkflowAgent
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.workflow import Context

from secondcall.adapters.llama_index.memory import SecondCallMemory
from secondcall.adapters.llama_index.messages import chat_from_items, items_from_chat
from secondcall.adapters.llama_index.outputs import fitted_turns, shortened, tokens_of
from secondcall.adapters.llama_index.window import room_of
from secondcall.errors import OverBudget
from secondcall.shortterm.measure import SafeCounter

if TYPE_CHECKING:
    from llama_index.core.agent.workflow.workflow_events import AgentOutput
    from llama_index.core.memory import BaseMemory
    from llama_index.core.tools import AsyncBaseTool
    from llama_index.core.workflow import Workflow

    from secondcall.abc import TokenCounter

__all__ = ["Cleared", "bound_running_turn", "clear_failed_run", "context_after"]

A = TypeVar("A", bound=BaseWorkflowAgent)

_log = logging.getLogger("secondcall")

_SCRATCHPAD = "scratchpad"
_REASONING = "current_reasoning"
_TURN_SHARE = 0.75
"""What the running turn may have of the window beside question, tools and system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """What ``clear_failed_run`` took away: messages of the scratchpad, items of a question without
    an answer; and how many finished calls it recorded first."""

    scratchpad: int = 0
    unanswered: int = 0
    recorded: int = 0


def bound_running_turn(
    agent: A,
    *,
    window: int | None = None,
    reserve: int | None = None,
    counter: TokenCounter | None = None,
) -> A:
    """The same agent, which from now on sends no more than fits into its model's window.

    Where a request would be larger, the oldest turns that memory gave are left out first, down to
    the newest question; the running turn has three quarters of what is left at most, and above that
    its largest tool outputs are shortened, each with a marker. Only what is sent is shortened:
    memory gets every output whole. What an earlier run left behind is not sent again.

    ``window`` and ``reserve`` are the model's by default, ``counter`` that of the run's
    ``SecondCallMemory``. An agent of an ``AgentWorkflow`` is bound
    by itself. Bound again it takes the new numbers.

    Raises: ``OverBudget`` from the run when system prompt, tools and question alone do not fit.
    """
    given = cast("Any", agent.__dict__.get("take_step"))
    step = given.step if isinstance(given, _BoundedStep) else agent.take_step
    bounded = _BoundedStep(agent, step, window, reserve, counter)
    # pydantic refuses attributes that are no fields; a subclass would lose the workflow's steps
    object.__setattr__(agent, "take_step", bounded)
    return agent


async def clear_failed_run(
    ctx: Context, *, agents: Sequence[BaseWorkflowAgent] = (), keep_calls: bool = True
) -> Cleared:
    """Make a ``Context`` ready for the next run, after one that failed or ran out of iterations;
    after one that was cancelled go on with ``context_after``.

    The scratchpad is emptied, with the keys of ``agents`` where they have others than the usual;
    the limit of iterations is the next run's own. With ``keep_calls`` the calls that were finished
    are recorded first: what a tool did is done. A question that nothing answers then leaves the
    conversation, if the memory is a ``SecondCallMemory``; its record keeps it.

    Raises: store errors.
    """
    memory: Any = await ctx.store.get("memory", default=None)
    left = 0
    finished: list[ChatMessage] = []
    for key in _keys(agents):
        pad: list[Any] = await ctx.store.get(key, default=None) or []
        left += len(pad)
        if pad:
            finished += _finished([one for one in pad if isinstance(one, ChatMessage)])
            await ctx.store.set(key, [])
    await ctx.store.set("current_tool_calls", [])
    for name in ("max_iterations", "early_stopping_method"):
        await ctx.store.set(name, None)
    if memory is not None and finished and keep_calls:
        await memory.aput_messages(finished)
    recorded = sum(one.role is MessageRole.TOOL for one in finished) if keep_calls else 0
    unanswered = 0
    if isinstance(memory, SecondCallMemory):
        unanswered = await memory.adrop_unanswered()
    return Cleared(scratchpad=left, unanswered=unanswered, recorded=recorded)


async def context_after(workflow: Workflow, ctx: Context) -> Context:
    """A new ``Context`` for the next run, with the store of one whose run was cancelled.

    LlamaIndex begins the steps that were cancelled once more when their context is used again, so a
    cancelled question would be answered beside the next one. Clear the old context first.
    """
    fresh: Context = Context(workflow)
    await fresh.store.set_state(await ctx.store.get_state())
    return fresh


class _BoundedStep:
    """One step of an agent, with a request that fits."""

    def __init__(
        self,
        agent: BaseWorkflowAgent,
        step: Any,
        window: int | None,
        reserve: int | None,
        counter: TokenCounter | None,
    ) -> None:
        self.step = step
        self._agent = agent
        self._window = window
        self._reserve = reserve
        self._counter = None if counter is None else SafeCounter.of(counter)

    def __deepcopy__(self, memo: Mapping[int, Any]) -> _BoundedStep:
        return self

    async def __call__(
        self,
        ctx: Context,
        llm_input: list[ChatMessage],
        tools: Sequence[AsyncBaseTool],
        memory: BaseMemory,
    ) -> AgentOutput:
        counter = self._counter
        if counter is None and isinstance(memory, SecondCallMemory):
            counter = memory.counter
        room = room_of(
            llm=self._agent.llm,
            window=self._window,
            reserve=self._reserve,
            tools=tools,
            counter=counter,
        )
        key = _key(self._agent)
        kept: list[Any] = await ctx.store.get(key, default=None) or []
        if kept and not await ctx.store.get("num_iterations", default=0):
            _log.warning(
                "what a failed run left behind is not sent; see clear_failed_run",
                extra={"messages": len(kept)},
            )
            kept = []
        left = room.window - room.reserve - room.beside
        llm_input, sent = _fitted(llm_input, kept, left, counter)
        await ctx.store.set(key, list(sent))
        added: list[Any] = []
        try:
            output = await self.step(ctx, llm_input, tools, memory)
            now: list[Any] = await ctx.store.get(key, default=None) or []
            added = now[len(sent) :]
        finally:
            await ctx.store.set(key, [*kept, *added])
        return output


def _fitted(
    llm_input: Sequence[ChatMessage], pad: Sequence[Any], room: int, counter: TokenCounter | None
) -> tuple[list[ChatMessage], list[Any]]:
    """Messages and running turn within ``room`` tokens. Raises: ``OverBudget`` naming the part."""
    firm, turns = fitted_turns(llm_input)
    needed = sum(tokens_of(one, counter) for one in firm)
    if needed > room:
        raise OverBudget(
            "the system prompt and the newest question",
            tokens=needed,
            limit=max(0, room),
            advice="shorten them, offer fewer tools, or use a model with a larger window",
        )
    sent = shortened(pad, int((room - needed) * _TURN_SHARE), counter)
    spare = room - needed - sum(tokens_of(one, counter) for one in sent)
    shown = {id(one) for one in firm}
    for turn in reversed(turns):
        spare -= sum(tokens_of(one, counter) for one in turn)
        if spare < 0:
            break
        shown |= {id(one) for one in turn}
    return [one for one in llm_input if id(one) in shown], sent


def _key(agent: BaseWorkflowAgent) -> str:
    """Where an agent keeps its running turn."""
    for name, usual in (("scratchpad_key", _SCRATCHPAD), ("reasoning_key", _REASONING)):
        if name in type(agent).model_fields:
            return str(getattr(agent, name, usual))
    return _SCRATCHPAD


def _keys(agents: Sequence[BaseWorkflowAgent]) -> list[str]:
    return list(dict.fromkeys([_SCRATCHPAD, _REASONING, *map(_key, agents)]))


def _finished(pad: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The calls of a scratchpad that have their results, with them."""
    return chat_from_items(items_from_chat(pad))
