"""What a model is shown of a conversation: its turns, and what is remembered, as messages. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from llama_index.core.base.llms.types import ChatMessage

from secondcall.adapters.llama_index.messages import chat_from_items
from secondcall.adapters.llama_index.oversize import key_of
from secondcall.shortterm.turns import group
from secondcall.types import Item, Message

if TYPE_CHECKING:
    from secondcall.types import ItemKind

__all__ = ["Insert", "Parts", "Shown", "view"]

Insert = Literal["user", "system"]
"""In which role memory is put in: as data of the user's, or of the system."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What is shown: the conversation's items, and texts that stand for what is not in them."""

    items: Sequence[Item]
    summary: str = ""
    state: str = ""
    recall: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Whose view it is: the message that is being answered (``None``: the newest), and those that
    somebody else is answering now. ``places`` are those of the items that a list was put in order
    with, by kind and id; the others came later."""

    own: str | None = None
    others: Collection[str] = ()
    places: Mapping[tuple[ItemKind, str], int] = field(
        default_factory=dict[tuple["ItemKind", str], int]
    )


def view(context: Parts, shown: Shown, *, insert: Insert = "user") -> list[ChatMessage]:
    """The messages of a request, all of them new objects: system messages, the summary, older
    turns, what is remembered, and the turn that is being answered, last.

    Memory stands in one fenced message of its own. Every call has its result. What the user said in
    a run that failed stands there without an answer; what ``others`` are answering does not.
    """
    grouped = group(_in_order(context.items, shown.places))
    turns = [turn for turn in grouped.turns if _id(turn) not in shown.others]
    newest = _newest(turns, shown.own)
    older = [turn for turn in turns if turn is not newest]
    remembered = [text for text in (context.state, context.recall) if text]
    found = chat_from_items(grouped.system)
    found += _put_in([context.summary] if context.summary else [], insert)
    found += chat_from_items([item for part in (grouped.opening, *older) for item in part])
    found += _put_in(remembered, insert)
    return found + chat_from_items(newest)


def _in_order(items: Sequence[Item], places: Mapping[tuple[ItemKind, str], int]) -> Sequence[Item]:
    """As they were put in order; what came later by time, where every item has one: a turn that
    ended late stands behind its own question."""
    if any(item.at is None for item in items):
        return items

    def order(item: Item) -> tuple[bool, float]:
        place = places.get(key_of(item))
        if place is not None:
            return False, place
        return True, item.at.timestamp() if item.at else 0.0

    return sorted(items, key=order)


def _newest(turns: Sequence[Sequence[Item]], own: str | None) -> Sequence[Item]:
    named = [turn for turn in turns if own is not None and _id(turn) == own]
    return named[-1] if named else turns[-1] if turns else ()


def _id(turn: Sequence[Item]) -> str | None:
    first = turn[0]
    return first.id if isinstance(first, Message) else first.call_id


def _put_in(texts: Sequence[str], insert: Insert) -> list[ChatMessage]:
    return [ChatMessage(role=insert, content="\n".join(texts))] if texts else []
