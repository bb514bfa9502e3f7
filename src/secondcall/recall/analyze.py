"""From text to terms: what counts as a word, its stem, and its stable 64-bit name.

A term is a stemmed word, a number, an emoji, or a character or pair of characters of a script that
is written without spaces. Terms are kept as hashes: an index holds no readable vocabulary. The
rules have a version in ``ANALYZER_ID``; an index made by others is rebuilt, never mixed.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Iterator
from hashlib import blake2b
from typing import Protocol, cast

import Stemmer

from secondcall.recall._stopwords import STOP_WORDS

__all__ = ["ANALYZER_ID", "Analyzer", "is_stop_word", "stem", "terms"]

ANALYZER_ID = "words-1"

_MAX_WORD = 64
_MAX_CACHED_WORDS = 32_768
# Vowel signs and accents that str.isalnum denies; without them Indic and Thai words fall apart.
_MARKS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1-\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06ed\u0900-\u0963\u0966-\u0df3\u0e31-\u0e4e\u0eb1-\u0ecd\u102b-\u103e"
    "\u17b4-\u17d3\u200c\u200d\u3099\u309a"
)
_EMOJI = "\u2600-\u27bf\U0001f300-\U0001faff"
_WORD = re.compile(
    rf"\d+(?:[.,:]\d+)+|[^\W_][\w{_MARKS}]*(?:['\u2019](?:s|t|d|m|ll|re|ve)\b)?|[{_EMOJI}]"
)
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+"
)
# Scripts whose accents are optional in writing, so that "cafe" finds "café".
_FOLDED = re.compile("[a-z\u0370-\u052f\u0590-\u06ff\u1e00-\u1fff][\u0300-\u036f\u0591-\u06dc]")
_MARK = re.compile("[\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u200c\u200d]")
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")


class Analyzer:
    """Turns text into term hashes. Keeps the last words it met, so one is shared by all users.

    Safe to use from several threads: a race at worst repeats work.
    """

    def __init__(self) -> None:
        self._recent: dict[str, tuple[int, ...]] = {}
        self._older: dict[str, tuple[int, ...]] = {}

    def hashes(self, text: str) -> list[int]:
        """The terms of a text in order, with repeats, stop words left out."""
        found: list[int] = []
        recent = self._recent
        for word in _words(text):
            known = recent.get(word)
            found.extend(self._remember(word) if known is None else known)
        return found

    def _remember(self, word: str) -> tuple[int, ...]:
        known = self._older.get(word)
        if known is None:
            known = tuple(term_hash(term) for term in _terms_of(word))
        if len(self._recent) >= _MAX_CACHED_WORDS:
            self._older, self._recent = self._recent, {}
        self._recent[word] = known
        return known


def terms(text: str) -> list[str]:
    """The readable terms of a text, for explaining and testing; the index keeps their hashes."""
    return [term for word in _words(text) for term in _terms_of(word)]


def term_hash(term: str) -> int:
    """The name of a term in an index: 64 bits of BLAKE2b, the same everywhere and always."""
    digest = blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def is_stop_word(word: str) -> bool:
    """Whether a case-folded word says too little to search for."""
    return word in STOP_WORDS


def _words(text: str) -> list[str]:
    folded = text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()
    return _WORD.findall(folded.replace("_", " "))


def _terms_of(word: str) -> Iterator[str]:
    word = re.split("['\u2019]", word[:_MAX_WORD], maxsplit=1)[0]
    if word in STOP_WORDS:
        return
    if word.isascii():
        yield from _ascii_terms(word)
        return
    word = _fold_accents(word)
    if word.isascii():
        if word not in STOP_WORDS:
            yield stem(word)
        return
    end = 0
    for run in _UNSPACED.finditer(word):
        yield from _spaced_terms(word[end : run.start()])
        yield from _unspaced_terms(run.group())
        end = run.end()
    yield from _spaced_terms(word[end:])


def _ascii_terms(word: str) -> Iterator[str]:
    if word[0].isdigit():
        yield word.replace(",", "") if _GROUPED.fullmatch(word) else word
    else:
        yield stem(word)


def _spaced_terms(word: str) -> Iterator[str]:
    if word and word not in STOP_WORDS:
        yield stem(word) if word.isascii() else word


def _unspaced_terms(run: str) -> Iterator[str]:
    yield from (character for character in run if character not in STOP_WORDS)
    yield from (run[place : place + 2] for place in range(len(run) - 1))


def _fold_accents(word: str) -> str:
    decomposed = unicodedata.normalize("NFKD", word)
    if _FOLDED.search(decomposed) is None:
        return word
    return unicodedata.normalize("NFC", _MARK.sub("", decomposed))


class _Words(Protocol):
    def stemWord(self, word: str) -> str: ...


class _Stemmer(threading.local):
    """One stemmer a thread: it keeps the word that it is at in itself."""

    def __init__(self) -> None:
        self.english = cast("_Words", Stemmer.Stemmer("english"))  # pyright: ignore[reportUnknownMemberType] - it has no types


_STEMMER = _Stemmer()


def stem(word: str) -> str:
    """The English stem of a lower-case word."""
    return _STEMMER.english.stemWord(word)
