"""The ports: what a store, an embedder, a model, a token counter and a clock must give.

A store stores; it does not search. Everything it holds hangs on a *scope*, one partition of one
tenant, and every write carries the partition's *epoch*, so that what was queued before an erasure
cannot come back after it. ``secondcall.testing.conformance`` runs the contract below on any store;
``docs/how-to/write-a-store.md`` says how.

Times at this level are whole microseconds since 1970-01-01 UTC (``_us``), negative before it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from secondcall.types import ItemKind, JsonValue

__all__ = [
    "ANY_VERSION",
    "Batch",
    "Capabilities",
    "Change",
    "Clock",
    "Completion",
    "Document",
    "DocumentWrite",
    "Embedder",
    "EntryKey",
    "Epoch",
    "ErasureResult",
    "Glance",
    "Header",
    "LanguageModel",
    "NewEntry",
    "Outcome",
    "Partition",
    "Prompt",
    "Scope",
    "SessionOutline",
    "Store",
    "StoredEntry",
    "TokenCounter",
    "Written",
]

Epoch = bytes
Partition = Literal["user", "identity"]
ANY_VERSION = -1
"""As ``expected_version``: write whatever is there."""


class Scope(NamedTuple):
    """One partition of one tenant: a user, or one hashed identity. The outer wall of every call."""

    tenant_id: str
    partition: Partition
    name: str


class EntryKey(NamedTuple):
    """An item inside its scope. The same ``id`` in two sessions, or of two kinds, is two items."""

    session_id: str
    kind: ItemKind
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """A partition's head: its epoch and the number of its newest change (0: none yet)."""

    epoch: Epoch
    change: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEntry:
    """An item to append. ``digest`` decides whether the same key brings the same content.

    ``keeps_time``: nobody said when it was, ``at_us`` is only the time of recording; a correction
    then keeps the time of the entry that it corrects.
    """

    key: EntryKey
    at_us: int
    body: bytes
    digest: bytes
    keeps_time: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEntry:
    """An appended entry.

    ``change`` is its own change number, ``position`` that of the first entry of its key. Reading
    order is (``at_us``, ``position``).
    """

    key: EntryKey
    at_us: int
    body: bytes
    change: int
    position: int
    recorded_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentWrite:
    """A compare-and-set on one document.

    ``expected_version``: the version that must be there, ``None`` if it must be absent, or
    ``ANY_VERSION``. ``body`` ``None`` deletes. ``announce`` gives the write a change number of its
    own, so that whoever tails the changes sees it. Deleting what is absent does nothing and takes
    no number.
    """

    kind: str
    key: str
    body: bytes | None
    expected_version: int | None
    expires_us: int | None = None
    announce: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A versioned document.

    Versions start at 1 and go on counting over a deletion, which takes none: what is written after
    a deletion has the next version, and was *absent* before it.
    """

    kind: str
    key: str
    version: int
    body: bytes
    updated_us: int
    expires_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One atomic write: all of it or nothing. Change numbers are taken in the order written here:
    entries, then removals, then announced documents."""

    entries: Sequence[NewEntry] = ()
    removals: Sequence[EntryKey] = ()
    documents: Sequence[DocumentWrite] = ()


