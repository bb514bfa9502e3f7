"""Runs an evaluation through the public face: record everybody's sessions, then ask.

Each batch of haystacks gets a SQLite file of its own in a temporary folder, one user for each
haystack, so that what is measured is what users get. Recall is shown the words of a question and
the moment of asking, nothing else. Batches run in worker processes; every figure but the times is
independent of how many.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from secondcall.evaluate.floor import Floor
from secondcall.evaluate.metrics import unique
from secondcall.evaluate.questions import Data, Haystack, ItemName, Question
from secondcall.memory import Memory, UserMemory
from secondcall.types import Message

__all__ = ["DEPTH", "Answer", "run"]

DEPTH = 50
"""How many messages recall is asked for."""
_SESSIONS = 10
"""How many sessions recall is asked for."""
_BATCH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The rankings of one question, best first, and how long recall took for its first 50."""

    question: Question
    messages: Sequence[ItemName]
    sessions: Sequence[str]
    floor_messages: Sequence[ItemName]
    floor_sessions: Sequence[str]
    seconds: float


def run(
    data: Data,
    *,
    embedder: str = "static",
    workers: int = 2,
    progress: Callable[[int], None] | None = None,
) -> list[Answer]:
    """The answers to all questions in file order. ``progress`` is told how many more are done."""
    batches = list(_batches(data.haystacks))
    found: dict[int, list[Answer]] = {}
    with tempfile.TemporaryDirectory(prefix="secondcall-eval-") as folder:
        for number, answers in _all_batches(batches, Path(folder), embedder, workers):
            found[number] = answers
            if progress is not None:
                progress(len(answers))
    return [answer for number in sorted(found) for answer in found[number]]


def _batches(haystacks: Sequence[Haystack]) -> Iterator[Sequence[Haystack]]:
    size = 1 if len(haystacks) <= 2 * _BATCH else _BATCH
    for start in range(0, len(haystacks), size):
        yield haystacks[start : start + size]


def _all_batches(
    batches: Sequence[Sequence[Haystack]], folder: Path, embedder: str, workers: int
) -> Iterator[tuple[int, list[Answer]]]:
    if workers == 1 or len(batches) == 1:
        for number, batch in enumerate(batches):
            yield number, _run_batch(batch, folder / f"{number}.db", embedder)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_ignore_interrupt) as pool:
        waiting = {
            pool.submit(_run_batch, batch, folder / f"{number}.db", embedder): number
            for number, batch in enumerate(batches)
        }
        try:
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        except BaseException:  # interrupted too: nothing more is begun; raised on
            pool.shutdown(cancel_futures=True)
            raise


def _ignore_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run_batch(batch: Sequence[Haystack], path: Path, embedder: str) -> list[Answer]:
    answers = asyncio.run(_ask_batch(batch, path, embedder))
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()
    return answers


async def _ask_batch(batch: Sequence[Haystack], path: Path, embedder: str) -> list[Answer]:
    answers: list[Answer] = []
    async with Memory.open(f"sqlite:///{path}", embedder=embedder) as memory:
        for haystack in batch:
            user = memory.user(haystack.user_id)
            for transcript in haystack.sessions:
                session = await user.session(transcript.session_id)
                await session.record(*transcript.items)
            # As a call does: its brief begins to load the index, so that recall finds it open.
            await user.brief(deadline_seconds=None)
            await memory.flush()
            names, floor = _floor(haystack)
            for question in haystack.questions:
                ranked = [names[number] for number in floor.rank(question.text)]
                answers.append(await _ask(user, question, ranked))
    return answers


def _floor(haystack: Haystack) -> tuple[list[ItemName], Floor]:
    names: list[ItemName] = []
    texts: list[str] = []
    for transcript in haystack.sessions:
        for item in transcript.items:
            if isinstance(item, Message) and item.id is not None:
                names.append(ItemName(transcript.session_id, item.id))
                texts.append(f"{item.speaker}: {item.text}" if item.speaker else item.text)
    return names, Floor(texts)


async def _ask(user: UserMemory, question: Question, floor: Sequence[ItemName]) -> Answer:
    begun = time.perf_counter()
    messages = await _ranking(user, question, "message", DEPTH)
    seconds = time.perf_counter() - begun
    sessions = await _ranking(user, question, "session", _SESSIONS)
    return Answer(
        question=question,
        messages=messages,
        sessions=unique(name.session_id for name in sessions),
        floor_messages=floor[:DEPTH],
        floor_sessions=unique(name.session_id for name in floor),
        seconds=seconds,
    )


async def _ranking(
    user: UserMemory, question: Question, by: Literal["message", "session"], limit: int
) -> list[ItemName]:
    recalled = await user.recall(question.text, limit=limit, at=question.asked_at, by=by)
    return [ItemName(item.key.session_id, item.key.id) for item in recalled.items]
