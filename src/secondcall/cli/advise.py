"""``advise``: from what the traffic is like to settings, each with its reason."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import click

from secondcall.cli.output import print_json, say
from secondcall.cli.place import json_option
from secondcall.errors import InvalidValue
from secondcall.shortterm.advise import Plan, Traffic, advise, program

__all__ = ["advise_command"]

_QUESTIONS: Mapping[str, str] = {
    "state": "Does each session have its own state, or is it shared (session, shared)?",
    "calls_a_day": "How many calls or chats a day?",
    "messages_a_call": "How many messages has one of them?",
    "message_tokens": "How many tokens has a message?",
    "gap_seconds": "How many seconds are usually between two messages?",
    "days_kept": "How many days is it kept (0: not beyond the process; ever)?",
    "window": "How many tokens has the model's window?",
    "processes": "How many processes on a host?",
    "hosts": "How many hosts?",
}
_DEFAULTS = {field.name: field.default for field in fields(Traffic)}


_TYPES: Mapping[str, Any] = {
    "state": click.Choice(["session", "shared"]),
    "gap_seconds": float,
    "days_kept": str,
}


@click.command("advise")
@click.option(
    "--state",
    type=_TYPES["state"],
    help="Whether each session has its own short-term state. Default: session.",
)
@click.option("--calls-a-day", type=int, metavar="N", help="Calls or chats a day. Default: 1000.")
@click.option("--messages-a-call", type=int, metavar="N", help="Messages of one. Default: 40.")
@click.option("--message-tokens", type=int, metavar="N", help="Tokens of a message. Default: 40.")
@click.option("--gap-seconds", type=float, help="The usual pause between two messages. Default: 8.")
@click.option(
    "--days-kept",
    metavar="DAYS",
    help="How long it is kept; 0: not beyond the process, 'ever': for ever. Default: 90.",
)
@click.option("--window", type=int, metavar="N", help="The model's window. Default: 128000.")
@click.option("--processes", type=int, metavar="N", help="Processes on a host. Default: 1.")
@click.option("--hosts", type=int, metavar="N", help="Hosts. Default: 1.")
@json_option
def advise_command(as_json: bool, **given: Any) -> None:
    """Recommend settings for a traffic, with reasons, sizes and a program that runs.

    Without any option about the traffic it asks. Nothing is opened, read or written.
    """
    answers = {name: value for name, value in given.items() if value is not None}
    if not answers:
        answers = _ask()
    if "days_kept" in answers:
        answers["days_kept"] = _days(answers["days_kept"])
    try:
        traffic = Traffic(**answers)
    except InvalidValue as error:
        raise click.UsageError(str(error), click.get_current_context()) from None
    plan = advise(traffic)
    if as_json:
        _print_json(traffic, plan)
    else:
        _say(traffic, plan, assumed=[name for name in _QUESTIONS if name not in answers])


def _ask() -> dict[str, Any]:
    """The answers, asked for on standard error so that standard output stays the result."""
    answers: dict[str, Any] = {}
    try:
        for name, question in _QUESTIONS.items():
            answers[name] = click.prompt(
                question,
                default=_DEFAULTS[name],
                type=_TYPES.get(name, int),
                show_choices=False,
                err=True,
            )
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise click.UsageError(
            "there is nobody to ask; give options, such as --calls-a-day 1000",
            click.get_current_context(),
        ) from None
    return answers


def _days(value: object) -> int | None:
    text = str(value)
    if text == "ever":
        return None
    if not text.isdecimal() or len(text) > 6:
        raise click.UsageError(
            f"--days-kept is {text!r}, expected a number of days or 'ever'",
            click.get_current_context(),
        )
    return int(text)


def _print_json(traffic: Traffic, plan: Plan) -> None:
    print_json(
        {
            "traffic": asdict(traffic),
            **{
                field.name: getattr(plan, field.name)
                for field in fields(plan)
                if field.name not in ("advice", "warnings")
            },
            "advice": [asdict(one) for one in plan.advice],
            "warnings": list(plan.warnings),
            "program": program(traffic, plan),
        }
    )


def _say(traffic: Traffic, plan: Plan, *, assumed: list[str]) -> None:
    if assumed:
        taken = ", ".join(f"{name.replace('_', ' ')} {_DEFAULTS[name]}" for name in assumed)
        say(f"Taken as usual: {taken}.", dim=True)
    for one in plan.advice:
        say(f"{one.setting}: {one.value}", bold=True)
        say(f"  {one.reason}")
    for warning in plan.warnings:
        say()
        say(f"Beware: {warning}.", bold=True)
    say()
    say(program(traffic, plan))
