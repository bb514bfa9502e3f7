"""States in the file of a ``SqliteStore``: its threads, its partitions, its epochs, its erasure.

A save is a conditional ``UPDATE`` and a row of the history in the writer thread's transaction,
which began with the lock: nothing can come between the comparison and the write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import apsw

from secondcall.abc import Batch, Epoch, ErasureResult, Scope, Store
from secondcall.abc_state import (
    StateCapabilities,
    StateChange,
    StateConflict,
    StateKey,
    StateStore,
    StoredState,
)
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
from secondcall.stores.sqlite_file import Row, row_of, rows_of, run
from secondcall.stores.sqlite_threads import Readers, Writer
from secondcall.stores.sqlite_write import require_epoch
from secondcall.stores.statements import load_queries

__all__ = ["STATE_PLACES", "SqliteStates", "load_state"]

STATE_PLACES = frozenset({"states", "state_history", "partitions"})
_SQL = load_queries("sqlite")
_LEAST, _MOST = -(2**63), 2**63 - 1


class SqliteStates(StateStore):
    """The states of one ``SqliteStore``; made by its ``states()``.

    An ``owner`` opens and closes the store; else it lives as long as the store is open.
    """

    capabilities = StateCapabilities(
        durable="commit", shared=True, max_state_bytes=16 * 1024 * 1024
    )

    def __init__(
        self, store: Store, running: Callable[[], tuple[Writer, Readers]], *, owner: bool = False
    ) -> None:
        self._store = store
        self._running = running
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
        header = await self._store.header(scope)
        if header is not None and header.epoch == epoch:
            return
        await self._store.write(scope, Batch(), epoch=epoch, now_us=now_us, create=True)

    async def load(self, key: StateKey) -> StoredState | None:
        """See ``StateStore.load``."""
        check_state_key(key)
        return await self._running()[1].read(lambda connection: load_state(connection, key))

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
        values = (schema, now_us, by, expires_us, due_us, body)

        def work(connection: apsw.Connection) -> StoredState:
            partition_id, _ = require_epoch(connection, _scope(key), epoch)
            if expected_version is None:
                whole = (partition_id, key.tenant_id, *_level(key), *values)
                row = row_of(connection, _SQL["add_state"], whole)
            else:
                whole = (*values, partition_id, *_level(key), expected_version)
                row = row_of(connection, _SQL["set_state"], whole)
            if row is None:
                current = load_state(connection, key)
                raise StateConflict(expected=expected_version, current=current)
            state_id, version = cast("tuple[int, int]", row)
            change = (state_id, version, schema, now_us, by, summary, body)
            run(connection, _SQL["add_state_change"], change)
            return StoredState(
                key=key,
                version=version,
                body=bytes(body),
                updated_us=now_us,
                updated_by=by,
                schema=schema,
                expires_us=expires_us,
                due_us=due_us,
            )

        return await self._running()[0].write(work)

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

        def work(connection: apsw.Connection) -> None:
            partition_id, _ = require_epoch(connection, _scope(key), epoch)
            values = (now_us, by, partition_id, *_level(key), expected_version)
            row = row_of(connection, _SQL["delete_state"], values)
            if row is None:
                raise StateConflict(expected=expected_version, current=load_state(connection, key))
            run(connection, _SQL["add_state_change"], (*row, now_us, by, summary, None))

        await self._running()[0].write(work)

    async def history(
        self, key: StateKey, *, limit: int, before: int | None = None
    ) -> Sequence[StateChange]:
        """See ``StateStore.history``."""
        check_state_key(key)
        check_limit(limit)
        check_version("before", before)
        values = (*key[:2], *_level(key), before or _MOST, limit)
        rows = await self._running()[1].read(
            lambda connection: rows_of(connection, _SQL["list_state_changes"], values)
        )
        return [_change(row) for row in rows]

    async def trim_history(
        self, key: StateKey, *, keep: int | None = None, older_than_us: int | None = None
    ) -> int:
        """See ``StateStore.trim_history``."""
        check_state_key(key)
        check_number("older_than_us", older_than_us or 0)
        if keep is not None:
            check_limit(keep + 1)
        bounds = await self._running()[1].read(lambda connection: _bounds(connection, key, keep))
        if bounds is None:
            return 0
        values = (*bounds, _LEAST if older_than_us is None else older_than_us)
        gone = total = 1
        while gone:
            # In steps, so that others can write in between.
            gone = await self._running()[0].write(
                lambda connection: run(connection, _SQL["trim_some_state_changes"], values)
            )
            total += gone
        return total - 1

    async def list(
        self, tenant_id: str, user_id: str, *, after: StateKey | None = None, limit: int
    ) -> Sequence[StateKey]:
        """See ``StateStore.list``."""
        check_state_owner(tenant_id, user_id)
        check_after(tenant_id, user_id, after)
        check_limit(limit)
        above = (-1, "") if after is None else _level(after)
        values = (tenant_id, user_id, *above, limit)
        rows = await self._running()[1].read(
            lambda connection: rows_of(connection, _SQL["list_states"], values)
        )
        return [_key(tenant_id, user_id, *row) for row in rows]

    async def claim_due(
        self, tenant_id: str, *, now_us: int, limit: int, holder: str, seconds: float
    ) -> Sequence[StateKey]:
        """See ``StateStore.claim_due``."""
        check_limit(limit)
        check_save(b"", b"", self.capabilities, by=holder, now_us=now_us)
        until_us = now_us + round(seconds * 1_000_000)
        values = (tenant_id, now_us, limit)

        def look(connection: apsw.Connection) -> Sequence[Row]:
            return rows_of(connection, _SQL["list_due_states"], values)

        def claim(connection: apsw.Connection) -> Sequence[Row]:
            rows = look(connection)
            for state_id, *_ in rows:
                run(connection, _SQL["hold_state"], (holder, until_us, state_id))
            return rows

        # Whoever polls and finds nothing takes no lock.
        if not await self._running()[1].read(look):
            return []
        rows = await self._running()[0].write(claim)
        return [_key(tenant_id, cast("str", row[1]), *row[2:]) for row in rows]

    async def erase(
        self, tenant_id: str, user_id: str, *, epoch: Epoch | None = None
    ) -> Mapping[str, int]:
        """See ``StateStore.erase``. The whole partition goes, with the record in it."""
        check_state_owner(tenant_id, user_id)
        scope = Scope(tenant_id, "user", user_id)
        if epoch is not None:
            mark = erasure_mark(scope, epoch)
            await self._running()[0].write(
                lambda connection: run(connection, _SQL["add_erased"], (mark,))
            )
        return _places(await self._store.erase(scope))

    async def scan(self, tenant_id: str, user_id: str) -> Mapping[str, int]:
        """See ``StateStore.scan``."""
        check_state_owner(tenant_id, user_id)
        return _places(await self._store.scan(Scope(tenant_id, "user", user_id)))

    async def finish_erasure(self) -> ErasureResult:
        """See ``SqliteStore.finish_erasure``."""
        return await self._store.finish_erasure()

    async def problems(self) -> Sequence[str]:
        """See ``SqliteStore.problems``."""
        return await self._store.problems()


def _scope(key: StateKey) -> Scope:
    return Scope(key.tenant_id, "user", key.user_id)


def _level(key: StateKey) -> tuple[int, str]:
    """The columns that tell a session's state from the user-wide one."""
    return (0, "") if key.session_id is None else (1, key.session_id)


