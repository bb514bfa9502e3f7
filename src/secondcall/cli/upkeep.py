"""``doctor``, ``retention`` and ``reindex``."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from urllib.parse import urlsplit

import click

from secondcall import registry
from secondcall.abc import Store
from secondcall.cli.examining import Examined, examine_user
from secondcall.cli.output import Progress, print_json, say
from secondcall.cli.place import Place, known_user, store_options
from secondcall.cli.showing import all_users
from secondcall.errors import SecondcallError, UnknownName
from secondcall.identity import partitions_of
from secondcall.memory import Memory

__all__ = ["doctor", "reindex", "retention"]

_PACKAGES = ("secondcall", "apsw", "numpy", "click", "anyio")


@click.command()
@click.option("--user", "user_id", help="Read only what is held of this user; default everybody.")
@store_options
def doctor(place: Place, user_id: str | None, as_json: bool) -> None:
    """Check the store, everything that it holds of the tenant's users, and the embedder.

    Every item, fact and search segment is read and nothing is written. What cannot be read is named
    by user, session and id, one line each; then the exit code is 1.
    """
    checks = asyncio.run(_examine(place, user_id))
    sound = all(check["ok"] for check in checks)
    if as_json:
        print_json({"ok": sound, "checks": checks})
    else:
        for check in checks:
            say(f"{'ok  ' if check['ok'] else 'FAIL'}  {check['name']}: {check['detail']}")
    if not sound:
        click.get_current_context().exit(1)


@click.command()
@click.option("--user", "user_id", help="Only this user.")
@click.option("--keep", help="Give the user a policy of their own, such as 90d; 'tenant' ends it.")
@click.option(
    "--hold/--lift-hold", default=None, help="Put the user under a legal hold, or lift it."
)
@click.option("--sweep", is_flag=True, help="Remove now what has run out.")
@click.option("--dry-run", is_flag=True, help="Count what has run out, remove nothing.")
@store_options
def retention(
    place: Place,
    user_id: str | None,
    keep: str | None,
    hold: bool | None,
    sweep: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Show how long things are kept, and count or remove what has run out.

    The tenant's policy is SECONDCALL_RETAIN; a user may have one of their own.
    """
    if user_id is None and (keep is not None or hold is not None):
        raise click.UsageError("--keep and --hold need --user", click.get_current_context())
    if sweep and dry_run:
        raise click.UsageError("--sweep or --dry-run, not both", click.get_current_context())
    found = asyncio.run(_retention(place, user_id, keep, hold, sweep=sweep, dry_run=dry_run))
    if as_json:
        print_json({"tenant": place.retain, "policy": found.policy, "swept": found.swept})
        return
    say(f"The tenant keeps things {place.retain or 'for ever'}.")
    if found.policy is not None:
        say(f"User {user_id!r}: {', '.join(f'{name} {one}' for name, one in found.policy.items())}")
    if found.swept is not None:
        done = "have run out" if dry_run else "removed"
        say(f"{sum(found.swept.values())} {done}, of {len(found.swept)} users")


@click.command()
@click.option("--user", "user_id", help="Only this user; default everybody.")
@store_options
def reindex(place: Place, user_id: str | None, as_json: bool) -> None:
    """Build the search indexes anew, with today's embedder, while the old ones serve."""
    done = asyncio.run(_reindex(place, user_id))
    if as_json:
        print_json({"users": len(done), "changes": sum(done.values())})
    else:
        say(f"{sum(done.values()):,} changes of {len(done)} users indexed anew")


async def _examine(place: Place, user_id: str | None) -> list[dict[str, object]]:
    scheme = urlsplit(place.url).scheme
    versions = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    checks = [_check("versions", f"Python {platform.python_version()}, {versions}")]
    try:
        store = registry.store_from_url(place.url)
        async with place.open(store) as memory:
            checks.append(_check("store", f"{scheme}:// opens, its schema is current"))
            problems = await memory.problems()
            detail = "; ".join(problems) if problems else "nothing wrong in the stored bytes"
            checks.append(_check("stored bytes", detail, ok=not problems))
            checks.extend(await _held(memory, store, user_id))
    except UnknownName:
        raise
    except (SecondcallError, OSError) as error:
        checks.append(_check("store", str(error), ok=False))
    checks.append(await _embedder(place.embedder))
    return checks


async def _held(memory: Memory, store: Store, user_id: str | None) -> list[dict[str, object]]:
    """What is held of one user and those merged into one with it, or of everybody."""
    found = Examined()
    with Progress("users read") as progress:
        if user_id is None:
            async for one in all_users(memory):
                await examine_user(memory, store, one, found)
                progress.advance()
        else:
            await known_user(memory, user_id)
            family = await partitions_of(store, memory.tenant_id, user_id)
            for one in family.user_ids:
                await examine_user(memory, store, one, found)
                progress.advance()
    if found.problems:
        return [_check("held", problem, ok=False) for problem in found.problems]
    detail = f"{found.items:,} items and {found.facts:,} facts of {found.users:,} users can be read"
    return [_check("held", detail)]


async def _embedder(name: str) -> dict[str, object]:
    try:
        embedder = registry.embedder_from_name(name)
        try:
            vector = await embedder.embed_query("Does this work?")
        finally:
            await embedder.aclose()
    except (SecondcallError, OSError) as error:
        return _check("embedder", str(error), ok=False)
    sound = vector.shape == (embedder.dimensions,)
    return _check("embedder", f"{embedder.id}, {embedder.dimensions} dimensions", ok=sound)


def _check(name: str, detail: str, *, ok: bool = True) -> dict[str, object]:
    return {"name": name, "ok": ok, "detail": detail}


@dataclass(slots=True)
class _Retention:
    policy: Mapping[str, object] | None = None
    swept: Mapping[str, int] | None = None


async def _retention(
    place: Place,
    user_id: str | None,
    keep: str | None,
    hold: bool | None,
    *,
    sweep: bool,
    dry_run: bool,
) -> _Retention:
    found = _Retention()
    async with place.open() as memory:
        if user_id is None:
            if sweep or dry_run:
                with Progress("users checked") as progress:
                    found.swept = await memory.sweep(
                        dry_run=dry_run, progress=lambda _user, _count: progress.advance()
                    )
            return found
        user = await known_user(memory, user_id)
        if keep is not None:
            await user.retain(None if keep == "tenant" else keep)
        if hold is not None:
            await user.hold(hold)
        found.policy = await user.retention()
        if sweep or dry_run:
            found.swept = {user_id: await user.sweep(dry_run=dry_run)}
    return found


async def _reindex(place: Place, user_id: str | None) -> Mapping[str, int]:
    done: dict[str, int] = {}
    async with place.open() as memory:
        if user_id is not None:
            users = [(await known_user(memory, user_id)).user_id]
        else:
            users = [one async for one in all_users(memory)]
        for number, one in enumerate(users, 1):
            with Progress(f"user {number} of {len(users)}, changes indexed") as progress:
                done[one] = await memory.user(one).reindex(progress=progress.reach)
    return done
