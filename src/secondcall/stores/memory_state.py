"""States in a ``MemoryStore``: in its partitions, under its epochs and its lock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from secondcall.abc import Batch, Epoch, ErasureResult, Scope, Store
from secondcall.abc_state import (
    StateCapabilities,
    StateChange,
    StateConflict,
    StateKey,
    StateStore,
    StoredState,
)
from secondcall.errors import UserErased
from secondcall.stores.erased import erasure_mark
from secondcall.stores.limits import (
    check_after,
    check_change,
    check_limit,
    check_number,
    check_save,
    check_state_key,
    check_state_owner,
    check_version,
)

__all__ = ["HeldState", "HeldUser", "MemoryStates"]

_PLACES = frozenset({"states", "state_history", "partitions"})


@dataclass(slots=True)
class HeldState:
    """A state and its history, oldest first. ``version`` outlives ``now``, which is ``None`` when
    the state was deleted. ``held_until_us``: until when its timer is some holder's."""

    version: int = 0
    now: StoredState | None = None
    changes: list[StateChange] = field(default_factory=list[StateChange])
    held_until_us: int | None = None


class HeldUser(Protocol):
    """What this file knows of a user's partition."""

    epoch: Epoch
    states: dict[str | None, HeldState]


class MemoryStates(StateStore):
    """The states of one ``MemoryStore``; made by its ``states()``."""

    capabilities = StateCapabilities(
        durable="never", shared=False, max_state_bytes=16 * 1024 * 1024
    )

    def __init__(
        self,
        store: Store,
        find: Callable[[Scope], HeldUser | None],
        users: Callable[[str], Iterable[tuple[str, HeldUser]]],
        erased: set[bytes],
        lock: threading.Lock,
        *,
        owner: bool = False,
    ) -> None:
        self._store = store
        self._find_user = find
        self._users = users
        self._erased = erased
        self._lock = lock
        self._owner = owner

    async def open(self) -> None:
        """See ``StateStore.open``."""
        if self._owner:
            await self._store.open()

    async def aclose(self) -> None:
        """See ``StateStore.aclose``."""
        if self._owner:
            await self._store.aclose()

    async def admit(self, tenant_id: str, user_id: str, *, epoch: Epoch, now_us: int) -> None:
        """See ``StateStore.admit``."""
        check_state_owner(tenant_id, user_id)
        scope = Scope(tenant_id, "user", user_id)
        await self._store.write(scope, Batch(), epoch=epoch, now_us=now_us, create=True)

    async def load(self, key: StateKey) -> StoredState | None:
        """See ``StateStore.load``."""
        with self._lock:
            held = self._find(key)
            return None if held is None else held.now

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
        """See ``StateStore.save``."""
        numbers = {
            "now_us": now_us, "schema": schema, "expires_us": expires_us, "due_us": due_us
        }  # fmt: skip
        check_change(
            key, self.capabilities, expected_version=expected_version, by=by, summary=summary,
            body=body, **numbers,
        )  # fmt: skip
        with self._lock:
            held = self._expected(key, expected_version, epoch)
            new = StoredState(
                key=key,
                version=held.version + 1,
                body=bytes(body),
                updated_us=now_us,
                updated_by=by,
                schema=schema,
                expires_us=expires_us,
                due_us=due_us,
            )
            _put(held, new, new.body, now_us=now_us, by=by, schema=schema, summary=summary)
            return new

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
        """See ``StateStore.delete``."""
        check_change(
            key, self.capabilities, expected_version=expected_version, by=by, summary=summary,
            now_us=now_us,
        )  # fmt: skip
        with self._lock:
            held = self._expected(key, expected_version, epoch)
            schema = 1 if held.now is None else held.now.schema
            _put(held, None, None, now_us=now_us, by=by, schema=schema, summary=summary)

    async def history(
        self, key: StateKey, *, limit: int, before: int | None = None
    ) -> Sequence[StateChange]:
        """See ``StateStore.history``."""
        check_limit(limit)
        check_version("before", before)
        with self._lock:
            held = self._find(key)
            newest_first = [] if held is None else held.changes[::-1]
        return [one for one in newest_first if before is None or one.version < before][:limit]

    async def trim_history(
        self, key: StateKey, *, keep: int | None = None, older_than_us: int | None = None
    ) -> int:
        """See ``StateStore.trim_history``."""
        check_number("older_than_us", older_than_us or 0)
        if keep is not None:
            check_limit(keep + 1)
        with self._lock:
            held = self._find(key)
            if held is None:
                return 0
            before = len(held.changes)
            first = 0 if keep is None else max(0, before - keep)
            held.changes = [
                one
                for one in held.changes[first:]
                if older_than_us is None or one.at_us >= older_than_us
            ]
            return before - len(held.changes)

    async def list(
        self, tenant_id: str, user_id: str, *, after: StateKey | None = None, limit: int
    ) -> Sequence[StateKey]:
        """See ``StateStore.list``."""
        check_state_owner(tenant_id, user_id)
        check_after(tenant_id, user_id, after)
        check_limit(limit)
        with self._lock:
            user = self._find_user(Scope(tenant_id, "user", user_id))
            states = {} if user is None else user.states
            found = [session_id for session_id, held in states.items() if held.now is not None]
        found.sort(key=_order)
        above = [one for one in found if after is None or _order(one) > _order(after.session_id)]
        return [StateKey(tenant_id, user_id, one) for one in above[:limit]]

    async def claim_due(
        self, tenant_id: str, *, now_us: int, limit: int, holder: str, seconds: float
    ) -> Sequence[StateKey]:
        """See ``StateStore.claim_due``."""
        check_limit(limit)
        check_save(b"", b"", self.capabilities, by=holder, now_us=now_us)
        with self._lock:
            due = [
                (held.now.due_us, held)
                for _, user in self._users(tenant_id)
                for held in user.states.values()
                if held.now is not None
                and held.now.due_us is not None
                and held.now.due_us <= now_us
                and (held.held_until_us is None or held.held_until_us <= now_us)
            ]
            due.sort(key=lambda one: one[0])
            keys: list[StateKey] = []
            for _, held in due[:limit]:
                held.held_until_us = now_us + round(seconds * 1_000_000)
                if held.now is not None:
                    keys.append(held.now.key)
            return keys

    async def erase(
        self, tenant_id: str, user_id: str, *, epoch: Epoch | None = None
    ) -> Mapping[str, int]:
        """See ``StateStore.erase``. The whole partition goes, with the record in it."""
        check_state_owner(tenant_id, user_id)
        scope = Scope(tenant_id, "user", user_id)
        if epoch is not None:
            with self._lock:
                self._find_user(scope)
                self._erased.add(erasure_mark(scope, epoch))
        return _places(await self._store.erase(scope))

    async def scan(self, tenant_id: str, user_id: str) -> Mapping[str, int]:
        """See ``StateStore.scan``."""
        check_state_owner(tenant_id, user_id)
        return _places(await self._store.scan(Scope(tenant_id, "user", user_id)))

    async def finish_erasure(self) -> ErasureResult:
        """See ``StateStore.finish_erasure``. Memory that was let go of is not overwritten."""
        return await self._store.finish_erasure()

    def _find(self, key: StateKey) -> HeldState | None:
        check_state_key(key)
        user = self._find_user(Scope(key.tenant_id, "user", key.user_id))
        return None if user is None else user.states.get(key.session_id)

    def _expected(self, key: StateKey, version: int | None, epoch: Epoch) -> HeldState:
        """The state, at this version. Raises: ``UserErased``, ``StateConflict``."""
        user = self._find_user(Scope(key.tenant_id, "user", key.user_id))
        if user is None or user.epoch != epoch:
            raise UserErased(key.user_id)
        held = user.states.get(key.session_id)
        now = None if held is None else held.now
        if version != (None if now is None else now.version):
            raise StateConflict(expected=version, current=now)
        return user.states.setdefault(key.session_id, HeldState()) if held is None else held


def _put(
    held: HeldState,
    new: StoredState | None,
    body: bytes | None,
    *,
    now_us: int,
    by: str,
    schema: int,
    summary: bytes,
) -> None:
    held.version += 1
    held.now = new
    held.held_until_us = None
    held.changes.append(
        StateChange(
            version=held.version,
            at_us=now_us,
            by=by,
            body=body,
            schema=schema,
            summary=bytes(summary),
        )
    )


def _order(session_id: str | None) -> tuple[int, str]:
    """User-wide first."""
    return (0, "") if session_id is None else (1, session_id)


def _places(counts: Mapping[str, int]) -> Mapping[str, int]:
    return {name: count for name, count in counts.items() if count or name in _PLACES}
