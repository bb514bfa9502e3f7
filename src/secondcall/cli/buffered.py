"""``show --context``: what the chat buffer of a session holds, and why."""

from __future__ import annotations

from dataclasses import asdict

import click

from secondcall.cli.output import print_json, say
from secondcall.errors import UnknownName
from secondcall.memory import UserMemory
from secondcall.memory.buffering import explained
from secondcall.shortterm.report import BufferReport, ItemReport

__all__ = ["show_context"]

_WIDTH = 14


async def show_context(
    user: UserMemory, session_id: str | None, token_limit: int | None, *, as_json: bool
) -> None:
    """Print the report of a session's buffer, filled from the record as an agent's would be;
    nothing is changed by it.

    Raises: ``UnknownName``, ``InvalidValue``, store errors.
    """
    if session_id is None:
        raise click.UsageError("--context needs --session", click.get_current_context())
    session = await user.session(session_id)
    if not await session.items(limit=1):
        raise UnknownName(f"user {user.user_id!r} has no session {session_id!r}")
    report = await explained(user, session_id, token_limit=token_limit)
    if as_json:
        print_json(asdict(report))
    else:
        _say_report(report)


def _say_report(report: BufferReport) -> None:
    turns = "1 turn" if report.turns == 1 else f"{report.turns:,} turns"
    say(f"{report.tokens:,} of {report.token_limit:,} tokens, {turns}", bold=True)
    say(f"  system text {report.system_tokens:,}, summary {report.reserved_tokens:,}")
    counts = ", ".join(f"{count:,} {fate}" for fate, count in report.counts.items())
    say(f"  items: {counts or 'none'}")
    for item in report.items:
        _say_item(item)
    if report.not_listed:
        say(f"  {report.not_listed:,} more are not listed")
    if report.counter_failure is not None:
        say(f"  the token counter failed ({report.counter_failure}); tokens are estimated")
    if report.problem is not None:
        say(f"  get() raises: {report.problem}", bold=True)


def _say_item(item: ItemReport) -> None:
    about = "~" if item.estimated else ""
    tokens = f"{about}{item.tokens:,}"
    if item.shown_tokens != item.tokens and item.fate == "shortened":
        tokens = f"{tokens} -> {item.shown_tokens:,}"
    line = f"  {item.fate:<10} {tokens:>{_WIDTH}}  {item.label}  {item.id or '(no id)'}"
    say(line, dim=item.fate in ("cut", "summarised", "ignored"))
    say(f"  {'':<10} {'':>{_WIDTH}}  {item.why}", dim=True)
