"""What an index is made of: growing columns, sealed parts over segments, and a tail that grows."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from secondcall.abc import EntryKey
from secondcall.recall.segment import Segment
from secondcall.types import Metadata

__all__ = ["Growing", "Part", "SealedPart", "TailPart"]

Scalar = TypeVar("Scalar", bound=np.generic)
Vectors = npt.NDArray[np.int8]
Found = tuple[npt.NDArray[np.unsignedinteger], npt.NDArray[np.unsignedinteger]]


class Growing(Generic[Scalar]):
    """A numpy column that grows at its end in amortised constant time.

    A ``view`` taken earlier keeps its length, and sees later changes of its own rows at most.
    """

    def __init__(self, dtype: type[Scalar], width: int | None = None) -> None:
        self._tail = () if width is None else (width,)
        self._array: npt.NDArray[Scalar] = np.empty((16, *self._tail), dtype=dtype)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def view(self) -> npt.NDArray[Scalar]:
        """The rows so far; writing to it changes the column."""
        return self._array[: self._size]

    @property
    def nbytes(self) -> int:
        """What the column takes, room to grow included."""
        return self._array.nbytes

    def append(self, value: npt.ArrayLike) -> None:
        """Add one row at the end."""
        if self._size == len(self._array):
            self._grow(self._size + 1)
        self._array[self._size] = value
        self._size += 1

    def extend(self, values: Sequence[Any] | npt.NDArray[Any]) -> None:
        """Add rows at the end."""
        size = self._size + len(values)
        if size > len(self._array):
            self._grow(size)
        self._array[self._size : size] = values
        self._size = size

    def _grow(self, size: int) -> None:
        room = max(size, len(self._array) + len(self._array) // 2)
        grown: npt.NDArray[Scalar] = np.empty((room, *self._tail), dtype=self._array.dtype)
        grown[: self._size] = self.view
        self._array = grown


class SealedPart:
    """Rows of one decoded segment, from ``base`` on."""

    def __init__(self, base: int, segment: Segment) -> None:
        self.base = base
        self._segment = segment

    def __len__(self) -> int:
        return len(self._segment)

    @property
    def nbytes(self) -> int:
        """About what the segment's arrays take."""
        one = self._segment
        arrays = [one.vectors, one.scales, one.terms, one.term_starts, one.posting_rows]
        arrays += [] if one.tokens is None else [one.tokens]
        return sum(part.nbytes for part in (*arrays, one.posting_counts)) + 60 * len(one)

    def key(self, row: int) -> EntryKey:
        """The key of a row of the index."""
        return self._segment.key(row - self.base)

    def metadata(self) -> dict[int, Metadata]:
        """Metadata by row of the index."""
        return {self.base + row: value for row, value in self._segment.metadata().items()}

    def postings(self, hashes: npt.NDArray[np.uint64], rows: int) -> list[Found | None]:
        """For each term its rows, from 0 and ascending, and counts; ``None`` when it has none."""
        one = self._segment
        if not len(one.terms):
            return [None] * len(hashes)
        places = np.minimum(np.searchsorted(one.terms, hashes), len(one.terms) - 1)
        found: list[Found | None] = [None] * len(hashes)
        for number in np.flatnonzero(one.terms[places] == hashes).tolist():
            place = places[number]
            span = slice(int(one.term_starts[place]), int(one.term_starts[place + 1]))
            found[number] = (one.posting_rows[span], one.posting_counts[span])
        return found

    def vectors(self, rows: int) -> tuple[Vectors, npt.NDArray[np.float32]] | None:
        """The rows' vectors, or ``None`` when there are none."""
        one = self._segment
        return (one.vectors, one.scales) if one.vectors.shape[1] and len(one) else None

    def tokens(self, rows: npt.NDArray[np.int64]) -> Sequence[Vectors | None]:
        """The token vectors of each of these rows of the index, ``None`` where there are none."""
        return self._segment.tokens_of(rows - self.base)


class TailPart:
    """Rows that came one by one since, from ``base`` on. Terms point to (row, count) pairs."""

    def __init__(self, base: int) -> None:
        self.base = base
        self._keys: list[EntryKey] = []
        self._metadata: dict[int, Metadata] = {}
        self._postings: dict[int, array[int]] = {}
        self._posted = 0
        self._vectors: Growing[np.int8] | None = None
        self._scales = Growing(np.float32)
        self._tokens: dict[int, Vectors] = {}
        self._token_bytes = 0

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def nbytes(self) -> int:
        """About what the tail takes."""
        vectors = 0 if self._vectors is None else self._vectors.nbytes
        return (
            vectors
            + self._token_bytes
            + 12 * self._posted
            + 180 * len(self._postings)
            + 300 * len(self)
        )

    def append(self, key: EntryKey, metadata: Metadata, hashes: Sequence[int]) -> None:
        """Add one row at the end."""
        place = len(self._keys)
        for term, count in Counter(hashes).items():
            posting = self._postings.get(term)
            if posting is None:
                posting = self._postings[term] = array("I")
            posting.extend((place, count))
            self._posted += 1
        if metadata:
            self._metadata[place] = metadata
        self._scales.append(0.0)
        if self._vectors is not None:
            self._vectors.append(0)
        self._keys.append(key)

    def key(self, row: int) -> EntryKey:
        """The key of a row of the index."""
        return self._keys[row - self.base]

    def metadata(self) -> dict[int, Metadata]:
        """Metadata by row of the index."""
        return {self.base + row: value for row, value in self._metadata.copy().items()}

    def postings(self, hashes: npt.NDArray[np.uint64], rows: int) -> list[Found | None]:
        """The same, of rows of the index below ``rows``."""
        return [self._posting(term, rows) for term in hashes.tolist()]

    def _posting(self, term: int, rows: int) -> Found | None:
        posting = self._postings.get(term)
        if posting is None:
            return None
        # One copy in one step: the array may grow meanwhile, in another thread.
        pairs = np.frombuffer(posting.tobytes(), np.uint32).reshape(-1, 2)
        known = int(np.searchsorted(pairs[:, 0], rows - self.base))
        return pairs[:known, 0], pairs[:known, 1]

    def vectors(self, rows: int) -> tuple[Vectors, npt.NDArray[np.float32]] | None:
        """The vectors of rows below ``rows``, or ``None`` when there are none."""
        if self._vectors is None:
            return None
        known = max(0, min(rows - self.base, len(self._vectors)))
        return self._vectors.view[:known], self._scales.view[:known]

    def set_vector(self, row: int, vector: npt.NDArray[np.int8], scale: float) -> None:
        """Give a row its vector."""
        if self._vectors is None:
            self._vectors = Growing(np.int8, len(vector))
            self._vectors.extend(np.zeros((len(self._keys), len(vector)), np.int8))
        self._vectors.view[row - self.base] = vector
        self._scales.view[row - self.base] = scale

    def tokens(self, rows: npt.NDArray[np.int64]) -> Sequence[Vectors | None]:
        """The token vectors of each of these rows of the index, ``None`` where there are none."""
        return [self._tokens.get(row) for row in rows.tolist()]

    def set_tokens(self, row: int, tokens: Vectors) -> None:
        """Give a row its token vectors."""
        if row not in self._tokens:
            self._tokens[row] = tokens
            self._token_bytes += tokens.nbytes


Part = SealedPart | TailPart
