"""``recall`` and ``brief``."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from typing import Literal

import click

from secondcall.cli.output import (
    fact_json,
    item_json,
    item_lines,
    print_json,
    recalled_json,
    say,
)
from secondcall.cli.place import Place, known_user, store_options, user_option
from secondcall.cli.times import time
from secondcall.recall.confidence import DEFAULT_CONFIDENCE
from secondcall.types import Brief, Recalled, RecalledItem

__all__ = ["brief", "brief_json", "recall", "recalled_answer_json"]

_By = Literal["message", "turn", "session"]


@click.command()
@click.argument("query")
@user_option
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=5,
    show_default=True,
    help="How many are found at most.",
)
@click.option(
    "--by",
    type=click.Choice(["message", "turn", "session"]),
    default="message",
    show_default=True,
    help="What is counted and returned.",
)
@click.option("--session", "sessions", multiple=True, help="Only in this session; may be repeated.")
@click.option("--since", type=time, help="Only from this time on.")
@click.option("--until", type=time, help="Only before this time.")
@click.option("--at", type=time, help="The moment of asking; default now.")
@click.option(
    "--stale",
    type=click.Choice(["mark", "drop"]),
    default="mark",
    show_default=True,
    help="What becomes of items whose facts have ended.",
)
@click.option(
    "--time",
    "when",
    type=click.Choice(["soft", "hard"]),
    default="soft",
    show_default=True,
    help="Whether a time that QUERY names is a hint or a filter.",
)
@click.option(
    "--time-zone", help="Where the user's days begin, such as Europe/Berlin; default UTC."
)
@click.option(
    "--neighbours",
    type=click.IntRange(0, 10),
    default=0,
    show_default=True,
    help="So many items on either side come along.",
)
@click.option(
    "--min-confidence",
    type=click.FloatRange(0, 1),
    default=DEFAULT_CONFIDENCE,
    show_default=True,
    help="Find nothing when less sure.",
)
@click.option("--small-talk", is_flag=True, help="Find greetings and thanks too.")
@click.option("--explain", is_flag=True, help="Say how QUERY was read and what gave each score.")
@click.option("--max-tokens", type=click.IntRange(1), help="Cut what is found to so many tokens.")
@store_options
def recall(
    place: Place,
    query: str,
    user_id: str,
    limit: int,
    by: _By,
    sessions: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    at: datetime | None,
    stale: Literal["mark", "drop"],
    when: Literal["soft", "hard"],
    time_zone: str | None,
    neighbours: int,
    min_confidence: float,
    small_talk: bool,
    explain: bool,
    max_tokens: int | None,
    as_json: bool,
) -> None:
    """Find what was said and done that answers QUERY, best first."""

    async def ask() -> Recalled:
        async with place.open() as memory:
            user = await known_user(memory, user_id)
            return await user.recall(
                query,
                limit=limit,
                by=by,
                at=at,
                sessions=sessions or None,
                since=since,
                until=until,
                stale=stale,
                time=when,
                time_zone=time_zone,
                neighbours=neighbours,
                min_confidence=min_confidence,
                small_talk=small_talk,
                explain=explain,
                max_tokens=max_tokens,
            )

    found = asyncio.run(ask())
    if as_json:
        print_json(recalled_answer_json(found))
    else:
        _say_recalled(found)


@click.command()
@user_option
@click.option(
    "--max-tokens",
    type=click.IntRange(1),
    default=400,
    show_default=True,
    help="How long it may be.",
)
@store_options
def brief(place: Place, user_id: str, max_tokens: int, as_json: bool) -> None:
    """Print what a new conversation with a user starts with."""

    async def read() -> Brief:
        async with place.open() as memory:
            user = await known_user(memory, user_id)
            return await user.brief(max_tokens=max_tokens, deadline_seconds=None)

    found = asyncio.run(read())
    if as_json:
        print_json(brief_json(found))
        return
    say(found.text or f"Nothing fits into {max_tokens} tokens.")
    if found.left_out:
        say(f"{found.left_out} more did not fit into {max_tokens} tokens.", dim=True)


def recalled_answer_json(found: Recalled) -> dict[str, object]:
    """What ``recall --json`` prints."""
    return {
        "items": [recalled_json(item) for item in found.items],
        "facts": [{**fact_json(one.fact), "score": round(one.score, 6)} for one in found.facts],
        "text": found.text,
        "reason": found.reason,
        "withheld": found.withheld,
        "stale": found.stale,
        "confidence": found.confidence,
        "warnings": list(found.warnings),
        "explanation": found.explanation,
        "elapsed_ms": round(found.elapsed_seconds * 1_000, 3),
    }


def brief_json(found: Brief) -> dict[str, object]:
    """What ``brief --json`` prints."""
    return {
        "text": found.text,
        "tokens": found.tokens,
        "known": found.known,
        "facts": [fact_json(fact) for fact in found.facts],
        "promises": [fact_json(fact) for fact in found.promises],
        "issues": [fact_json(fact) for fact in found.issues],
        "sessions": [
            {
                "session_id": one.session_id,
                "first_at": one.first_at,
                "last_at": one.last_at,
                "items": one.items,
            }
            for one in found.sessions
        ],
        "last_words": [item_json(item) for item in found.last_words],
        "recaps": [{"session_id": one.session_id, "text": one.text} for one in found.recaps],
        "withheld": found.withheld,
        "missing": list(found.missing),
        "left_out": found.left_out,
        "elapsed_ms": round(found.elapsed_seconds * 1_000, 3),
    }


def _features(item: RecalledItem) -> str:
    parts = [f"{name} {value:+.3f}" for name, value in item.features.items()]
    return f"  {', '.join(parts)}; words: {', '.join(item.matched) or 'none'}"


def _say_recalled(found: Recalled) -> None:
    if found.reason is not None:
        say(f"Nothing found: {found.reason}")
    for one in found.facts:
        say(f"{one.fact.kind}: {one.fact.predicate} = {one.fact.value}", bold=True)
        if one.fact.to_confirm is not None:
            say(f"  to be confirmed: {one.fact.to_confirm}")
    for item in found.items:
        _say_item(item, explained=found.explanation is not None)
    if found.explanation is not None:
        for name, value in found.explanation.items():
            say(f"{name}: {json.dumps(value, ensure_ascii=False)}", dim=True)
        say(f"confidence: {found.confidence:.3f}", dim=True)
    if found.withheld:
        say(f"{found.withheld} withheld: this caller's identity is only claimed.", dim=True)
    if found.stale:
        say("The deadline came first: later writes of other processes are missing.", dim=True)


def _say_item(item: RecalledItem, *, explained: bool) -> None:
    for beside in item.before:
        say("\n".join(item_lines(beside)), dim=True)
    note = f"  {item.score:.3f}" + (f"  ({item.stale})" if item.stale else "")
    note += f"  (to be confirmed: {item.to_confirm})" if item.to_confirm else ""
    head, *words = item_lines(item, note=note)
    say(head, dim=True)
    say("\n".join(words))
    if explained:
        say(_features(item), dim=True)
    for beside in item.after:
        say("\n".join(item_lines(beside)), dim=True)
