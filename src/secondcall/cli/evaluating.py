"""``eval``: what recall is worth on public data."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from secondcall.cli.output import Progress, print_json, say
from secondcall.cli.place import json_option, settings
from secondcall.evaluate import locomo as locomo_data
from secondcall.evaluate import longmemeval as longmemeval_data
from secondcall.evaluate.questions import Data
from secondcall.evaluate.report import raw_lines, report, report_text
from secondcall.evaluate.run import run
from secondcall.record.transfer import Source

__all__ = ["evaluate"]


@click.group()
def evaluate() -> None:
    """Measure recall on public data sets, with a keyword-only floor beside it."""


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--raw", type=click.Path(dir_okay=False), help="Write the rankings here."),
        click.option("--workers", type=click.IntRange(1), help="Processes; default 2 at most."),
        click.option("--embedder", help="Default SECONDCALL_EMBEDDER, or 'static'."),
        click.option("--limit", type=click.IntRange(1), help="Only the first so many questions."),
        click.argument("file", type=click.Path(exists=True, dir_okay=False)),
    ):
        command = option(command)
    return json_option(command)


@evaluate.command()
@_options
def locomo(file: str, **options: Any) -> None:
    """Measure on FILE, in LoCoMo's official format."""
    _evaluate(locomo_data.load, file, **options)


@evaluate.command()
@_options
def longmemeval(file: str, **options: Any) -> None:
    """Measure on FILE, in LongMemEval's official format, plain or .gz."""
    _evaluate(longmemeval_data.load, file, **options)


def _evaluate(
    load: Callable[..., Data],
    file: str,
    *,
    limit: int | None,
    embedder: str | None,
    workers: int | None,
    raw: str | None,
    as_json: bool,
) -> None:
    path = Path(file)
    data = load(Source(path), limit=limit)
    if not data.questions:
        raise click.ClickException(f"{path.name} has no question with evidence")
    embedder = embedder or settings().embedder
    workers = workers or min(2, os.cpu_count() or 1)
    with Progress("questions asked", data.questions) as progress:
        answers = run(data, embedder=embedder, workers=workers, progress=progress.advance)
    if raw is not None:
        with Path(raw).open("w", encoding="utf-8", newline="\n") as lines:
            lines.writelines(f"{line}\n" for line in raw_lines(answers))
    if as_json:
        print_json(report(data, answers, file=path.name, embedder=embedder, workers=workers))
    else:
        for line in report_text(data, answers):
            say(line)
