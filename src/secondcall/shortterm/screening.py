"""Checks what a summariser wrote, against what it was given. Pure.

Whatever a model does, afterwards no sentence with a number that nobody said is left, none that
turns a "not" around, and no text longer than it may be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from secondcall.shortterm.keyfacts import KeyFact, check
from secondcall.shortterm.wording import (
    content_words,
    is_negated,
    names_in,
    numbers_in,
    said,
    sentences,
    without_not,
)

__all__ = ["cut_at_sentence", "is_foreign", "lost_facts", "struck"]

_BULLET = re.compile(r"^\s*(?:[-*\u2022#]+|\d{1,2}[.)])\s+", re.MULTILINE)
_SAME = 0.7
_MIN_SAME = 2


def struck(summary: str, source: str, facts: Sequence[KeyFact]) -> str:
    """The summary without the sentences that cannot come from ``source``.

    Struck out are those with a number, date or amount that is not in the source, with a name that
    is not (where capitals mean names), and those that say without its *not* what a key fact denies.
    """
    text = said(_BULLET.sub("", summary))
    numbers, words = numbers_in(source), set(content_words(source))
    names = _are_names(source)
    denials = [set(content_words(without_not(one.text))) for one in facts if is_negated(one.text)]
    kept = [
        one
        for one in sentences(text)
        if numbers_in(one) <= numbers
        and not (names and _strange_names(one, words))
        and not _turned(one, denials)
    ]
    return " ".join(" ".join(kept).split())


def lost_facts(facts: Iterable[KeyFact], text: str) -> list[KeyFact]:
    """The facts that do not stand in ``text`` verbatim."""
    held = list(facts)
    there = check(held, text)
    return [one for one in held if one.id not in there]


def is_foreign(summary: str, source: str) -> bool:
    """Whether the two have no word in common: then the summary is not one of this text."""
    letters = {one for one in content_words(source) if not one.isdecimal()}
    return bool(letters) and letters.isdisjoint(content_words(summary))


def cut_at_sentence(text: str, max_tokens: int, count: Callable[[str], int]) -> str:
    """The leading sentences that fit; of a first one that does not, the leading words."""
    if count(text) <= max_tokens:
        return text
    parts = sentences(text)
    fitting = _longest(parts, max_tokens, count)
    if fitting or not parts:
        return " ".join(parts[:fitting])
    words = parts[0].split()
    fitting = _longest([*words], max_tokens - count(" \u2026"), count)
    return " ".join([*words[:fitting], "\u2026"]) if fitting else ""


def _longest(parts: Sequence[str], max_tokens: int, count: Callable[[str], int]) -> int:
    low, high = 0, len(parts)
    while low < high:
        middle = (low + high + 1) // 2
        if count(" ".join(parts[:middle])) <= max_tokens:
            low = middle
        else:
            high = middle - 1
    return low


def _are_names(source: str) -> bool:
    """Whether capitals mean names here: they do not in German, nor in a text all in titles."""
    words = [one for one in re.findall(r"[^\W\d_]+", source) if len(one) > 1]
    return sum(one[0].isupper() for one in words) * 4 < len(words)


def _strange_names(sentence: str, words: set[str]) -> bool:
    return any(
        not set(content_words(name)) <= words
        for name in names_in(sentence)
        if name.lower() not in ("user", "assistant", "caller", "customer", "agent")
    )


def _turned(sentence: str, denials: Iterable[set[str]]) -> bool:
    if is_negated(sentence):
        return False
    words = set(content_words(sentence))
    return any(len(denial & words) >= max(_MIN_SAME, _SAME * len(denial)) for denial in denials)
