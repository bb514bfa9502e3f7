"""Tells the facts of each topic as they changed, then asks: through the public face, on SQLite.

The clock is that of the topic: a fact is told at the time of the message that it follows, and the
questions are asked at theirs. Recall is shown the words of a question and the moment of asking;
``as_of`` and ``believed`` questions ask the facts for the time that they name.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from secondcall.evaluate.changes import QUESTION_KINDS, ChangeQuestion, Told, Topic
from secondcall.memory import Memory, UserMemory
from secondcall.types import Fact, ItemKey, JsonValue, Recalled

__all__ = ["DEPTH", "ChangeAnswer", "change_report", "change_text", "run_changes"]

DEPTH = 5
"""How many items recall is asked for when the question is about now."""
PAST_DEPTH = 10
"""And when it is about the past, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeAnswer:
    """What a question came to: each check by name, and whether all that its kind asks for held."""

    topic: str
    topic_kind: str
    question: ChangeQuestion
    checks: Mapping[str, bool]

    @property
    def right(self) -> bool:
        """Whether every check held."""
        return all(self.checks.values())


class _Clock:
    def __init__(self) -> None:
        self.at = datetime.fromtimestamp(0, UTC)

    def now(self) -> datetime:
        return self.at


@dataclass(slots=True)
class _Replayed:
    """A topic as it was told: the user, where the messages are, what the facts became."""

    user: UserMemory
    keys: dict[str, ItemKey] = field(default_factory=dict[str, ItemKey])
    fact_ids: dict[str, str] = field(default_factory=dict[str, str])


def run_changes(
    topics: Sequence[Topic],
    *,
    embedder: str = "static",
    progress: Callable[[int], None] | None = None,
) -> list[ChangeAnswer]:
    """The answers to all questions in file order."""
    with tempfile.TemporaryDirectory(prefix="secondcall-eval-") as folder:
        return asyncio.run(_run(topics, Path(folder) / "changes.db", embedder, progress))


async def _run(
    topics: Sequence[Topic],
    path: Path,
    embedder: str,
    progress: Callable[[int], None] | None,
) -> list[ChangeAnswer]:
    answers: list[ChangeAnswer] = []
    clock = _Clock()
    async with Memory.open(f"sqlite:///{path}", embedder=embedder, clock=clock) as memory:
        for topic in topics:
            replayed = await _replay(memory.user(topic.id), topic, clock)
            for question in topic.questions:
                clock.at = question.at
                answers.append(
                    ChangeAnswer(
                        topic=topic.id,
                        topic_kind=topic.kind,
                        question=question,
                        checks=await _asked(replayed, question),
                    )
                )
            if progress is not None:
                progress(len(topic.questions))
    return answers


async def _replay(user: UserMemory, topic: Topic, clock: _Clock) -> _Replayed:
    replayed = _Replayed(user)
    for session_id, messages in topic.sessions.items():
        session = await user.session(session_id)
        for message in messages:
            assert message.at is not None
            assert message.id is not None
            clock.at = message.at
            recorded = await session.record(message)
            replayed.keys[message.id] = recorded.keys[0]
            for told in topic.facts:
                if told.recorded_after == message.id:
                    await _tell(replayed, told)
    return replayed


async def _tell(replayed: _Replayed, told: Told) -> None:
    if told.remove:
        await replayed.user.retract(
            told.predicate, value=told.value if told.multi else None, at=told.valid_from
        )
        return
    fact = await replayed.user.remember(
        told.predicate,
        told.value,
        kind=told.kind,
        valid_from=told.valid_from,
        sources=[replayed.keys[name] for name in told.sources],
        multi=told.multi,
        rests_on=[replayed.fact_ids[name] for name in told.rests_on],
    )
    replayed.fact_ids[told.id] = fact.id


async def _asked(replayed: _Replayed, question: ChangeQuestion) -> dict[str, bool]:
    if question.kind == "now":
        return await _now(replayed, question)
    if question.kind == "cascade":
        return await _cascade(replayed, question)
    if question.kind == "past_item":
        recalled = await replayed.user.recall(question.text, at=question.at, limit=PAST_DEPTH)
        return {"item found": bool(_ids(recalled) & question.items)}
    if question.kind == "history":
        told = [fact for fact in await replayed.user.history(question.predicate) if _lasted(fact)]
        return {"in order": _runs(fact.value for fact in told) == [*map(_text, question.expect)]}
    as_of = question.as_of or question.at
    if question.kind == "as_of":
        found = await replayed.user.facts(as_of=as_of)
    else:
        found = await replayed.user.facts(believed_at=as_of)
    values = {_text(fact.value) for fact in found if fact.predicate == question.predicate}
    return {"right then": values == {*map(_text, question.expect)}}


