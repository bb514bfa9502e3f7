"""``forget``: remove everything of a user, and say what is gone."""

from __future__ import annotations

import asyncio
import sys

import click

from secondcall.cli.output import print_json, say
from secondcall.cli.place import Place, known_user, store_options, user_option
from secondcall.types import Receipt

__all__ = ["forget"]

_INCOMPLETE = 3


@click.command()
@user_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_options
def forget(place: Place, user_id: str, yes: bool, as_json: bool) -> None:
    """Remove everything of a user, from rows, indexes and files. There is no way back.

    Exit code 3 says that something is physically still there; it is completed at the next opening.
    """
    # Asked outside the event loop, in which Ctrl-C would not end the waiting.
    if not yes and not _confirmed(asyncio.run(_known(place, user_id))):
        raise click.ClickException("not confirmed; nothing was forgotten")
    receipt = asyncio.run(_forget(place, user_id))
    if as_json:
        print_json(
            {
                "user_id": receipt.user_id,
                "removed": dict(receipt.removed),
                "remaining": dict(receipt.remaining),
                "complete": receipt.complete,
                "detail": receipt.detail,
            }
        )
    else:
        _say_receipt(receipt)
    if not receipt.complete:
        click.get_current_context().exit(_INCOMPLETE)


async def _known(place: Place, user_id: str) -> str:
    async with place.open() as memory:
        return (await known_user(memory, user_id)).user_id


async def _forget(place: Place, user_id: str) -> Receipt:
    async with place.open() as memory:
        return await (await known_user(memory, user_id)).forget()


def _confirmed(user_id: str) -> bool:
    question = f"Forget everything of user {user_id!r}? There is no way back. [y/N]: "
    click.echo(question, nl=False, err=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _say_receipt(receipt: Receipt) -> None:
    say(f"User {receipt.user_id!r} is forgotten.")
    for place, count in receipt.removed.items():
        if count:
            say(f"  {place}: {count} removed")
    for place, count in receipt.remaining.items():
        if count:
            say(f"  {place}: {count} still there")
    if not receipt.complete:
        say(f"Not complete: {receipt.detail}")
