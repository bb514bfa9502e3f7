"""What the caller is saying, while they are saying it. Pure.

A recogniser gives guesses that it takes back (interim words) and pieces that stand (final ones);
the turn is all the pieces. What was looked up for a guess may be used for the turn when both say
the same: the same words in the same order, whatever their case and punctuation, and not counting
fillers ("uh", "please", "the"). One other word, and it is another question.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

__all__ = ["Utterance", "words_of"]

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_FILLERS = frozenset(
    [
        "a",
        "ah",
        "an",
        "eh",
        "er",
        "erm",
        "hm",
        "hmm",
        "mm",
        "oh",
        "ok",
        "okay",
        "please",
        "the",
        "uh",
        "uhm",
        "um",
        "well",
        "yeah",
    ]
)
_PAUSE_SECONDS = 5.0
_MAX_CHARACTERS = 4_000


def words_of(text: str) -> tuple[str, ...]:
    """The words of ``text`` that count when two texts are compared."""
    found = (word.casefold().replace("’", "'") for word in _WORD.findall(text))
    return tuple(word for word in found if word not in _FILLERS)


@dataclass(slots=True)
class Utterance:
    """The turn that is being spoken, put together from what the recogniser gives."""

    number: int = 0
    """Moves on when a turn is over."""
    _pieces: list[str] = field(default_factory=list[str])
    _last_at: float = 0.0

    def hear(self, text: str, *, final: bool, at: float) -> str:
        """All words of the turn up to now; ``at`` is the loop's time in seconds.

        After a long silence it is another turn, since one that was dropped is never committed.
        """
        if at - self._last_at > _PAUSE_SECONDS:
            self.over()
        self._last_at = at
        whole = " ".join([*self._pieces, text.strip()]).strip()[-_MAX_CHARACTERS:]
        if final:
            self._pieces = [whole]
        return whole

    def over(self) -> None:
        """The turn is committed: what comes now belongs to the next."""
        self._pieces = []
        self.number += 1
