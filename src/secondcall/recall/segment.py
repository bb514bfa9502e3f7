"""The only owner of a segment's bytes: encode, decode, merge. Pure.

A segment holds the search data of a closed range of change numbers and can be thrown away: the
record rebuilds it. The blob is::

    b"SCSG" | u16 format | u16 zero | u32 header length | header (JSON) | sections, 8-aligned
    | 16 bytes BLAKE2b over everything before

The header names the ranges, the analyzer, the embedder, and each section's type, shape and place.
Numbers are little endian. No words are readable in it: terms are hashes; but session ids, item ids,
speakers and metadata are, and token vectors, where an embedder gives them, tell words to whoever
has the model: a segment is as private as the record.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from secondcall.abc import EntryKey
from secondcall.errors import InvalidValue, StoreCorrupt
from secondcall.recall._bytes import FORMAT_VERSION, pack, unpack
from secondcall.recall._rows import (
    Hashes,
    IndexRow,
    Removal,
    Segment,
    embedding_text,
    key_hash,
    quantize,
    text_hash,
)
from secondcall.recall._tables import (
    columns,
    joined_columns,
    joined_postings,
    joined_tokens,
    postings,
    token_sections,
)
from secondcall.recall.analyze import ANALYZER_ID, Analyzer

__all__ = [
    "FORMAT_VERSION",
    "IndexRow",
    "Removal",
    "Segment",
    "decode",
    "embedding_text",
    "encode",
    "key_hash",
    "live_masks",
    "merge",
    "quantize",
    "text_hash",
]

_ANALYZER = Analyzer()


def encode(
    rows: Sequence[IndexRow],
    vectors: npt.NDArray[np.float32] | None,
    *,
    embedder_id: str | None,
    first_change: int,
    last_change: int,
    removals: Sequence[Removal] = (),
    tokens: Sequence[npt.NDArray[np.int8]] | None = None,
    analyzer: Analyzer | None = None,
) -> bytes:
    """The blob of these rows, in the order given. The same input gives the same bytes.

    ``vectors`` is ``(len(rows), dimensions)``, zeros where a row has none yet; or ``None``.
    ``tokens`` has each row's token vectors ``(count, dimensions)``, of an embedder that gives them.

    Raises: ``InvalidValue`` when rows and vectors differ in number, or a row is out of range.
    """
    if vectors is not None and (vectors.ndim != 2 or len(vectors) != len(rows)):
        raise InvalidValue(f"{len(rows)} rows came with vectors of shape {vectors.shape}")
    if tokens is not None and len(tokens) != len(rows):
        raise InvalidValue(f"{len(rows)} rows came with the token vectors of {len(tokens)}")
    if any(not first_change <= entry.change <= last_change for entry in (*rows, *removals)):
        raise InvalidValue(f"a change number is outside {first_change}..{last_change}")
    quantized, scales = quantize(
        np.zeros((len(rows), 0), np.float32) if vectors is None else vectors.astype(np.float32)
    )
    if vectors is None:
        scales = np.zeros(len(rows), np.float32)
    sections, tables = columns(rows)
    scales = np.where(sections["small_talk"] > 0, np.float32(0), scales)
    sections |= postings(rows, analyzer or _ANALYZER)
    sections |= {"vectors": quantized, "scales": scales}
    if tokens is not None:
        sections |= token_sections(tokens)
    header = {
        "first_change": first_change,
        "last_change": last_change,
        "analyzer_id": ANALYZER_ID,
        "embedder_id": embedder_id if vectors is not None else None,
        "removals": [[removal.change, *removal.key] for removal in removals],
        **tables,
    }
    return pack(header, sections)


def decode(data: bytes) -> Segment:
    """The segment in a blob.

    Raises: ``StoreCorrupt`` for anything that this release did not write, whatever the damage.
    """
    header, arrays = unpack(data)
    try:
        removals = [
            Removal(change=change, key=EntryKey(*key)) for change, *key in header.pop("removals")
        ]
        blobs = {name: arrays.pop(name).tobytes() for name in ("id_bytes", "metadata_bytes")}
        fields = cast("dict[str, Any]", {**header, **arrays, **blobs})
        return Segment(**fields, removals=removals)
    except (KeyError, TypeError, ValueError) as fault:
        raise StoreCorrupt(
            f"a search segment has a damaged table ({type(fault).__name__}); it must be rebuilt"
        ) from None


def merge(segments: Sequence[Segment], *, dead: Collection[EntryKey] = ()) -> bytes:
    """One blob for several segments, with only the newest entry of each key, by change number.

    Superseded, removed and ``dead`` entries go. Removals stay while older segments may still hold
    their entries, that is unless the range begins with change 1.

    Raises: ``InvalidValue`` for no segments, or for mixed analyzers or embedders.
    """
    if not segments:
        raise InvalidValue("merge needs at least one segment")
    ordered = sorted(segments, key=lambda segment: segment.first_change)
    analyzers = {segment.analyzer_id for segment in ordered}
    embedders = {segment.embedder_id for segment in ordered if len(segment)}
    if len(analyzers) > 1 or len(embedders) > 1:
        raise InvalidValue(f"segments of {analyzers} and {embedders} cannot be merged; reindex")
    masks = live_masks(ordered, dead=dead)
    kept = [(one, np.flatnonzero(mask)) for one, mask in zip(ordered, masks, strict=True)]
    first = ordered[0].first_change
    removals = [removal for segment in ordered for removal in segment.removals]
    sections, tables = joined_columns(kept)
    sections |= joined_postings(kept) | joined_tokens(kept)
    header = {
        "first_change": first,
        "last_change": max(segment.last_change for segment in ordered),
        "analyzer_id": analyzers.pop(),
        "embedder_id": next(iter(embedders), None),
        "removals": [] if first <= 1 else [[one.change, *one.key] for one in removals],
        **tables,
    }
    return pack(header, sections)


def live_masks(
    segments: Sequence[Segment], *, dead: Collection[EntryKey] = ()
) -> list[npt.NDArray[np.bool_]]:
    """For each segment which rows are the newest entry of their key and not removed."""
    hashes = np.concatenate([segment.key_hashes for segment in segments] or [np.empty(0, "<u8")])
    changes = np.concatenate([segment.changes for segment in segments] or [np.empty(0, "<i8")])
    live = np.ones(len(hashes), dtype=np.bool_)
    order = np.lexsort((changes, hashes))
    ordered = hashes[order]
    live[order[:-1][ordered[:-1] == ordered[1:]]] = False
    for removal in (one for segment in segments for one in segment.removals):
        place, end = _range(ordered, key_hash(removal.key))
        rows = order[place:end]
        live[rows[changes[rows] < removal.change]] = False
    for key in dead:
        place, end = _range(ordered, key_hash(key))
        live[order[place:end]] = False
    return np.split(live, np.cumsum([len(segment) for segment in segments])[:-1])


def _range(ordered: Hashes, name: int) -> tuple[int, int]:
    wanted = np.uint64(name)
    return (
        int(np.searchsorted(ordered, wanted, "left")),
        int(np.searchsorted(ordered, wanted, "right")),
    )
