"""Several changes of facts as one write: a store that keeps what is written until ``commit``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from secondcall.abc import (
    ANY_VERSION,
    Batch,
    Change,
    Document,
    DocumentWrite,
    EntryKey,
    Header,
    Partition,
    Scope,
    SessionOutline,
    Store,
    StoredEntry,
    Written,
)
from secondcall.errors import VersionConflict

if TYPE_CHECKING:
    from secondcall.abc import Epoch, ErasureResult

__all__ = ["StagedStore"]

_Key = tuple[str, str]


class StagedStore(Store):
    """One partition of a store, in which documents can be written as if it were done.

    Reads see what was written here. ``commit`` writes it in one batch, each document under the
    version that it was first seen in, so that it is as if all had been written at that moment, or
    nothing. Items are not written through it.
    """

    def __init__(self, store: Store, scope: Scope) -> None:
        self.capabilities = store.capabilities
        self._store = store
        self._scope = scope
        self._seen: dict[_Key, Document | None] = {}
        self._now: dict[_Key, Document | None] = {}
        self._writes: dict[_Key, DocumentWrite] = {}

    async def commit(self, *, epoch: Epoch, now_us: int) -> None:
        """Write it all. Raises: ``VersionConflict``, ``UserErased``, store errors."""
        if self._writes:
            batch = Batch(documents=list(self._writes.values()))
            await self._store.write(self._scope, batch, epoch=epoch, now_us=now_us)

    async def open(self) -> None:
        """Nothing: the store is open."""

    async def aclose(self) -> None:
        """Nothing: the store stays open."""

    async def header(self, scope: Scope) -> Header | None:
        """The partition's head as the store has it."""
        return await self._store.header(scope)

    async def write(
        self, scope: Scope, batch: Batch, *, epoch: Epoch, now_us: int, create: bool = False
    ) -> Written:
        """Keep the documents of ``batch`` for ``commit``. Raises: ``VersionConflict``."""
        assert scope == self._scope
        assert not batch.entries
        assert not batch.removals
        assert not create
        before = [await self.document(scope, one.kind, one.key) for one in batch.documents]
        for write, found in zip(batch.documents, before, strict=True):
            version = None if found is None else found.version
            if write.expected_version not in (ANY_VERSION, version):
                raise VersionConflict(
                    f"{write.kind} {write.key!r}", expected=write.expected_version, found=version
                )
        for write in batch.documents:
            self._stage(write, now_us)
        return Written(outcomes=(), entry_changes=(), removed=0, first_change=1, change=0)

    async def document(self, scope: Scope, kind: str, key: str) -> Document | None:
        """A document as it was written here, or else as it was first seen."""
        name = (kind, key)
        if name in self._now:
            return self._now[name]
        if name not in self._seen:
            self._seen[name] = await self._store.document(scope, kind, key)
        return self._seen[name]

    async def documents(
        self, scope: Scope, kind: str, *, prefix: str = "", after: str = "", limit: int
    ) -> Sequence[Document]:
        """Documents of a kind, with what was written here."""
        changed = {
            key: found
            for (one, key), found in self._now.items()
            if one == kind and key.startswith(prefix) and key > after
        }
        page = await self._store.documents(
            scope, kind, prefix=prefix, after=after, limit=limit + len(changed)
        )
        merged: dict[str, Document | None] = {}
        for one in page:
            merged[one.key] = self._seen.setdefault((kind, one.key), one)
        merged |= changed
        found = [one for _, one in sorted(merged.items()) if one is not None]
        return found[:limit]

    async def changes(self, scope: Scope, *, after: int, limit: int) -> Sequence[Change]:
        """The store's."""
        return await self._store.changes(scope, after=after, limit=limit)

    async def entries(self, scope: Scope, keys: Sequence[EntryKey]) -> Sequence[StoredEntry]:
        """The store's."""
        return await self._store.entries(scope, keys)

    async def read(
        self,
        scope: Scope,
        *,
        session_id: str | None = None,
        since_us: int | None = None,
        until_us: int | None = None,
        after: tuple[int, int] | None = None,
        newest_first: bool = False,
        limit: int,
    ) -> Sequence[StoredEntry]:
        """The store's."""
        return await self._store.read(
            scope,
            session_id=session_id,
            since_us=since_us,
            until_us=until_us,
            after=after,
            newest_first=newest_first,
            limit=limit,
        )

    async def sessions(
        self, scope: Scope, *, limit: int, after: tuple[int, str] | None = None
    ) -> Sequence[SessionOutline]:
        """The store's."""
        return await self._store.sessions(scope, limit=limit, after=after)

    async def put_blob(self, scope: Scope, name: str, data: bytes, *, epoch: Epoch) -> None:
        """The store's, at once."""
        await self._store.put_blob(scope, name, data, epoch=epoch)

    async def blob(self, scope: Scope, name: str) -> bytes | None:
        """The store's."""
        return await self._store.blob(scope, name)

    async def blobs(self, scope: Scope) -> Mapping[str, int]:
        """The store's."""
        return await self._store.blobs(scope)

    async def delete_blobs(self, scope: Scope, names: Sequence[str]) -> None:
        """The store's, at once."""
        await self._store.delete_blobs(scope, names)

    async def acquire_lease(
        self, scope: Scope, name: str, *, holder: str, now_us: int, seconds: float
    ) -> bool:
        """The store's."""
        return await self._store.acquire_lease(
            scope, name, holder=holder, now_us=now_us, seconds=seconds
        )

    async def release_lease(self, scope: Scope, name: str, *, holder: str) -> None:
        """The store's."""
        await self._store.release_lease(scope, name, holder=holder)

    async def scopes(
        self, tenant_id: str, partition: Partition, *, after: str = "", limit: int
    ) -> Sequence[Scope]:
        """The store's."""
        return await self._store.scopes(tenant_id, partition, after=after, limit=limit)

    async def erase(self, scope: Scope) -> Mapping[str, int]:
        """The store's."""
        return await self._store.erase(scope)

    async def scan(self, scope: Scope) -> Mapping[str, int]:
        """The store's."""
        return await self._store.scan(scope)

    async def finish_erasure(self) -> ErasureResult:
        """The store's."""
        return await self._store.finish_erasure()

    def _stage(self, write: DocumentWrite, now_us: int) -> None:
        name = (write.kind, write.key)
        seen, before = self._seen.get(name), self._now.get(name, self._seen.get(name))
        first = self._writes.get(name)
        expected = None if seen is None else seen.version
        if first is not None:
            expected = first.expected_version
        elif write.expected_version == ANY_VERSION:
            expected = ANY_VERSION
        announce = write.announce or (first is not None and first.announce)
        self._writes[name] = replace(write, expected_version=expected, announce=announce)
        self._now[name] = (
            None
            if write.body is None
            else Document(
                kind=write.kind,
                key=write.key,
                version=1 if before is None else before.version + 1,
                body=write.body,
                updated_us=now_us,
                expires_us=write.expires_us,
            )
        )
