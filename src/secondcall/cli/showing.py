"""``show``: who is known, and what is held of one user."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence

import click

from secondcall.cli.buffered import show_context
from secondcall.cli.output import fact_json, item_json, item_lines, print_json, say, stamp
from secondcall.cli.place import Place, known_user, store_options
from secondcall.errors import UnknownName
from secondcall.memory import Memory, UserMemory
from secondcall.types import Fact, Recap, RecordedItem, SessionSummary

__all__ = ["show"]

_PAGE = 1_000
_RECAPS = 20
"""Of so many sessions, the last ones, the recap is shown."""


@click.command()
@click.option("--user", "user_id", help="The user's id; without it the known users are listed.")
@click.option("--session", "session_id", help="Show the items of this session.")
@click.option("--item", "item_id", help="Show the item with this id.")
@click.option("--all", "everything", is_flag=True, help="Show the items of all sessions.")
@click.option(
    "--context",
    is_flag=True,
    help="Show what the chat buffer of --session gives a model: tokens by item, what was cut, why.",
)
@click.option(
    "--token-limit", type=int, help="The buffer's token limit for --context.  [default: 3000]"
)
@store_options
def show(
    place: Place,
    user_id: str | None,
    session_id: str | None,
    item_id: str | None,
    everything: bool,
    context: bool,
    token_limit: int | None,
    as_json: bool,
) -> None:
    """Show what is held: users, a user's facts and sessions, the items, or one item."""
    if user_id is None and (session_id or item_id or everything or context):
        raise click.UsageError(
            "--session, --item, --all and --context need --user", click.get_current_context()
        )

    async def read() -> None:
        async with place.open() as memory:
            if user_id is None:
                _say_users([one async for one in all_users(memory)], as_json=as_json)
                return
            user = await known_user(memory, user_id)
            if context:
                await show_context(user, session_id, token_limit, as_json=as_json)
            elif session_id or item_id or everything:
                found = await _items(user, session_id, item_id)
                _say_items(found, as_json=as_json)
            else:
                facts, sessions = await user.facts(), await user.sessions(limit=_PAGE)
                recaps = await user.recaps(limit=_RECAPS)
                _say_overview(facts, sessions, recaps, as_json=as_json)

    asyncio.run(read())


async def all_users(memory: Memory) -> AsyncIterator[str]:
    """The known user ids in order."""
    after = ""
    while page := await memory.users(after=after, limit=_PAGE):
        for user_id in page:
            yield user_id
        after = page[-1]


async def _items(
    user: UserMemory, session_id: str | None, item_id: str | None
) -> list[RecordedItem]:
    found = [
        item
        async for item in user.items(session_id=session_id)
        if item_id is None or item.key.id == item_id
    ]
    if not found:
        what = f"item {item_id!r}" if item_id is not None else "item"
        where = f" in session {session_id!r}" if session_id is not None else ""
        raise UnknownName(f"user {user.user_id!r} has no {what}{where}")
    return found


def _say_users(user_ids: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        print_json({"users": user_ids})
    elif user_ids:
        say("\n".join(user_ids))
    else:
        say("Nobody is known here yet.")


def _say_items(items: Sequence[RecordedItem], *, as_json: bool) -> None:
    if as_json:
        print_json({"items": [item_json(item) for item in items]})
        return
    for item in items:
        head, *words = item_lines(item)
        say(head, dim=True)
        say("\n".join(words))


def _say_overview(
    facts: Sequence[Fact],
    sessions: Sequence[SessionSummary],
    recaps: Sequence[Recap],
    *,
    as_json: bool,
) -> None:
    texts = {(one.user_id, one.session_id): one.text for one in recaps}
    if as_json:
        print_json(
            {
                "facts": [fact_json(fact) for fact in facts],
                "sessions": [
                    {
                        "session_id": one.session_id,
                        "first_at": one.first_at,
                        "last_at": one.last_at,
                        "items": one.items,
                        "recap": texts.get((one.user_id, one.session_id)),
                    }
                    for one in sessions
                ],
            }
        )
        return
    say(f"Facts: {len(facts)}", bold=True)
    for fact in facts:
        status = "" if fact.status == "current" else f" ({fact.status})"
        value = fact.value if isinstance(fact.value, str) else json.dumps(fact.value)
        subject = "" if fact.subject == "user" else f"{fact.subject}, "
        say(f"  {fact.kind}{status}: {subject}{fact.predicate} = {value}")
        if fact.to_confirm is not None:
            say(f"    to be confirmed: {fact.to_confirm}", dim=True)
    say(f"Sessions: {len(sessions)}", bold=True)
    for one in sessions:
        say(f"  {stamp(one.first_at)}  {one.session_id}  {one.items} items")
        recap = texts.get((one.user_id, one.session_id))
        if recap is not None:
            say(f"    {recap}", dim=True)
