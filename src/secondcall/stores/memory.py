"""A store in this process's memory: for tests, demos and agents that may forget at exit."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from secondcall.abc import (
    ANY_VERSION,
    Batch,
    Capabilities,
    Change,
    Document,
    DocumentWrite,
    EntryKey,
    Epoch,
    ErasureResult,
    Header,
    NewEntry,
    Outcome,
    Partition,
    Scope,
    SessionOutline,
    StoredEntry,
    Written,
)
from secondcall.abc_state import StatefulStore, StateStore
from secondcall.errors import InvalidValue, NotOpen, UserErased, VersionConflict
from secondcall.stores.erased import erasure_mark
from secondcall.stores.limits import (
    check_batch,
    check_blob,
    check_limit,
    check_name,
    check_scope,
)
from secondcall.stores.memory_state import HeldState, HeldUser, MemoryStates

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["MemoryStore", "state_store"]


@dataclass(slots=True)
class _Held:
    """Everything of one partition. ``versions`` outlive their documents."""

    epoch: Epoch
    changes: list[Change] = field(default_factory=list[Change])
    newest: dict[EntryKey, StoredEntry] = field(default_factory=dict[EntryKey, StoredEntry])
    digests: dict[EntryKey, bytes] = field(default_factory=dict[EntryKey, bytes])
    documents: dict[tuple[str, str], Document] = field(
        default_factory=dict[tuple[str, str], Document]
    )
    versions: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    blobs: dict[str, tuple[int, bytes]] = field(default_factory=dict[str, tuple[int, bytes]])
    leases: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    states: dict[str | None, HeldState] = field(default_factory=dict[str | None, HeldState])

    def counts(self) -> dict[str, int]:
        """How many things are in each place."""
        return {
            "changes": len(self.changes),
            "sessions": len({key.session_id for key in self.newest}),
            "documents": len(self.versions),
            "blobs": len(self.blobs),
            "states": len(self.states),
            "state_history": sum(len(one.changes) for one in self.states.values()),
            "leases": len(self.leases),
            "partitions": 1,
        }


class MemoryStore(StatefulStore):
    """Keeps everything in this object, until it goes. ``url`` is always ``memory://``."""

    capabilities = Capabilities(
        durable="never",
        shared=False,
        max_document_bytes=16 * 1024 * 1024,
        max_blob_bytes=256 * 1024 * 1024,
    )

    def __init__(self, url: str = "memory://") -> None:
        if url != "memory://":
            raise InvalidValue(f"{url!r} is not accepted, expected 'memory://' without more")
        self._partitions: dict[Scope, _Held] = {}
        self._erased: set[bytes] = set()
        self._lock = threading.Lock()
        self._is_open = False

    async def open(self) -> None:
        """See ``Store.open``. What was there before ``aclose`` is still there."""
        self._is_open = True

    async def aclose(self) -> None:
        """See ``Store.aclose``."""
        self._is_open = False

    async def header(self, scope: Scope) -> Header | None:
        """See ``Store.header``."""
        with self._lock:
            held = self._find(scope)
            return None if held is None else Header(epoch=held.epoch, change=len(held.changes))

    async def write(
        self, scope: Scope, batch: Batch, *, epoch: Epoch, now_us: int, create: bool = False
    ) -> Written:
        """See ``Store.write``."""
        check_batch(batch, self.capabilities)
        with self._lock:
            held = self._find(scope)
            if held is None and create and erasure_mark(scope, epoch) not in self._erased:
                held = _Held(epoch)
            if held is None or held.epoch != epoch:
                raise UserErased(scope.name)
            # Only documents can be refused; once they are compared, nothing fails any more.
            documents = _compare(held, batch.documents, now_us)
            self._partitions[scope] = held
            before = len(held.changes)
            outcomes = [_append(held, entry, now_us) for entry in batch.entries]
            removed = sum([_remove(held, key) for key in batch.removals])
            _set_documents(held, documents)
            return Written(
                outcomes=[outcome for outcome, _ in outcomes],
                entry_changes=[change for _, change in outcomes],
                removed=removed,
                first_change=before + 1,
                change=len(held.changes),
            )

    async def changes(self, scope: Scope, *, after: int, limit: int) -> Sequence[Change]:
        """See ``Store.changes``."""
        check_limit(limit)
        with self._lock:
            held = self._find(scope)
            start = max(after, 0)
            return [] if held is None else held.changes[start : start + limit]

    async def entries(self, scope: Scope, keys: Sequence[EntryKey]) -> Sequence[StoredEntry]:
        """See ``Store.entries``."""
        with self._lock:
            held = self._find(scope)
            if held is None:
                return []
            return [held.newest[key] for key in keys if key in held.newest]

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
        """See ``Store.read``."""
        check_limit(limit)
        with self._lock:
            held = self._find(scope)
            entries = [] if held is None else list(held.newest.values())

        def wanted(entry: StoredEntry) -> bool:
            if session_id is not None and entry.key.session_id != session_id:
                return False
            if since_us is not None and entry.at_us < since_us:
                return False
            if until_us is not None and entry.at_us >= until_us:
                return False
            if after is None:
                return True
            return _order(entry) < after if newest_first else _order(entry) > after

        return sorted(filter(wanted, entries), key=_order, reverse=newest_first)[:limit]

    async def sessions(
        self, scope: Scope, *, limit: int, after: tuple[int, str] | None = None
    ) -> Sequence[SessionOutline]:
        """See ``Store.sessions``."""
        check_limit(limit)
        with self._lock:
            held = self._find(scope)
            outlines = _outlines(() if held is None else held.newest.values())
        below = [one for one in outlines if after is None or (one.last_us, one.session_id) < after]
        below.sort(key=lambda one: (one.last_us, one.session_id), reverse=True)
        return below[:limit]

    async def document(self, scope: Scope, kind: str, key: str) -> Document | None:
        """See ``Store.document``."""
        with self._lock:
            held = self._find(scope)
            return None if held is None else held.documents.get((kind, key))

    async def documents(
        self, scope: Scope, kind: str, *, prefix: str = "", after: str = "", limit: int
    ) -> Sequence[Document]:
        """See ``Store.documents``."""
        check_limit(limit)
        with self._lock:
            held = self._find(scope)
            found = [] if held is None else list(held.documents.values())
        wanted = [
            one
            for one in found
            if one.kind == kind and one.key.startswith(prefix) and one.key > after
        ]
        return sorted(wanted, key=lambda one: one.key)[:limit]

    async def put_blob(self, scope: Scope, name: str, data: bytes, *, epoch: Epoch) -> None:
        """See ``Store.put_blob``."""
        check_blob(name, data, self.capabilities)
        with self._lock:
            held = self._find(scope)
            if held is None or held.epoch != epoch:
                raise UserErased(scope.name)
            held.blobs[name] = (time.time_ns() // 1_000, bytes(data))

    async def blob(self, scope: Scope, name: str) -> bytes | None:
        """See ``Store.blob``."""
        with self._lock:
            held = self._find(scope)
            found = None if held is None else held.blobs.get(name)
            return None if found is None else found[1]

    async def blobs(self, scope: Scope) -> Mapping[str, int]:
        """See ``Store.blobs``."""
        with self._lock:
            held = self._find(scope)
            return {} if held is None else {name: at for name, (at, _) in held.blobs.items()}

    async def delete_blobs(self, scope: Scope, names: Sequence[str]) -> None:
        """See ``Store.delete_blobs``."""
        with self._lock:
            held = self._find(scope)
            if held is not None:
                for name in names:
                    held.blobs.pop(name, None)

    async def acquire_lease(
        self, scope: Scope, name: str, *, holder: str, now_us: int, seconds: float
    ) -> bool:
        """See ``Store.acquire_lease``."""
        check_name("lease name", name)
        with self._lock:
            held = self._find(scope)
            if held is None:
                return False
            owner, expires_us = held.leases.get(name, (holder, now_us))
            if owner != holder and expires_us > now_us:
                return False
            held.leases[name] = (holder, now_us + round(seconds * 1_000_000))
            return True

    async def release_lease(self, scope: Scope, name: str, *, holder: str) -> None:
        """See ``Store.release_lease``."""
        with self._lock:
            held = self._find(scope)
            if held is not None and name in held.leases and held.leases[name][0] == holder:
                del held.leases[name]

    async def scopes(
        self, tenant_id: str, partition: Partition, *, after: str = "", limit: int
    ) -> Sequence[Scope]:
        """See ``Store.scopes``."""
        check_limit(limit)
        with self._lock:
            self._check_open()
            found = [
                scope
                for scope in self._partitions
                if scope[:2] == (tenant_id, partition) and scope.name > after
            ]
        return sorted(found)[:limit]

    async def erase(self, scope: Scope) -> Mapping[str, int]:
        """See ``Store.erase``."""
        with self._lock:
            self._find(scope)
            held = self._partitions.pop(scope, None)
            if held is not None:
                self._erased.add(erasure_mark(scope, held.epoch))
        return _NOTHING if held is None else held.counts()

    async def scan(self, scope: Scope) -> Mapping[str, int]:
        """See ``Store.scan``."""
        with self._lock:
            held = self._find(scope)
            return _NOTHING if held is None else held.counts()

    async def finish_erasure(self) -> ErasureResult:
        """See ``Store.finish_erasure``. Memory that was let go of is not overwritten."""
        self._check_open()
        return ErasureResult(complete=True)

    def states(self) -> StateStore:
        """See ``StatefulStore.states``."""
        return MemoryStates(self, self._find, self._users, self._erased, self._lock)

    def _users(self, tenant_id: str) -> Iterable[tuple[str, HeldUser]]:
        self._check_open()
        wall = (tenant_id, "user")
        return [(scope.name, held) for scope, held in self._partitions.items() if scope[:2] == wall]

    def _find(self, scope: Scope) -> _Held | None:
        self._check_open()
        check_scope(scope)
        return self._partitions.get(scope)

    def _check_open(self) -> None:
        if not self._is_open:
            raise NotOpen("the store is not open; call open() first")


_NOTHING: Mapping[str, int] = {
    "changes": 0,
    "sessions": 0,
    "documents": 0,
    "blobs": 0,
    "states": 0,
    "state_history": 0,
    "leases": 0,
    "partitions": 0,
}


def state_store(url: str) -> StateStore:
    """States alone, in this process's memory, for records kept elsewhere."""
    store = MemoryStore(url)
    return MemoryStates(
        store, store._find, store._users, store._erased, store._lock, owner=True  # pyright: ignore[reportPrivateUsage] - its companion
    )  # fmt: skip


def _order(entry: StoredEntry) -> tuple[int, int]:
    return entry.at_us, entry.position


def _append(held: _Held, entry: NewEntry, now_us: int) -> tuple[Outcome, int]:
    old = held.newest.get(entry.key)
    if old is not None and held.digests[entry.key] == entry.digest:
        return "unchanged", old.change
    number = len(held.changes) + 1
    stored = StoredEntry(
        key=entry.key,
        at_us=old.at_us if old is not None and entry.keeps_time else entry.at_us,
        body=bytes(entry.body),
        change=number,
        position=number if old is None else old.position,
        recorded_us=now_us,
    )
    held.newest[entry.key] = stored
    held.digests[entry.key] = bytes(entry.digest)
    held.changes.append(Change(number=number, kind="entry", key=entry.key, entry=stored))
    return ("added" if old is None else "corrected"), number


def _remove(held: _Held, key: EntryKey) -> bool:
    if held.newest.pop(key, None) is None:
        return False
    del held.digests[key]
    for index, change in enumerate(held.changes):
        if change.kind == "entry" and change.key == key:
            held.changes[index] = replace(change, entry=None)
    held.changes.append(Change(number=len(held.changes) + 1, kind="removal", key=key))
    return True


def _compare(
    held: _Held, writes: Sequence[DocumentWrite], now_us: int
) -> list[tuple[DocumentWrite, Document | None]]:
    """What each write makes of its document, compared with what is there or written before it."""
    seen: dict[tuple[str, str], Document | None] = {}
    versions = dict[tuple[str, str], int]()
    made: list[tuple[DocumentWrite, Document | None]] = []
    for write in writes:
        name = (write.kind, write.key)
        old = seen[name] if name in seen else held.documents.get(name)
        found = None if old is None else old.version
        if write.expected_version not in (ANY_VERSION, found):
            raise VersionConflict(
                f"document {write.kind!r} {write.key!r}",
                expected=write.expected_version,
                found=found,
            )
        if write.body is None and old is None:
            continue
        new = None
        if write.body is not None:
            versions[name] = versions.get(name, held.versions.get(name, 0)) + 1
            new = Document(
                kind=write.kind,
                key=write.key,
                version=versions[name],
                body=bytes(write.body),
                updated_us=now_us,
                expires_us=write.expires_us,
            )
        seen[name] = new
        made.append((write, new))
    return made


def _set_documents(held: _Held, made: list[tuple[DocumentWrite, Document | None]]) -> None:
    for write, document in made:
        name = (write.kind, write.key)
        if document is None:
            held.documents.pop(name, None)
        else:
            held.documents[name] = document
            held.versions[name] = document.version
        if write.announce:
            number = len(held.changes) + 1
            held.changes.append(Change(number=number, kind="document", document=name))


def _outlines(entries: Iterable[StoredEntry]) -> list[SessionOutline]:
    times: dict[str, list[int]] = {}
    for entry in entries:
        times.setdefault(entry.key.session_id, []).append(entry.at_us)
    return [
        SessionOutline(session_id=session_id, first_us=min(at), last_us=max(at), items=len(at))
        for session_id, at in times.items()
    ]
