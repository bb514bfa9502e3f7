"""Messages cut to a number of tokens: older turns left out, tool outputs shortened. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from llama_index.core.agent.react.types import BaseReasoningStep, ObservationReasoningStep
from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock

from secondcall.adapters.llama_index.jsonable import jsonable
from secondcall.errors import OverBudget
from secondcall.registry import default_counter
from secondcall.shortterm.measure import Measure

if TYPE_CHECKING:
    from secondcall.abc import TokenCounter

__all__ = ["MEDIA_TOKENS", "block_tokens", "fitted_turns", "shortened", "text_tokens", "tokens_of"]

MEDIA_TOKENS = 2_125
"""What a picture and the like is taken for, as LlamaIndex does for one of 2048 x 1536."""
_FRAMING_TOKENS = 4
_REMEMBERED = 20_000
_ANSWERS = (MessageRole.TOOL, MessageRole.FUNCTION, MessageRole.USER)
_WRITTEN_KINDS = ("thinking", "tool_call", "citable", "citation")
_NOTHING_KINDS = ("cache",)


def tokens_of(part: object, counter: TokenCounter | None = None) -> int:
    """The tokens of a message or a reasoning step: words, thinking, each call once, media."""
    if isinstance(part, BaseReasoningStep):
        return text_tokens(part.get_content(), counter) + _FRAMING_TOKENS
    if not isinstance(part, ChatMessage):
        return text_tokens(str(part), counter)
    blocks = cast("Sequence[Any]", part.blocks)
    total = _FRAMING_TOKENS + sum(block_tokens(block, counter) for block in blocks)
    if not any(block.block_type == "tool_call" for block in blocks):
        beside: object = part.additional_kwargs.get("tool_calls")
        total += text_tokens(_json(beside), counter) if beside else 0
    return total


def block_tokens(block: Any, counter: TokenCounter | None = None) -> int:
    """The tokens of one block; a picture and the like is taken for ``MEDIA_TOKENS``."""
    kind: str = block.block_type
    if kind == "text":
        return text_tokens(block.text, counter)
    if kind in _WRITTEN_KINDS:
        return text_tokens(_json(block), counter)
    return 0 if kind in _NOTHING_KINDS else MEDIA_TOKENS


def text_tokens(text: str, counter: TokenCounter | None = None) -> int:
    """The tokens of a text, by the default counter if none is given."""
    counter = default_counter() if counter is None else counter
    return _counted(counter, text) if len(text) < _REMEMBERED else counter.count(text)


def fitted_turns(
    messages: Sequence[ChatMessage],
) -> tuple[list[ChatMessage], list[list[ChatMessage]]]:
    """What must be sent, system messages and all from the newest user message on, and the older
    turns, oldest first, of which any number may be left out from the front."""
    users = [n for n, one in enumerate(messages) if one.role is MessageRole.USER]
    newest = users[-1] if users else 0
    firm: list[ChatMessage] = []
    turns: list[list[ChatMessage]] = []
    for place, message in enumerate(messages):
        if place >= newest or message.role in (MessageRole.SYSTEM, MessageRole.DEVELOPER):
            firm.append(message)
        elif message.role is MessageRole.USER or not turns:
            turns.append([message])
        else:
            turns[-1].append(message)
    return firm, turns


def shortened(pad: Sequence[Any], limit: int, counter: TokenCounter | None = None) -> list[Any]:
    """The running turn within ``limit`` tokens: its largest outputs cut, all to the same size.
    What is not cut is the same object.

    Raises: ``OverBudget`` when it does not fit even with every output cut to its marker.
    """
    counter = default_counter() if counter is None else counter
    sizes = [tokens_of(one, counter) for one in pad]
    over = sum(sizes) - limit
    if over <= 0:
        return list(pad)
    texts = {place: text for place, one in enumerate(pad) if (text := _output(one))}
    outputs = {place: text_tokens(text, counter) for place, text in texts.items()}
    allowed = sum(outputs.values()) - over
    measure = Measure(counter, token_limit=max(1, limit), framing_tokens=_FRAMING_TOKENS)
    level = _level(list(outputs.values()), allowed)
    found = list(pad)
    for place, size in outputs.items():
        if size > level:
            text = texts[place]
            cut, _ = measure.shorten(text, len(text), max(0, level))
            found[place] = _with_output(pad[place], cut)
    taken = sum(tokens_of(one, counter) for one in found)
    if taken > limit:
        raise OverBudget(
            "the running turn",
            tokens=taken,
            limit=max(0, limit),
            advice="use a model with a larger window, or fewer rounds of tools",
        )
    return found


def _level(sizes: Sequence[int], allowed: int) -> int:
    """The size that the largest are cut to so that together they take what is allowed."""
    left = allowed
    for place, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - place)
        if size > share:
            return share
        left -= size
    return max(sizes, default=0)


def _output(part: object) -> str:
    """The words of a tool's output; empty for anything else. What a ``CodeActAgent`` has run is
    answered in the role of the user."""
    if isinstance(part, ObservationReasoningStep):
        return part.observation
    if isinstance(part, ChatMessage) and part.role in _ANSWERS:
        return part.content or ""
    return ""


def _with_output(part: Any, text: str) -> Any:
    if isinstance(part, ObservationReasoningStep):
        return part.model_copy(update={"observation": text})
    others = [block for block in part.blocks if block.block_type != "text"]
    return part.model_copy(update={"blocks": [TextBlock(text=text), *others]})


def _json(value: object) -> str:
    return json.dumps(jsonable(value), ensure_ascii=False)


@lru_cache(maxsize=4_096)
def _counted(counter: TokenCounter, text: str) -> int:
    return counter.count(text)
