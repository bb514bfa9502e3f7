"""Open indexes: loaded from segments once, extended by tailing the change log, bounded, shared.

Every recall reads the partition's header; only if it moved is the tail read. A missing or damaged
segment, or one that another analyzer made, is replaced in memory by the record's own rows; vectors
of another embedder are left out, so that no two kinds are ever compared.
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio.to_thread
import numpy as np

from secondcall.abc import EntryKey, Scope
from secondcall.recall.analyze import ANALYZER_ID
from secondcall.recall.index import UserIndex
from secondcall.recall.segment import FORMAT_VERSION, IndexRow, Segment, key_hash
from secondcall.record.manifest import Listed, Manifest, read_manifest
from secondcall.record.rows import Embedded, Tail, embed_local, read_tail
from secondcall.record.seal import load_segment
from secondcall.types import ItemKey

if TYPE_CHECKING:
    import numpy.typing as npt

    from secondcall.abc import Embedder, Epoch, Header, Store

__all__ = ["IndexCache", "OpenIndex", "fill_vectors", "index_key", "item_key", "take_unembedded"]

_INLINE_ROWS = 4
_INLINE_CHARACTERS = 4_000
"""So much is indexed at once, without the detour over a thread."""
_LOAD_TRIES = 3
_FACT_CHANGES = 256


@dataclass(slots=True, eq=False, weakref_slot=True)
class OpenIndex:
    """One user's index in memory, over the user's own partition and those merged into it."""

    scopes: tuple[Scope, ...]
    index: UserIndex
    epochs: dict[Scope, Epoch | None] = field(default_factory=dict["Scope", "Epoch | None"])
    applied: dict[Scope, int] = field(default_factory=dict[Scope, int])
    sealed: dict[Scope, int] = field(default_factory=dict[Scope, int])
    broken: dict[Scope, list[str]] = field(default_factory=dict[Scope, list[str]])
    outdated: bool = False
    facts_seen: int = 0
    """How many changes of facts were seen; ``fact_changes`` holds the last of them."""
    fact_changes: deque[tuple[str, str]] = field(
        default_factory=lambda: deque(maxlen=_FACT_CHANGES)
    )
    without_vectors: list[IndexRow] = field(default_factory=list[IndexRow])
    lock: threading.Lock = field(default_factory=threading.Lock)

    def facts_changed_since(self, seen: int) -> tuple[int, Sequence[tuple[str, str]] | None]:
        """How many changes of facts were seen by now, and the (kind, key) of the documents that
        changed after the first ``seen``; ``None`` when they are too many to be remembered."""
        with self.lock:
            new = self.facts_seen - seen
            if new > len(self.fact_changes):
                return self.facts_seen, None
            return self.facts_seen, list(self.fact_changes)[len(self.fact_changes) - new :]

    def hash_of(self, key: ItemKey) -> int:
        """The hash by which the index knows an item; -1 for one of another user."""
        for scope in self.scopes:
            if scope.name == key.user_id:
                return key_hash(index_key(self.scopes, scope, EntryKey(*key[1:])))
        return -1


def index_key(scopes: Sequence[Scope], scope: Scope, key: EntryKey) -> EntryKey:
    """The key under which an index over several partitions holds an item.

    Items of a merged partition carry its name in front of their session id, between NUL characters,
    which no id can hold.
    """
    if scope == scopes[0]:
        return key
    return EntryKey(f"\x00{scope.name}\x00{key.session_id}", key.kind, key.id)


def item_key(scopes: Sequence[Scope], key: EntryKey) -> ItemKey:
    """The way back from ``index_key``."""
    if not key.session_id.startswith("\x00"):
        return ItemKey(scopes[0].name, *key)
    _, name, session_id = key.session_id.split("\x00", 2)
    return ItemKey(name, session_id, key.kind, key.id)


class IndexCache:
    """Open indexes by user, the least recently used let go of beyond ``max_bytes``.

    Safe to use from several tasks, threads and event loops.
    """

    def __init__(self, store: Store, embedder: Embedder, *, max_bytes: int) -> None:
        self._store = store
        self._embedder = embedder
        self._max_bytes = max_bytes
        self._open: OrderedDict[tuple[Scope, ...], OpenIndex] = OrderedDict()
        self._loading: dict[tuple[tuple[Scope, ...], int], asyncio.Task[OpenIndex]] = {}
        self._lock = threading.Lock()

    def peek(self, scopes: tuple[Scope, ...]) -> OpenIndex | None:
        """The open index, as far as it was read, or ``None``."""
        with self._lock:
            opened = self._open.get(scopes)
            if opened is not None:
                self._open.move_to_end(scopes)
            return opened

    def drop(self, scope: Scope) -> None:
        """Forget every open index that holds this partition."""
        with self._lock:
            for scopes in [scopes for scopes in self._open if scope in scopes]:
                del self._open[scopes]

    async def fresh(
        self, scopes: tuple[Scope, ...], just_read: Mapping[Scope, Header | None] | None = None
    ) -> OpenIndex:
        """The user's index with everything that is committed by now.

        ``just_read`` are headers that the caller has read for this very call.

        Raises: store errors.
        """
        just_read = just_read or {}
        headers = {
            scope: just_read[scope] if scope in just_read else await self._store.header(scope)
            for scope in scopes
        }
        opened = self.peek(scopes)
        if opened is not None and _same_epochs(opened, headers):
            await self._extend(opened, headers)
            return opened
        opened = await self._load_once(scopes, headers)
        await self._extend(opened, headers)
        return opened

    async def _load_once(
        self, scopes: tuple[Scope, ...], headers: dict[Scope, Header | None]
    ) -> OpenIndex:
        """One load for all who wait for it on this event loop; it goes on when they give up."""
        key = (scopes, id(asyncio.get_running_loop()))
        task = self._loading.get(key)
        if task is None:
            task = asyncio.create_task(self._load(scopes, headers))
            self._loading[key] = task
            task.add_done_callback(lambda _: self._loading.pop(key, None))
        opened = await asyncio.shield(task)
        with self._lock:
            self._open[scopes] = opened
            self._open.move_to_end(scopes)
        self._evict()
        return opened

    async def _load(
        self, scopes: tuple[Scope, ...], headers: dict[Scope, Header | None]
    ) -> OpenIndex:
        opened = OpenIndex(scopes=scopes, index=UserIndex(embedder_id=self._embedder.id))
        for scope, header in headers.items():
            opened.epochs[scope] = None if header is None else header.epoch
            opened.applied[scope] = 0
            if header is not None:
                await self._load_segments(opened, scope)
        await self._extend(opened, headers)
        return opened

    async def _load_segments(self, opened: OpenIndex, scope: Scope) -> None:
        manifest, found = await self._whole_manifest(scope)
        for listed, segment in zip(manifest.segments, found, strict=True):
            if segment is not None and _current(listed):
                usable = self._usable(opened, scope, segment)
                await anyio.to_thread.run_sync(opened.index.add_segment, usable)
                opened.applied[scope] = listed.last_change
                continue
            if segment is None:
                opened.broken.setdefault(scope, []).append(listed.name)
            opened.outdated = True
            tail = await read_tail(
                self._store, scope, after=listed.first_change - 1, through=listed.last_change
            )
            await self._apply(opened, scope, tail)
        opened.sealed[scope] = manifest.sealed_through

    async def _whole_manifest(self, scope: Scope) -> tuple[Manifest, list[Segment | None]]:
        """The manifest and its segments; read again when one went away because of a merge."""
        manifest = await read_manifest(self._store, scope)
        for _ in range(_LOAD_TRIES):
            found = [await load_segment(self._store, scope, one) for one in manifest.segments]
            if None not in found:
                return manifest, found
            newer = await read_manifest(self._store, scope)
            if newer.version == manifest.version:
                return manifest, found
            manifest = newer
        return manifest, [await load_segment(self._store, scope, one) for one in manifest.segments]

    def _usable(self, opened: OpenIndex, scope: Scope, segment: Segment) -> Segment:
        if len(segment) and segment.embedder_id != self._embedder.id:
            opened.outdated = True
            segment = dataclasses.replace(
                segment,
                embedder_id=None,
                vectors=np.zeros((len(segment), 0), np.int8),
                scales=np.zeros(len(segment), np.float32),
                tokens=None,
                token_starts=None,
            )
        if scope == opened.scopes[0]:
            return segment
        names = [f"\x00{scope.name}\x00{session}" for session in segment.sessions]
        renamed = dataclasses.replace(segment, sessions=names)
        hashes = [key_hash(renamed.key(row)) for row in range(len(renamed))]
        return dataclasses.replace(
            renamed,
            key_hashes=np.array(hashes, "<u8"),
            removals=[
                dataclasses.replace(one, key=index_key(opened.scopes, scope, one.key))
                for one in segment.removals
            ],
        )

    async def _extend(self, opened: OpenIndex, headers: dict[Scope, Header | None]) -> None:
        for scope, header in headers.items():
            if header is not None and header.change > opened.applied[scope]:
                tail = await read_tail(
                    self._store, scope, after=opened.applied[scope], through=header.change
                )
                await self._apply(opened, scope, tail)

    async def _apply(self, opened: OpenIndex, scope: Scope, tail: Tail) -> None:
        characters = sum(len(row.text) for row in tail.rows)
        if len(tail.rows) <= _INLINE_ROWS and characters <= _INLINE_CHARACTERS:
            self._apply_now(opened, scope, tail)
        else:
            await anyio.to_thread.run_sync(self._apply_now, opened, scope, tail)

    def _apply_now(self, opened: OpenIndex, scope: Scope, tail: Tail) -> None:
        with opened.lock:
            applied = opened.applied[scope]
            rows = [
                dataclasses.replace(row, key=index_key(opened.scopes, scope, row.key))
                for row in tail.rows
                if row.change > applied
            ]
            vectors = self._vectors(rows)
            if rows:
                opened.index.add(rows, vectors)
                if vectors is None:
                    opened.without_vectors.extend(rows)
            removals = [one for one in tail.removals if one.change > applied]
            if removals:
                opened.index.remove(
                    [
                        dataclasses.replace(one, key=index_key(opened.scopes, scope, one.key))
                        for one in removals
                    ]
                )
            opened.applied[scope] = max(applied, tail.last_change)
            changed = [(kind, key) for change, kind, key in tail.facts if change > applied]
            opened.fact_changes.extend(changed)
            opened.facts_seen += len(changed)

    def _vectors(self, rows: list[IndexRow]) -> npt.NDArray[np.float32] | None:
        return embed_local(rows, self._embedder) if rows and self._embedder.local else None

    def _evict(self) -> None:
        with self._lock:
            sizes = {scopes: opened.index.nbytes for scopes, opened in self._open.items()}
            total = sum(sizes.values())
            for scopes, size in list(sizes.items())[:-1]:
                if total <= self._max_bytes:
                    return
                del self._open[scopes]
                total -= size


def fill_vectors(opened: OpenIndex, rows: Sequence[IndexRow], embedded: Embedded) -> None:
    """Give rows that were indexed by words only their vectors, now that a model made them."""
    with opened.lock:
        opened.index.add(rows, embedded.vectors, embedded.tokens)


def take_unembedded(opened: OpenIndex) -> list[IndexRow]:
    """The rows that wait for vectors; the caller embeds them and calls ``fill_vectors``."""
    with opened.lock:
        rows, opened.without_vectors = opened.without_vectors, []
    return rows


def _same_epochs(opened: OpenIndex, headers: dict[Scope, Header | None]) -> bool:
    return all(
        opened.epochs[scope] == (None if header is None else header.epoch)
        for scope, header in headers.items()
    )


def _current(listed: Listed) -> bool:
    return listed.analyzer_id == ANALYZER_ID and listed.format_version == FORMAT_VERSION
