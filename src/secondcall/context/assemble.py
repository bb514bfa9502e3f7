"""Fits what was gathered into the budget, so that no part is over its limit. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from secondcall.context.answer import answer
from secondcall.context.parts import Context, LeftOut
from secondcall.context.render import fact_line, item_line
from secondcall.types import Brief, Fact, Item, ItemKey, Recalled

if TYPE_CHECKING:
    from secondcall.abc import TokenCounter
    from secondcall.context.budget import TokenBudget
    from secondcall.context.conversation import Conversation, Window
    from secondcall.context.status import Line, Status

__all__ = ["FRAMING_TOKENS", "Gathered", "assemble", "beside"]

FRAMING_TOKENS = 4
"""What a text takes beside its own tokens when it is sent as a message."""
_UNBOUNDED = 1 << 40
_MAX_LISTED = 20
_NO_ROOM_IN_STATE = "does not fit into the tokens of state"
_SHOWN_ALREADY = "what was found stands in the conversation or in the state already"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """What could be read in time, and the tokens of what the host puts beside it.

    ``status`` is told before the brief, and ``brief`` gives that in at most so many tokens.
    ``keys`` names items of the conversation as the record does. ``started`` is the
    ``time.perf_counter`` of when it was asked for.
    """

    conversation: Conversation
    status: Status
    brief: Callable[[int], Brief]
    recalled: Recalled
    keys: Callable[[Sequence[Item]], Collection[ItemKey]]
    system_tokens: int
    tools_tokens: int
    missing: Sequence[str]
    started: float


def assemble(gathered: Gathered, budget: TokenBudget, counter: TokenCounter) -> Context:
    """The context: no part over its limit, and all of them together not over the window.

    Raises: ``OverBudget`` naming the part when the newest turn does not fit.
    """
    fixed = {"system": gathered.system_tokens, "tools": gathered.tools_tokens}
    shares = budget.limits(system_tokens=fixed["system"], tools_tokens=fixed["tools"])
    whole_brief = gathered.brief(_UNBOUNDED)
    status, _ = _status_within(gathered.status, shares["state"], counter)
    shown = gathered.brief(_left_of(shares["state"], status, counter))
    whole_status, _ = gathered.status.within(_UNBOUNDED, counter)
    found = _without(gathered.recalled, (), shown)
    wanted = {
        "buffer": gathered.conversation.tokens,
        "recall": _taken(_rendered(found, None, counter).text, counter),
        "state": _taken(_joined(whole_status, whole_brief.text), counter),
    }
    limits = budget.limits(
        system_tokens=fixed["system"], tools_tokens=fixed["tools"], wanted=wanted
    )
    window = gathered.conversation.window(limits["buffer"])
    status, untold = _status_within(gathered.status, limits["state"], counter)
    brief = _brief_within(gathered.brief, whole_brief, status, limits["state"], counter)
    found = _without(gathered.recalled, gathered.keys(window.items), brief)
    recalled = _recalled_within(found, limits["recall"], counter)
    return Context(
        state=_joined(status, brief.text),
        recall=recalled.text,
        summary=gathered.conversation.summary,
        items=tuple(window.items),
        tokens={
            **fixed,
            "reserve": budget.reserve,
            "state": _taken(_joined(status, brief.text), counter),
            "recall": _taken(recalled.text, counter),
            "summary": gathered.conversation.summary_tokens,
            "buffer": window.tokens,
        },
        limits=limits,
        left_out=(
            *_left_out(window, whole_brief, brief, found, recalled, counter),
            *(_untold(line, counter) for line in untold),
        ),
        missing=tuple(gathered.missing),
        stale=recalled.stale,
        brief=brief,
        recalled=recalled,
        states=gathered.status.states,
        elapsed_seconds=time.perf_counter() - gathered.started,
    )


def beside(context: Context, shown: Collection[ItemKey], counter: TokenCounter) -> str:
    """What was recalled, for a host that shows other items than the context's: without those that
    are ``shown``. Never longer than ``context.recall``."""
    found = _without(context.recalled, shown, context.brief)
    if len(found.items) == len(context.recalled.items):
        return context.recall
    return _recalled_within(found, _taken(context.recall, counter), counter).text


def _text_limit(limit: int) -> int:
    """What a text may have of a limit, after the message that it is sent in."""
    return max(0, limit - FRAMING_TOKENS)


def _taken(text: str, counter: TokenCounter) -> int:
    return counter.count(text) + FRAMING_TOKENS if text else 0


def _joined(*texts: str) -> str:
    return "\n".join(text for text in texts if text)


def _left_of(limit: int, status: str, counter: TokenCounter) -> int:
    """What the brief may have of a limit, after what is told before it."""
    before = counter.count(status + "\n") if status else 0
    return max(0, _text_limit(limit) - before)


def _status_within(status: Status, limit: int, counter: TokenCounter) -> tuple[str, Sequence[Line]]:
    """Where the workflows stand, within a limit, and the lines that had no room."""
    allowed = _text_limit(limit)
    text, untold = status.within(_UNBOUNDED, counter)
    while _taken(text, counter) > limit:
        text, untold = status.within(allowed, counter)
        allowed = allowed * 9 // 10
    return text, untold


def _untold(line: Line, counter: TokenCounter) -> LeftOut:
    tokens = counter.count(line.text + "\n")
    return LeftOut(what=line.what, layer="state", tokens=tokens, reason=_NO_ROOM_IN_STATE)


def _brief_within(
    brief: Callable[[int], Brief], whole: Brief, status: str, limit: int, counter: TokenCounter
) -> Brief:
    """The brief within a limit behind what is told before it, whatever the counter makes of lines
    that are put together."""
    found, allowed = whole, _left_of(limit, status, counter)
    while _taken(_joined(status, found.text), counter) > limit:
        found = brief(allowed)
        allowed = allowed * 9 // 10
    return found


def _recalled_within(found: Recalled, limit: int, counter: TokenCounter) -> Recalled:
    whole = _rendered(found, None, counter)
    result, allowed = whole, _text_limit(limit)
    while _taken(result.text, counter) > limit:
        result = _rendered(found, allowed, counter)
        allowed = allowed * 9 // 10
    return result


def _rendered(found: Recalled, max_tokens: int | None, counter: TokenCounter) -> Recalled:
    result = answer(
        found.items,
        found.facts,
        max_tokens=max_tokens,
        counter=counter,
        reason=found.reason,
        withheld=found.withheld,
        stale=found.stale,
        started=time.perf_counter(),
    )
    return replace(result, elapsed_seconds=found.elapsed_seconds)


def _without(found: Recalled, keys: Collection[ItemKey], brief: Brief) -> Recalled:
    """What was recalled, without what stands in the conversation or in the brief."""
    told = {fact.id for fact in _facts(brief)}
    shown = {*keys, *(word.key for word in brief.last_words)}
    items = [
        one
        for one in found.items
        if any(part.key not in shown for part in (one, *one.before, *one.after))
    ]
    facts = [one for one in found.facts if one.fact.id not in told]
    emptied = (found.items or found.facts) and not (items or facts)
    reason = _SHOWN_ALREADY if emptied else found.reason
    return replace(found, items=items, facts=facts, reason=reason)


def _facts(brief: Brief) -> list[Fact]:
    return [*brief.promises, *brief.issues, *brief.facts]


def _left_out(
    window: Window,
    whole: Brief,
    brief: Brief,
    found: Recalled,
    recalled: Recalled,
    counter: TokenCounter,
) -> tuple[LeftOut, ...]:
    kept_items = {one.key for one in recalled.items}
    kept_facts = {one.fact.id for one in recalled.facts}
    no_room = "does not fit into the tokens of recall"
    return (
        *window.left_out,
        *(
            LeftOut(
                what=f"{one.fact.kind} {one.fact.id!r}",
                layer="recall",
                tokens=counter.count(fact_line(one.fact) + "\n"),
                reason=no_room,
            )
            for one in found.facts
            if one.fact.id not in kept_facts
        ),
        *(
            LeftOut(
                what=f"{one.key.kind} {one.key.id!r}",
                layer="recall",
                tokens=counter.count(item_line(one.item, one.at) + "\n"),
                reason=no_room,
            )
            for one in found.items
            if one.key not in kept_items
        ),
        *_left_out_of_brief(whole, brief, counter),
    )


def _left_out_of_brief(whole: Brief, brief: Brief, counter: TokenCounter) -> list[LeftOut]:
    """Facts by name, at most 20 of them, and the rest as one."""
    if whole.text == brief.text:
        return []
    kept = {fact.id for fact in _facts(brief)}
    facts = [fact for fact in _facts(whole) if fact.id not in kept]
    named = [
        (f"{fact.kind} {fact.id!r}", counter.count(fact_line(fact) + "\n"))
        for fact in facts[:_MAX_LISTED]
    ]
    others = len(facts) - len(named)
    sessions = len(whole.sessions) - len(brief.sessions)
    missing = whole.tokens - brief.tokens - sum(tokens for _, tokens in named)
    if others or sessions:
        named.append((f"{others} more facts and {sessions} conversations", max(0, missing)))
    return [
        LeftOut(what=what, layer="state", tokens=tokens, reason=_NO_ROOM_IN_STATE)
        for what, tokens in named
    ]
