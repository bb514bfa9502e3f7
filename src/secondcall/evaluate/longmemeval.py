"""Questions of LongMemEval: each has a haystack of its own and the date on which it is asked."""

from __future__ import annotations

from collections import Counter

from secondcall.evaluate.questions import Data, Haystack, ItemName, Question
from secondcall.record.formats import longmemeval
from secondcall.record.formats.fields import Fields
from secondcall.record.formats.source import Source

__all__ = ["load"]

_ABSTENTION = "_abs"
_CHANGED = "knowledge-update"


def load(source: Source, *, limit: int | None = None) -> Data:
    """The first ``limit`` questions with evidence, in file order. Raises: ``InvalidValue``."""
    left_out: Counter[str] = Counter()
    haystacks: list[Haystack] = []
    for entry in longmemeval.people(source):
        if len(haystacks) == limit:
            break
        if entry.text("question_id").endswith(_ABSTENTION):
            left_out["questions without an answer (_abs)"] += 1
            continue
        sessions = longmemeval.sessions_of(entry)
        question = _question(entry)
        if question is None:
            left_out["questions without evidence"] += 1
            continue
        haystacks.append(Haystack(user_id=question.id, sessions=sessions, questions=(question,)))
    return Data(name="longmemeval", haystacks=haystacks, left_out=dict(left_out))


def _question(entry: Fields) -> Question | None:
    wanted = entry.entries("answer_session_ids")
    originals = entry.entries("haystack_session_ids")
    messages: set[ItemName] = set()
    answers: set[str] = set()
    for index, session_id in enumerate(longmemeval.session_names(entry)):
        if originals[index] in wanted:
            answers.add(session_id)
        messages.update(
            ItemName(session_id, longmemeval.item_id(session_id, position))
            for position, turn in enumerate(longmemeval.turns_of(entry, index))
            if turn.flag("has_answer")
        )
    if not messages or not answers:
        return None
    return Question(
        id=entry.text("question_id"),
        category=entry.text("question_type"),
        text=entry.text("question"),
        asked_at=longmemeval.time_of(entry.raw("question_date"), entry, "question_date"),
        messages=frozenset(messages),
        sessions=frozenset(answers),
        newest=_newest(entry, messages) if entry.text("question_type") == _CHANGED else frozenset(),
    )


def _newest(entry: Fields, messages: set[ItemName]) -> frozenset[ItemName]:
    """The evidence of the last time, where there is evidence of another."""
    dates = entry.entries("haystack_dates")
    times = {
        name: longmemeval.time_of(dates[index], entry, f"haystack_dates[{index}]")
        for index, name in enumerate(longmemeval.session_names(entry))
    }
    last = max(times[one.session_id] for one in messages)
    newest = frozenset(one for one in messages if times[one.session_id] == last)
    return newest if len(newest) < len(messages) else frozenset()
