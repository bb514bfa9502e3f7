"""Seals the unindexed tail into segments, merges them in tiers, rebuilds and purges them.

Correctness rests on the compare-and-set of the manifest; the lease only avoids double work. A
segment that nobody lists is garbage and is swept an hour later.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio.to_thread

from secondcall.abc import Batch, EntryKey
from secondcall.errors import StoreCorrupt, VersionConflict
from secondcall.recall.analyze import ANALYZER_ID
from secondcall.recall.segment import FORMAT_VERSION, Segment, decode, encode, merge
from secondcall.record.manifest import Listed, Manifest, manifest_write, mergeable, read_manifest
from secondcall.record.retain import REMOVAL_MARK
from secondcall.record.rows import Embedded, Tail, VectorCache, embed, embed_local, read_tail

if TYPE_CHECKING:
    from secondcall.abc import Embedder, Epoch, Scope, Store

__all__ = ["SEAL_CHANGES", "Sealer", "load_segment"]

SEAL_CHANGES = 256
"""An unindexed tail longer than this is sealed, so that opening never indexes much more."""
_CHUNK = 8 * SEAL_CHANGES
_LEASE_SECONDS = 60.0
_SWEEP_AFTER_US = 3_600_000_000
_MAX_TRIES = 20


async def load_segment(store: Store, scope: Scope, listed: Listed) -> Segment | None:
    """The segment of a listed blob; ``None`` if it is missing or its bytes do not check out."""
    data = await store.blob(scope, listed.name)
    if data is None or _checksum(data) != listed.checksum:
        return None
    try:
        return await anyio.to_thread.run_sync(decode, data)
    except StoreCorrupt:
        return None


def _unmetered(_scope: Scope, _epoch: Epoch) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(slots=True)
class Sealer:
    """Writes segments of one embedder; holds nothing that outlives a call but cached vectors."""

    store: Store
    embedder: Embedder
    now_us: Callable[[], int]
    vectors: VectorCache = field(default_factory=VectorCache)
    holder: str = field(default_factory=lambda: secrets.token_hex(8))
    metered: Callable[[Scope, Epoch], AbstractContextManager[None]] = field(default=_unmetered)
    """What is embedded inside is put down to this user."""

    async def seal(self, scope: Scope, epoch: Epoch, *, minimum: int = SEAL_CHANGES) -> int:
        """Seal the tail if it has at least ``minimum`` changes; how many changes were sealed.

        Raises: ``UserErased``, ``EmbedderError``, store errors; nothing is lost then, the tail
        stays as it was.
        """
        if not await self._due(scope, epoch, minimum):
            return 0
        if not await self.store.acquire_lease(
            scope, "seal", holder=self.holder, now_us=self.now_us(), seconds=_LEASE_SECONDS
        ):
            return 0
        try:
            sealed = 0
            while (step := await self._seal_once(scope, epoch, minimum)) > 0:
                sealed += step
            if sealed:
                await self._sweep(scope)
            return sealed
        finally:
            await self.store.release_lease(scope, "seal", holder=self.holder)

    async def _due(self, scope: Scope, epoch: Epoch, minimum: int) -> bool:
        header = await self.store.header(scope)
        if header is None or header.epoch != epoch:
            return False
        manifest = await read_manifest(self.store, scope)
        return header.change - manifest.sealed_through >= minimum

    async def _seal_once(self, scope: Scope, epoch: Epoch, minimum: int) -> int:
        header = await self.store.header(scope)
        manifest = await read_manifest(self.store, scope)
        start = manifest.sealed_through
        if header is None or header.epoch != epoch or header.change - start < minimum:
            return 0
        through = min(header.change, start + _CHUNK)
        mark = await self._removal_mark(scope)
        listed = await self._build(scope, epoch, start + 1, through)
        segments = [*manifest.segments, listed]
        obsolete: list[Listed] = []
        made = [listed]
        while run := mergeable(segments, base=SEAL_CHANGES):
            merged = await self._merge(scope, epoch, run)
            if merged is None:
                break
            place = segments.index(run[0])
            segments[place : place + len(run)] = [merged]
            obsolete.extend(run)
            made.append(merged)
        if not await self._swap(scope, epoch, manifest, segments):
            await self.store.delete_blobs(scope, [one.name for one in made])
            return 0
        await self.store.delete_blobs(scope, [one.name for one in obsolete])
        await self._purge_removed(scope, epoch, since=header.change, mark=mark)
        return through - start

    async def _removal_mark(self, scope: Scope) -> int:
        document = await self.store.document(scope, REMOVAL_MARK.kind, REMOVAL_MARK.key)
        return 0 if document is None else document.version

    async def _purge_removed(self, scope: Scope, epoch: Epoch, *, since: int, mark: int) -> None:
        """Take out what was removed while segments were being built that may hold it."""
        if await self._removal_mark(scope) == mark:
            return
        header = await self.store.header(scope)
        if header is None or header.change == since:
            return
        tail = await read_tail(self.store, scope, after=since, through=header.change)
        keys = frozenset(removal.key for removal in tail.removals)
        if keys:
            await self.purge(scope, epoch, keys)

    async def rebuild(
        self, scope: Scope, epoch: Epoch, *, progress: Callable[[int, int], None] | None = None
    ) -> int:
        """Make every segment anew from the record, with today's analyzer and embedder.

        The old ones serve until the new ones are listed, all at once. Returns the changes indexed.
        """
        manifest: Manifest | None = None
        for attempt in range(_MAX_TRIES):
            header = await self.store.header(scope)
            if header is None:
                return 0
            mark = await self._removal_mark(scope)
            manifest = await read_manifest(self.store, scope)
            segments: list[Listed] = []
            for start in range(1, header.change + 1, _CHUNK):
                through = min(header.change, start + _CHUNK - 1)
                segments.append(await self._build(scope, epoch, start, through))
                if progress is not None:
                    progress(through, header.change)
            if await self._swap(scope, epoch, manifest, segments):
                await self.store.delete_blobs(scope, [one.name for one in manifest.segments])
                await self._purge_removed(scope, epoch, since=header.change, mark=mark)
                return header.change
            await self.store.delete_blobs(scope, [one.name for one in segments])
            await self._step_back(attempt)
        raise _overtaken(manifest)

    async def repair(self, scope: Scope, epoch: Epoch, broken: Collection[str]) -> None:
        """Write the named segments anew from the record."""
        manifest = await read_manifest(self.store, scope)
        segments = [
            await self._build(scope, epoch, one.first_change, one.last_change)
            if one.name in broken
            else one
            for one in manifest.segments
        ]
        if segments != list(manifest.segments) and not await self._swap(
            scope, epoch, manifest, segments
        ):
            await self._discard(scope, manifest, segments)

    async def purge(self, scope: Scope, epoch: Epoch, keys: Collection[EntryKey]) -> None:
        """Write anew every segment that holds one of ``keys``, without them."""
        manifest: Manifest | None = None
        for attempt in range(_MAX_TRIES):
            manifest = await read_manifest(self.store, scope)
            segments: list[Listed] = []
            gone: list[str] = []
            for listed in manifest.segments:
                segment = await load_segment(self.store, scope, listed)
                without = (
                    None
                    if segment is None
                    else await anyio.to_thread.run_sync(_without, segment, keys)
                )
                if segment is not None and without is None:
                    segments.append(listed)
                    continue
                gone.append(listed.name)
                segments.append(
                    await self._build(scope, epoch, listed.first_change, listed.last_change)
                    if without is None
                    else await self._put(scope, epoch, without)
                )
            if not gone or await self._swap(scope, epoch, manifest, segments):
                await self.store.delete_blobs(scope, gone)
                return
            await self._discard(scope, manifest, segments)
            await self._step_back(attempt)
        raise _overtaken(manifest)

    async def _discard(self, scope: Scope, manifest: Manifest, segments: Sequence[Listed]) -> None:
        """Delete the blobs of segments that did not come to be listed."""
        kept = {one.name for one in manifest.segments}
        made = [one.name for one in segments if one.name not in kept]
        await self.store.delete_blobs(scope, made)

    async def _step_back(self, attempt: int) -> None:
        """Wait a little longer after each lost race, so that somebody gets through."""
        await anyio.sleep(secrets.randbelow(20_000 * (attempt + 1)) / 1e6)

    async def _build(self, scope: Scope, epoch: Epoch, first: int, last: int) -> Listed:
        tail = await read_tail(self.store, scope, after=first - 1, through=last)
        if self.embedder.local:
            data = await anyio.to_thread.run_sync(self._encode_local, tail, first, last)
        else:
            with self.metered(scope, epoch):
                embedded = await embed(tail.rows, self.embedder, self.vectors)
            data = await anyio.to_thread.run_sync(self._encode, tail, first, last, embedded)
        return await self._put(scope, epoch, data)

    def _encode_local(self, tail: Tail, first: int, last: int) -> bytes:
        return self._encode(tail, first, last, Embedded(embed_local(tail.rows, self.embedder)))

    def _encode(self, tail: Tail, first: int, last: int, embedded: Embedded) -> bytes:
        return encode(
            tail.rows,
            embedded.vectors,
            tokens=embedded.tokens,
            embedder_id=self.embedder.id,
            first_change=first,
            last_change=last,
            removals=tail.removals,
        )

    async def _merge(self, scope: Scope, epoch: Epoch, run: Sequence[Listed]) -> Listed | None:
        segments = [await load_segment(self.store, scope, one) for one in run]
        whole = [segment for segment in segments if segment is not None]
        if len(whole) < len(run):
            return None
        data = await anyio.to_thread.run_sync(lambda: merge(whole))
        return await self._put(scope, epoch, data)

    async def _put(self, scope: Scope, epoch: Epoch, data: bytes) -> Listed:
        name = secrets.token_hex(12)
        await self.store.put_blob(scope, name, data, epoch=epoch)
        segment = decode(data)
        return Listed(
            name=name,
            first_change=segment.first_change,
            last_change=segment.last_change,
            analyzer_id=ANALYZER_ID,
            embedder_id=segment.embedder_id,
            format_version=FORMAT_VERSION,
            checksum=_checksum(data),
            size_bytes=len(data),
        )

    async def _swap(
        self, scope: Scope, epoch: Epoch, manifest: Manifest, segments: Sequence[Listed]
    ) -> bool:
        write = manifest_write(segments, manifest.version)
        try:
            await self.store.write(
                scope, Batch(documents=[write]), epoch=epoch, now_us=self.now_us()
            )
        except VersionConflict:
            return False
        return True

    async def _sweep(self, scope: Scope) -> None:
        listed = {one.name for one in (await read_manifest(self.store, scope)).segments}
        horizon = self.now_us() - _SWEEP_AFTER_US
        blobs = await self.store.blobs(scope)
        stale = [name for name, at_us in blobs.items() if name not in listed and at_us < horizon]
        if stale:
            await self.store.delete_blobs(scope, stale)


def _overtaken(manifest: Manifest | None) -> VersionConflict:
    version = None if manifest is None else manifest.version
    return VersionConflict("the list of search segments", expected=version, found=None)


def _without(segment: Segment, keys: Collection[EntryKey]) -> bytes | None:
    """The segment without the keys; ``None`` if it holds none of them."""
    if not any(segment.key(row) in keys for row in range(len(segment))):
        return None
    return merge([segment], dead=keys)


def _checksum(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
