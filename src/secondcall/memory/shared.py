"""What the handles of one opened store share, and one user's place in it."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import anyio.to_thread

from secondcall import identity
from secondcall.abc import Batch, Epoch, Scope
from secondcall.checks import from_us, to_us
from secondcall.context.known import Known, know
from secondcall.errors import UserErased
from secondcall.facts.read import all_facts, sensitive_items
from secondcall.record.index import OpenIndex, fill_vectors, take_unembedded
from secondcall.record.retain import Retention, read_policy
from secondcall.record.rows import embed
from secondcall.record.seal import SEAL_CHANGES

if TYPE_CHECKING:
    from secondcall.abc import Clock, Embedder, Header, LanguageModel, Store, TokenCounter
    from secondcall.memory.background import Background
    from secondcall.record.index import IndexCache
    from secondcall.record.seal import Sealer
    from secondcall.types import ItemKey, Trust

__all__ = ["Place", "Shared", "SystemClock"]

_DRAIN_STEP_SECONDS = 0.002
_SEAL_STEP = 64
"""How many changes pass before a handle looks again whether its tail has grown too long."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """The time now, UTC."""
        return datetime.now(UTC)


@dataclass(slots=True, eq=False)
class Shared:
    """What all handles of one opened store share."""

    store: Store
    embedder: Embedder
    model: LanguageModel | None
    counter: TokenCounter
    clock: Clock
    cache: IndexCache
    sealer: Sealer
    background: Background
    retention: Retention
    is_open: bool = False
    writing: int = 0
    known: WeakKeyDictionary[OpenIndex, tuple[int, Known]] = field(
        default_factory=WeakKeyDictionary[OpenIndex, tuple[int, Known]]
    )

    @contextmanager
    def in_flight(self) -> Generator[None]:
        """What is inside is finished before the store is closed."""
        self.writing += 1
        try:
            yield
        finally:
            self.writing -= 1

    async def drain(self, seconds: float) -> None:
        """Wait until no write is in flight, at most ``seconds``."""
        until = time.monotonic() + seconds
        while self.writing and time.monotonic() < until:  # noqa: ASYNC110 - writers of any loop
            await asyncio.sleep(_DRAIN_STEP_SECONDS)

    def now_us(self) -> int:
        """The clock's now in whole microseconds."""
        return to_us("now", self.clock.now())

    def peek_known(self, opened: OpenIndex) -> Known | None:
        """The view of the user's facts, if it is as new as the index."""
        cached = self.known.get(opened)
        return None if cached is None or cached[0] != opened.facts_seen else cached[1]

    async def known_of(self, opened: OpenIndex) -> Known:
        """The view of the user's facts, made anew only when they changed."""
        seen = opened.facts_seen
        cached = self.peek_known(opened)
        if cached is not None:
            return cached
        facts = await all_facts(self.store, opened.scopes)
        hidden = await sensitive_items(self.store, opened.scopes)
        known = await anyio.to_thread.run_sync(know, facts, hidden)
        self.known[opened] = (seen, known)
        return known


