"""A clock that stands still and an embedder whose meaning can be read: for tests of any kind."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt

from secondcall.abc import Embedder
from secondcall.errors import InvalidValue

__all__ = ["FrozenClock", "WordAxisEmbedder"]

_WORD = re.compile(r"\w+")


class FrozenClock:
    """A ``Clock`` that shows the same time until it is told another one."""

    def __init__(self, now: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = _in_utc(now)

    def now(self) -> datetime:
        """The time it was set to, aware, UTC."""
        return self._now

    def set(self, now: datetime) -> None:
        """Show this time; backwards too. Raises: ``InvalidValue`` for a naive one."""
        self._now = _in_utc(now)

    def advance(self, by: timedelta) -> datetime:
        """Move on by a time span (back by a negative one); what it shows then."""
        self._now += by
        return self._now


class WordAxisEmbedder(Embedder):
    """Each word of a vocabulary is an axis; a text is the direction of its words.

    A vocabulary line may hold several words that mean the same: ``["seat", "car automobile"]``. So
    texts that share a meaning are near, others at right angles, and a ranking can be worked out by
    hand. Words outside the vocabulary count nothing. ``seen`` keeps every text that was embedded.
    """

    local = True

    def __init__(self, vocabulary: Sequence[str], *, id: str = "word-axis") -> None:
        self.id = id
        self.dimensions = len(vocabulary)
        self.seen: list[str] = []
        self._axes = {word: axis for axis, line in enumerate(vocabulary) for word in _words(line)}

    async def embed_documents(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Unit vectors ``(len(texts), dimensions)``, zeros for a text without known words."""
        self.seen.extend(texts)
        rows = [self._vector(text) for text in texts]
        return np.array(rows, np.float32).reshape(len(rows), self.dimensions)

    async def embed_query(self, text: str) -> npt.NDArray[np.float32]:
        """The same for one text ``(dimensions,)``."""
        self.seen.append(text)
        return self._vector(text)

    def _vector(self, text: str) -> npt.NDArray[np.float32]:
        vector = np.zeros(self.dimensions, np.float32)
        for word in _words(text):
            if word in self._axes:
                vector[self._axes[word]] += 1
        length = float(np.linalg.norm(vector))
        return vector / np.float32(length) if length else vector


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _in_utc(time: datetime) -> datetime:
    if time.tzinfo is None:
        raise InvalidValue("now is a naive datetime, expected an aware one")
    return time.astimezone(UTC)
