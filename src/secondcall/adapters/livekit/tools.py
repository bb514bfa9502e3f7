"""Memory and state as LiveKit function tools, whose parameters are those of the present step.

A LiveKit tool has one schema for its life. That of a state's tool is changed in place: after each
of its own calls, so that the same turn's next request shows it, and by ``refresh`` before a reply,
for what somebody else or a timer changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import perf_counter
from typing import Any, TypeAlias, cast

from livekit.agents import RunContext, ToolError, function_tool, llm

from secondcall.adapters.livekit.keeping import model_of
from secondcall.checks import check_deadline
from secondcall.tools import MemoryTools, StateTools, Tool
from secondcall.tools.tool import refusal

__all__ = [
    "NO_CONSENT",
    "NO_MEMORY",
    "FunctionTool",
    "StateSchemas",
    "function_tools",
    "tools_of",
]

FunctionTool: TypeAlias = llm.RawFunctionTool[..., Any]

_log = logging.getLogger("secondcall.livekit")
_LATE = "it is not done yet and may still be: do not say that it is, and look before you try again"
NO_CONSENT = "the user has not agreed to be remembered, or is off the record"
NO_MEMORY = "nothing can be saved in this call: do not say that it is saved; go on without it"
_DOWN = "memory cannot be reached just now: nothing was changed or found; go on without it"
_UNREAD = "The state of the workflow cannot be read just now; call this again later."
_LOOK_AGAIN_SECONDS = 5.0
_running: set[asyncio.Task[Any]] = set()


async def function_tools(
    memory: MemoryTools | None = None,
    *,
    state: StateTools | None = None,
    deadline_seconds: float = 2.0,
) -> list[FunctionTool]:
    """LiveKit tools for ``Agent(tools=...)``: those of ``memory``, and those of a ``state``.

    None of them makes the call wait longer than ``deadline_seconds``, is undone by an interruption,
    or raises more than a ``ToolError`` with a text for the model. Close ``memory`` when the call is
    over (``LiveCall.tools`` does). Raises: ``InvalidValue``.
    """
    made: list[FunctionTool] = []
    if memory is not None:
        made = tools_of(lambda: memory, deadline_seconds=deadline_seconds)
    if state is not None:
        made += await StateSchemas(state, deadline_seconds=deadline_seconds).load()
    return made


def tools_of(
    current: Callable[[], MemoryTools],
    *,
    refused: Callable[[], str | None] = lambda: None,
    deadline_seconds: float = 2.0,
) -> list[FunctionTool]:
    """The tools of the memory that ``current`` gives at each call: who is calling may become known
    while the call runs. But for ``recall`` they do nothing while ``refused`` says why not."""
    seconds = check_deadline(deadline_seconds)

    def made(tool: Tool) -> FunctionTool:
        async def run(raw_arguments: dict[str, object], context: RunContext[Any]) -> str:
            del context
            if not tool.name.endswith("recall") and (why := refused()) is not None:
                return refusal(why)
            now = next(one for one in current().tools() if one.name == tool.name)
            return await _called(now, raw_arguments, seconds)

        return function_tool(run, raw_schema=_schema(tool))

    return [made(tool) for tool in current().tools()]


class StateSchemas:
    """The function tools of one state, and their schemas as the state is now. But for reading it
    they do nothing while ``refused`` says why not."""

    def __init__(
        self,
        state: StateTools,
        *,
        deadline_seconds: float = 2.0,
        refused: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.state = state
        """What they go by."""
        self._refused = refused
        self._look_at = 0.0
        self._seconds = check_deadline(deadline_seconds)
        self._tools: dict[str, FunctionTool] = {}

    async def load(self) -> list[FunctionTool]:
        """The tools. While the store cannot be reached they take no arguments, and say so."""
        for name in self.state.names:
            self._tools[name] = self._made(name)
        await self.refresh()
        return [*self._tools.values()]

    async def refresh(self, *, deadline_seconds: float = 0.1) -> bool:
        """Give the tools the schemas of the present step; whether any is another now. Never raises:
        what cannot be read in time stays as it was, and is not asked for again at once, so that a
        store that hangs does not hold up every reply."""
        if perf_counter() < self._look_at:
            return False
        try:
            async with asyncio.timeout(deadline_seconds):
                tools = await self.state.tools()
        except (
            Exception
        ) as error:  # a live edge: whatever a store does, replies go on; it is logged
            _log.warning(
                "the tools of a state are those of an earlier step",
                extra={"error": type(error).__name__},
            )
            self._look_at = perf_counter() + _LOOK_AGAIN_SECONDS
            return False
        changed = False
        for tool in tools:
            info, schema = self._tools[tool.name].info, _schema(tool)
            changed |= info.raw_schema != schema
            info.raw_schema.update(schema)
        return changed

    def _made(self, name: str) -> FunctionTool:
        async def run(raw_arguments: dict[str, object], context: RunContext[Any]) -> str:
            reads = name == self.state.names[0]
            if not reads and (why := self._refused()) is not None:
                return refusal(why)
            tool = await _within(self._present(name), self._seconds)
            told = await _called(tool, raw_arguments, self._seconds)
            if await self.refresh():
                self._tell(context)
            return told

        empty: dict[str, object] = {"type": "object", "properties": {}}
        return function_tool(
            run, raw_schema={"name": name, "description": _UNREAD, "parameters": empty}
        )

    async def _present(self, name: str) -> Tool:
        return next(one for one in await self.state.tools() if one.name == name)

    def _tell(self, context: RunContext[Any]) -> None:
        """A realtime model was sent the schemas; send them again, beside the conversation."""
        session = cast("Any", context.session)
        agent = session.current_agent
        if isinstance(model_of(session, agent), llm.RealtimeModel):
            _keep(asyncio.ensure_future(agent.update_tools([*agent.tools])))


async def _called(tool: Tool, arguments: dict[str, object], seconds: float | None) -> str:
    return await _within(tool.call(arguments), seconds)


async def _within(work: Any, seconds: float | None) -> Any:
    """What the work gives. An interruption, or its deadline, leaves it running.

    Raises: ``ToolError``, with a text for the model.
    """
    task: asyncio.Task[Any] = asyncio.ensure_future(work)
    _keep(task)
    await asyncio.wait({task}, timeout=seconds)
    if not task.done():
        _log.warning("a tool is not done by its deadline, and goes on beside the conversation")
        raise ToolError(_LATE)
    try:
        return task.result()
    except Exception as error:  # a live edge: the model is told, and it is logged
        _log.warning("a tool could not do its work", extra={"error": type(error).__name__})
        raise ToolError(_DOWN) from None


def _keep(task: asyncio.Task[Any]) -> None:
    _running.add(task)
    task.add_done_callback(_ended)


def _ended(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.debug("a tool's work ended", extra={"error": type(error).__name__})


def _schema(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
    }
