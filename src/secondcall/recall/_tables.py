"""The sections of a segment: made from rows, or joined from several segments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from secondcall.recall._rows import KINDS, Hashes, IndexRow, Segment, key_hash, text_hash
from secondcall.recall.analyze import Analyzer
from secondcall.recall.mentions import Mention, mentions
from secondcall.recall.smalltalk import is_small_talk
from secondcall.types import Metadata

__all__ = [
    "Sections",
    "Tables",
    "columns",
    "joined_columns",
    "joined_postings",
    "joined_tokens",
    "postings",
    "token_sections",
]

Sections = dict[str, npt.NDArray[Any]]
Tables = dict[str, list[str]]
Kept = Sequence[tuple[Segment, npt.NDArray[np.intp]]]

_NUMBERED = {"roles": "role_numbers", "speakers": "speaker_numbers", "sessions": "session_numbers"}
_PLAIN = (
    "changes",
    "positions",
    "at_us",
    "key_hashes",
    "text_hashes",
    "lengths",
    "kinds",
    "small_talk",
    "scales",
)


def columns(rows: Sequence[IndexRow]) -> tuple[Sections, Tables]:
    """Everything of the rows but their words, and the names that are numbered."""
    roles, speakers, sessions = _Table(), _Table(), _Table()
    hashes = [text_hash(row.role, row.speaker, row.text) for row in rows]
    metadata = [(place, row.metadata) for place, row in enumerate(rows) if row.metadata]
    sections: Sections = {
        "changes": np.array([row.change for row in rows], "<i8"),
        "positions": np.array([row.position for row in rows], "<i8"),
        "at_us": np.array([row.at_us for row in rows], "<i8"),
        "key_hashes": np.array([key_hash(row.key) for row in rows], "<u8"),
        "text_hashes": np.array(hashes, "<u8"),
        "kinds": np.array([KINDS.index(row.key.kind) for row in rows], "<u1"),
        "small_talk": np.array([is_small_talk(row.text) for row in rows], "<u1"),
        "role_numbers": np.array([roles.number(row.role) for row in rows], "<u2"),
        "speaker_numbers": np.array([speakers.number(row.speaker or "") for row in rows], "<u4"),
        "session_numbers": np.array([sessions.number(row.key.session_id) for row in rows], "<u4"),
        **_texts([row.key.id for row in rows], metadata),
        **_mentioned(
            [(n, one) for n, row in enumerate(rows) for one in mentions(row.text, row.at_us)]
        ),
    }
    return sections, {"roles": roles.names, "speakers": speakers.names, "sessions": sessions.names}


def postings(rows: Sequence[IndexRow], analyzer: Analyzer) -> Sections:
    """The rows' words: which term stands in which row how often, and how many each row has."""
    found = [analyzer.hashes(row.text) for row in rows]
    lengths = np.array([len(one) for one in found], "<u4")
    hashes = np.fromiter((one for several in found for one in several), "<u8", int(lengths.sum()))
    owners = np.repeat(np.arange(len(rows), dtype="<u4"), lengths)
    order = np.lexsort((owners, hashes))
    hashes, owners = hashes[order], owners[order]
    fresh = np.ones(len(hashes), dtype=np.bool_)
    fresh[1:] = (hashes[1:] != hashes[:-1]) | (owners[1:] != owners[:-1])
    places = np.flatnonzero(fresh)
    counts = np.diff(np.append(places, len(hashes)))
    sections = _grouped(hashes[places], owners[places], counts)
    return sections | {"lengths": lengths}


def _grouped(
    hashes: Hashes, owners: npt.NDArray[Any], counts: npt.NDArray[Any]
) -> dict[str, npt.NDArray[Any]]:
    """Postings from (term, row, count) triples that are sorted by term, then row."""
    terms, starts = np.unique(hashes, return_index=True)
    return {
        "terms": terms.astype("<u8"),
        "term_starts": np.append(starts, len(hashes)).astype("<u4"),
        "posting_rows": owners.astype("<u4"),
        "posting_counts": np.minimum(counts, 65_535).astype("<u2"),
    }


def joined_columns(kept: Kept) -> tuple[Sections, Tables]:
    """The columns of the kept rows of several segments, one after the other."""
    sections: Sections = {
        name: np.concatenate([_column(one, name)[rows] for one, rows in kept]) for name in _PLAIN
    }
    tables: Tables = {}
    for name, column in _NUMBERED.items():
        table = _Table()
        parts: list[npt.NDArray[Any]] = []
        for one, rows in kept:
            names = cast("list[str]", getattr(one, name))
            used = _column(one, column)[rows]
            # Only names that are still used get a number: those of removed rows must go.
            numbers = np.zeros(max(len(names), 1), used.dtype)
            for old in dict.fromkeys(cast("list[int]", used.tolist())):
                numbers[old] = table.number(names[old])
            parts.append(numbers[used])
        sections[column] = np.concatenate(parts)
        tables[name] = table.names
    ids = [one.key(row).id for one, rows in kept for row in rows.tolist()]
    sections |= _texts(ids, _joined_metadata(kept)) | _mentioned(_joined_mentions(kept))
    return sections | {"vectors": _vectors(kept)}, tables


