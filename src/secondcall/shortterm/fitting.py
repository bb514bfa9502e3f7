"""Makes the newest turn fit: its tool outputs are shortened, the largest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from secondcall.errors import OverBudget
from secondcall.shortterm.measure import Measure, cut_marker
from secondcall.shortterm.window import Entry, Turn
from secondcall.types import Item, Message

__all__ = ["least_tokens", "shorten_outputs"]


def least_tokens(turn: Turn, measure: Measure) -> int:
    """What the turn takes with every output cut to its marker."""
    shown = [entry for entry in turn.entries if not entry.waiting]
    floors = sum(_floor(entry, measure) for entry in shown if entry.size.output)
    return sum(entry.size.firm for entry in shown) + turn.lost_tokens + floors


def shorten_outputs(turn: Turn, room: int, measure: Measure) -> dict[int, tuple[Item, int]]:
    """The items of ``turn`` with a shorter output, by the identity of their entry, each with the
    tokens of that output; with them the turn takes at most ``room`` tokens.

    The largest outputs are brought down to one common size, so that those below it stay whole; none
    is cut further than to its marker. Raises: ``OverBudget`` when even that is too much.
    """
    shown = [entry for entry in turn.entries if not entry.waiting]
    answered = [entry for entry in shown if entry.size.output]
    floors = [_floor(entry, measure) for entry in answered]
    firm = sum(entry.size.firm for entry in shown) + turn.lost_tokens
    if firm + sum(floors) > room:
        raise _over(turn, shown, firm + sum(floors), room)
    level = _level(answered, floors, room - firm)
    shortened: dict[int, tuple[Item, int]] = {}
    for entry, floor in zip(answered, floors, strict=True):
        if entry.size.output > max(level, floor):
            shortened[id(entry)] = _shorten(entry, max(level, floor), measure)
    return shortened


def _floor(entry: Entry, measure: Measure) -> int:
    """The fewest tokens that an output can be brought down to."""
    if entry.marker_tokens is None:
        entry.marker_tokens = measure.count(cut_marker(entry.characters))
    return min(entry.size.output, entry.marker_tokens)


def _level(answered: Sequence[Entry], floors: Sequence[int], room: int) -> int:
    """The largest size to which outputs can be brought down so that they take ``room`` together."""
    low, high = 0, max((entry.size.output for entry in answered), default=0)
    while low < high:
        middle = (low + high + 1) // 2
        taken = sum(
            min(entry.size.output, max(middle, floor))
            for entry, floor in zip(answered, floors, strict=True)
        )
        if taken <= room:
            low = middle
        else:
            high = middle - 1
    return low


def _shorten(entry: Entry, tokens: int, measure: Measure) -> tuple[Item, int]:
    item = entry.item
    assert not isinstance(item, Message)
    output, taken = measure.shorten(item.output or "", entry.characters, tokens)
    return replace(item, output=output), taken


def _over(turn: Turn, shown: Sequence[Entry], tokens: int, room: int) -> OverBudget:
    user = turn.user
    if user is not None and user.tokens > room:
        part, tokens = "the newest user message", user.tokens
        advice = "beside the system text there is no room for it; give a larger token_limit"
    else:
        largest = max(shown, key=lambda entry: entry.size.firm)
        part = f"the newest turn, in which {_called(largest)} is largest,"
        advice = "tool outputs are counted as cut to their markers; give a larger token_limit"
    return OverBudget(part, tokens=tokens, limit=room, advice=advice)


def _called(entry: Entry) -> str:
    item = entry.item
    if isinstance(item, Message):
        return f"the {item.role} message of {entry.size.firm:,} tokens"
    return f"the tool call {item.name!r} with arguments of {entry.size.firm:,} tokens"
