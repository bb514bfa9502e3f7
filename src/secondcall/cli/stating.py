"""``remember``, ``settle``, ``retract`` and ``facts``: what is true of a user, and what was."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import datetime
from typing import cast, get_args

import click

from secondcall.cli.output import fact_json, print_json, say, stamp
from secondcall.cli.place import Place, known_user, store_options, user_option
from secondcall.cli.times import time
from secondcall.types import Fact, FactKind, FactStatus, JsonValue

__all__ = ["facts", "remember", "retract", "settle"]

_SETTLED = ("kept", "broken", "withdrawn", "promised", "resolved", "open")
_subject_option = click.option(
    "--subject", default="user", show_default=True, help="Whom the fact is about."
)
_at_option = click.option("--at", type=time, help="When it happened; default now.")


@click.command()
@click.argument("predicate")
@click.argument("value")
@user_option
@click.option(
    "--kind",
    type=click.Choice(get_args(FactKind)),
    default="attribute",
    show_default=True,
    help="What kind of fact it is.",
)
@_subject_option
@click.option("--multi/--single", default=None, help="Several values at a time, or one.")
@click.option("--rests-on", multiple=True, help="The id of a fact it relies on; may be repeated.")
@click.option("--valid-from", type=time, help="Since when it is true; default now.")
@click.option("--due", type=time, help="Until when a promise is to be kept.")
@click.option("--sensitive", is_flag=True, help="Withhold it from callers who only claim an id.")
@click.option("--parse", is_flag=True, help="VALUE is JSON, not text.")
@store_options
def remember(
    place: Place,
    predicate: str,
    value: str,
    user_id: str,
    kind: str,
    subject: str,
    multi: bool | None,
    rests_on: tuple[str, ...],
    valid_from: datetime | None,
    due: datetime | None,
    sensitive: bool,
    parse: bool,
    as_json: bool,
) -> None:
    """Remember that PREDICATE is VALUE; it ends what was true before, unless there are several."""
    told = _parsed(value) if parse else value

    async def tell() -> Fact:
        async with place.open() as memory:
            return await memory.user(user_id).remember(
                predicate,
                told,
                kind=cast("FactKind", kind),
                subject=subject,
                valid_from=valid_from,
                due_at=due,
                sensitive=sensitive,
                multi=multi,
                rests_on=rests_on or None,
            )

    _say_changed(asyncio.run(tell()), as_json=as_json)


@click.command()
@click.argument("predicate")
@click.argument("status", type=click.Choice(_SETTLED))
@user_option
@_subject_option
@click.option("--value", help="Which one, where there are several.")
@_at_option
@store_options
def settle(
    place: Place,
    predicate: str,
    status: str,
    user_id: str,
    subject: str,
    value: str | None,
    at: datetime | None,
    as_json: bool,
) -> None:
    """Move the promise or issue PREDICATE on to STATUS."""

    async def move() -> Fact:
        async with place.open() as memory:
            user = await known_user(memory, user_id)
            return await user.settle(
                predicate, cast("FactStatus", status), subject=subject, value=value, at=at
            )

    _say_changed(asyncio.run(move()), as_json=as_json)


@click.command()
@click.argument("predicate")
@user_option
@_subject_option
@click.option("--value", help="Which one ends, where there are several.")
@_at_option
@store_options
def retract(
    place: Place,
    predicate: str,
    user_id: str,
    subject: str,
    value: str | None,
    at: datetime | None,
    as_json: bool,
) -> None:
    """End what is true of PREDICATE, with nothing in its place; it stays in the history."""

    async def end() -> Fact:
        async with place.open() as memory:
            user = await known_user(memory, user_id)
            return await user.retract(predicate, subject=subject, value=value, at=at)

    _say_changed(asyncio.run(end()), as_json=as_json)


@click.command()
@click.argument("predicate", required=False)
@user_option
@_subject_option
@click.option("--as-of", type=time, help="What was true then.")
@click.option("--believed-at", type=time, help="By what had been told by then.")
@click.option("--history", is_flag=True, help="Every fact of PREDICATE, or of all, ended ones too.")
@store_options
def facts(
    place: Place,
    predicate: str | None,
    user_id: str,
    subject: str,
    as_of: datetime | None,
    believed_at: datetime | None,
    history: bool,
    as_json: bool,
) -> None:
    """Show what is true of a user, now or at a time, and what is to be confirmed."""
    if history and (as_of or believed_at):
        raise click.UsageError(
            "--history shows all times; leave out --as-of and --believed-at",
            click.get_current_context(),
        )

    async def read() -> Sequence[Fact]:
        async with place.open() as memory:
            user = await known_user(memory, user_id)
            if history:
                return await user.history(predicate, subject=subject)
            found = await user.facts(as_of=as_of, believed_at=believed_at)
            if predicate is None:
                return found
            ids = {fact.id for fact in await user.history(predicate, subject=subject)}
            return [fact for fact in found if fact.id in ids]

    found = asyncio.run(read())
    if as_json:
        print_json({"facts": [fact_json(fact) for fact in found]})
        return
    for fact in found:
        _say_fact(fact)
    if not found:
        say("Nothing is known.")


def _parsed(value: str) -> JsonValue:
    try:
        return cast("JsonValue", json.loads(value))
    except (ValueError, RecursionError):
        raise click.UsageError(
            "VALUE is not JSON; leave out --parse for text", click.get_current_context()
        ) from None


def _say_changed(fact: Fact, *, as_json: bool) -> None:
    if as_json:
        print_json(fact_json(fact))
    else:
        _say_fact(fact)


def _say_fact(fact: Fact) -> None:
    status = "" if fact.status == "current" else f" ({fact.status})"
    value = fact.value if isinstance(fact.value, str) else json.dumps(fact.value)
    subject = "" if fact.subject == "user" else f"{fact.subject}, "
    ended = "" if fact.invalid_at is None else f" until {stamp(fact.invalid_at)}"
    say(f"{fact.kind}{status}: {subject}{fact.predicate} = {value}", bold=True)
    say(
        f"  {fact.id}, since {stamp(fact.valid_from)}{ended}, told {stamp(fact.recorded_at)}",
        dim=True,
    )
    if fact.to_confirm is not None:
        say(f"  to be confirmed: {fact.to_confirm}")
