"""What the handles of one opened store share, and one user's place in it."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

import anyio.to_thread

from secondcall import identity
from secondcall.abc import Batch, Epoch, Scope, Written
from secondcall.checks import from_us, to_us
from secondcall.context.known import Known, fact_text, know, learn, with_chains
from secondcall.errors import InvalidValue, StoreBusy, UserErased
from secondcall.facts.read import all_facts, chain_facts, joined, sensitive_items
from secondcall.memory.buffering import Buffers
from secondcall.memory.extracting import Extracting
from secondcall.memory.overtaking import OwnWrites
from secondcall.memory.words import Words
from secondcall.record.index import OpenIndex, fill_vectors, take_unembedded
from secondcall.record.retain import POLICY, Retention, policy_in, read_policy
from secondcall.record.rows import embed
from secondcall.record.seal import SEAL_CHANGES
from secondcall.state.known import Workflows
from secondcall.types import ItemKey

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from secondcall.abc import (
        Clock,
        Document,
        Embedder,
        EntryKey,
        Header,
        LanguageModel,
        Store,
        StoredEntry,
        TokenCounter,
    )
    from secondcall.abc_state import StateStore
    from secondcall.memory.background import Background
    from secondcall.memory.metering import Meter
    from secondcall.record.index import IndexCache
    from secondcall.record.seal import Sealer
    from secondcall.types import Fact, Trust
    from secondcall.usage import Layer

__all__ = ["Looked", "Place", "Shared", "SystemClock"]

_DRAIN_STEP_SECONDS = 0.002
_FACTS_WITH_VECTORS = 2_000
"""More are found by their words only, so that the first question costs no more for them."""
_EMBED_STEP = 32
_SEARCHES = 8
_CHANGED_CHAINS = 64
_FIRST_EPOCH_TRIES = 20
_SPENT_ROWS = 500
_SEAL_STEP = 64
"""How many changes pass before a handle looks again whether its tail has grown too long."""
Found = TypeVar("Found")


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
    meter: Meter
    scheme: str
    """Names the kind of store in spans: the scheme of its URL, or its class."""
    states: StateStore | None = None
    states_apart: bool = False
    """The states are in a store of their own, with its own opening, closing and erasing."""
    workflows: Workflows = field(default_factory=Workflows)
    """Those that were named at opening, and those that were started since."""
    extract: bool = False
    """Whether the model is asked for facts in what is recorded."""
    extracting: Extracting = field(default_factory=Extracting)
    beside: dict[tuple[str, str], Callable[[str, str], Awaitable[int]]] = field(
        default_factory=dict[tuple[str, str], Callable[[str, str], Awaitable[int]]]
    )
    """What erases a user from places beside the store, by name and place."""
    own_writes: OwnWrites = field(default_factory=OwnWrites)
    """What this process wrote, and when that was acknowledged."""
    is_open: bool = False
    writing: int = 0
    recapped: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    """When it was last seen to a user's recaps, by tenant and user, on the monotonic clock."""
    buffers: Buffers = field(default_factory=Buffers)
    known: WeakKeyDictionary[OpenIndex, tuple[int, Known]] = field(
        default_factory=WeakKeyDictionary[OpenIndex, tuple[int, Known]]
    )
    searching: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(_SEARCHES, "secondcall-search")
    )
    """The threads that search, so that no other work of the process stands in a question's way.
    They end with the object."""
    learning: threading.Lock = field(default_factory=threading.Lock)
    """Held while a view of facts is made: its index takes one writer at a time."""
    fact_vectors: WeakKeyDictionary[OpenIndex, Mapping[str, npt.NDArray[np.float32]]] = field(
        default_factory=lambda: WeakKeyDictionary()
    )
    words: Words = field(default_factory=Words)

    @contextmanager
    def in_flight(self) -> Generator[None]:
        """What is inside is finished before the store is closed."""
        self.writing += 1
        try:
            yield
        finally:
            self.writing -= 1

    def state_store(self) -> StateStore:
        """Where states are kept. Raises: ``InvalidValue`` when nothing keeps them."""
        if self.states is None:
            raise InvalidValue(
                "this store keeps no states; name one that does, e.g. "
                "Memory.open(url, state='sqlite:///state.db')"
            )
        return self.states

    def learn(self, workflows: Workflows) -> None:
        """Know these workflows too: states are started in them."""
        self.workflows = self.workflows.including(*workflows)

    async def search(self, work: Callable[[], Found]) -> Found:
        """What ``work`` finds, in a thread of its own."""
        return await asyncio.get_running_loop().run_in_executor(self.searching, work)

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
        """The view of the user's facts, with what changed since it was last made."""
        while True:
            base = self.known.get(opened)
            seen, changed = opened.facts_changed_since(0 if base is None else base[0])
            if base is not None and base[0] == seen:
                return base[1]
            chains = None if base is None else _changed_chains(base[1], changed)
            if base is None or chains is None:
                make = await self._anew(opened)
            else:
                make = await self._with_changes(opened, base[1], chains, changed or ())
            known = await anyio.to_thread.run_sync(self._kept, opened, base, seen, make)
            if known is not None:
                return known

    def _kept(
        self,
        opened: OpenIndex,
        base: tuple[int, Known] | None,
        seen: int,
        make: Callable[[], Known],
    ) -> Known | None:
        """Make the view and keep it; ``None`` when somebody else kept a newer one meanwhile."""
        with self.learning:
            if self.known.get(opened) is not base:
                return None
            known = make()
            self.known[opened] = (seen, known)
            return known

    async def _anew(self, opened: OpenIndex) -> Callable[[], Known]:
        facts = await all_facts(self.store, opened.scopes)
        hidden = await sensitive_items(self.store, opened.scopes)
        vectors = await self._fact_vectors(opened, facts)
        words = await self.words.of_facts(opened, facts[-_FACTS_WITH_VECTORS:])
        return partial(know, facts, hidden, vectors=vectors, words=words, hashed=opened.hash_of)

    async def _with_changes(
        self,
        opened: OpenIndex,
        base: Known,
        keys: Sequence[str],
        changed: Sequence[tuple[str, str]],
    ) -> Callable[[], Known]:
        """Read the changed chains, and what is withheld because of their predicates."""
        store, scopes = self.store, opened.scopes
        predicates = dict.fromkeys(key.partition("/")[0] for _, key in changed)
        read = asyncio.gather(*(chain_facts(store, scopes, key) for key in keys))
        hide = asyncio.gather(
            *(sensitive_items(store, scopes, prefix=f"{name}/") for name in predicates)
        )
        found, hidden = await asyncio.gather(read, hide)
        chains = {key: joined(facts) for key, facts in zip(keys, found, strict=True)}
        facts = with_chains(base, chains)
        vectors = await self._fact_vectors(opened, facts)
        words = await self.words.of_facts(opened, facts[-_FACTS_WITH_VECTORS:])
        withheld = frozenset[ItemKey]().union(*hidden)
        hashed = opened.hash_of
        return partial(
            learn, base, chains, facts, withheld, vectors=vectors, words=words, hashed=hashed
        )

    async def _fact_vectors(
        self, opened: OpenIndex, facts: Sequence[Fact]
    ) -> Mapping[str, npt.NDArray[np.float32]]:
        """The vectors of the newest facts, where embedding costs no network; those known stay."""
        if not self.embedder.local:
            return {}
        older = self.fact_vectors.get(opened, {})
        wanted = facts[-_FACTS_WITH_VECTORS:]
        found = {fact.id: older[fact.id] for fact in wanted if fact.id in older}
        fresh = [fact for fact in wanted if fact.id not in found]
        for start in range(0, len(fresh), _EMBED_STEP):
            part = fresh[start : start + _EMBED_STEP]
            made = await self.embedder.embed_documents([fact_text(fact) for fact in part])
            found |= {fact.id: vector for fact, vector in zip(part, made, strict=True)}
            await asyncio.sleep(0)
        self.fact_vectors[opened] = found
        return found


