"""Questions with known evidence, to fit weights on: LongMemEval, as it is and as people talking.

LongMemEval's text is read, never written: the restructured form lives in memory only.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from secondcall.abc import EntryKey
from secondcall.recall.segment import IndexRow

__all__ = ["Case", "as_people", "longmemeval", "row"]

_NAMES = ("Anna", "Boris", "Clara", "David", "Elif", "Frank", "Grace", "Hugo", "Ines", "Jonas")
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_MAX_REPLY_WORDS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A question about a record. ``gold`` are row numbers, ``kind`` is for reports only."""

    kind: str
    rows: Sequence[IndexRow]
    question: str
    at: datetime
    gold: frozenset[int]
    sessions: frozenset[str]


def longmemeval(path: Path) -> Iterator[Case]:
    """The answerable questions of a LongMemEval file, plain or ``.gz``, in file order.

    Refuses LoCoMo, whose licence forbids fitting shipped numbers on it, by its structure.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        entries = json.load(file)
    if not isinstance(entries, list):
        raise SystemExit(f"{path} is not a LongMemEval file: it must be a list of questions")
    for entry in cast("list[dict[str, Any]]", entries):
        if "conversation" in entry or "qa" in entry:
            raise SystemExit(
                f"{path} has the structure of LoCoMo (CC BY-NC 4.0): shipped weights must not be "
                "fitted on it; use LongMemEval or own data"
            )
        if "haystack_sessions" not in entry:
            raise SystemExit(f"{path} is not a LongMemEval file: no 'haystack_sessions'")
        case = None if entry["question_id"].endswith("_abs") else _case(entry)
        if case is not None:
            yield case


def _case(entry: dict[str, Any]) -> Case | None:
    rows: list[IndexRow] = []
    gold: set[int] = set()
    sessions = sorted(
        zip(
            entry["haystack_dates"],
            entry["haystack_session_ids"],
            entry["haystack_sessions"],
            strict=True,
        ),
        key=lambda session: _time(session[0]),
    )
    for date, session_id, messages in sessions:
        for message in messages:
            if message.get("has_answer"):
                gold.add(len(rows))
            rows.append(row(rows, session_id, _time(date), message["role"], message["content"]))
    if not gold:
        return None
    return Case(
        kind=entry["question_type"],
        rows=rows,
        question=entry["question"],
        at=_time(entry["question_date"]),
        gold=frozenset(gold),
        sessions=frozenset(entry["answer_session_ids"]),
    )


def row(
    rows: Sequence[IndexRow],
    session_id: str,
    at: datetime,
    role: str,
    text: str,
    speaker: str | None = None,
) -> IndexRow:
    """The next row of a record."""
    number = len(rows) + 1
    return IndexRow(
        change=number,
        position=number,
        key=EntryKey(session_id, "message", f"m{number:06d}"),
        at_us=int(at.timestamp()) * 1_000_000,
        role=role,
        text=text,
        speaker=speaker,
    )


def as_people(case: Case, number: int) -> Case | None:
    """The same record as a talk of two named people, or ``None`` when it loses its evidence.

    The assistant becomes a friend who says only the first and the last sentence, at most 40 words;
    the question speaks of the user by name.
    """
    if any(case.rows[place].role != "user" for place in case.gold):
        return None
    user = _NAMES[number % len(_NAMES)]
    friend = _NAMES[(number * 3 + 1) % len(_NAMES)]
    if friend == user:
        friend = "Karim"
    rows: list[IndexRow] = []
    for one in case.rows:
        mine = one.role == "user"
        at = datetime.fromtimestamp(one.at_us // 1_000_000, UTC)
        text = one.text if mine else _short(one.text)
        rows.append(row(rows, one.key.session_id, at, "user", text, user if mine else friend))
    return Case(
        kind=f"people:{case.kind}",
        rows=rows,
        question=_about(case.question, user),
        at=case.at,
        gold=case.gold,
        sessions=case.sessions,
    )


def _short(text: str) -> str:
    sentences = _SENTENCE.split(text.strip())
    kept = sentences[0] if len(sentences) == 1 else f"{sentences[0]} {sentences[-1]}"
    return " ".join(kept.split()[:_MAX_REPLY_WORDS])


def _about(question: str, name: str) -> str:
    for pattern, replacement in (
        (r"\b(?:I'm|I am|am I)\b", f"{name} is"),
        (r"\b(?:I've|I have|have I)\b", f"{name} has"),
        (r"\b(?:my|mine)\b", f"{name}'s"),
        (r"\bmyself\b", f"{name}"),
        (r"\b(?:I|me)\b", name),
    ):
        question = re.sub(pattern, replacement, question, flags=re.IGNORECASE)
    return question


def _time(text: str) -> datetime:
    plain = re.sub(r" \(\w+\)", "", text)
    return datetime.strptime(plain, "%Y/%m/%d %H:%M").replace(tzinfo=UTC)
