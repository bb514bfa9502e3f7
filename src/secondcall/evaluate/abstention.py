"""Abstention: how often recall answers what the record cannot, against what it gives up for that.

Each question is asked of its own record, of other people's records, and, where the data has such
(LongMemEval's ``_abs``), of a record that lacks its answer. Recall is asked with
``min_confidence=0``; its confidence then says what each threshold would have let through.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from secondcall.evaluate.questions import Data, Haystack
from secondcall.memory import Memory, UserMemory
from secondcall.recall.confidence import DEFAULT_CONFIDENCE
from secondcall.record.formats import longmemeval
from secondcall.record.formats.source import Source

__all__ = [
    "LOST",
    "Asked",
    "Unanswerable",
    "abstention_report",
    "abstention_text",
    "run_abstention",
    "unanswerable",
]

LOST = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2)
"""The shares of lost recall at which false recall is printed."""
_STEPS = (7, 31, 83)
"""How far on the other people stand whose records a question is asked of."""
Kind = Literal["own", "other", "unanswerable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswerable:
    """A question whose answer its record lacks."""

    haystack: Haystack
    text: str
    asked_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How sure recall was of a question."""

    kind: Kind
    confidence: float


def unanswerable(source: Source, *, limit: int | None = None) -> list[Unanswerable]:
    """The ``_abs`` questions of a LongMemEval file. Raises: ``InvalidValue``."""
    found: list[Unanswerable] = []
    for entry in longmemeval.people(source):
        if len(found) == limit:
            break
        name = entry.text("question_id")
        if name.endswith("_abs"):
            sessions = longmemeval.sessions_of(entry)
            asked_at = longmemeval.time_of(entry.raw("question_date"), entry, "question_date")
            found.append(
                Unanswerable(
                    haystack=Haystack(user_id=name, sessions=sessions, questions=()),
                    text=entry.text("question"),
                    asked_at=asked_at,
                )
            )
    return found


def run_abstention(
    data: Data,
    lacking: Sequence[Unanswerable],
    *,
    embedder: str = "static",
    progress: Callable[[int], None] | None = None,
) -> list[Asked]:
    """How sure recall is of each question, of its own and of others' records."""
    return asyncio.run(_run(data, lacking, embedder, progress or (lambda _: None)))


async def _run(
    data: Data, lacking: Sequence[Unanswerable], embedder: str, progress: Callable[[int], None]
) -> list[Asked]:
    found: list[Asked] = []
    haystacks = data.haystacks
    for number, haystack in enumerate(haystacks):
        others = [
            haystacks[other]
            for other in dict.fromkeys((number + step) % len(haystacks) for step in _STEPS)
            if other != number
        ]
        async with _recorded(haystack, embedder) as user:
            for question in haystack.questions:
                asked = await _sure(user, question.text, question.asked_at)
                found.append(Asked(kind="own", confidence=asked))
            at = max(question.asked_at for question in haystack.questions)
            for other in others:
                for question in other.questions[:: max(1, len(other.questions) // 32)]:
                    asked = await _sure(user, question.text, at)
                    found.append(Asked(kind="other", confidence=asked))
        progress(len(haystack.questions))
    for one in lacking:
        async with _recorded(one.haystack, embedder) as user:
            asked = await _sure(user, one.text, one.asked_at)
            found.append(Asked(kind="unanswerable", confidence=asked))
    return found


class _recorded:
    """A haystack recorded in a file of its own, which goes with the block."""

    def __init__(self, haystack: Haystack, embedder: str) -> None:
        self._haystack = haystack
        self._folder = tempfile.TemporaryDirectory(prefix="secondcall-eval-")
        path = Path(self._folder.name) / "abstention.db"
        self._memory = Memory.open(f"sqlite:///{path}", embedder=embedder)

    async def __aenter__(self) -> UserMemory:
        await self._memory.__aenter__()
        user = self._memory.user(self._haystack.user_id)
        for transcript in self._haystack.sessions:
            session = await user.session(transcript.session_id)
            await session.record(*transcript.items)
        await user.brief(deadline_seconds=None)
        return user

    async def __aexit__(self, *fault: object) -> None:
        await self._memory.aclose()
        self._folder.cleanup()


async def _sure(user: UserMemory, text: str, at: datetime) -> float:
    recalled = await user.recall(text, limit=1, at=at, min_confidence=0)
    return recalled.confidence if recalled.items else -1.0


def abstention_report(asked: Sequence[Asked], *, file: str, embedder: str) -> dict[str, object]:
    """The curve, in the shape that ``docs/evaluation.md`` describes."""
    return {
        "questions": {kind: len(_of(asked, kind)) for kind in ("own", "other", "unanswerable")},
        "curve": [_at(asked, threshold) for threshold in _thresholds(asked)],
        "default": _at(asked, DEFAULT_CONFIDENCE),
        "configuration": {"data": "abstention", "file": file, "embedder": embedder},
    }


def abstention_text(asked: Sequence[Asked]) -> Iterator[str]:
    """The curve as a table, the default last."""
    yield f"{'':10}{'threshold':>10}{'lost':>8}{'false: others':>15}{'unanswerable':>14}"
    rows = [("", threshold) for threshold in _thresholds(asked)]
    for label, threshold in [*rows, ("default", DEFAULT_CONFIDENCE)]:
        one = _at(asked, threshold)
        cells = [one["lost"], one["false_others"], one["false_unanswerable"]]
        texts = ["-" if cell is None else f"{cell:.3f}" for cell in cells]
        yield f"{label:10}{threshold:>10.3f}{texts[0]:>8}{texts[1]:>15}{texts[2]:>14}"


def _thresholds(asked: Sequence[Asked]) -> list[float]:
    own = sorted(_of(asked, "own"))
    return [own[min(len(own) - 1, round(lost * len(own)))] for lost in LOST] if own else []


def _at(asked: Sequence[Asked], threshold: float) -> dict[str, float | None]:
    return {
        "threshold": threshold,
        "lost": _share(_of(asked, "own"), lambda value: value < threshold),
        "false_others": _share(_of(asked, "other"), lambda value: value >= threshold),
        "false_unanswerable": _share(_of(asked, "unanswerable"), lambda value: value >= threshold),
    }


def _share(values: Sequence[float], holds: Callable[[float], bool]) -> float | None:
    return round(sum(map(holds, values)) / len(values), 4) if values else None


def _of(asked: Sequence[Asked], kind: Kind) -> list[float]:
    return [one.confidence for one in asked if one.kind == kind]
