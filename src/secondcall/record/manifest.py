"""The manifest: the only list of a partition's live segments, changed by compare-and-set.

Blobs are written before they are listed. Ranges are closed, in order and without gaps from change
1, so that everything above the last one is the unindexed tail.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from secondcall.abc import DocumentWrite
from secondcall.errors import StoreCorrupt

if TYPE_CHECKING:
    from secondcall.abc import Scope, Store

__all__ = ["MERGE_FACTOR", "Listed", "Manifest", "manifest_write", "mergeable", "read_manifest"]

MERGE_FACTOR = 4
"""Segments of one tier that are merged into one of the next."""
_KIND, _KEY = "manifest", "live"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A live segment: its blob, its closed range of change numbers, and what made it."""

    name: str
    first_change: int
    last_change: int
    analyzer_id: str
    embedder_id: str | None
    format_version: int
    checksum: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """``version`` is the document's, ``None`` while there is none."""

    segments: Sequence[Listed] = ()
    version: int | None = None

    @property
    def sealed_through(self) -> int:
        """The last change number that a segment covers; 0 for none."""
        return self.segments[-1].last_change if self.segments else 0


async def read_manifest(store: Store, scope: Scope) -> Manifest:
    """The manifest as it stands. Raises: ``StoreCorrupt``."""
    document = await store.document(scope, _KIND, _KEY)
    if document is None:
        return Manifest()
    try:
        listed = [Listed(**entry) for entry in json.loads(document.body)["segments"]]
    except (ValueError, KeyError, TypeError) as error:
        raise StoreCorrupt(
            f"the list of search segments of user {scope.name!r} cannot be read "
            f"({type(error).__name__}); run 'secondcall reindex'"
        ) from None
    return Manifest(segments=listed, version=document.version)


def manifest_write(segments: Sequence[Listed], expected_version: int | None) -> DocumentWrite:
    """The compare-and-set that makes ``segments`` the live ones."""
    body = json.dumps({"v": 1, "segments": [asdict(one) for one in segments]}).encode()
    return DocumentWrite(kind=_KIND, key=_KEY, body=body, expected_version=expected_version)


def mergeable(segments: Sequence[Listed], *, base: int) -> Sequence[Listed]:
    """The newest run of ``MERGE_FACTOR`` neighbours of one tier and maker; empty if none is due.

    A segment's tier is how often ``MERGE_FACTOR`` goes into its range over ``base`` changes, so a
    history of n changes has at most about ``3 · log4(n / base)`` segments.
    """
    run: list[Listed] = []
    for segment in reversed(segments):
        if run and _kind(segment, base) != _kind(run[0], base):
            if _kind(segment, base)[0] < _kind(run[0], base)[0]:
                return ()
            run = []
        run.insert(0, segment)
        if len(run) == MERGE_FACTOR:
            return run
    return ()


def _kind(segment: Listed, base: int) -> tuple[int, str, str | None]:
    size = segment.last_change - segment.first_change + 1
    tier = 0
    while size >= base * MERGE_FACTOR:
        size //= MERGE_FACTOR
        tier += 1
    return tier, segment.analyzer_id, segment.embedder_id
