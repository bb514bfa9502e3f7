"""The kept words of ``data/opposites.txt``: actions and attitudes with their opposites, by kind."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from secondcall.recall.sides import Stance

__all__ = ["ANY", "PARTICLES", "Form", "Lexicon", "attitude_words", "lexicon"]

PARTICLES = frozenset(
    ("on", "off", "up", "down", "in", "out", "back", "away", "over", "forward", "aside")
)
ANY = "_"
"""Stands for any one word."""
_ATTITUDE = "like-dislike"
_LEAST_LETTERS = 2
_PARTED = 3
_Sides = Mapping[tuple[str, ...], Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Form:
    """One way to say a side of some kinds, or a set phrase that says nothing (no ``sides``)."""

    rest: tuple[str, ...]
    """The words after the first."""
    sides: tuple[tuple[str, int], ...]
    as_noun: tuple[tuple[str, int], ...]
    """The sides that it takes when it stands as a noun: "a stop", "my order"."""
    parted: bool = False
    """Whether its second word is a particle that may stand apart: "turn the heating off"."""


@dataclass(frozen=True, slots=True)
class Lexicon:
    """All forms, the kinds whose sides are for and against a thing, and the single words of each
    kind and side."""

    forms: Mapping[str, Sequence[Form]]
    """By their first word, longest first."""
    general: frozenset[str]
    single: Mapping[tuple[str, int], Sequence[str]]


def _inflected(word: str) -> Iterator[str]:
    """A word with its regular endings: book, books, booked, booking; stop, stopped; carries."""
    yield word
    if "'" in word or len(word) < _LEAST_LETTERS or word in PARTICLES:
        return
    bare = word.removesuffix("e")
    if word.endswith("y") and word[-2] not in "aeiou":
        yield from (f"{word[:-1]}ies", f"{word[:-1]}ied", f"{word}ing")
        return
    yield f"{word}es" if word.endswith(("s", "x", "ch", "sh", "z")) else f"{word}s"
    yield from (f"{bare}ed", f"{bare}ing")
    if re.fullmatch(r"[^aeiou]*[aeiou][^aeiouwxy]|.*[^aeiou][aeiou][lt]", word):
        yield from (f"{word}{word[-1]}ed", f"{word}{word[-1]}ing")


@cache
def lexicon() -> Lexicon:
    """The forms of ``data/opposites.txt``, read once."""
    text = (resources.files("secondcall.recall") / "data" / "opposites.txt").read_text("utf-8")
    sides: dict[tuple[str, ...], dict[str, int]] = {}
    nouns: dict[tuple[str, ...], dict[str, int]] = {}
    general: set[str] = set()
    kind, flags = "", frozenset[str]()
    for line in text.splitlines():
        if line.startswith("["):
            kind, *rest = line.strip("[]").split()
            flags = frozenset(rest)
            general |= {kind} if "for" in flags else set()
            continue
        side = {"+": 1, "-": -1, "=": 0}.get(line[:1])
        if side is None:
            continue
        for words in _all_spelled(line[1:], inflect=side != 0):
            known = sides.setdefault(words, {})
            if side:
                known[kind] = side
                if "verbs" not in flags:
                    nouns.setdefault(words, {})[kind] = side
    _join_parted(sides)
    return Lexicon(_by_first_word(sides, nouns), frozenset(general), _single_words(sides))


def attitude_words(wanted: Stance) -> Sequence[str]:
    """Words by which somebody says the liking or disliking that a question asks for."""
    sign = wanted.get(_ATTITUDE, 0)
    return lexicon().single.get((_ATTITUDE, sign), ()) if sign else ()


def _join_parted(sides: dict[tuple[str, ...], dict[str, int]]) -> None:
    """ "Take _ out" also means what "take out" does, which may be parted."""
    for words, several in sides.items():
        if len(words) == _PARTED and words[1] == ANY and words[2] in PARTICLES:
            together = sides.get((words[0], words[2]), {})
            several |= {kind: side for kind, side in together.items() if kind not in several}


def _single_words(sides: _Sides) -> dict[tuple[str, int], list[str]]:
    found: dict[tuple[str, int], list[str]] = {}
    for words, several in sides.items():
        if len(words) == 1:
            for side in several.items():
                found.setdefault(side, []).append(words[0])
    return found


def _by_first_word(sides: _Sides, nouns: _Sides) -> dict[str, list[Form]]:
    forms: dict[str, list[Form]] = {}
    for words, several in sides.items():
        as_noun = tuple(sorted(nouns.get(words, {}).items()))
        parted = len(words) == 2 and bool(several) and words[1] in PARTICLES
        form = Form(words[1:], tuple(sorted(several.items())), as_noun, parted)
        forms.setdefault(words[0], []).append(form)
    for one in forms.values():
        one.sort(key=lambda form: -len(form.rest))
    return forms


def _all_spelled(line: str, *, inflect: bool) -> Iterator[tuple[str, ...]]:
    for phrase in line.split(","):
        first, *rest = phrase.split()
        for spelled in _inflected(first) if inflect else (first,):
            yield (spelled, *rest)
