"""Small records for the recall tests, with a word-axis embedder of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from secondcall.abc import EntryKey
from secondcall.recall.analyze import terms
from secondcall.recall.index import SearchResult, UserIndex
from secondcall.recall.segment import IndexRow, Removal, decode, embedding_text, encode

EMBEDDER_ID = "axes:1"
START = datetime(2026, 3, 2, 9, tzinfo=UTC)
NOW = datetime(2026, 6, 1, tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

TokensOf = Callable[[str], npt.NDArray[np.int8]]


def micros(at: datetime) -> int:
    """Microseconds since 1970."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def row(
    change: int,
    text: str,
    *,
    session: str = "s1",
    role: str = "user",
    speaker: str | None = None,
    item: str | None = None,
    position: int | None = None,
    at: datetime | None = None,
    metadata: dict[str, object] | None = None,
) -> IndexRow:
    """A message, one minute after the one before unless said otherwise."""
    return IndexRow(
        change=change,
        position=change if position is None else position,
        key=EntryKey(session, "message", item or f"m{change:03d}"),
        at_us=micros(at or START + timedelta(minutes=change)),
        role=role,
        speaker=speaker,
        text=text,
        metadata=metadata or {},  # pyright: ignore[reportArgumentType] - any JSON object may come
    )


def vectors(texts: Sequence[str]) -> npt.NDArray[np.float32]:
    """Unit vectors in which each term has one of 32 axes."""
    found = np.zeros((len(texts), 32), np.float32)
    for place, text in enumerate(texts):
        for term in terms(text):
            axis = blake2b(term.encode("utf-8", "surrogatepass"), digest_size=1).digest()[0] % 32
            found[place, axis] += 1
    norms = np.linalg.norm(found, axis=1, keepdims=True)
    return (found / np.where(norms > 0, norms, 1)).astype(np.float32)


def index_of(
    rows: Sequence[IndexRow],
    *,
    cuts: Sequence[int] = (),
    removals: Sequence[Removal] = (),
    tokens_of: TokensOf | None = None,
) -> UserIndex:
    """An index of these rows; those before the last cut come in segments that end at the cuts. With
    ``tokens_of`` each has the token vectors of its text."""
    index = UserIndex(embedder_id=EMBEDDER_ID)
    begin = 0
    for cut in cuts:
        index.add_segment(decode(blob(rows[begin:cut], tokens_of=tokens_of)))
        begin = cut
    rest = rows[begin:]
    index.add(rest, vectors([embedding_text(one) for one in rest]), _tokens(rest, tokens_of))
    index.remove(removals)
    return index


def _tokens(
    rows: Sequence[IndexRow], tokens_of: TokensOf | None
) -> list[npt.NDArray[np.int8]] | None:
    return None if tokens_of is None else [tokens_of(one.text) for one in rows]


def blob(
    rows: Sequence[IndexRow],
    removals: Sequence[Removal] = (),
    *,
    tokens_of: TokensOf | None = None,
) -> bytes:
    """The segment of these rows."""
    changes = [one.change for one in (*rows, *removals)] or [1]
    return encode(
        rows,
        vectors([embedding_text(one) for one in rows]),
        tokens=_tokens(rows, tokens_of),
        embedder_id=EMBEDDER_ID,
        first_change=min(changes),
        last_change=max(changes),
        removals=removals,
    )


def ask(index: UserIndex, question: str, *, limit: int = 10, **filters: Any) -> SearchResult:
    """A search with the question's own vector."""
    return index.search(question, vectors([question])[0], at=NOW, limit=limit, **filters)


def ids(result: SearchResult) -> list[str]:
    """The item ids of a result, best first."""
    return [hit.key.id for hit in result.hits]
