"""From change numbers to what an index takes: rows, removals and their vectors."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from secondcall.abc_tokens import TokenEmbedder
from secondcall.recall.maxsim import whole_tokens
from secondcall.recall.segment import IndexRow, Removal, embedding_text
from secondcall.recall.smalltalk import is_small_talk
from secondcall.record.append import words_of

if TYPE_CHECKING:
    from secondcall.abc import Change, Embedder, Scope, Store

__all__ = ["Embedded", "Tail", "VectorCache", "embed", "embed_local", "read_tail", "to_rows"]

_PAGE = 512
_EMBED_CHARACTERS = 8_000
_INDEX_CHARACTERS = 100_000
_BATCH = 64


@dataclass(slots=True)
class Tail:
    """A stretch of the change log in index form. ``last_change`` is the last number seen,
    ``facts`` are the (change number, kind, key) of the announced documents of facts."""

    last_change: int
    rows: list[IndexRow] = field(default_factory=list[IndexRow])
    removals: list[Removal] = field(default_factory=list[Removal])
    facts: list[tuple[int, str, str]] = field(default_factory=list[tuple[int, str, str]])


async def read_tail(store: Store, scope: Scope, *, after: int, through: int) -> Tail:
    """All changes above ``after`` up to ``through``, page by page."""
    tail = Tail(last_change=after)
    while tail.last_change < through:
        page = await store.changes(
            scope, after=tail.last_change, limit=min(_PAGE, through - tail.last_change)
        )
        if not page:
            return tail
        to_rows(page, tail)
    return tail


def to_rows(changes: Sequence[Change], tail: Tail) -> None:
    """Add ``changes`` to ``tail``. Items removed since they were appended have no row."""
    for change in changes:
        tail.last_change = change.number
        if change.kind == "entry" and change.entry is not None and change.entry.body:
            role, speaker, text, metadata = words_of(change.entry)
            tail.rows.append(
                IndexRow(
                    change=change.number,
                    position=change.entry.position,
                    key=change.entry.key,
                    at_us=change.entry.at_us,
                    role=role,
                    speaker=speaker,
                    text=_clamped(text),
                    metadata=metadata,
                )
            )
        elif change.kind == "removal" and change.key is not None:
            tail.removals.append(Removal(change=change.number, key=change.key))
        elif change.kind == "document" and change.document is not None:
            tail.facts.append((change.number, *change.document))


def _clamped(text: str) -> str:
    """What is indexed of a text: of a very long one its beginning and its end."""
    if len(text) <= _INDEX_CHARACTERS:
        return text
    half = _INDEX_CHARACTERS // 2
    return f"{text[:half]} {text[-half:]}"


class Embedded(NamedTuple):
    """Vectors ``(rows, dimensions)``, zeros for small talk, and each row's token vectors where the
    embedder gives any."""

    vectors: npt.NDArray[np.float32]
    tokens: Sequence[npt.NDArray[np.int8]] | None = None


_Known = tuple[npt.NDArray[np.float32], npt.NDArray[np.int8]]
_NO_TOKENS = np.empty((0, 0), np.int8)


class VectorCache:
    """The newest vectors by text, so that the same words are never sent to a model twice."""

    def __init__(self, capacity: int = 10_000) -> None:
        self._vectors: OrderedDict[str, _Known] = OrderedDict()
        self._capacity = capacity

    def get(self, text: str) -> _Known | None:
        """The vector of ``text`` and those of its tokens, if it is still there."""
        return self._vectors.get(text)

    def put(self, text: str, known: _Known) -> None:
        """Keep the vectors of a text, letting go of the oldest."""
        self._vectors[text] = known
        while len(self._vectors) > self._capacity:
            self._vectors.popitem(last=False)


async def embed(rows: Sequence[IndexRow], embedder: Embedder, cache: VectorCache) -> Embedded:
    """The rows' vectors: each different text once, in batches of 64.

    Raises: ``EmbedderError``.
    """
    spoken = _spoken(rows)
    texts = _texts([rows[place] for place in spoken])
    known = {text: one for text in texts if (one := cache.get(text)) is not None}
    unknown = [text for text in dict.fromkeys(texts) if text not in known]
    for start in range(0, len(unknown), _BATCH):
        batch = unknown[start : start + _BATCH]
        for text, one in zip(batch, await _embedded(batch, embedder), strict=True):
            known[text] = one
            cache.put(text, one)
    found = np.zeros((len(rows), embedder.dimensions), np.float32)
    if texts:
        found[spoken] = np.stack([known[text][0] for text in texts])
    if not isinstance(embedder, TokenEmbedder):
        return Embedded(found)
    tokens = [_NO_TOKENS] * len(rows)
    for place, text in zip(spoken, texts, strict=True):
        tokens[place] = known[text][1]
    return Embedded(found, tokens)


async def _embedded(texts: Sequence[str], embedder: Embedder) -> Sequence[_Known]:
    if not isinstance(embedder, TokenEmbedder):
        return [(vector, _NO_TOKENS) for vector in await embedder.embed_documents(texts)]
    made = await embedder.embed_document_tokens(texts)
    return [
        (vector, whole_tokens(tokens[: embedder.most_tokens]))
        for vector, tokens in zip(made.vectors, made.tokens, strict=True)
    ]


def embed_local(rows: Sequence[IndexRow], embedder: Embedder) -> npt.NDArray[np.float32]:
    """The vectors of an embedder that declares ``local``, without an event loop: for threads."""
    spoken = _spoken(rows)
    found = np.zeros((len(rows), embedder.dimensions), np.float32)
    if spoken:
        found[spoken] = _run_local(embedder, _texts([rows[place] for place in spoken]))
    return found


def _spoken(rows: Sequence[IndexRow]) -> list[int]:
    """The places of the rows that are more than small talk, which gets no vector."""
    return [place for place, row in enumerate(rows) if not is_small_talk(row.text)]


def _texts(rows: Sequence[IndexRow]) -> list[str]:
    return [embedding_text(row)[:_EMBED_CHARACTERS] for row in rows]


def _run_local(embedder: Embedder, texts: Sequence[str]) -> npt.NDArray[np.float32]:
    """Drive a local embedder's coroutine, which never waits, to its end."""
    step = embedder.embed_documents(texts)
    try:
        step.send(None)
    except StopIteration as done:
        return done.value
    step.close()
    raise TypeError(f"embedder {embedder.id!r} declares local=True, but it waits")
