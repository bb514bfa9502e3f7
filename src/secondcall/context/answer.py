"""From what was found to what is handed over: cut to the budget, marked, rendered. Pure."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from secondcall.context.render import CLOSING, OPENING, fact_line, fence, fit, item_line, quote
from secondcall.types import ItemKey, Message, Recalled, RecalledFact, RecalledItem

if TYPE_CHECKING:
    from secondcall.abc import TokenCounter
    from secondcall.context.stale import Note

__all__ = ["answer", "mark_stale", "whole_turn"]


def mark_stale(
    items: Sequence[RecalledItem],
    notes: Mapping[ItemKey, Note],
    to_confirm: Mapping[ItemKey, str],
) -> list[RecalledItem]:
    """The same items, each with what became of what it said, where its facts have ended, and with
    why what it says is to be confirmed."""
    return [
        replace(
            item,
            stale=None if item.key not in notes else notes[item.key].text,
            to_confirm=to_confirm.get(item.key),
        )
        for item in items
    ]


def answer(
    items: Sequence[RecalledItem],
    facts: Sequence[RecalledFact],
    *,
    max_tokens: int | None,
    counter: TokenCounter,
    reason: str | None,
    withheld: int,
    stale: bool,
    started: float,
) -> Recalled:
    """What ``recall`` returns: of the best first what fits into ``max_tokens``, facts before items.

    Nothing found keeps its ``reason``; what did not fit gives one too. ``started`` is the
    ``time.perf_counter`` of the question.
    """
    if max_tokens is not None:
        budget = max_tokens - counter.count(f"{OPENING}\n{CLOSING}\n")
        kept_facts, budget = fit(facts, _fact_line, budget_tokens=budget, counter=counter)
        kept_items = _fit_items(items, budget, counter)
        if (facts or items) and not (kept_facts or kept_items):
            reason = f"nothing of what was found fits into {max_tokens} tokens"
        facts, items = kept_facts, kept_items
    return Recalled(
        items=tuple(items),
        facts=tuple(facts),
        text=fence([*map(_fact_line, facts), *map(_item_line, items)]),
        reason=None if items or facts else reason,
        withheld=withheld,
        stale=stale,
        elapsed_seconds=time.perf_counter() - started,
    )


def whole_turn(found: RecalledItem, but: Collection[ItemKey]) -> RecalledItem:
    """What was found with what belongs to it, of its neighbours: the reply to a user's words, the
    question before a reply; without those that are named."""
    before, after = found.before, found.after
    if isinstance(found.item, Message):
        before, after = ((), after) if found.item.role == "user" else (before, ())
    return replace(
        found,
        before=[one for one in before if one.key not in but],
        after=[one for one in after if one.key not in but],
    )


def _fit_items(
    items: Sequence[RecalledItem], budget_tokens: int, counter: TokenCounter
) -> list[RecalledItem]:
    """What fits, best first: with its neighbours, or where they are too long, without."""
    kept: list[RecalledItem] = []
    for one in items:
        for shown in (one, replace(one, before=(), after=())):
            cost = counter.count(_item_line(shown) + "\n")
            if cost <= budget_tokens:
                kept.append(shown)
                budget_tokens -= cost
                break
    return kept


def _fact_line(found: RecalledFact) -> str:
    return fact_line(found.fact)


def _item_line(found: RecalledItem) -> str:
    note = "" if found.stale is None else f" ({quote(found.stale)[1:-1]})"
    if found.to_confirm is not None:
        note += f" (to be confirmed: {quote(found.to_confirm)[1:-1]})"
    lines = [item_line(one.item, one.at) for one in found.before]
    lines.append(item_line(found.item, found.at, note=note))
    lines += [item_line(one.item, one.at) for one in found.after]
    return "\n".join(lines)
