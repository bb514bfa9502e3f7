"""``recall`` and ``brief``."""

from __future__ import annotations

import asyncio
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
from secondcall.types import Brief, Recalled

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
        "withheld": found.withheld,
        "missing": list(found.missing),
        "left_out": found.left_out,
        "elapsed_ms": round(found.elapsed_seconds * 1_000, 3),
    }


def _say_recalled(found: Recalled) -> None:
    if found.reason is not None:
        say(f"Nothing found: {found.reason}")
    for one in found.facts:
        say(f"{one.fact.kind}: {one.fact.predicate} = {one.fact.value}", bold=True)
    for item in found.items:
        note = f"  {item.score:.3f}" + (f"  ({item.stale})" if item.stale else "")
        head, *words = item_lines(item, note=note)
        say(head, dim=True)
        say("\n".join(words))
    if found.withheld:
        say(f"{found.withheld} withheld: this caller's identity is only claimed.", dim=True)
    if found.stale:
        say("The deadline came first: later writes of other processes are missing.", dim=True)
