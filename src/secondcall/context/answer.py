"""From what was found to what is handed over: cut to the budget, marked, rendered. Pure."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING

from secondcall.context.render import CLOSING, OPENING, fact_line, fence, fit, item_line, quote
from secondcall.types import ItemKey, Recalled, RecalledFact, RecalledItem

if TYPE_CHECKING:
    from secondcall.abc import TokenCounter
    from secondcall.context.stale import Note

__all__ = ["answer", "mark_stale", "without"]


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
    fact_lines = [(one, fact_line(one.fact)) for one in facts]
    if max_tokens is None:
        item_lines = [(one, _item_line(one)) for one in items]
    else:
        budget = max_tokens - counter.count(f"{OPENING}\n{CLOSING}\n")
        fact_lines, budget = fit(fact_lines, itemgetter(1), budget_tokens=budget, counter=counter)
        item_lines = _fit_items(items, budget, counter)
        if (facts or items) and not (fact_lines or item_lines):
            reason = f"nothing of what was found fits into {max_tokens} tokens"
    kept = [*fact_lines, *item_lines]
    return Recalled(
        items=tuple(one for one, _ in item_lines),
        facts=tuple(one for one, _ in fact_lines),
        text=fence([line for _, line in kept]),
        reason=None if kept else reason,
        withheld=withheld,
        stale=stale,
        elapsed_seconds=time.perf_counter() - started,
    )


def without(found: RecalledItem, keys: Collection[ItemKey]) -> RecalledItem:
    """What was found without the neighbours that are named."""
    return replace(
        found,
        before=[one for one in found.before if one.key not in keys],
        after=[one for one in found.after if one.key not in keys],
    )


def _fit_items(
    items: Sequence[RecalledItem], budget_tokens: int, counter: TokenCounter
) -> list[tuple[RecalledItem, str]]:
    """What fits, best first, and its lines: with its neighbours, or where they are too long,
    without."""
    kept: list[tuple[RecalledItem, str]] = []
    for one in items:
        line = _item_line(one)
        cost = counter.count(line + "\n")
        if cost > budget_tokens and (one.before or one.after):
            one = replace(one, before=(), after=())
            line = _item_line(one)
            cost = counter.count(line + "\n")
        if cost <= budget_tokens:
            kept.append((one, line))
            budget_tokens -= cost
    return kept


def _item_line(found: RecalledItem) -> str:
    note = "" if found.stale is None else f" ({quote(found.stale)[1:-1]})"
    if found.to_confirm is not None:
        note += f" (to be confirmed: {quote(found.to_confirm)[1:-1]})"
    lines = [item_line(one.item, one.at) for one in found.before]
    lines.append(item_line(found.item, found.at, note=note))
    lines += [item_line(one.item, one.at) for one in found.after]
    return "\n".join(lines)