def _key(tenant_id: str, user_id: str, *level: object) -> StateKey:
    in_session, session_id = level
    return StateKey(tenant_id, user_id, cast("str", session_id) if in_session else None)


def load_state(connection: apsw.Connection, key: StateKey) -> StoredState | None:
    """A state as it stands in this view of the file."""
    row = row_of(connection, _SQL["load_state"], (*key[:2], *_level(key)))
    if row is None:
        return None
    version, body, updated_us, updated_by, schema, expires_us, due_us = row
    return StoredState(
        key=key,
        version=cast("int", version),
        body=cast("bytes", body),
        updated_us=cast("int", updated_us),
        updated_by=cast("str", updated_by),
        schema=cast("int", schema),
        expires_us=cast("int | None", expires_us),
        due_us=cast("int | None", due_us),
    )


def _change(row: Row) -> StateChange:
    version, at_us, by, body, schema, summary = row
    return StateChange(
        version=cast("int", version),
        at_us=cast("int", at_us),
        by=cast("str", by),
        body=cast("bytes | None", body),
        schema=cast("int", schema),
        summary=cast("bytes", summary),
    )


def _bounds(connection: apsw.Connection, key: StateKey, keep: int | None) -> tuple[int, int] | None:
    """The state's number and the newest version that is not among those to keep."""
    state = row_of(connection, _SQL["find_state"], (*key[:2], *_level(key)))
    if state is None:
        return None
    state_id = cast("int", state[0])
    if keep is None:
        return state_id, 0
    row = row_of(connection, _SQL["newest_state_change_to_trim"], (state_id, keep))
    return state_id, 0 if row is None else cast("int", row[0])


def _places(counts: Mapping[str, int]) -> Mapping[str, int]:
    """Those of states, and whatever else was found."""
    return {name: count for name, count in counts.items() if count or name in STATE_PLACES}
