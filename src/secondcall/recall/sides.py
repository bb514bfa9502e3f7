"""Two stances beside each other: does a text say the opposite of what is asked? Pure."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = [
    "GENERAL",
    "STRENGTH",
    "WORD",
    "Stance",
    "agreement",
    "denies",
    "names_the_same",
    "opposition",
]

STRENGTH = 1.0
"""What standing for the opposite takes from a score: as much as a full match of words gives."""
_LIKELY = 0.6
"""What it counts when only being for or against is opposite, in different kinds of action."""
_NAMED = 3
"""A text speaks of what is asked for if it has one of so many of the question's words."""
GENERAL = "*"
"""The kind of being for or against anything at all."""
WORD = "~"
"""Begins the name of a kind that is a word and its denial: "working", "not working"."""

Stance = Mapping[str, int]
"""By kind, above 0 for its first side, below for the other, 0 for both."""


def opposition(wanted: Stance, found: Stance) -> float:
    """How far what was found stands against what is wanted: 1 for the opposite side of a kind, less
    for being against the same thing instead of for it; 0 when any kind agrees, or nothing compares.
    """
    kinds, shared = _compared(wanted, found)
    if kinds:
        return 0.0 if max(kinds) > 0 else 1.0
    if shared and min(shared) < 0:
        return 1.0
    general = wanted.get(GENERAL, 0) * found.get(GENERAL, 0)
    same = bool(shared) and 2 * len(shared) >= _own_words(wanted)
    return _LIKELY if same and general < 0 else 0.0


def agreement(wanted: Stance, found: Stance) -> float:
    """How far what was found takes the side that is wanted: 1 for the same side of every kind that
    compares, less for being against the same thing in another way."""
    kinds, shared = _compared(wanted, found)
    if kinds:
        return float(min(kinds) > 0)
    general = wanted.get(GENERAL, 0) * found.get(GENERAL, 0)
    return _LIKELY if any(one > 0 for one in shared) and general > 0 else 0.0


def names_the_same(wanted: Stance, found: Stance) -> bool:
    """Whether what was found speaks of a thing that the question names; where it names none,
    everything does."""
    shared = [kind for kind in wanted if kind.startswith(WORD) and kind in found]
    words = _own_words(wanted)
    return not words or (bool(shared) and _NAMED * len(shared) >= words)


def denies(wanted: Stance) -> bool:
    """Whether a question asks for what is against something: it says so by a word of its own,
    which "when did I get it?" does not."""
    return wanted.get(GENERAL, 0) < 0


def _compared(wanted: Stance, found: Stance) -> tuple[list[int], list[int]]:
    """The kinds and the plain words that both have a side of: above 0 for the same, below for the
    other."""
    kinds: list[int] = []
    shared: list[int] = []
    for kind, sign in wanted.items():
        one = sign * found.get(kind, 0)
        if one and kind != GENERAL:
            (shared if kind.startswith(WORD) else kinds).append(one)
    return kinds, shared


def _own_words(wanted: Stance) -> int:
    """How many plain words a question has, without those only read from a prefix."""
    return sum(1 for kind, one in wanted.items() if abs(one) == 1 and kind.startswith(WORD))
