"""Own conversations for benchmarks: deterministic, any number, with a vocabulary like speech."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from secondcall import Message

__all__ = ["conversation", "questions"]

_START = datetime(2025, 1, 1, 9, tzinfo=UTC)
_SYLLABLES = [
    first + vowel
    for first in ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "br", "cl", "st")
    for vowel in "aeiou"
]
_COMMON = (
    *("i", "you", "we", "the", "a", "to", "of", "and", "in", "it", "is", "that", "was", "for"),
    *("on", "with", "my", "have", "this", "can", "will", "not", "be", "at", "so", "please"),
    *("thanks", "about", "when", "what", "how", "would", "like", "could", "need", "just"),
    *("think", "know", "want", "time", "day"),
)


def _vocabulary(seed: int, size: int) -> list[str]:
    chooser = random.Random(seed)
    return ["".join(chooser.choices(_SYLLABLES, k=chooser.randint(2, 4))) for _ in range(size)]


def conversation(user: int, count: int, *, turns: int = 40) -> Iterator[tuple[str, list[Message]]]:
    """``count`` messages of one user as (session_id, messages), 8 to 40 words each."""
    chooser = random.Random(user)
    words = _vocabulary(user, 8_000)
    weights = list(itertools.accumulate(1 / (rank + 10) for rank in range(len(words))))
    done = 0
    session = 0
    while done < count:
        begin = _START + timedelta(days=session)
        messages: list[Message] = []
        for turn in range(min(turns, count - done)):
            rare = chooser.choices(words, cum_weights=weights, k=chooser.randint(4, 16))
            common = chooser.choices(_COMMON, k=chooser.randint(4, 24))
            spoken = rare + common
            chooser.shuffle(spoken)
            role = "user" if turn % 2 == 0 else "assistant"
            at = begin + timedelta(seconds=20 * turn)
            messages.append(Message(role, " ".join(spoken) + ".", id=f"{session}:{turn}", at=at))
        done += len(messages)
        yield f"session-{session}", messages
        session += 1


def questions(user: int, count: int) -> list[str]:
    """Questions of about five content words from the same user's vocabulary."""
    chooser = random.Random(user + 1_000_003)
    words = _vocabulary(user, 8_000)
    weights = [1 / (rank + 10) for rank in range(len(words))]
    return [
        "what did I say about " + " ".join(chooser.choices(words, weights, k=chooser.randint(3, 8)))
        for _ in range(count)
    ]