def _changed_chains(known: Known, changed: Sequence[tuple[str, str]] | None) -> list[str] | None:
    """The keys of the chains that changed; ``None`` when the view is better made anew: many did,
    ended facts were swept, or the index holds as many rows of old facts as of those of now."""
    if changed is None or known.spent > len(known.facts) + _SPENT_ROWS:
        return None
    if any(kind not in ("fact", "fact_sensitive") for kind, _ in changed):
        return None
    keys = list(dict.fromkeys(key for kind, key in changed if kind == "fact"))
    return keys if len(keys) <= _CHANGED_CHAINS else None


@dataclass(frozen=True, slots=True)
class Looked:
    """Headers that were just read, of the partitions that need no other reading, and entries."""

    headers: Mapping[Scope, Header | None]
    entries: Sequence[StoredEntry]


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
    _appended: tuple[Scope, int] | None = None
    standing: tuple[Sequence[Document], Sequence[Fact]] | None = None
    """The list of facts that stand as it was last read, and what was decoded from it."""

    def look_again(self, *, after_seconds: float = 0.0) -> None:
        """Forget what was looked up more than so long ago: others may merge, unmerge or set a
        policy at any time."""
        if time.monotonic() - self._looked_at >= after_seconds:
            self._scopes = self._retention = None

    def is_behind(self, opened: OpenIndex) -> bool:
        """Whether this handle has recorded something that the index does not hold yet."""
        if self._appended is None:
            return False
        scope, change = self._appended
        return opened.applied.get(scope, 0) < change

    def last_look(self) -> tuple[tuple[Scope, ...], Retention] | None:
        """The partitions and the policy as they were last looked up together, or ``None``."""
        return self._last_look

    async def scopes(self) -> tuple[Scope, ...]:
        """The canonical partition first, then those merged into it."""
        if self._scopes is None:
            return await self._seen_as(None)
        return self._scopes

    async def _seen_as(self, person: identity.Person | None) -> tuple[Scope, ...]:
        """The partitions, looked up from the user's own document, if that was just read."""
        self._looked_at = time.monotonic()
        found = await identity.partitions_of(
            self.shared.store, self.tenant_id, self.user_id, person=person
        )
        scopes = tuple(Scope(self.tenant_id, "user", one) for one in found.user_ids)
        if self._home not in (None, scopes[0]):
            self._epoch = None
        self._scopes, self._home = scopes, scopes[0]
        return scopes

    async def look(self, entries: Sequence[EntryKey] = ()) -> Looked:
        """Look up partitions, policy and header anew, in one read where nobody is merged, with
        ``entries`` of the partition that was written to so far."""
        self.look_again()
        own = Scope(self.tenant_id, "user", self.user_id)
        home, store = self._home or own, self.shared.store
        if home == own:
            seen = await store.glance(own, documents=[identity.DOCUMENT, POLICY], entries=entries)
            scopes = await self._seen_as(
                identity.person_in(self.user_id, seen.header, seen.documents[0])
            )
        else:
            scopes, seen = await asyncio.gather(
                self.scopes(), store.glance(home, documents=[POLICY], entries=entries)
            )
        if scopes[0] != home:
            return Looked({}, [])
        self._retention = policy_in(home, seen.documents[-1], self.shared.retention)
        self._last_look = scopes, self._retention
        return Looked({home: seen.header}, seen.entries)

    async def home(self) -> Scope:
        """The partition that takes new writes."""
        return (await self.scopes())[0]

    def home_seen(self) -> Scope | None:
        """The partition that takes new writes, as it was last looked up."""
        return self._home

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

    async def seen_epoch(self) -> Epoch | None:
        """As ``epoch``, but ``None`` for a user who is not there, and nothing is written. What is
        read after this is written back under the same epoch or not at all."""
        if self._epoch is None:
            header = await self.shared.store.header(await self.home())
            self._epoch = None if header is None else header.epoch
        return self._epoch

    async def _first_epoch(self) -> Epoch:
        scope = await self.home()
        for _ in range(_FIRST_EPOCH_TRIES):
            header = await self.shared.store.header(scope)
            if header is not None:
                return header.epoch
            epoch = secrets.token_bytes(16)
            try:
                await self.shared.store.write(
                    scope, Batch(), epoch=epoch, now_us=self.shared.now_us(), create=True
                )
            except UserErased:  # another writer was first: take its epoch
                await asyncio.sleep(0)
                continue
            return epoch
        raise StoreBusy(
            f"user {self.user_id!r} was not made in {_FIRST_EPOCH_TRIES} tries: the store says "
            "that nothing is stored of them, and refuses a first write as of somebody erased"
        )

    def appended(self, written: Written, scope: Scope, epoch: Epoch) -> None:
        """See to the tail after a write: seal it in the background when it has grown long."""
        change = written.change
        self.shared.own_writes.note(scope, epoch, written)
        self._appended = scope, change
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
        self.embed_waiting(opened)

    def embed_waiting(self, opened: OpenIndex) -> None:
        """Have a model that is not local embed in the background what was said since the last
        segment."""
        if opened.without_vectors:
            background = self.shared.background
            background.start(("embed", opened.scopes), lambda: self._embed(opened))

    async def _embed(self, opened: OpenIndex) -> None:
        rows = take_unembedded(opened)
        if rows:
            with self.metered("recall", ""):
                embedded = await embed(rows, self.shared.embedder, self.shared.sealer.vectors)
            fill_vectors(opened, rows, embedded)

    def metered(self, layer: Layer, session_id: str | None = None) -> AbstractContextManager[None]:
        """What models are asked inside is put down to this user; see ``Meter.calls``."""
        scope = self._home or Scope(self.tenant_id, "user", self.user_id)
        return self.shared.meter.calls(layer, scope, self._epoch, session_id=session_id)
