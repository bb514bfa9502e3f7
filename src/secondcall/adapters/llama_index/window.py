"""How many tokens a memory may give: a model's window less answer, tools and system prompt."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llama_index.core.constants import DEFAULT_CONTEXT_WINDOW
from llama_index.core.tools import BaseTool, FunctionTool

from secondcall.checks import check_limit
from secondcall.errors import InvalidValue, OverBudget
from secondcall.registry import default_counter

if TYPE_CHECKING:
    from llama_index.core.base.llms.types import LLMMetadata
    from llama_index.core.llms import LLM

    from secondcall.abc import TokenCounter

__all__ = ["DEFAULT_WINDOW", "Room", "room_of"]

DEFAULT_WINDOW = 16_000
"""Where neither a window nor a model is given."""
_DEFAULT_RESERVE = 1_000
_FRAMING_TOKENS = 4

_log = logging.getLogger("secondcall")
_warned: set[str] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """A window in tokens, what is kept of it for the answer, and what tools and system take."""

    window: int
    reserve: int
    beside: int = 0


def room_of(
    *,
    llm: LLM | None = None,
    window: int | None = None,
    reserve: int | None = None,
    token_limit: int | None = None,
    system_prompt: str | None = None,
    tools: Sequence[BaseTool | Callable[..., Any]] = (),
    counter: TokenCounter | None = None,
) -> Room:
    """The room for a memory. ``token_limit`` is all that it gives, whatever the window; else it is
    the ``window``, by default the model's, less ``reserve``, by default the model's output, less
    the system prompt and the tools as a model is sent them, counted by ``counter``.

    Raises: ``InvalidValue`` naming the field; ``OverBudget`` naming what does not fit.
    """
    if token_limit is not None:
        if window is not None or reserve is not None:
            raise InvalidValue("token_limit is all that is given; it goes without window, reserve")
        return Room(window=check_limit("token_limit", token_limit, maximum=100_000_000), reserve=0)
    described = None if llm is None else _described(llm)
    if window is None:
        window = DEFAULT_WINDOW if described is None else _window_of(described)
    check_limit("window", window, maximum=100_000_000)
    if reserve is None:
        output = _DEFAULT_RESERVE if described is None else described.num_output
        reserve = min(output, window // 4) if output > 0 else window // 4
    check_limit("reserve", reserve, minimum=0, maximum=100_000_000)
    beside = sum(_tokens(one, counter) for one in (system_prompt or "", *map(_sent, tools)))
    if reserve + beside >= window:
        raise OverBudget(
            "the system prompt and the tools",
            tokens=beside,
            limit=max(0, window - reserve),
            advice="shorten the prompt, offer fewer tools, or give a larger window",
        )
    return Room(window=window, reserve=reserve, beside=beside)


def _described(llm: LLM) -> LLMMetadata:
    try:
        return llm.metadata
    except Exception as error:  # a model's class may raise anything for a name it does not know
        raise InvalidValue(
            f"the model's metadata cannot be read ({type(error).__name__}); give window= yourself"
        ) from None


def _window_of(described: LLMMetadata) -> int:
    """The model's window. Many models do not say theirs: then it is the library's default."""
    window = described.context_window
    if window == DEFAULT_CONTEXT_WINDOW and described.model_name not in _warned:
        _warned.add(described.model_name)
        _log.warning(
            "the model reports LlamaIndex's default context window; give window= if it has another",
            extra={"model": described.model_name, "window": window},
        )
    return window


def _sent(tool: BaseTool | Callable[..., Any]) -> str:
    """A tool as a model is sent it."""
    if not isinstance(tool, BaseTool):
        tool = FunctionTool.from_defaults(tool)
    described = tool.metadata.to_openai_tool(skip_length_check=True)
    return json.dumps(described, ensure_ascii=False)


def _tokens(text: str, counter: TokenCounter | None) -> int:
    counter = default_counter() if counter is None else counter
    return counter.count(text) + _FRAMING_TOKENS if text else 0
