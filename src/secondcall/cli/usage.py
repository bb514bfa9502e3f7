"""``usage``: what calls of models and embedders took, by layer, session and model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import click

from secondcall.checks import parse_duration
from secondcall.cli.output import print_json, printable, say, stamp, to_json
from secondcall.cli.place import Place, known_user, store_options
from secondcall.cli.showing import all_users
from secondcall.cli.times import time
from secondcall.errors import InvalidValue
from secondcall.memory import Memory
from secondcall.usage import Usage, UsageCall, UsageTotal

__all__ = ["usage"]

_PAUSE_SECONDS = 1.0
_OVERLAP = timedelta(minutes=2)
"""Processes write what they used a little later; so far back it is looked for again."""


@click.command()
@click.option("--user", "user_id", help="Only this user; default all users of the tenant.")
@click.option("--since", help="From this time on, or for so long back, such as 7d.")
@click.option("--follow", is_flag=True, help="Go on printing calls as they are written down.")
@store_options
def usage(
    place: Place, user_id: str | None, since: str | None, follow: bool, as_json: bool
) -> None:
    """Show the tokens and the cost of model and embedding calls, at most 90 days back.

    With --follow each new call is printed on a line of its own (--json: as a JSON object), until it
    is interrupted.
    """
    start = None if since is None else _start(since)

    async def read() -> None:
        async with place.open() as memory:
            if follow:
                await _follow(memory, user_id, start, as_json=as_json)
                return
            found = _together([one async for one in _usages(memory, user_id, start)], start)
            if as_json:
                print_json(_usage_json(found))
            else:
                _say_usage(found)

    asyncio.run(read())


def _start(since: str) -> datetime:
    try:
        return datetime.now(UTC) - parse_duration("--since", since)
    except InvalidValue:
        return time(since)


async def _usages(
    memory: Memory, user_id: str | None, since: datetime | None
) -> AsyncIterator[Usage]:
    if user_id is not None:
        yield await (await known_user(memory, user_id)).usage(since=since)
        return
    async for one in all_users(memory):
        yield await memory.user(one).usage(since=since)


async def _follow(
    memory: Memory, user_id: str | None, since: datetime | None, *, as_json: bool
) -> None:
    began = datetime.now(UTC) if since is None else since
    printed: set[str] = set()
    start = began
    while True:
        found = [one async for one in _usages(memory, user_id, start)]
        calls = sorted((call for one in found for call in one.recent), key=lambda call: call.at)
        lines = {to_json(_call_json(call)): call for call in calls}
        for line, call in lines.items():
            if line not in printed:
                click.echo(line if as_json else printable(_call_line(call)))
        printed = set(lines)
        start = max(began, datetime.now(UTC) - _OVERLAP)
        await asyncio.sleep(_PAUSE_SECONDS)


def _together(found: Sequence[Usage], since: datetime | None) -> Usage:
    return Usage(
        total=_sum(one.total for one in found),
        layers=_sums([one.layers for one in found]),
        sessions=_sums([one.sessions for one in found]),
        models=_sums([one.models for one in found]),
        recent=sorted((call for one in found for call in one.recent), key=lambda call: call.at),
        since=since,
    )


def _sums(found: Sequence[Mapping[str, UsageTotal]]) -> dict[str, UsageTotal]:
    names = sorted({name for one in found for name in one})
    return {name: _sum(one[name] for one in found if name in one) for name in names}


def _sum(totals: Iterable[UsageTotal]) -> UsageTotal:
    calls = input_tokens = output_tokens = 0
    costs: list[float] = []
    for one in totals:
        calls += one.calls
        input_tokens += one.input_tokens
        output_tokens += one.output_tokens
        if one.cost is not None:
            costs.append(one.cost)
    cost = sum(costs) if costs else None
    return UsageTotal(
        calls=calls, input_tokens=input_tokens, output_tokens=output_tokens, cost=cost
    )


def _usage_json(found: Usage) -> dict[str, object]:
    return {
        "since": found.since,
        "total": _total_json(found.total),
        "layers": {name: _total_json(one) for name, one in found.layers.items()},
        "sessions": {name: _total_json(one) for name, one in found.sessions.items()},
        "models": {name: _total_json(one) for name, one in found.models.items()},
        "recent": [_call_json(call) for call in found.recent],
    }


def _total_json(total: UsageTotal) -> dict[str, object]:
    return {
        "calls": total.calls,
        "input_tokens": total.input_tokens,
        "output_tokens": total.output_tokens,
        "cost": total.cost,
    }


def _call_json(one: UsageCall) -> dict[str, object]:
    return {
        "at": one.at,
        "user_id": one.user_id,
        "session_id": one.session_id,
        "layer": one.layer,
        "model": one.call.model,
        "operation": one.call.operation,
        "input_tokens": one.call.input_tokens,
        "output_tokens": one.call.output_tokens,
        "cost": one.call.cost,
        "usage": one.call.raw,
    }


def _say_usage(found: Usage) -> None:
    if not found.total.calls:
        say("No model or embedder was called, or none that reports what it used.")
        return
    say(f"Total: {_words(found.total)}", bold=True)
    for name, totals in (
        ("Layers", found.layers),
        ("Models", found.models),
        ("Sessions", found.sessions),
    ):
        say(f"{name}: {len(totals)}", bold=True)
        for key, one in sorted(totals.items(), key=lambda pair: -pair[1].input_tokens):
            say(f"  {key or '(no session)'}: {_words(one)}")


def _words(total: UsageTotal) -> str:
    cost = "" if total.cost is None else f", cost {total.cost:.6g}"
    calls = f"{total.calls:,} {'call' if total.calls == 1 else 'calls'}"
    return f"{calls}, {total.input_tokens:,} tokens in, {total.output_tokens:,} out{cost}"


def _call_line(one: UsageCall) -> str:
    cost = "" if one.call.cost is None else f"  cost {one.call.cost:.6g}"
    where = f"{one.user_id} / {one.session_id}" if one.session_id else one.user_id
    tokens = f"{one.call.input_tokens:,} in, {one.call.output_tokens:,} out"
    what = f"{one.layer} {one.call.operation}  {tokens}{cost}  {one.call.model}"
    return f"{stamp(one.at)}  {what}  [{where}]"
