"""Questions of LoCoMo: evidence is named by turn; the moment of asking is the last session's."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from secondcall.evaluate.questions import Data, Haystack, ItemName, Question
from secondcall.record.formats import locomo
from secondcall.record.formats.fields import Fields
from secondcall.record.formats.source import Source
from secondcall.record.transfer import Transcript
from secondcall.types import Message

__all__ = ["evidence_ids", "load"]

_SEPARATOR = re.compile(r"[;,\s]+")
_TURN = re.compile(r"D:?(\d+):(\d+)")


def load(source: Source, *, limit: int | None = None) -> Data:
    """The first ``limit`` questions with evidence, in file order. Raises: ``InvalidValue``."""
    left_out: Counter[str] = Counter()
    haystacks: list[Haystack] = []
    wanted = limit
    for sample in locomo.people(source):
        if wanted == 0:
            break
        sessions = locomo.sessions_of(sample)
        questions = _questions(sample, sessions, left_out, wanted)
        wanted = None if wanted is None else wanted - len(questions)
        haystacks.append(
            Haystack(user_id=sample.text("sample_id"), sessions=sessions, questions=questions)
        )
    return Data(name="locomo", haystacks=haystacks, left_out=dict(left_out))


def evidence_ids(entry: str) -> Sequence[str] | None:
    """The turn ids of an evidence entry, or ``None`` if it cannot be read without guessing.

    Some entries hold several ids (``D8:6; D9:17``), a colon too many (``D:11:26``) or a leading
    zero (``D30:05``).
    """
    found: list[str] = []
    for part in _SEPARATOR.split(entry.strip()):
        match = _TURN.fullmatch(part)
        if match is None:
            return None
        found.append(f"D{int(match.group(1))}:{int(match.group(2))}")
    return found


def _questions(
    sample: Fields, sessions: Sequence[Transcript], left_out: Counter[str], wanted: int | None
) -> list[Question]:
    names = {
        item.id: ItemName(session.session_id, item.id)
        for session in sessions
        for item in session.items
        if isinstance(item, Message) and item.id is not None
    }
    asked_at = max(item.at for session in sessions for item in session.items if item.at is not None)
    found: list[Question] = []
    for index, value in enumerate(sample.entries("qa")):
        if len(found) == wanted:
            break
        entry = Fields(value, sample.place.inside(f"qa[{index}]"))
        gold = _gold(entry, names, left_out)
        if not gold:
            left_out["questions without evidence"] += 1
            continue
        found.append(
            Question(
                id=f"{sample.text('sample_id')}:{index}",
                category=str(entry.raw("category")),
                text=entry.text("question"),
                asked_at=asked_at,
                messages=gold,
                sessions=frozenset(name.session_id for name in gold),
            )
        )
    return found


def _gold(
    entry: Fields, names: Mapping[str, ItemName], left_out: Counter[str]
) -> frozenset[ItemName]:
    found: set[ItemName] = set()
    for evidence in entry.entries("evidence"):
        ids = evidence_ids(evidence) if isinstance(evidence, str) else None
        if ids is None:
            left_out["evidence that cannot be read"] += 1
            continue
        found.update(names[turn] for turn in ids if turn in names)
        left_out["evidence that is not in the conversation"] += sum(
            turn not in names for turn in ids
        )
    return frozenset(found)
