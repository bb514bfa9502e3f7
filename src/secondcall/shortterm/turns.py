"""Groups items into turns, the only places where a history may be cut. Pure.

A turn is a user message with everything up to the next user message. What stands before the first
user message is the opening: a greeting, tools that ran before anybody spoke. System messages stand
apart from both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from secondcall.types import Item, Message

__all__ = ["Grouped", "begins_turn", "group", "is_system", "is_waiting"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """The items of a history: system messages, what came before the first user message, turns."""

    system: Sequence[Item]
    opening: Sequence[Item]
    turns: Sequence[Sequence[Item]]


def begins_turn(item: Item) -> bool:
    """Whether the item is a user message, which a turn begins with."""
    return isinstance(item, Message) and item.role == "user"


def is_system(item: Item) -> bool:
    """Whether the item is a system message, which belongs to no turn."""
    return isinstance(item, Message) and item.role == "system"


def is_waiting(item: Item) -> bool:
    """Whether the item is a tool call whose output is not known yet."""
    return not isinstance(item, Message) and item.output is None


def group(items: Iterable[Item]) -> Grouped:
    """The items by turn, in the order in which they come."""
    system: list[Item] = []
    opening: list[Item] = []
    turns: list[list[Item]] = []
    for item in items:
        if is_system(item):
            system.append(item)
        elif begins_turn(item):
            turns.append([item])
        else:
            (turns[-1] if turns else opening).append(item)
    return Grouped(
        system=tuple(system), opening=tuple(opening), turns=tuple(tuple(turn) for turn in turns)
    )
