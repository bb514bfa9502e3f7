"""What goes into a segment and what comes out of one: rows, removals, and the decoded columns."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import cast

import numpy as np
import numpy.typing as npt

from secondcall.abc import EntryKey
from secondcall.types import ItemKind, JsonValue, Metadata

__all__ = [
    "KINDS",
    "Hashes",
    "IndexRow",
    "Removal",
    "Segment",
    "embedding_text",
    "key_hash",
    "quantize",
    "text_hash",
]

_WORD = re.compile(r"[\w\u0300-\u036f]+(?:['\u2019-]\w+)*")
KINDS: tuple[ItemKind, ...] = ("message", "tool_call")

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRow:
    """What an index needs of one item. ``role`` is empty for a tool call."""

    change: int
    position: int
    key: EntryKey
    at_us: int
    role: str
    text: str
    speaker: str | None = None
    metadata: Metadata = field(default_factory=dict[str, JsonValue])


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """An item removed at a change number: entries of its key with a lower number are masked."""

    change: int
    key: EntryKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A decoded segment: columns by row, postings by term. Its arrays are views of the blob.

    Row *r*'s terms are found through ``term_starts``: the rows of ``terms[i]`` are
    ``posting_rows[term_starts[i]:term_starts[i + 1]]``, ascending, with ``posting_counts`` beside.
    ``vectors`` is ``(rows, dimensions)`` int8 with ``scales`` float32; scale 0 means no vector.
    Row *r*'s token vectors, where the embedder gave any, are ``tokens[token_starts[r]:
    token_starts[r + 1]]``, whole numbers of which 127 is 1.
    ``mention_rows`` speak of ``mention_days`` days from ``mention_starts`` on, counted from 1970.
    """

    first_change: int
    last_change: int
    analyzer_id: str
    embedder_id: str | None
    changes: Ints
    positions: Ints
    at_us: Ints
    key_hashes: Hashes
    text_hashes: Hashes
    lengths: npt.NDArray[np.uint32]
    kinds: npt.NDArray[np.uint8]
    small_talk: npt.NDArray[np.uint8]
    role_numbers: npt.NDArray[np.uint16]
    speaker_numbers: npt.NDArray[np.uint32]
    session_numbers: npt.NDArray[np.uint32]
    roles: Sequence[str]
    speakers: Sequence[str]
    sessions: Sequence[str]
    id_starts: npt.NDArray[np.uint32]
    id_bytes: bytes
    terms: Hashes
    term_starts: npt.NDArray[np.uint32]
    posting_rows: npt.NDArray[np.uint32]
    posting_counts: npt.NDArray[np.uint16]
    vectors: npt.NDArray[np.int8]
    scales: npt.NDArray[np.float32]
    tokens: npt.NDArray[np.int8] | None = None
    token_starts: npt.NDArray[np.uint32] | None = None
    mention_rows: npt.NDArray[np.uint32]
    mention_starts: npt.NDArray[np.int32]
    mention_days: npt.NDArray[np.uint16]
    metadata_bytes: bytes
    removals: Sequence[Removal]

    def __len__(self) -> int:
        return len(self.changes)

    def key(self, row: int) -> EntryKey:
        """The key of a row."""
        start, end = int(self.id_starts[row]), int(self.id_starts[row + 1])
        item_id = self.id_bytes[start:end].decode("utf-8", "surrogatepass")
        session_id = self.sessions[int(self.session_numbers[row])]
        return EntryKey(session_id, KINDS[int(self.kinds[row])], item_id)

    def tokens_of(self, rows: npt.NDArray[np.int64]) -> Sequence[npt.NDArray[np.int8] | None]:
        """The token vectors of each of these rows ``(count, dimensions)``, ``None`` without any."""
        tokens, starts = self.tokens, self.token_starts
        if tokens is None or starts is None:
            return [None] * len(rows)
        spans = zip(starts[rows].tolist(), starts[rows + 1].tolist(), strict=True)
        return [tokens[begin:end] if end > begin else None for begin, end in spans]

    def metadata(self) -> dict[int, Metadata]:
        """Metadata by row, only of rows that have some."""
        if not self.metadata_bytes:
            return {}
        pairs = cast("list[tuple[int, Metadata]]", json.loads(self.metadata_bytes))
        return dict(pairs)


def embedding_text(row: IndexRow) -> str:
    """What of a row is embedded: its words with who says them, which tells "I" from "you"."""
    return f"{row.speaker}: {row.text}" if row.speaker else row.text


def key_hash(key: EntryKey) -> int:
    """A 64-bit name of a key; its parts are length-prefixed, so that no two keys read alike."""
    parts = (part.encode("utf-8", "surrogatepass") for part in key)
    joined = b"".join(struct.pack("<I", len(part)) + part for part in parts)
    return int.from_bytes(blake2b(joined, digest_size=8).digest(), "little")


def text_hash(role: str, speaker: str | None, text: str) -> int:
    """The same for the same words from the same mouth, whatever their case and punctuation; what
    folding of repeats goes by."""
    words = " ".join(_WORD.findall(text.casefold())) or " ".join(text.split())
    joined = "\x00".join((role, speaker or "", words))
    digest = blake2b(joined.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def quantize(
    vectors: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """Vectors as int8 with one float32 scale a row; a row that is not finite counts as none."""
    clean = np.where(np.isfinite(vectors).all(axis=1, keepdims=True), vectors, np.float32(0))
    scales = (np.abs(clean).max(axis=1, initial=0.0) / 127.0).astype(np.float32)
    safe = np.where(scales > 0, scales, np.float32(1))
    return np.rint(clean / safe[:, None]).astype(np.int8), scales