def joined_postings(kept: Kept) -> Sections:
    """The postings of the kept rows of several segments."""
    hashes: list[npt.NDArray[Any]] = []
    owners: list[npt.NDArray[Any]] = []
    counts: list[npt.NDArray[Any]] = []
    base = 0
    for one, rows in kept:
        moved = np.full(len(one), -1, dtype=np.int64)
        moved[rows] = np.arange(base, base + len(rows))
        target = moved[one.posting_rows]
        alive = target >= 0
        hashes.append(np.repeat(one.terms, np.diff(one.term_starts))[alive])
        owners.append(target[alive])
        counts.append(one.posting_counts[alive])
        base += len(rows)
    joined = np.concatenate(hashes)
    order = np.argsort(joined, kind="stable")
    return _grouped(joined[order], np.concatenate(owners)[order], np.concatenate(counts)[order])


def _texts(ids: Sequence[str], metadata: Sequence[tuple[int, Metadata]]) -> Sections:
    encoded = [one.encode("utf-8", "surrogatepass") for one in ids]
    text = json.dumps(metadata, separators=(",", ":")) if metadata else ""
    starts = np.zeros(len(encoded) + 1, "<u4")
    np.cumsum([len(one) for one in encoded], out=starts[1:])
    return {
        "id_starts": starts,
        "id_bytes": np.frombuffer(b"".join(encoded), "<u1"),
        "metadata_bytes": np.frombuffer(text.encode("ascii"), "<u1"),
    }


def _mentioned(found: Sequence[tuple[int, Mention]]) -> Sections:
    """The days that rows speak of: a table of its own, since few rows have any."""
    return {
        "mention_rows": np.array([row for row, _ in found], "<u4"),
        "mention_starts": np.array([one.day for _, one in found], "<i4"),
        "mention_days": np.array([one.days for _, one in found], "<u2"),
    }


def _joined_mentions(kept: Kept) -> list[tuple[int, Mention]]:
    found: list[tuple[int, Mention]] = []
    base = 0
    for one, rows in kept:
        moved = np.full(len(one), -1, dtype=np.int64)
        moved[rows] = np.arange(base, base + len(rows))
        table = zip(one.mention_rows, one.mention_starts, one.mention_days, strict=True)
        found += [
            (int(moved[row]), Mention(int(day), int(days)))
            for row, day, days in table
            if moved[row] >= 0
        ]
        base += len(rows)
    return found


def _joined_metadata(kept: Kept) -> list[tuple[int, Metadata]]:
    found: list[tuple[int, Metadata]] = []
    base = 0
    for one, rows in kept:
        known = one.metadata()
        if known:
            places = enumerate(rows.tolist(), start=base)
            found += [(place, known[row]) for place, row in places if row in known]
        base += len(rows)
    return found


def token_sections(tokens: Sequence[npt.NDArray[np.int8]]) -> Sections:
    """The token vectors of rows, one after the other, and where each row's begin."""
    width = max((one.shape[1] for one in tokens if len(one)), default=0)
    starts = np.zeros(len(tokens) + 1, "<u4")
    np.cumsum([len(one) for one in tokens], out=starts[1:])
    known = [one for one in tokens if len(one)] or [np.empty((0, width), np.int8)]
    return {"tokens": np.concatenate(known), "token_starts": starts}


def joined_tokens(kept: Kept) -> Sections:
    """Those of the kept rows of several segments; nothing when none of them has any."""
    if all(one.tokens is None for one, _ in kept):
        return {}
    none = np.empty((0, 0), np.int8)
    several = [tokens for one, rows in kept for tokens in one.tokens_of(rows)]
    return token_sections([none if one is None else one for one in several])


def _vectors(kept: Kept) -> npt.NDArray[np.int8]:
    width = max((one.vectors.shape[1] for one, _ in kept), default=0)
    blank = [np.zeros((len(rows), width), np.int8) for _, rows in kept]
    return np.concatenate(
        [
            one.vectors[rows] if one.vectors.shape[1] else empty
            for (one, rows), empty in zip(kept, blank, strict=True)
        ]
    )


def _column(segment: Segment, name: str) -> npt.NDArray[Any]:
    return cast("npt.NDArray[Any]", getattr(segment, name))


class _Table:
    """Names numbered in the order of their first use."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        number = self._numbers.setdefault(name, len(self.names))
        if number == len(self.names):
            self.names.append(name)
        return number
