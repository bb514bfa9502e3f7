"""secondcall's tools as LlamaIndex ``FunctionTool``: bound to a user or session, without ids.

The model fills in what it is to remember, recall or change, never for whom: no tool takes a user,
tenant or session. What ``MemoryTools`` and ``StateTools`` refuse comes back as text that says what
is allowed, so the model can do better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from llama_index.core.async_utils import asyncio_run  # pyright: ignore[reportUnknownVariableType] - its coroutine is bare
from llama_index.core.bridge.pydantic import BaseModel, create_model
from llama_index.core.objects import ObjectRetriever
from llama_index.core.schema import QueryType
from llama_index.core.tools import BaseTool, FunctionTool, ToolMetadata

if TYPE_CHECKING:
    from secondcall.tools import StateTools, Tool
    from secondcall.types import Trust

__all__ = ["StateToolRetriever", "function_tool", "function_tools"]


def function_tools(tools: Sequence[Tool], *, trust: Trust = "verified") -> list[FunctionTool]:
    """These tools for ``FunctionAgent(tools=...)``; see ``function_tool``."""
    return [function_tool(tool, trust=trust) for tool in tools]


def function_tool(tool: Tool, *, trust: Trust = "verified") -> FunctionTool:
    """One tool as a ``FunctionTool``, with the same name, description and JSON Schema.

    It is asynchronous; its blocking face works outside a running loop. Say ``trust="claimed"`` for
    an agent that acts on recalled or otherwise foreign text. Failures of the store are raised, and
    LlamaIndex answers the model with their text, which holds no remembered words.
    """
    parameters = dict(tool.parameters)
    names = list(parameters["properties"])

    async def run(*values: Any, **named: Any) -> str:
        # LlamaIndex gives a single argument by place, not by name
        return await tool.call({**dict(zip(names, values, strict=False)), **named}, trust=trust)

    return FunctionTool(
        async_fn=run,
        metadata=_Metadata(
            name=tool.name,
            description=tool.description,
            fn_schema=_schema(tool.name, parameters),
        ),
    )


class StateToolRetriever(ObjectRetriever[BaseTool]):
    """The tools of a state as it is when a model is asked: ``FunctionAgent(tool_retriever=...)``.

    Their parameters are those of the present step, so a list made once would go stale with the
    first transition; an agent asks this one anew before each call of the model. Its own ``tools``
    are there beside them.
    """

    def __init__(self, tools: StateTools, *, trust: Trust = "verified") -> None:
        self._tools = tools
        self._trust: Trust = trust

    async def aretrieve(self, str_or_query_bundle: QueryType) -> list[BaseTool]:
        """The tools for now, whatever is asked. Raises: store errors."""
        return [*function_tools(await self._tools.tools(), trust=self._trust)]

    def retrieve(self, str_or_query_bundle: QueryType) -> list[BaseTool]:
        """As ``aretrieve``, for where no loop runs."""
        return cast("list[BaseTool]", asyncio_run(self.aretrieve(str_or_query_bundle)))


class _Metadata(ToolMetadata):
    """Gives the schema whole: LlamaIndex leaves out that nothing more may be named."""

    def get_parameters_dict(self) -> dict[str, Any]:
        schema = self.fn_schema
        return {} if schema is None else schema.model_json_schema()


def _schema(name: str, parameters: Mapping[str, Any]) -> type[BaseModel]:
    """A model whose JSON Schema is the tool's; the tool itself checks what it is called with."""

    def model_json_schema(cls: type[BaseModel], *args: Any, **options: Any) -> dict[str, Any]:
        return dict(parameters)

    made = create_model(name)
    return type(name, (made,), {"model_json_schema": classmethod(model_json_schema)})
