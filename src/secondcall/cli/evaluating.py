"""``eval``: what recall is worth on public data, and what facts are when they change."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from secondcall.cli.output import Progress, print_json, say
from secondcall.cli.place import json_option, settings
from secondcall.errors import InvalidValue
from secondcall.evaluate import locomo as locomo_data
from secondcall.evaluate import longmemeval as longmemeval_data
from secondcall.evaluate.abstention import (
    abstention_report,
    abstention_text,
    run_abstention,
    unanswerable,
)
from secondcall.evaluate.changes import load as load_topics
from secondcall.evaluate.changing import change_report, change_text, run_changes
from secondcall.evaluate.opposites import load as load_records
from secondcall.evaluate.opposites import opposites_report, opposites_text, run_opposites
from secondcall.evaluate.questions import Data
from secondcall.evaluate.report import raw_lines, report, report_text
from secondcall.evaluate.run import Answer, run
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


@evaluate.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--limit", type=click.IntRange(1), help="Only the first so many topics.")
@click.option("--embedder", help="Default SECONDCALL_EMBEDDER, or 'static'.")
@json_option
def changes(file: str, limit: int | None, embedder: str | None, as_json: bool) -> None:
    """Measure on FILE, topics in which facts change, in the format of bench/sets/changes."""
    path = Path(file)
    topics = load_topics(Source(path), limit=limit)
    questions = sum(len(topic.questions) for topic in topics)
    if not questions:
        raise click.ClickException(f"{path.name} has no question")
    embedder = embedder or settings().embedder
    with Progress("questions asked", questions) as progress:
        answers = run_changes(topics, embedder=embedder, progress=progress.advance)
    if as_json:
        print_json(change_report(topics, answers, file=path.name, embedder=embedder))
    else:
        for line in change_text(answers):
            say(line)


@evaluate.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--limit", type=click.IntRange(1), help="Only the first so many records.")
@click.option("--embedder", help="Default SECONDCALL_EMBEDDER, or 'static'.")
@json_option
def opposites(file: str, limit: int | None, embedder: str | None, as_json: bool) -> None:
    """Measure on FILE, opposite requests, likes and dislikes, as in bench/sets/opposites."""
    path = Path(file)
    records = load_records(Source(path), limit=limit)
    cases = sum(len(record.cases) for record in records)
    if not cases:
        raise click.ClickException(f"{path.name} has no case")
    embedder = embedder or settings().embedder
    with Progress("cases asked", cases) as progress:
        answers = run_opposites(records, embedder=embedder, progress=progress.advance)
    if as_json:
        print_json(opposites_report(answers, file=path.name, embedder=embedder))
    else:
        for line in opposites_text(answers):
            say(line)


@evaluate.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--limit", type=click.IntRange(1), help="Only the first so many questions.")
@click.option("--embedder", help="Default SECONDCALL_EMBEDDER, or 'static'.")
@json_option
def abstention(file: str, limit: int | None, embedder: str | None, as_json: bool) -> None:
    """Measure on FILE, LongMemEval or LoCoMo, how often unrelated questions are answered."""
    path = Path(file)
    try:
        data = longmemeval_data.load(Source(path), limit=limit)
        lacking = unanswerable(Source(path), limit=limit)
    except InvalidValue:
        data, lacking = locomo_data.load(Source(path), limit=limit), []
    if not data.questions:
        raise click.ClickException(f"{path.name} has no question with evidence")
    embedder = embedder or settings().embedder
    with Progress("questions asked", data.questions) as progress:
        asked = run_abstention(data, lacking, embedder=embedder, progress=progress.advance)
    if as_json:
        print_json(abstention_report(asked, file=path.name, embedder=embedder))
    else:
        for line in abstention_text(asked):
            say(line)


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
        _write_raw(Path(raw), answers)
    if as_json:
        print_json(report(data, answers, file=path.name, embedder=embedder, workers=workers))
    else:
        for line in report_text(data, answers):
            say(line)


def _write_raw(path: Path, answers: Sequence[Answer]) -> None:
    """One line a question; packed without a date, so that the same rankings give the same bytes."""
    text = "".join(f"{line}\n" for line in raw_lines(answers)).encode("utf-8")
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
