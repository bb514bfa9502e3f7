"""Own synthetic talks of two named people, with questions and their evidence: deterministic."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from cases import Case, row

from secondcall.recall.segment import IndexRow

__all__ = ["talks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One thing to talk about: what is said in turn, the questions about it, pairs of values."""

    lead: str
    ask: str
    answer: str
    react: str
    detail: str
    about_answer: str
    about_detail: str
    about_all: str
    values: Sequence[tuple[str, str]]


_DATA = json.loads((Path(__file__).parent / "data" / "talks.json").read_text("utf-8"))
TOPICS = [Topic(**one) for one in _DATA["topics"]]
FILLERS: Sequence[str] = _DATA["fillers"]
GREETINGS: Sequence[tuple[str, str]] = _DATA["greetings"]

_PAIRS = (("Amira", "Tobias"), ("Nadia", "Pavel"), ("Selma", "Ruben"), ("Wanda", "Jonah"),
          ("Leonie", "Marek"), ("Olga", "Samuel"))  # fmt: skip
_SESSIONS = 20
_TOPICS_PER_SESSION = 4
_UNASKED = 0.5


def talks() -> Iterator[Case]:
    """All cases, in a fixed order."""
    for seed, pair in enumerate(_PAIRS):
        yield from _talk(pair, Random(seed))


class _Told:
    """What somebody told: the topic, the rows of answer and detail, and the month."""

    def __init__(self, owner: str, topic: Topic, answer: int, detail: int, at: datetime) -> None:
        self.owner, self.topic, self.at = owner, topic, at
        self.answer, self.detail = answer, detail


def _talk(pair: tuple[str, str], random: Random) -> list[Case]:
    rows: list[IndexRow] = []
    told: list[_Told] = []
    stock = [
        (owner, topic, values)
        for topic in TOPICS
        for owner, several in zip(pair, _dealt(topic, random), strict=True)
        for values in several
    ]
    random.shuffle(stock)
    at = datetime(2025, 1, 6, 18, tzinfo=UTC)
    for number in range(_SESSIONS):
        at += timedelta(days=random.randint(4, 20))
        session = f"talk-{number}"
        first = random.choice(pair)
        other = pair[1 - pair.index(first)]
        greeting, reply = random.choice(GREETINGS)
        for speaker, text in ((first, greeting), (other, reply)):
            spoken = text.format(n=first if speaker is other else speaker, o=other)
            rows.append(row(rows, session, at, "user", spoken, speaker))
        for owner, topic, values in stock[number * _TOPICS_PER_SESSION :][:_TOPICS_PER_SESSION]:
            told.append(_tell(rows, session, at, pair, owner, topic, values, random))
    return _questions(rows, told, at, pair)


def _dealt(topic: Topic, random: Random) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    values = list(topic.values)
    random.shuffle(values)
    mine = random.choice((1, 2, 2, 3))
    return values[:mine], values[mine:]


def _tell(
    rows: list[IndexRow],
    session: str,
    at: datetime,
    pair: tuple[str, str],
    owner: str,
    topic: Topic,
    values: tuple[str, str],
    random: Random,
) -> _Told:
    other = pair[1 - pair.index(owner)]

    def say(speaker: str, text: str) -> int:
        rows.append(row(rows, session, at, "user", text, speaker))
        return len(rows) - 1

    unasked = random.random() < _UNASKED
    if not unasked:
        say(other, topic.ask)
    text = topic.answer.format(a=values[0])
    answer = say(owner, f"{topic.lead} {text}" if unasked else text)
    say(other, topic.react)
    detail = say(owner, topic.detail.format(b=values[1]))
    for speaker in (other, owner)[: random.randint(0, 2)]:
        say(speaker, random.choice(FILLERS))
    return _Told(owner, topic, answer, detail, at)


def _questions(
    rows: list[IndexRow], told: list[_Told], at: datetime, pair: tuple[str, str]
) -> list[Case]:
    cases: list[Case] = []

    def ask(kind: str, question: str, gold: set[int], owner: str) -> None:
        sessions = frozenset(rows[place].key.session_id for place in gold)
        cases.append(
            Case(
                kind=kind,
                rows=rows,
                question=question.replace("{n}", owner),
                at=at,
                gold=frozenset(gold),
                sessions=sessions,
            )
        )

    for owner in pair:
        for topic in TOPICS:
            mine = [one for one in told if one.owner == owner and one.topic is topic]
            if not mine:
                continue
            ask("talk:answer", topic.about_answer, {one.answer for one in mine}, owner)
            ask("talk:detail", topic.about_detail, {one.detail for one in mine}, owner)
            if len(mine) > 1:
                ask("talk:all", topic.about_all, {one.answer for one in mine}, owner)
                month = mine[0].at.strftime("%B")
                dated = f"{topic.about_answer.removesuffix('?')} in {month}?"
                ask(
                    "talk:month",
                    dated,
                    {one.answer for one in mine if one.at.strftime("%B") == month},
                    owner,
                )
    return cases
