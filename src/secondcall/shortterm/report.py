"""What a buffer says of itself: each item's tokens, what became of it, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from secondcall.types import ItemKind

__all__ = ["BufferReport", "Fate", "ItemReport"]

Fate = Literal["kept", "shortened", "waiting", "cut", "summarised", "ignored"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemReport:
    """One item: ``id`` is its message id (``None`` if it has none) or call id, ``label`` its role
    or ``tool <name>``. ``tokens`` is what it takes whole, ``shown_tokens`` what it takes in
    ``get()``. ``estimated`` tokens were not counted to the end. Its words are not repeated here.
    """

    kind: ItemKind
    id: str | None
    label: str
    fate: Fate
    why: str
    tokens: int
    shown_tokens: int
    estimated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferReport:
    """What is in a buffer and what is not.

    ``tokens`` is what ``get()`` takes, of ``token_limit``; ``system_tokens`` are in it, and so are
    ``reserved_tokens``, which stand for text that is put in front from elsewhere. ``items`` names
    at most 50 of the items that left, then at most 200 of those held, in order; ``counts`` counts
    all of them by fate since the buffer was made or cleared. ``problem`` is what ``get()`` raises,
    if it does. ``counter_failure`` is the kind of the token counter's last error: what it failed on
    is estimated.
    """

    token_limit: int
    tokens: int
    system_tokens: int
    reserved_tokens: int
    turns: int
    items: Sequence[ItemReport]
    counts: Mapping[Fate, int]
    cut_tokens: int
    not_listed: int = 0
    problem: str | None = None
    counter_failure: str | None = None