async def _now(replayed: _Replayed, question: ChangeQuestion) -> dict[str, bool]:
    recalled = await replayed.user.recall(question.text, at=question.at, limit=DEPTH)
    facts = [one.fact for one in recalled.facts]
    first = {_text(fact.value) for fact in facts[: len(question.expect)]}
    own = [fact for fact in facts if fact.predicate == question.predicate]
    wrong = {*map(_text, question.wrong)}
    stale = {item.key.id for item in recalled.items if item.stale is not None}
    return {
        "current fact first": first == {*map(_text, question.expect)},
        "nothing ended as current": not wrong & {_text(fact.value) for fact in own},
        "ended marked": question.stale_items & _ids(recalled) <= stale,
        "current before ended": _before(recalled, question),
    }


async def _cascade(replayed: _Replayed, question: ChangeQuestion) -> dict[str, bool]:
    found = await replayed.user.facts()
    flagged = {fact.id for fact in found if fact.to_confirm is not None}
    values = {_text(fact.value) for fact in found}
    return {
        "flagged exactly": flagged == {replayed.fact_ids[name] for name in question.flagged},
        "value known": {*map(_text, question.expect)} <= values,
    }


def _before(recalled: Recalled, question: ChangeQuestion) -> bool:
    """No item that only states what ended stands before the first one that states what holds."""
    order = [item.key.id for item in recalled.items]
    places = [place for place, name in enumerate(order) if name in question.items]
    ended = [place for place, name in enumerate(order) if name in question.stale_items]
    return not places or not ended or min(places) < min(ended)


def _ids(recalled: Recalled) -> frozenset[str]:
    return frozenset(item.key.id for item in recalled.items)


def _lasted(fact: Fact) -> bool:
    return fact.invalid_at is None or fact.valid_from < fact.invalid_at


def _runs(values: Iterator[JsonValue]) -> list[str]:
    """The values in order, one that follows itself only once."""
    found: list[str] = []
    for value in map(_text, values):
        if not found or found[-1] != value:
            found.append(value)
    return found


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def change_report(
    topics: Sequence[Topic], answers: Sequence[ChangeAnswer], *, file: str, embedder: str
) -> dict[str, object]:
    """The figures, in the shape that ``docs/evaluation.md`` describes."""
    return {
        "questions": len(answers),
        "right": sum(answer.right for answer in answers),
        "by_kind": {kind: _figures(part) for kind, part in _by_kind(answers)},
        "by_topic_kind": {
            kind: _figures([answer for answer in answers if answer.topic_kind == kind])
            for kind in sorted({answer.topic_kind for answer in answers})
        },
        "wrong": [
            {"topic": answer.topic, "question": answer.question.id, "checks": failed}
            for answer in answers
            if (failed := [name for name, held in answer.checks.items() if not held])
        ],
        "configuration": {
            "data": "changes",
            "file": file,
            "embedder": embedder,
            "store": "sqlite",
            "depth": DEPTH,
            "past_depth": PAST_DEPTH,
            "topics": len(topics),
        },
    }


def change_text(answers: Sequence[ChangeAnswer]) -> Iterator[str]:
    """The figures as a table, a row for each kind of question and each check."""
    yield f"{'':34}{'questions':>10}{'right':>8}"
    for kind, part in _by_kind(answers):
        yield f"{kind:<34}{len(part):>10}{sum(one.right for one in part) / len(part):>8.3f}"
        held = Counter(name for one in part for name, ok in one.checks.items() if ok)
        for name in part[0].checks:
            yield f"  {name:<32}{'':>10}{held[name] / len(part):>8.3f}"
    for answer in answers:
        failed = [name for name, held in answer.checks.items() if not held]
        if failed:
            yield f"wrong: {answer.topic} {answer.question.id}: {', '.join(failed)}"


def _by_kind(
    answers: Sequence[ChangeAnswer],
) -> list[tuple[str, list[ChangeAnswer]]]:
    found = [
        (kind, [answer for answer in answers if answer.question.kind == kind])
        for kind in QUESTION_KINDS
    ]
    return [(kind, part) for kind, part in found if part]


def _figures(answers: Sequence[ChangeAnswer]) -> dict[str, object]:
    held = Counter(name for one in answers for name, ok in one.checks.items() if ok)
    asked = Counter(name for one in answers for name in one.checks)
    return {
        "questions": len(answers),
        "right": round(sum(one.right for one in answers) / len(answers), 4),
        "checks": {name: round(held[name] / count, 4) for name, count in asked.items()},
    }
