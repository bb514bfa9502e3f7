"""Chat messages of LlamaIndex as items of the record, and back, with every field and block.

What an item has a place for stands there: words, thinking, arguments, output. The rest, as the
order of the blocks, the role ``developer`` or ``additional_kwargs``, stands in its metadata under
``"llama_index"``, and nothing at all for a plain text message. A call is kept once, whichever of
its two forms it came in, and comes back in the same; a result joins its call by the call's id, in
whatever order results arrive.

Items are made whole, however large: ``oversize.stored`` makes of them what the record takes.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from llama_index.core.base.llms.types import ChatMessage, MessageRole

from secondcall.adapters.llama_index.calls import (
    HAS_CALL_BLOCKS,
    answered_id,
    beside_from,
    block_from,
    calls_of,
    host_id,
    mark_of,
    record_id,
)
from secondcall.adapters.llama_index.oversize import KEY, is_small
from secondcall.adapters.llama_index.shapes import blocks_from, kwargs_from, shape_of
from secondcall.types import Item, Message, Role, ToolCall

if TYPE_CHECKING:
    from secondcall.types import JsonValue

__all__ = [
    "ChatItems",
    "chat_from_items",
    "group_of",
    "is_missing",
    "items_from_chat",
    "together",
]

_log = logging.getLogger("secondcall")

_ROLES: dict[MessageRole, Role] = {
    MessageRole.USER: "user",
    MessageRole.ASSISTANT: "assistant",
    MessageRole.CHATBOT: "assistant",
    MessageRole.MODEL: "assistant",
    MessageRole.SYSTEM: "system",
    MessageRole.DEVELOPER: "system",
}
_RESULTS = (MessageRole.TOOL, MessageRole.FUNCTION)
_UNNAMED = "tool"
"""What a call is named of which only the result is known."""
_MAX_SPEAKER = 1_024


class ChatItems:
    """Turns messages into items, and remembers which calls have no result yet.

    ``waiting`` are the calls of the session that had none when this began, oldest first.
    """

    def __init__(self, waiting: Iterable[ToolCall] = ()) -> None:
        self._waiting = list(waiting)

    @property
    def waiting(self) -> Sequence[ToolCall]:
        """The calls without a result, oldest first."""
        return tuple(self._waiting)

    def items(self, messages: Sequence[ChatMessage]) -> list[Item]:
        """The items of these messages, in order, each call with its result where it has one.

        The messages are not changed, and nothing of them is shared with the items. Every item gets
        an id that no other has; a result whose call came before ``messages`` gives that call again,
        with its output.
        """
        found: dict[str, Item] = {}
        for order, message in enumerate(messages):
            if message.role in _RESULTS:
                item = self._answered(message, order)
                found[item.call_id] = item
                continue
            for item in _said(message):
                if isinstance(item, ToolCall):
                    self._waiting.append(item)
                    found[item.call_id] = item
                else:
                    found[item.id or ""] = item
        return list(found.values())

    def _answered(self, message: ChatMessage, order: int) -> ToolCall:
        """The call that a result belongs to, with its output."""
        call_id, name = answered_id(message), message.additional_kwargs.get("name")
        call = self._asked(call_id, name)
        if call is None:
            mark: dict[str, JsonValue] = {} if call_id is None else {"id": call_id}
            call = ToolCall(
                name if isinstance(name, str) and name else _UNNAMED,
                None,
                call_id=record_id(call_id),
                metadata={"call": "missing", KEY: mark},
            )
        else:
            self._waiting.remove(call)
        shape = shape_of(message)
        own = {**mark_of(call), "order": order}
        written = shape.written(role="tool", kwargs=_plain_kwargs(call))
        if written:
            own["result"] = written
        metadata = {**call.metadata, KEY: own}
        if shape.media_tokens:
            metadata["beside_tokens"] = shape.media_tokens
        return replace(call, output=shape.text, metadata=metadata)

    def _asked(self, call_id: str | None, name: object) -> ToolCall | None:
        """The newest call with this id that waits; without an id the oldest, of that name if it
        says one."""
        if call_id is not None:
            return next((one for one in reversed(self._waiting) if host_id(one) == call_id), None)
        return next((one for one in self._waiting if name in (None, one.name)), None)


def items_from_chat(messages: Sequence[ChatMessage]) -> list[Item]:
    """The items of a whole list of messages; see ``ChatItems``."""
    return ChatItems().items(messages)


def chat_from_items(items: Sequence[Item], *, repaired: bool = True) -> list[ChatMessage]:
    """The messages that these items are, in order, all of them new objects.

    Calls that were made together stand in one message, with their results behind it in the order in
    which they came. ``repaired``: calls without a result and results without a call are left out,
    since providers refuse them, and a call without an id gets one; else they are as they came.
    """
    found: list[ChatMessage] = []
    place = left_out = 0
    while place < len(items):
        group = together(items, place)
        place += len(group)
        message = group[0] if isinstance(group[0], Message) else None
        calls = [one for one in group if isinstance(one, ToolCall)]
        if repaired:
            complete = [one for one in calls if _is_complete(one)]
            left_out += len(calls) - len(complete)
            calls = complete
        found += _messages(message, calls, repaired=repaired)
    if left_out:
        _log.info(
            "tool calls without their result, or without their call, were left out",
            extra={"calls": left_out},
        )
    return found


def together(items: Sequence[Item], place: int) -> list[Item]:
    """The item at a place, and those behind it that were one message with it."""
    name = group_of(items[place])
    group = [items[place]]
    while name is not None and place + len(group) < len(items):
        following = items[place + len(group)]
        if isinstance(following, Message) or group_of(following) != name:
            break
        group.append(following)
    return group


def group_of(item: Item) -> str | None:
    """What names the message that the item was said in, where anything does."""
    name = item.id if isinstance(item, Message) else mark_of(item).get("of")
    return name if isinstance(name, str) else None


def is_missing(item: Item) -> bool:
    """Whether the item is the result of a call that nobody made, which no model is shown."""
    return not isinstance(item, Message) and item.metadata.get("call") == "missing"


def _said(message: ChatMessage) -> list[Item]:
    """The message as an item, and its calls; of one that says nothing else only the calls."""
    role = _ROLES[message.role]
    group = secrets.token_hex(12)
    is_caller = role == "assistant"
    calls = calls_of(message, group) if is_caller else []
    shape = shape_of(message, with_calls=is_caller)
    own = shape.written(role=role, kwargs={}, calls=len(calls))
    if calls and not shape.says_something and is_small(own):
        if own:
            mark = {**mark_of(calls[0]), "shape": own}
            calls[0] = replace(calls[0], metadata={KEY: mark})
        return list(calls)
    name = message.additional_kwargs.get("name")
    said = Message(
        role,
        shape.text,
        id=group,
        speaker=name[:_MAX_SPEAKER] if isinstance(name, str) and name else None,
        metadata={**shape.metadata(), **({KEY: own} if own else {})},
    )
    return [said, *calls]


def _plain_kwargs(call: ToolCall) -> dict[str, JsonValue]:
    given = host_id(call)
    return {} if given is None else {"tool_call_id": given}


def _is_complete(call: ToolCall) -> bool:
    return call.output is not None and not is_missing(call)


def _messages(
    message: Message | None, calls: Sequence[ToolCall], *, repaired: bool
) -> list[ChatMessage]:
    """What the assistant or somebody else said, its calls, and their results."""
    ids = {one.call_id: host_id(one) or (one.call_id if repaired else None) for one in calls}
    asked = [one for one in calls if not is_missing(one)]
    found: list[ChatMessage] = []
    if message is not None or asked:
        found.append(_caller(message, asked, ids))
    answered = [one for one in calls if one.output is not None]
    answered.sort(key=_order)
    return [*found, *(_result(one, ids[one.call_id], repaired=repaired) for one in answered)]


def _caller(
    message: Message | None, calls: Sequence[ToolCall], ids: Mapping[str, str | None]
) -> ChatMessage:
    own = _own(message.metadata.get(KEY) if message else _first_shape(calls))
    blocks = {
        _number(one, place): block_from(one, ids[one.call_id])
        for place, one in enumerate(calls)
        if HAS_CALL_BLOCKS and not mark_of(one).get("bare")
    }
    thinking = message.metadata.get("thinking") if message else None
    kwargs = {**kwargs_from(own), **beside_from(calls, ids)}
    return ChatMessage(
        role=_role(own, message.role if message else "assistant"),
        blocks=blocks_from(
            own,
            message.text if message else "",
            thinking if isinstance(thinking, str) else "",
            blocks,
            spoken=message is not None and (bool(message.text) or not calls),
        ),
        additional_kwargs=kwargs,
    )


def _result(call: ToolCall, call_id: str | None, *, repaired: bool) -> ChatMessage:
    own = _own(mark_of(call).get("result"))
    kwargs = kwargs_from(own, _plain_kwargs(call))
    role = _role(own, "tool")
    named = kwargs.get("tool_call_id") or kwargs.get("call_id")
    if repaired and role is MessageRole.TOOL and not named:
        kwargs["tool_call_id"] = call_id
    return ChatMessage(
        role=role,
        blocks=blocks_from(own, call.output or "", "", {}, spoken=True),
        additional_kwargs=kwargs,
    )


def _own(value: object) -> Mapping[str, JsonValue]:
    return cast("Mapping[str, JsonValue]", value) if isinstance(value, Mapping) else {}


def _first_shape(calls: Sequence[ToolCall]) -> object:
    return mark_of(calls[0]).get("shape") if calls else None


def _role(own: Mapping[str, JsonValue], plain: str) -> MessageRole:
    """The role that was written, unless a later release wrote one that is not known here."""
    try:
        return MessageRole(own.get("role", plain))
    except ValueError:
        return MessageRole(plain)


def _number(call: ToolCall, place: int) -> int:
    number = mark_of(call).get("n")
    return number if isinstance(number, int) else place


def _order(call: ToolCall) -> int:
    order = mark_of(call).get("order")
    return order if isinstance(order, int) else 0
