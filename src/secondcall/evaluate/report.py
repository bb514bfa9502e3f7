"""From answers to figures: as a record for ``--json``, as text, and as raw rankings."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence

from secondcall.evaluate.floor import K1, B
from secondcall.evaluate.metrics import (
    MESSAGE_FIGURES,
    SESSION_FIGURES,
    figures,
    mean_figures,
    newest_first,
    percentile,
)
from secondcall.evaluate.questions import Data
from secondcall.evaluate.run import DEPTH, Answer

__all__ = ["figures_of", "newest_figures", "raw_lines", "report", "report_text"]

Figures = Mapping[str, Mapping[str, float | None]]
"""``{"message": {...}, "session": {...}}``."""
_ANSWERABLE = ("1", "2", "3", "4")


def report(
    data: Data, answers: Sequence[Answer], *, file: str, embedder: str, workers: int
) -> dict[str, object]:
    """The figures of an evaluation, in the shape that ``docs/evaluation.md`` describes."""
    found: dict[str, object] = {"questions": len(answers), **figures_of(answers)}
    categories = sorted({answer.question.category for answer in answers})
    found["by_category"] = {name: figures_of(_of(answers, [name])) for name in categories}
    if data.name == "locomo":
        found["categories_1_4"] = figures_of(_of(answers, _ANSWERABLE))
    if data.name == "longmemeval":
        found["newest_first"] = newest_figures(answers)
    found["floor"] = figures_of(answers, floor=True)
    times = [answer.seconds * 1_000 for answer in answers]
    found["recall_ms"] = {"p50": _rounded(times, 0.5), "p99": _rounded(times, 0.99)}
    found["configuration"] = {
        "data": data.name,
        "file": file,
        "embedder": embedder,
        "store": "sqlite",
        "depth": DEPTH,
        "floor": f"BM25 k1={K1} b={B}, stemmed, stop words left out, speaker and text",
        "workers": workers,
        "users": len(data.haystacks),
        "questions_by_category": {name: len(_of(answers, [name])) for name in categories},
        "left_out": {name: count for name, count in data.left_out.items() if count},
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    return found


def figures_of(answers: Sequence[Answer], *, floor: bool = False) -> Figures:
    """Means over questions at message and session level, of recall or of the floor."""
    messages = [
        figures(
            MESSAGE_FIGURES,
            answer.floor_messages if floor else answer.messages,
            answer.question.messages,
        )
        for answer in answers
    ]
    sessions = [
        figures(
            SESSION_FIGURES,
            answer.floor_sessions if floor else answer.sessions,
            answer.question.sessions,
        )
        for answer in answers
    ]
    return {
        "message": mean_figures(MESSAGE_FIGURES, messages),
        "session": mean_figures(SESSION_FIGURES, sessions),
    }


def newest_figures(answers: Sequence[Answer]) -> Mapping[str, float | int | None]:
    """In how many of the questions about what changed the newest evidence stands first."""
    each = [
        newest_first(one.messages, one.question.newest, one.question.messages)
        for one in answers
        if one.question.newest
    ]
    share = round(sum(each) / len(each), 4) if each else None
    return {"questions": len(each), "share": share}


def raw_lines(answers: Sequence[Answer]) -> Iterator[str]:
    """One JSON object a question: ids only, never a text of the data set."""
    for answer in answers:
        yield json.dumps(
            {
                "question_id": answer.question.id,
                "category": answer.question.category,
                "gold_messages": sorted(answer.question.messages),
                "gold_sessions": sorted(answer.question.sessions),
                "messages": answer.messages,
                "sessions": answer.sessions,
                "floor_messages": answer.floor_messages,
                "floor_sessions": answer.floor_sessions[:DEPTH],
                "recall_ms": round(answer.seconds * 1_000, 3),
            },
            ensure_ascii=False,
        )


def report_text(data: Data, answers: Sequence[Answer]) -> Iterator[str]:
    """The figures as a table with the floor beside each row."""
    header = [*MESSAGE_FIGURES, *SESSION_FIGURES]
    yield f"{'':34}{'message':^{8 * len(MESSAGE_FIGURES)}}{'session':^{8 * len(SESSION_FIGURES)}}"
    yield f"{'':24}{'questions':>10}{''.join(f'{name:>8}' for name in header)}"
    rows: list[tuple[str, Sequence[Answer]]] = [("all", answers)]
    if data.name == "locomo":
        rows.append(("categories 1-4", _of(answers, _ANSWERABLE)))
    categories = sorted({answer.question.category for answer in answers})
    rows.extend((name, _of(answers, [name])) for name in categories)
    for label, part in rows:
        yield _row(label, part, figures_of)
        yield _row("  keyword floor", part, lambda part: figures_of(part, floor=True))
    times = [answer.seconds * 1_000 for answer in answers]
    yield f"recall: p50 {_rounded(times, 0.5)} ms, p99 {_rounded(times, 0.99)} ms"
    newest = newest_figures(answers)
    if newest["questions"]:
        yield f"newest evidence first: {newest['share']} of {newest['questions']} that changed"
    for reason, count in data.left_out.items():
        if count:
            yield f"left out: {count} {reason}"


def _row(
    label: str, answers: Sequence[Answer], measure: Callable[[Sequence[Answer]], Figures]
) -> str:
    found = measure(answers)
    values = [*found["message"].values(), *found["session"].values()]
    cells = "".join("       -" if value is None else f"{value:8.3f}" for value in values)
    return f"{label:<24}{len(answers):>10}{cells}"


def _of(answers: Sequence[Answer], categories: Sequence[str]) -> list[Answer]:
    return [answer for answer in answers if answer.question.category in categories]


def _rounded(values: Sequence[float], share: float) -> float | None:
    value = percentile(values, share)
    return None if value is None else round(value, 2)
