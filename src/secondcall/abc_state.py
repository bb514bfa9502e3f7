"""The port of state: what is true now, as versioned values that change by compare-and-set alone.

A state is bytes under a ``StateKey``: of one session, or user-wide. Every save and deletion takes
the key's next version and appends one row to its history in the same atomic step, so the history
has no gap and no version is ever used twice, deletions included. Every write carries the user's
*epoch*, so that what was under way when the user was erased cannot come back.

A store of records that keeps states too, in the same place and under the same epochs, is a
``StatefulStore``; a ``StateStore`` of its own may stand beside any store (``state=`` of
``Memory.open``). ``secondcall.testing.conformance`` runs the contract below on any state store.

Times are whole microseconds since 1970-01-01 UTC (``_us``), always the caller's clock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from secondcall.abc import Document, Epoch, ErasureResult, Scope, Store
from secondcall.errors import VersionConflict

__all__ = [
    "StateCapabilities",
    "StateChange",
    "StateConflict",
    "StateKey",
    "StateStore",
    "StatefulStore",
    "StoredState",
]


class StateKey(NamedTuple):
    """Whose state it is. Without a ``session_id`` it is user-wide and outlives sessions.

    The parts are told apart as they are, never joined to one text.
    """

    tenant_id: str
    user_id: str
    session_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """A state as it stands.

    ``schema`` is the caller's number of the form of ``body``. After ``expires_us`` the caller takes
    it for absent; at ``due_us`` its timer wants to be claimed.
    """

    key: StateKey
    version: int
    body: bytes
    updated_us: int
    updated_by: str
    schema: int
    expires_us: int | None = None
    due_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """One row of a state's history: what it was from ``version`` on; ``body`` ``None`` when that
    version deleted it. ``summary`` says what changed, as the caller gave it (JSON)."""

    version: int
    at_us: int
    by: str
    body: bytes | None
    schema: int
    summary: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCapabilities:
    """What a state store declares, and the conformance suite proves.

    ``durable``: ``"commit"`` (an acknowledged save survives kill -9), ``"best_effort"`` or
    ``"never"``. ``shared``: several processes may open the same URL. ``max_state_bytes`` bounds
    body and summary together.
    """

    durable: Literal["commit", "best_effort", "never"]
    shared: bool
    max_state_bytes: int


class StateConflict(VersionConflict):
    """A state is not at the expected version; nothing was written.

    ``current`` is the state as it stands, so that a retry needs no read; ``None``: it is absent.
    """

    def __init__(self, *, expected: int | None, current: StoredState | None) -> None:
        self.current = current
        super().__init__(
            "the state", expected=expected, found=None if current is None else current.version
        )


class StateStore(ABC):
    """Versioned states with their history, and timers, user by user.

    Methods may be called from several tasks, threads and event loops at once. A cancelled write may
    or may not have happened. Errors of a driver never pass: they are mapped to the tree in
    ``secondcall.errors``. Every method raises ``NotOpen`` before ``open`` and after ``aclose``;
    ``InvalidValue`` for a ``limit`` below 1, an empty user or session id, an expected version below
    1, a number over 64 bits, and text with a NUL character or a lone surrogate; and
    ``StoreUnavailable`` or ``StoreBusy`` when it cannot be done now: then it may be repeated. All
    other characters are told apart: case, white space and normal form count.
    """

    capabilities: StateCapabilities

    @abstractmethod
    async def open(self) -> None:
        """Make the store ready: connect, migrate, and complete interrupted erasures.

        Raises: ``StoreUnavailable``, ``StoreCorrupt``, ``SchemaTooNew``.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Finish queued writes and let go of what ``open`` took. Harmless when repeated."""

    @abstractmethod
    async def admit(self, tenant_id: str, user_id: str, *, epoch: Epoch, now_us: int) -> None:
        """Let a user in under this epoch, before the first save; harmless when repeated.

        Raises: ``UserErased`` when the user is here under another epoch, or was erased under this
        one: an erased epoch is never accepted again.
        """

    @abstractmethod
    async def load(self, key: StateKey) -> StoredState | None:
        """The state, or ``None``. Strongly consistent: every acknowledged save is seen, by
        whichever process. Expiry is the caller's to check, against ``expires_us``."""

    @abstractmethod
    async def save(
        self,
        key: StateKey,
        body: bytes,
        *,
        expected_version: int | None,
        epoch: Epoch,
        now_us: int,
        by: str,
        summary: bytes = b"{}",
        schema: int = 1,
        expires_us: int | None = None,
        due_us: int | None = None,
    ) -> StoredState:
        """Write the state if it is at ``expected_version`` (``None``: if it is absent), with a row
        of its history, in one atomic step; when it returns, that is as durable as declared.

        The first version is 1; a state that was deleted goes on from the version of its deletion.
        ``expires_us`` and ``due_us`` are set anew by each save, which also ends a claim.

        Raises: ``StateConflict``, ``UserErased`` (also when the user was never admitted),
        ``TooLarge``; ``StoreBusy``, ``StoreUnavailable``. An erased user comes before a conflict.
        """

    @abstractmethod
    async def delete(
        self,
        key: StateKey,
        *,
        expected_version: int,
        epoch: Epoch,
        now_us: int,
        by: str,
        summary: bytes = b"{}",
    ) -> None:
        """Delete the state if it is at ``expected_version``; a row of its history says so.

        The history and the count of versions stay. Raises: as ``save``.
        """

    @abstractmethod
    async def history(
        self, key: StateKey, *, limit: int, before: int | None = None
    ) -> Sequence[StateChange]:
        """The newest changes, newest first, with a version below ``before``; also of a state that
        is deleted."""

    @abstractmethod
    async def trim_history(
        self, key: StateKey, *, keep: int | None = None, older_than_us: int | None = None
    ) -> int:
        """Remove the rows that are not among the newest ``keep``, and those with a time before
        ``older_than_us``; how many went. The state itself and its version stay."""

    @abstractmethod
    async def list(
        self, tenant_id: str, user_id: str, *, after: StateKey | None = None, limit: int
    ) -> Sequence[StateKey]:
        """The keys of a user's states: the user-wide one first, then by session id (code points)
        ascending, above ``after``."""

    @abstractmethod
    async def claim_due(
        self, tenant_id: str, *, now_us: int, limit: int, holder: str, seconds: float
    ) -> Sequence[StateKey]:
        """Take states whose ``due_us`` is not after ``now_us``, earliest first, each for
        ``seconds``: until then nobody is given it again, not even its holder.

        A save or deletion ends the claim; whoever was given it sees by the version that another was
        faster. Two that ask at once are never given the same. There may be more than came back.
        """

    @abstractmethod
    async def erase(
        self, tenant_id: str, user_id: str, *, epoch: Epoch | None = None
    ) -> Mapping[str, int]:
        """Remove the user's epoch first, then all states, histories and claims; how many rows went,
        by place.

        ``epoch`` is refused from then on even if the user was never admitted. An erasure that is
        interrupted is completed at the next ``open``. Erasing what is absent gives zeros.
        """

    @abstractmethod
    async def scan(self, tenant_id: str, user_id: str) -> Mapping[str, int]:
        """How many rows of the user are left in each place, whatever their epoch.

        Names the same places as ``erase``.
        """

    @abstractmethod
    async def finish_erasure(self) -> ErasureResult:
        """Make what was erased physically gone (free pages, logs), as far as the store can."""

    async def problems(self) -> Sequence[str]:
        """What a self-check of the stored bytes finds wrong, one line each; empty if nothing."""
        return ()


class StatefulStore(Store):
    """A ``Store`` that keeps states as well, in the same place: one erasure covers both."""

    @abstractmethod
    def states(self) -> StateStore:
        """The states of this store, under the epochs of its user partitions.

        It lives as long as the store is open; its own ``open`` and ``aclose`` do nothing.
        """

    async def state_and_documents(
        self, key: StateKey, kind: str, *, prefix: str = "", limit: int
    ) -> tuple[StoredState | None, Sequence[Document]]:
        """A state, as ``load`` gives it, and documents of its user, as ``documents`` does. Here one
        after the other; a store that can read both at once should."""
        stored = await self.states().load(key)
        scope = Scope(key.tenant_id, "user", key.user_id)
        return stored, await self.documents(scope, kind, prefix=prefix, limit=limit)
