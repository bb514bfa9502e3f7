"""Opposite requests, likes and dislikes: does what says the opposite stand above what answers?

The format is that of ``bench/sets/opposites``, described there. A case fails when a message that
states the opposite stands above the best one that answers; one of likes also when the one result at
limit 1 is the opposite. A case of which neither comes back is counted apart: it is no pass.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, cast, get_args

from secondcall.memory import Memory, UserMemory
from secondcall.record.formats.fields import Fields
from secondcall.record.formats.source import Source
from secondcall.types import Message, Role

__all__ = [
    "DEPTH",
    "CaseAnswer",
    "OppositeCase",
    "OppositeRecord",
    "load",
    "opposites_report",
    "opposites_text",
    "run_opposites",
]

DEPTH = 10
"""How many items recall is asked for."""
_KINDS = ("opposite", "likes")
Outcome = Literal["right", "opposite", "neither"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OppositeCase:
    """A question with what answers it and what states the opposite."""

    id: str
    kind: str
    pair: str
    text: str
    at: datetime
    right: frozenset[str]
    opposite: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class OppositeRecord:
    """One person's messages by session, and the cases about them."""

    id: str
    sessions: dict[str, list[Message]]
    cases: Sequence[OppositeCase]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseAnswer:
    """What a case came to: which side came first, and whether it failed."""

    record: str
    case: OppositeCase
    first: Outcome
    failed: bool
    ranked: Sequence[str]


def load(source: Source, *, limit: int | None = None) -> list[OppositeRecord]:
    """The first ``limit`` records of a file. Raises: ``InvalidValue``."""
    found: list[OppositeRecord] = []
    for place, value in source.values():
        if len(found) == limit:
            break
        found.append(_record(Fields(value, place)))
    return found


def _record(line: Fields) -> OppositeRecord:
    sessions: dict[str, list[Message]] = {}
    for number, one in enumerate(line.entries("messages")):
        message = Fields(one, line.place.inside(f"messages[{number}]"))
        role = cast("Role", message.choice("role", get_args(Role)))
        sessions.setdefault(message.text("session_id"), []).append(
            Message(role, message.text("text"), id=message.text("id"), at=_time(message, "at"))
        )
    cases = [
        _case(Fields(one, line.place.inside(f"cases[{number}]")))
        for number, one in enumerate(line.entries("cases"))
    ]
    return OppositeRecord(id=line.text("id"), sessions=sessions, cases=cases)


def _case(line: Fields) -> OppositeCase:
    return OppositeCase(
        id=line.text("id"),
        kind=line.choice("kind", _KINDS),
        pair=line.text("pair"),
        text=line.text("question"),
        at=_time(line, "at"),
        right=frozenset(map(str, line.entries("right"))),
        opposite=frozenset(map(str, line.entries("opposite"))),
    )


def _time(line: Fields, name: str) -> datetime:
    found = line.iso_time(name)
    return line.place.refuse(f"{name} is missing") if found is None else found


def run_opposites(
    records: Sequence[OppositeRecord],
    *,
    embedder: str = "static",
    progress: Callable[[int], None] | None = None,
) -> list[CaseAnswer]:
    """The answers to all cases in file order, through the public face, on SQLite."""
    with tempfile.TemporaryDirectory(prefix="secondcall-eval-") as folder:
        return asyncio.run(_run(records, Path(folder) / "opposites.db", embedder, progress))


async def _run(
    records: Sequence[OppositeRecord],
    path: Path,
    embedder: str,
    progress: Callable[[int], None] | None,
) -> list[CaseAnswer]:
    answers: list[CaseAnswer] = []
    async with Memory.open(f"sqlite:///{path}", embedder=embedder) as memory:
        for record in records:
            user = memory.user(record.id)
            for session_id, messages in record.sessions.items():
                session = await user.session(session_id)
                await session.record(*messages)
            await user.brief(deadline_seconds=None)
            answers += [await _ask(user, record.id, case) for case in record.cases]
            if progress is not None:
                progress(len(record.cases))
    return answers


async def _ask(user: UserMemory, record: str, case: OppositeCase) -> CaseAnswer:
    ranked = await _ranked(user, case, DEPTH)
    first = _first(ranked, case)
    failed = first == "opposite"
    if case.kind == "likes" and not failed:
        failed = _first(await _ranked(user, case, 1), case) == "opposite"
    return CaseAnswer(record=record, case=case, first=first, failed=failed, ranked=ranked)


async def _ranked(user: UserMemory, case: OppositeCase, limit: int) -> list[str]:
    recalled = await user.recall(case.text, at=case.at, limit=limit)
    return [item.key.id for item in recalled.items]


def _first(ranked: Sequence[str], case: OppositeCase) -> Outcome:
    for name in ranked:
        if name in case.right:
            return "right"
        if name in case.opposite:
            return "opposite"
    return "neither"


def opposites_report(
    answers: Sequence[CaseAnswer], *, file: str, embedder: str
) -> dict[str, object]:
    """The figures, in the shape that ``docs/evaluation.md`` describes."""
    return {
        "cases": len(answers),
        **_figures(answers),
        "by_kind": {kind: _figures(_of(answers, kind)) for kind in _KINDS},
        "failures": [
            {"record": one.record, "case": one.case.id, "pair": one.case.pair}
            for one in answers
            if one.failed
        ],
        "configuration": {
            "data": "opposites",
            "file": file,
            "embedder": embedder,
            "store": "sqlite",
            "depth": DEPTH,
        },
    }


def opposites_text(answers: Sequence[CaseAnswer]) -> Iterator[str]:
    """The figures as a table, and the cases that failed."""
    yield f"{'':12}{'cases':>8}{'failed':>8}{'share':>8}{'neither':>9}"
    for label, part in [("all", answers), *((kind, _of(answers, kind)) for kind in _KINDS)]:
        if part:
            found = _figures(part)
            yield (
                f"{label:<12}{len(part):>8}{found['failed']:>8}{found['share']:>8.3f}"
                f"{found['neither']:>9}"
            )
    for one in answers:
        if one.failed:
            yield f"failed: {one.record} {one.case.id} ({one.case.pair})"


def _figures(answers: Sequence[CaseAnswer]) -> dict[str, int | float]:
    failed = sum(one.failed for one in answers)
    return {
        "failed": failed,
        "share": round(failed / len(answers), 4) if answers else 0.0,
        "neither": sum(one.first == "neither" for one in answers),
    }


def _of(answers: Sequence[CaseAnswer], kind: str) -> list[CaseAnswer]:
    return [one for one in answers if one.case.kind == kind]