@dataclass(slots=True, eq=False)
class Place:
    """A user as a handle sees it: partitions and policy, looked up anew for each question, and an
    epoch, read once and kept.

    The epoch is what makes a handle blind to a user's return after an erasure: its writes are
    refused, a new handle starts anew.
    """

    shared: Shared
    tenant_id: str
    user_id: str
    trust: Trust
    _scopes: tuple[Scope, ...] | None = None
    _home: Scope | None = None
    _looked_at: float = 0.0
    _epoch: Epoch | None = None
    _retention: Retention | None = None
    _last_look: tuple[tuple[Scope, ...], Retention] | None = None
    _sealed: int = 0

    def look_again(self, *, after_seconds: float = 0.0) -> None:
        """Forget what was looked up more than so long ago: others may merge, unmerge or set a
        policy at any time."""
        if time.monotonic() - self._looked_at >= after_seconds:
            self._scopes = self._retention = None

    def last_look(self) -> tuple[tuple[Scope, ...], Retention] | None:
        """The partitions and the policy as they were last looked up together, or ``None``."""
        return self._last_look

    async def scopes(self) -> tuple[Scope, ...]:
        """The canonical partition first, then those merged into it."""
        if self._scopes is None:
            self._looked_at = time.monotonic()
            found = await identity.partitions_of(self.shared.store, self.tenant_id, self.user_id)
            scopes = tuple(Scope(self.tenant_id, "user", one) for one in found.user_ids)
            if self._home not in (None, scopes[0]):
                self._epoch = None
            self._scopes, self._home = scopes, scopes[0]
        return self._scopes

    async def look(self) -> Mapping[Scope, Header | None]:
        """Look up partitions, policy and header anew, side by side; the headers that were read."""
        self.look_again()
        home, store = self._home, self.shared.store
        if home is None:
            await self.scopes()
            return {}
        scopes, policy, header = await asyncio.gather(
            self.scopes(),
            read_policy(store, home, self.shared.retention),
            store.header(home),
        )
        if scopes[0] != home:
            return {}
        self._retention = policy
        self._last_look = scopes, policy
        return {home: header}

    async def home(self) -> Scope:
        """The partition that takes new writes."""
        return (await self.scopes())[0]

    async def retention(self) -> Retention:
        """The policy in force for this user."""
        if self._retention is None:
            self._retention = await read_policy(
                self.shared.store, await self.home(), self.shared.retention
            )
        return self._retention

    async def sensitive_items(self) -> frozenset[ItemKey]:
        """The items that a merely claimed caller is not shown."""
        return await sensitive_items(self.shared.store, await self.scopes())

    async def oldest_fact(self) -> datetime | None:
        """Facts recorded before this have run out; ``None``: none has."""
        cutoff = (await self.retention()).cutoff_us("fact", self.shared.clock.now())
        return None if cutoff is None else from_us(cutoff)

    async def epoch(self) -> Epoch:
        """The epoch that this handle writes under; the first write of a user makes it."""
        if self._epoch is None:
            self._epoch = await self._first_epoch()
        return self._epoch

    async def _first_epoch(self) -> Epoch:
        scope = await self.home()
        while True:
            header = await self.shared.store.header(scope)
            if header is not None:
                return header.epoch
            epoch = secrets.token_bytes(16)
            try:
                await self.shared.store.write(
                    scope, Batch(), epoch=epoch, now_us=self.shared.now_us(), create=True
                )
            except UserErased:  # another writer was first: take its epoch
                continue
            return epoch

    def appended(self, change: int, scope: Scope, epoch: Epoch) -> None:
        """See to the tail after a write: seal it in the background when it has grown long."""
        if change - self._sealed < SEAL_CHANGES:
            return
        self._sealed = change - SEAL_CHANGES + _SEAL_STEP
        self.shared.background.start(("seal", scope), lambda: self.shared.sealer.seal(scope, epoch))

    def looked(self, opened: OpenIndex) -> None:
        """See to what opening an index brought up: damaged segments, a long tail, no vectors."""
        shared = self.shared
        for scope in opened.scopes:
            epoch = opened.epochs[scope]
            if epoch is None:
                continue
            broken = opened.broken.pop(scope, None)
            if broken:
                shared.background.start(
                    ("repair", scope),
                    lambda scope=scope, epoch=epoch, broken=broken: shared.sealer.repair(
                        scope, epoch, broken
                    ),
                )
            if opened.applied[scope] - opened.sealed.get(scope, 0) >= SEAL_CHANGES:
                opened.sealed[scope] = opened.applied[scope]
                shared.background.start(
                    ("seal", scope),
                    lambda scope=scope, epoch=epoch: shared.sealer.seal(scope, epoch),
                )
        if opened.without_vectors:
            shared.background.start(("embed", opened.scopes), lambda: self._embed(opened))

    async def _embed(self, opened: OpenIndex) -> None:
        rows = take_unembedded(opened)
        if rows:
            fill_vectors(
                opened, rows, await embed(rows, self.shared.embedder, self.shared.sealer.vectors)
            )
