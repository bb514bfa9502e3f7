"""``identity``: which numbers and names lead to which user."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from secondcall.cli.output import print_json, say, stamp
from secondcall.cli.place import Place, store_options, user_option

if TYPE_CHECKING:
    from secondcall.identity import AuditEntry, IdentityKind, LinkedIdentity

__all__ = ["identity"]

_FIELDS: tuple[IdentityKind, ...] = ("phone", "sip", "subject", "email", "device")


@click.group()
def identity() -> None:
    """Link numbers and names to users, merge users, and see what was done."""


def _identity_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for name in reversed(_FIELDS):
        command = click.option(f"--{name}", help=f"The {name} to link.")(command)
    return command


@identity.command()
@user_option
@_identity_options
@click.option("--verified", is_flag=True, help="You have proved that it is theirs.")
@click.option("--reason", default="", help="Kept in the audit trail.")
@store_options
def link(
    place: Place, user_id: str, verified: bool, reason: str, as_json: bool, **fields: str | None
) -> None:
    """Give a user further identities."""
    given: dict[IdentityKind, str | None] = {
        name: fields[name] for name in _FIELDS if fields[name] is not None
    }
    if not given:
        options = ", ".join(f"--{name}" for name in _FIELDS)
        raise click.UsageError(f"give at least one of {options}", click.get_current_context())

    async def run() -> int:
        async with place.open() as memory:
            done = await memory.link(
                user_id, reason=reason, verified=given if verified else (), **given
            )
            return len(done)

    count = asyncio.run(run())
    _done({"user_id": user_id, "linked": count}, f"Linked {count} to user {user_id!r}.", as_json)


@identity.command()
@click.argument("from_user")
@click.argument("into_user")
@click.option("--reason", default="", help="Kept in the audit trail.")
@store_options
def merge(place: Place, from_user: str, into_user: str, reason: str, as_json: bool) -> None:
    """Make two users one: INTO_USER reads both. 'unmerge' undoes it."""

    async def run() -> None:
        async with place.open() as memory:
            await memory.merge(from_user, into_user, reason=reason)

    asyncio.run(run())
    done = {"from_user": from_user, "into_user": into_user, "merged": True}
    _done(done, f"{from_user!r} is now part of {into_user!r}.", as_json)


@identity.command()
@click.argument("from_user")
@click.option("--reason", default="", help="Kept in the audit trail.")
@store_options
def unmerge(place: Place, from_user: str, reason: str, as_json: bool) -> None:
    """Take a merge back."""

    async def run() -> None:
        async with place.open() as memory:
            await memory.unmerge(from_user, reason=reason)

    asyncio.run(run())
    done = {"from_user": from_user, "merged": False}
    _done(done, f"{from_user!r} stands for itself again.", as_json)


@identity.command()
@user_option
@store_options
def audit(place: Place, user_id: str, as_json: bool) -> None:
    """Show what was linked, merged and taken back."""

    async def run() -> tuple[Sequence[LinkedIdentity], Sequence[AuditEntry]]:
        async with place.open() as memory:
            return await memory.identities(user_id), await memory.audit(user_id)

    linked, entries = asyncio.run(run())
    if as_json:
        print_json(
            {
                "identities": [asdict(one) for one in linked],
                "audit": [asdict(one) for one in entries],
            }
        )
        return
    say(f"Identities: {len(linked)}", bold=True)
    for one in linked:
        say("  " + ", ".join(str(value) for value in asdict(one).values() if value is not None))
    say(f"Audit: {len(entries)}", bold=True)
    for entry in entries:
        parts = (entry.action, entry.identity, entry.other_user_id, entry.trust, entry.reason)
        say(f"  {stamp(entry.at)}  {', '.join(part for part in parts if part)}  ({entry.actor})")


def _done(value: Mapping[str, object], text: str, as_json: bool) -> None:
    if as_json:
        print_json(value)
    else:
        say(text)
