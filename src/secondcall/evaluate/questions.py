"""What an evaluation asks of whose memory, whatever file it comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from secondcall.record.transfer import Transcript

__all__ = ["Data", "Haystack", "ItemName", "Question"]


class ItemName(NamedTuple):
    """A message inside its haystack."""

    session_id: str
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question with its evidence. Only ``text`` and ``asked_at`` are shown to recall."""

    id: str
    category: str
    text: str
    asked_at: datetime
    messages: frozenset[ItemName]
    sessions: frozenset[str]
    newest: frozenset[ItemName] = frozenset()
    """Of a question about what changed the evidence of the last time; empty for others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Haystack:
    """One person's sessions, and the questions about them in file order."""

    user_id: str
    sessions: Sequence[Transcript]
    questions: Sequence[Question]


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """A data set as it is evaluated; ``left_out`` counts what is not, by reason."""

    name: str
    haystacks: Sequence[Haystack]
    left_out: Mapping[str, int]

    @property
    def questions(self) -> int:
        """How many questions are asked."""
        return sum(len(haystack.questions) for haystack in self.haystacks)
