"""The brief: who this is, what is promised, what is open, what happened last. Pure.

Parts are put in by weight until the token budget is used: promises (overdue first), open issues,
facts (newest first), then the last sessions, each with its recap, or with the user's last words
where there is none that holds.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from secondcall.context.render import CLOSING, OPENING, fact_line, fence, fit, item_line, quote
from secondcall.types import Brief, Fact, ItemKey, Recap, RecordedItem, SessionSummary

if TYPE_CHECKING:
    from secondcall.abc import TokenCounter

__all__ = ["BriefParts", "compose"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BriefParts:
    """What could be read before the deadline; ``missing`` names what could not."""

    facts: Sequence[Fact] = ()
    sessions: Sequence[SessionSummary] = ()
    last_words: Mapping[tuple[str, str], RecordedItem] = field(
        default_factory=dict[tuple[str, str], RecordedItem]
    )
    """(user_id, session_id) to the last thing the user said there."""
    over: Mapping[ItemKey, str] = field(default_factory=dict[ItemKey, str])
    """What became of what those words state, where that is settled or has ended."""
    recaps: Mapping[tuple[str, str], Recap] = field(default_factory=dict[tuple[str, str], Recap])
    withheld: int = 0
    missing: Sequence[str] = ()


def compose(
    parts: BriefParts, *, max_tokens: int, counter: TokenCounter, now: datetime, started: float
) -> Brief:
    """A brief of at most ``max_tokens``; what did not fit is counted in ``left_out``.

    ``started`` is the ``time.perf_counter`` of when it was asked for.
    """
    promises = [fact for fact in parts.facts if fact.kind == "promise"]
    promises.sort(key=lambda fact: fact.due_at or datetime.max.replace(tzinfo=now.tzinfo))
    issues = _newest_first(fact for fact in parts.facts if fact.kind == "issue")
    others = _newest_first(fact for fact in parts.facts if fact.kind not in ("promise", "issue"))
    budget = max_tokens - counter.count(f"{OPENING}\n{CLOSING}\n")

    def line(fact: Fact) -> str:
        return fact_line(fact, now=now)

    def session_lines(session: SessionSummary) -> str:
        return _session_lines(session, parts)

    ranked = [*promises, *issues, *others]
    kept, budget = fit(ranked, line, budget_tokens=budget, counter=counter)
    sessions, budget = fit(parts.sessions, session_lines, budget_tokens=budget, counter=counter)
    text = fence([*map(line, kept), *map(session_lines, sessions)])
    keys = [(session.user_id, session.session_id) for session in sessions]
    return Brief(
        text=text,
        tokens=counter.count(text),
        facts=[fact for fact in kept if fact.kind not in ("promise", "issue")],
        promises=[fact for fact in kept if fact.kind == "promise"],
        issues=[fact for fact in kept if fact.kind == "issue"],
        sessions=sessions,
        last_words=[
            parts.last_words[key]
            for key in keys
            if key in parts.last_words and key not in parts.recaps
        ],
        recaps=[parts.recaps[key] for key in keys if key in parts.recaps],
        known=bool(parts.facts or parts.sessions),
        withheld=parts.withheld,
        missing=parts.missing,
        left_out=len(ranked) - len(kept) + len(parts.sessions) - len(sessions),
        elapsed_seconds=time.perf_counter() - started,
    )


def _newest_first(facts: Iterable[Fact]) -> list[Fact]:
    return sorted(facts, key=lambda fact: (fact.valid_from, fact.id), reverse=True)


def _session_lines(session: SessionSummary, parts: BriefParts) -> str:
    minutes = round((session.last_at - session.first_at).total_seconds() / 60)
    head = f"- conversation on {session.first_at.date().isoformat()}, {minutes} min"
    key = (session.user_id, session.session_id)
    recap, words = parts.recaps.get(key), parts.last_words.get(key)
    if recap is not None:
        return f"{head}: {recap.text}"
    head = f"{head}, {session.items} items"
    if words is None:
        return head
    over = parts.over.get(words.key)
    note = "" if over is None else f" ({quote(over)[1:-1]})"
    return f"{head}, ended with\n  {item_line(words.item, words.at, max_characters=300, note=note)}"
