"""Items as lists of messages that model providers accept. Pure.

Every tool call is answered right after it; one that still waits for its output is left out, since a
list with an unanswered call is refused. Calls are given one after the other, each with its output:
so a list never claims that two ran at once.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias, cast, get_args

from secondcall.errors import InvalidValue
from secondcall.types import Item, JsonValue, Message, ToolCall

__all__ = ["ChatForm", "messages_from_items", "system_text"]

ChatForm = Literal["openai", "anthropic"]
_Sent: TypeAlias = dict[str, JsonValue]

_BEGINNING = "(The conversation begins.)"
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
_SPEAKER = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NOT_PLAIN = re.compile(r"[^a-zA-Z0-9_-]")
"""OpenAI and Anthropic take names and ids of these characters only; OpenAI ids of at most 40."""


def messages_from_items(
    items: Iterable[Item], *, form: ChatForm = "openai", system: str = ""
) -> list[dict[str, JsonValue]]:
    """The messages of ``items``, in order, in the form of a provider's chat API.

    ``"openai"``: ``system`` is put in front as a system message; calls stand in ``tool_calls``,
    outputs in messages of the role ``tool``. ``"anthropic"``: content in blocks, roles alternate
    from ``user`` on, and a list that would begin with the assistant gets
    "(The conversation begins.)" in front. Its system text goes beside the messages: take
    ``system_text(items, system)`` for the request's ``system``; system messages are left out of the
    list, and ``system`` is refused here.

    A message without words is left out, or names what it held: "(image_url)". Names and call ids
    that providers refuse are changed, ids so that they stay distinct. Arguments that are no JSON
    object are put into one, as ``{"arguments": ...}``. Thinking is given in the
    Anthropic form where its signature is known, else left out.

    Raises: ``InvalidValue``.
    """
    if form not in get_args(ChatForm):
        raise InvalidValue(f"form is {form!r}, expected one of {', '.join(get_args(ChatForm))}")
    if form == "openai":
        return _openai(items, system)
    if system:
        raise InvalidValue(
            "system does not go into Anthropic's messages; give system_text(items, system) as the "
            "request's system"
        )
    return _anthropic(items)


def system_text(items: Iterable[Item], system: str = "") -> str:
    """``system`` and the system messages of ``items``, one below the other."""
    texts = [item.text for item in items if isinstance(item, Message) and item.role == "system"]
    return "\n\n".join(text for text in (system, *texts) if text)


def _openai(items: Iterable[Item], system: str) -> list[_Sent]:
    sent: list[_Sent] = [{"role": "system", "content": system}] if system else []
    ids = _Ids()
    for item in items:
        if isinstance(item, Message):
            words = _words(item)
            if words:
                sent.append(_openai_message(item, words))
        elif item.output is not None:
            call_id = ids.take(item.call_id)
            call: _Sent = {
                "id": call_id,
                "type": "function",
                "function": {"name": _tool_name(item), "arguments": _json(_arguments(item))},
            }
            _openai_caller(sent)["tool_calls"] = [call]
            sent.append({"role": "tool", "tool_call_id": call_id, "content": item.output})
    return sent


def _openai_message(item: Message, words: str) -> _Sent:
    message: _Sent = {"role": item.role, "content": words}
    if item.speaker is not None and _SPEAKER.fullmatch(item.speaker):
        message["name"] = item.speaker
    return message


def _openai_caller(sent: list[_Sent]) -> _Sent:
    """The message that a call goes into: what the assistant said just before, or one of its own."""
    if not sent or sent[-1]["role"] != "assistant" or "tool_calls" in sent[-1]:
        sent.append({"role": "assistant", "content": None})
    return sent[-1]


def _anthropic(items: Iterable[Item]) -> list[_Sent]:
    turns: list[tuple[str, list[_Sent]]] = []
    ids = _Ids()
    for item in items:
        if isinstance(item, Message):
            if item.role != "system":
                _say(turns, item.role, _message_blocks(item))
        elif item.output is not None:
            call_id = ids.take(item.call_id)
            _say(turns, "assistant", [*_thinking_blocks(item), _tool_use(item, call_id)])
            _say(turns, "user", [_tool_result(item, call_id)])
    if turns and turns[0][0] == "assistant":
        turns.insert(0, ("user", [{"type": "text", "text": _BEGINNING}]))
    return [{"role": role, "content": cast("JsonValue", blocks)} for role, blocks in turns]


def _say(turns: list[tuple[str, list[_Sent]]], role: str, blocks: Sequence[_Sent]) -> None:
    if not blocks:
        return
    if turns and turns[-1][0] == role:
        turns[-1][1].extend(blocks)
    else:
        turns.append((role, list(blocks)))


def _message_blocks(item: Message) -> list[_Sent]:
    words = _words(item)
    if not words.strip():
        return []
    return [*_thinking_blocks(item), {"type": "text", "text": words}]


def _thinking_blocks(item: Item) -> list[_Sent]:
    thinking = item.metadata.get("thinking")
    signature = item.metadata.get("thinking_signature")
    if not isinstance(thinking, str) or not isinstance(signature, str):
        return []
    return [{"type": "thinking", "thinking": thinking, "signature": signature}]


def _tool_use(item: ToolCall, call_id: str) -> _Sent:
    return {
        "type": "tool_use",
        "id": call_id,
        "name": _tool_name(item),
        "input": _arguments(item),
    }


def _arguments(item: ToolCall) -> JsonValue:
    """The arguments as a JSON object, which providers insist on."""
    given = item.arguments
    if isinstance(given, str):
        given = _read_object(given)
    if given is None:
        return {}
    return given if isinstance(given, dict) else {"arguments": given}


def _read_object(text: str) -> JsonValue:
    """The JSON object that a text holds, else the text."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return cast("JsonValue", value) if isinstance(value, dict) else text


def _tool_result(item: ToolCall, call_id: str) -> _Sent:
    result: _Sent = {"type": "tool_result", "tool_use_id": call_id, "content": item.output}
    if item.is_error:
        result["is_error"] = True
    return result


def _words(item: Message) -> str:
    parts = item.metadata.get("parts")
    if item.text or not isinstance(parts, list | tuple):
        return item.text
    return f"({', '.join(str(part) for part in cast('Sequence[object]', parts))})"


def _json(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)


def _tool_name(item: ToolCall) -> str:
    if _TOOL_NAME.fullmatch(item.name):
        return item.name
    return _NOT_PLAIN.sub("_", item.name)[:64]


class _Ids:
    """Gives each call of one list an id that providers take, the same for the same list."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, call_id: str) -> str:
        given = call_id
        number = 0
        while given in self._taken or not _CALL_ID.fullmatch(given):
            digest = hashlib.blake2b(f"{number} {call_id}".encode(), digest_size=4).hexdigest()
            given = f"{_NOT_PLAIN.sub('_', call_id)[:31]}_{digest}"
            number += 1
        self._taken.add(given)
        return given
