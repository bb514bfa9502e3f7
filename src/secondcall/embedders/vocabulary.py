"""Byte-fallback BPE over a fixed vocabulary: token ids and counts, offline, in pure Python.

The vocabulary is the 32,000-piece table of the default embedder (`data/NOTICE.md` says whose).
A merge's priority is the id of the piece that it makes, which holds for every merge of that table
but the runs of spaces, which come last; so the pieces alone say everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources

_SPACE = "\u2581"
_FIRST_BYTE = 3
_FIRST_PIECE = 259
_MAX_UNIT = 128
_MAX_CACHED_UNITS = 24_576
_ASCII_LETTERS = rf"[A-Za-z]{{1,{_MAX_UNIT}}}+"
_ASCII_OTHERS = rf"[!-@\[-`{{-~]{{1,{_MAX_UNIT}}}+"
# No piece of the vocabulary holds a line break, a space after a letter, or an ASCII letter beside
# an ASCII sign or digit: cutting there is exact, and a word is one unit whatever mark follows it.
_UNIT = re.compile(
    rf"\n| *(?:{_ASCII_LETTERS}|{_ASCII_OTHERS})(?![^\x00-\x7f])| *[^ \n]{{1,{_MAX_UNIT}}}| +"
)


class BpeVocabulary:
    """Token ids of a text, equal to those of the `tokenizers` package for the same vocabulary.

    Two differences: control words such as `<s>` are read as plain text, and a run of more than 128
    characters without a space is cut, so that hostile text costs linear time.
    """

    def __init__(self, pieces: Sequence[str]) -> None:
        """Takes the pieces in the order of their ids, from the one after the 256 bytes."""
        self._ids = {piece: _FIRST_PIECE + place for place, piece in enumerate(pieces)}
        last = _FIRST_PIECE + len(pieces)
        self._ranks = {
            piece: last + len(piece) if piece.strip(_SPACE) == "" else number
            for piece, number in self._ids.items()
            if len(piece) > 1
        }
        self._recent: dict[str, tuple[int, ...]] = {}
        self._older: dict[str, tuple[int, ...]] = {}

    def __len__(self) -> int:
        """How many ids there are, bytes and control words included."""
        return _FIRST_PIECE + len(self._ids)

    def words(self) -> Iterator[str]:
        """The pieces that begin a word, without the mark of the space, in the order of ids."""
        return (piece[1:] for piece in self._ids if piece.startswith(_SPACE))

    def encode(self, text: str) -> list[int]:
        """The ids of a text; empty for an empty text."""
        found: list[int] = []
        for ids in self._units(text):
            found.extend(ids)
        return found

    def count(self, text: str) -> int:
        """How many tokens a text has."""
        return sum(map(len, self._units(text)))

    def _units(self, text: str) -> Iterator[tuple[int, ...]]:
        if not text:
            return
        recent = self._recent
        for unit in _UNIT.findall(" " + text):
            ids = recent.get(unit)
            yield self._remember(unit) if ids is None else ids

    def _remember(self, unit: str) -> tuple[int, ...]:
        ids = self._older.get(unit)
        if ids is None:
            ids = self._merge(unit)
        if len(self._recent) >= _MAX_CACHED_UNITS:
            self._older, self._recent = self._recent, {}
        self._recent[unit] = ids
        return ids

    def _merge(self, unit: str) -> tuple[int, ...]:
        parts = list(unit.replace(" ", _SPACE))
        ranks = self._ranks
        while len(parts) > 1:
            best, place = None, 0
            for left in range(len(parts) - 1):
                rank = ranks.get(parts[left] + parts[left + 1])
                if rank is not None and (best is None or rank < best):
                    best, place = rank, left
            if best is None:
                break
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
        return tuple(number for part in parts for number in self._numbers(part))

    def _numbers(self, part: str) -> Sequence[int]:
        number = self._ids.get(part)
        if number is not None:
            return (number,)
        return [_FIRST_BYTE + byte for byte in part.encode("utf-8", "surrogatepass")]


@cache
def default_vocabulary() -> BpeVocabulary:
    """The vocabulary that is shipped; read once, about 20 ms."""
    path = resources.files("secondcall.embedders") / "data" / "vocabulary.txt"
    return BpeVocabulary(path.read_bytes().decode("utf-8").split("\n")[:-1])


def count_tokens(text: str) -> int:
    """How many tokens a text has in the shipped vocabulary; near to what most models count."""
    return default_vocabulary().count(text)