Outcome = Literal["added", "corrected", "unchanged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a write did: one outcome and change number for each entry, in order.

    An unchanged entry has the change number that it had. ``removed`` counts the removals that found
    their item. ``change`` is the header's number afterwards, ``first_change`` the first that this
    write took (``change + 1`` when it took none).
    """

    outcomes: Sequence[Outcome]
    entry_changes: Sequence[int]
    removed: int
    first_change: int
    change: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One number of a partition's gapless change log.

    ``key`` names the item of ``entry`` and ``removal`` changes. ``entry`` changes carry the entry
    as it was appended (also when a later change corrected it); ``entry`` is ``None`` when the item
    was removed since. ``document`` is the (kind, key) of the announced document.
    """

    number: int
    kind: Literal["entry", "removal", "document"]
    entry: StoredEntry | None = None
    key: EntryKey | None = None
    document: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """Several things of one partition, read together; see ``Store.glance``."""

    header: Header | None
    documents: Sequence[Document | None]
    entries: Sequence[StoredEntry]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOutline:
    """A session as its items show it."""

    session_id: str
    first_us: int
    last_us: int
    items: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureResult:
    """``complete``: nothing of what was erased is left in the store's files or logs.

    If not, ``detail`` says what holds it; the store completes it later by itself.
    """

    complete: bool
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a store declares, and the conformance suite proves.

    ``durable``: ``"commit"`` (an acknowledged write survives kill -9), ``"best_effort"`` or
    ``"never"``. ``shared``: several processes may open the same URL.
    """

    durable: Literal["commit", "best_effort", "never"]
    shared: bool
    max_document_bytes: int
    max_blob_bytes: int


class Store(ABC):
    """Ordered append, key reads, compare-and-set, blobs, leases and erasure, scope by scope.

    Methods may be called from several tasks, threads and event loops at once. A cancelled write may
    or may not have happened. Errors of a driver never pass: they are mapped to the tree in
    ``secondcall.errors``. Every method raises ``NotOpen`` before ``open`` and after ``aclose``, and
    ``InvalidValue`` for a ``limit`` below 1, an empty partition, document or blob name, a number
    over 64 bits and text that is not Unicode (lone surrogates). All other characters are told
    apart: case, white space and normal form count. A NUL character may be refused.
    """

    capabilities: Capabilities

    @property
    def place(self) -> str:
        """Tells this store from others on the machine: its kind and, where it has one, its file or
        server; no user names, no secrets."""
        return type(self).__name__

    @abstractmethod
    async def open(self) -> None:
        """Make the store ready: connect, migrate, and complete interrupted erasures.

        Raises: ``StoreUnavailable``, ``StoreCorrupt``, ``SchemaTooNew``.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Finish queued writes and let go of what ``open`` took. Harmless when repeated."""

    @abstractmethod
    async def header(self, scope: Scope) -> Header | None:
        """The partition's head, or ``None`` if it was never written or was erased."""

    @abstractmethod
    async def write(
        self, scope: Scope, batch: Batch, *, epoch: Epoch, now_us: int, create: bool = False
    ) -> Written:
        """Apply ``batch`` in one transaction; when it returns, it is as durable as declared.

        With ``create`` an absent partition is made with this ``epoch``, unless it was erased under
        it: an erased epoch is never accepted again. An entry whose key exists with the same digest
        is *unchanged* and takes no number; with another digest it is a correction: it takes a
        number, becomes what ``entries`` and ``read`` return, moves to its new ``at_us`` (unless it
        ``keeps_time``) and keeps its ``position``. Within a batch later writes see earlier ones.
        Removing an absent item takes no number; removing an item blanks the bodies and digests of
        all its entries. A removed item may come back as a new one.

        Raises: ``UserErased`` when the partition has another epoch, or none and not ``create``, or
        was erased under this one;
        ``VersionConflict`` when a document is not as expected (then nothing is written);
        ``StoreBusy``, ``StoreUnavailable``; ``TooLarge`` for an entry or document over
        ``max_document_bytes``.
        """

    @abstractmethod
    async def changes(self, scope: Scope, *, after: int, limit: int) -> Sequence[Change]:
        """Changes with a number above ``after``, ascending, without gaps, at most ``limit``."""

    @abstractmethod
    async def entries(self, scope: Scope, keys: Sequence[EntryKey]) -> Sequence[StoredEntry]:
        """The newest entry of each key that exists, in the order of ``keys``."""

    @abstractmethod
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
        """Newest entries in reading order (or backwards), ``since_us`` ≤ time < ``until_us``.

        ``after`` is the (time, position) of the last one seen, for the next page in the direction
        of reading.
        """

    @abstractmethod
    async def sessions(
        self, scope: Scope, *, limit: int, after: tuple[int, str] | None = None
    ) -> Sequence[SessionOutline]:
        """Sessions that hold items, newest ``last_us`` first, ties by session id descending.

        ``after`` is the (last_us, session_id) of the last one seen.
        """

    @abstractmethod
    async def document(self, scope: Scope, kind: str, key: str) -> Document | None:
        """One document, or ``None``. Expiry is the caller's to check, against ``expires_us``."""

    @abstractmethod
    async def documents(
        self, scope: Scope, kind: str, *, prefix: str = "", after: str = "", limit: int
    ) -> Sequence[Document]:
        """Documents of a kind whose key begins with ``prefix``, by key (code points) ascending,
        above ``after``."""

    async def glance(
        self,
        scope: Scope,
        *,
        documents: Sequence[tuple[str, str]] = (),
        entries: Sequence[EntryKey] = (),
    ) -> Glance:
        """The partition's head, the documents of these (kind, key) in their order, ``None`` where
        there is none, and the newest entry of each key that exists.

        Here one after the other, the head last, so that it tells of what changed meanwhile; a store
        that can read them at once should.
        """
        found = [await self.document(scope, kind, key) for kind, key in documents]
        newest = await self.entries(scope, entries) if entries else ()
        return Glance(header=await self.header(scope), documents=found, entries=newest)

    @abstractmethod
    async def put_blob(self, scope: Scope, name: str, data: bytes, *, epoch: Epoch) -> None:
        """Store an immutable blob, durably. The same name again replaces it.

        Raises: ``UserErased``; ``TooLarge`` over ``max_blob_bytes``.
        """

    @abstractmethod
    async def blob(self, scope: Scope, name: str) -> bytes | None:
        """A blob, or ``None``."""

    @abstractmethod
    async def blobs(self, scope: Scope) -> Mapping[str, int]:
        """The names of a partition's blobs, with the time at which each was put, in microseconds
        by the machine's clock."""

    @abstractmethod
    async def delete_blobs(self, scope: Scope, names: Sequence[str]) -> None:
        """Delete blobs; absent ones are fine."""

    @abstractmethod
    async def acquire_lease(
        self, scope: Scope, name: str, *, holder: str, now_us: int, seconds: float
    ) -> bool:
        """Take or renew a lease if it is free, run out (by ``now_us``) or the holder's own.

        ``False`` also when the partition does not exist: there is nothing to work on, and nothing
        of it may stay after an erasure.
        """

    @abstractmethod
    async def release_lease(self, scope: Scope, name: str, *, holder: str) -> None:
        """Give a lease back; harmless if it is somebody else's."""

    @abstractmethod
    async def scopes(
        self, tenant_id: str, partition: Partition, *, after: str = "", limit: int
    ) -> Sequence[Scope]:
        """The partitions of a tenant by name (code points) ascending, above ``after``."""

    @abstractmethod
    async def erase(self, scope: Scope) -> Mapping[str, int]:
        """Remove the epoch first, then everything of the partition; how many rows went, by place.

        An erasure that is interrupted is completed at the next ``open``. Leases go too. A partition
        created meanwhile under a new epoch is not touched. Erasing what is absent gives zeros.
        """

    @abstractmethod
    async def scan(self, scope: Scope) -> Mapping[str, int]:
        """How many rows of the partition are left in each place, whatever their epoch.

        Names the same places as ``erase``.
        """

    @abstractmethod
    async def finish_erasure(self) -> ErasureResult:
        """Make what was erased physically gone (free pages, logs), as far as the store can."""

    async def problems(self) -> Sequence[str]:
        """What a self-check of the stored bytes finds wrong, one line each; empty if nothing."""
        return ()


class Embedder(ABC):
    """Text to vectors. Queries and documents are told apart, since some models want a prefix."""

    id: str
    """Names the model and everything that changes its vectors; kept beside them, never mixed."""
    dimensions: int
    local: bool = False
    """True when embedding is fast, in-process and needs no waiting (it is then called directly)."""

    @abstractmethod
    async def embed_documents(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Vectors ``(len(texts), dimensions)`` float32, unit length (zeros for empty text).

        Raises: ``EmbedderError``.
        """

    @abstractmethod
    async def embed_query(self, text: str) -> npt.NDArray[np.float32]:
        """One vector ``(dimensions,)``, unit length. Raises: ``EmbedderError``."""

    async def aclose(self) -> None:
        """Let go of connections."""
        return


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What a language model is asked. ``schema`` is a JSON Schema that the answer must follow;
    ``max_tokens`` bounds the answer."""

    system: str
    user: str
    max_tokens: int | None = None
    schema: Mapping[str, JsonValue] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What a language model answered; ``truncated`` when it ran into ``max_tokens``."""

    text: str
    truncated: bool = False


class LanguageModel(ABC):
    """A model that works in the background: it is never on the way to a reply.

    What a call used is reported with ``secondcall.usage.report`` by whoever implements this.
    """

    id: str

    @abstractmethod
    async def complete(self, prompt: Prompt) -> Completion:
        """The answer to one prompt. Raises: ``ModelError``."""

    async def aclose(self) -> None:
        """Let go of connections."""
        return


class TokenCounter(ABC):
    """Counts tokens, offline."""

    id: str

    @abstractmethod
    def count(self, text: str) -> int:
        """Tokens in ``text``; 0 for empty text, never an error."""


class Clock(Protocol):
    """Where the time comes from."""

    def now(self) -> datetime:
        """The time now, aware, UTC."""
        ...
