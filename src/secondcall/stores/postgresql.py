"""States in PostgreSQL 16 or newer, through ``asyncpg``; no extension is needed.

A save is one statement, which locks the user's row against erasure, compares the version, writes
the state and writes its history. ``docs/stores/postgresql.md`` tells options and limits.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from secondcall.abc import Epoch, ErasureResult, Scope
from secondcall.abc_state import (
    StateCapabilities,
    StateChange,
    StateConflict,
    StateKey,
    StateStore,
    StoredState,
)
from secondcall.errors import StoreBusy, StoreUnavailable, UserErased
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
from secondcall.stores.postgresql_link import Link, parse_url, touched

__all__ = ["PostgresStates", "state_store"]

_Rows = list[tuple[Any, ...]]
_Levels = list[tuple[int, str]]
_LEAST, _MOST = -(2**63), 2**63 - 1
_MAX_STATE_BYTES = 16 * 1024 * 1024
_KEY_BYTES = 200
_HEAD_CHARACTERS = 160
_PATIENT_AFTER = 8
_MOST_LOSERS = 1_000
_CLAIM_ROUNDS = 3
_ERASE_SECONDS = 600.0
_LIVES_ON = (
    "PostgreSQL writes over the room of erased rows when it needs it; until then their bytes may "
    "be in its files, and in its write-ahead log, archives and replicas as long as those are kept"
)


class PostgresStates(StateStore):
    """A schema of a database, named by ``postgresql://user:password@host:5432/database``.

    Options beside the driver's own (``sslmode``, ``target_session_attrs``…):
    ``?schema=secondcall``, ``?connections=16`` for each event loop, ``?timeout_seconds=30``,
    ``?pgbouncer=1`` and ``?durable=best_effort``.

    Raises: ``InvalidValue`` naming the option that is not accepted.
    """

    def __init__(self, url: str) -> None:
        settings = parse_url(url)
        self.capabilities = StateCapabilities(
            durable=settings.durable, shared=True, max_state_bytes=_MAX_STATE_BYTES
        )
        self._link = Link(settings)
        self._lost: Counter[StateKey] = Counter()
        self._erased_at: datetime | None = None

    async def open(self) -> None:
        """See ``StateStore.open``. An erasure is one transaction, so none is left half done."""
        await self._link.open()

    async def aclose(self) -> None:
        """See ``StateStore.aclose``."""
        await self._link.aclose()

    async def admit(self, tenant_id: str, user_id: str, *, epoch: Epoch, now_us: int) -> None:
        """See ``StateStore.admit``."""
        check_state_owner(tenant_id, user_id)
        check_number("now_us", now_us)
        owner = (_fold(tenant_id), _fold(user_id))
        found = await self._link.row("find_epoch", *owner)
        if found is None:
            found = await self._admit(owner, Scope(tenant_id, "user", user_id), epoch, now_us)
        if found[0] != epoch:
            raise UserErased(user_id)

    async def _admit(
        self, owner: tuple[str, str], scope: Scope, epoch: Epoch, now_us: int
    ) -> tuple[Any, ...]:
        """The epoch that is there afterwards. An erasure of this user waits for the inserted row,
        so that a mark which is not seen now cannot come."""
        queries = self._link.queries
        async with self._link.transaction() as one:
            found = await one.fetchrow(queries["add_user"], *owner, epoch, now_us)
            if await one.fetchval(queries["is_erased"], erasure_mark(scope, epoch)):
                raise UserErased(scope.name)
        return tuple(found)

    async def load(self, key: StateKey) -> StoredState | None:
        """See ``StateStore.load``."""
        check_state_key(key)
        return _state(key, await self._link.row("load_state", *_place(key)))

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
        place = _place(key)
        values = (*place, epoch, schema, now_us, by, expires_us, due_us, body, summary)
        if expected_version is None:
            row = await self._link.row("add_state", *values, *_whole(key, place))
        else:
            row = await self._link.row("set_state", *values, expected_version)
        version = await self._version_or_conflict(key, expected_version, row)
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
        values = (*_place(key), epoch, now_us, by, summary, expected_version)
        row = await self._link.row("delete_state", *values)
        await self._version_or_conflict(key, expected_version, row)

    async def _version_or_conflict(
        self, key: StateKey, expected: int | None, row: tuple[Any, ...] | None
    ) -> int:
        """The version that was written. Raises: ``UserErased``, ``StateConflict``."""
        owned, version = row or (None, None)
        if owned is None:
            raise UserErased(key.user_id)
        if version is not None:
            self._lost.pop(key, None)
            return version
        # Read in a statement of its own: the one that lost may have seen what was there before.
        raise StateConflict(expected=expected, current=await self._load_after_loss(key))

    async def _load_after_loss(self, key: StateKey) -> StoredState | None:
        """What is there now. Whoever lost many times in a row takes a turn at the row's lock, and
        so reads what the writer before has committed and not what is about to be replaced. The
        lock is let go of before the caller sees it, by undoing, which waits for no disk."""
        self._lost[key] += 1
        if self._lost[key] < _PATIENT_AFTER:
            return await self.load(key)
        if len(self._lost) > _MOST_LOSERS:
            self._lost.clear()
        async with self._link.connection() as one:
            turn = one.transaction()
            await turn.start()
            try:
                query = self._link.queries["load_state"] + "\nFOR UPDATE"
                row = await one.fetchrow(query, *_place(key))
            finally:
                await turn.rollback()
        return _state(key, row)

    async def history(
        self, key: StateKey, *, limit: int, before: int | None = None
    ) -> Sequence[StateChange]:
        """See ``StateStore.history``."""
        check_state_key(key)
        check_limit(limit)
        check_version("before", before)
        newest = _MOST if before is None else before
        rows = await self._link.rows("list_state_changes", *_place(key), newest, min(limit, _MOST))
        return [
            StateChange(
                version=version, at_us=at_us, by=by, body=body, schema=schema, summary=summary
            )
            for version, at_us, by, body, schema, summary in rows
        ]

    async def trim_history(
        self, key: StateKey, *, keep: int | None = None, older_than_us: int | None = None
    ) -> int:
        """See ``StateStore.trim_history``."""
        check_state_key(key)
        check_number("older_than_us", older_than_us or 0)
        newest = 0
        if keep is not None:
            check_limit(keep + 1)
            row = await self._link.row(
                "newest_state_change_to_trim", *_place(key), min(keep, _MOST)
            )
            newest = 0 if row is None else row[0]
        values = (newest, _LEAST if older_than_us is None else older_than_us)
        total, gone = 0, 1
        while gone:
            gone = await self._link.run("trim_some_state_changes", *_place(key), *values)
            total += gone
        return total

    async def list(
        self, tenant_id: str, user_id: str, *, after: StateKey | None = None, limit: int
    ) -> Sequence[StateKey]:
        """See ``StateStore.list``."""
        check_state_owner(tenant_id, user_id)
        check_after(tenant_id, user_id, after)
        check_limit(limit)
        above = (-1, "") if after is None else _level(after)
        values = (_fold(tenant_id), _fold(user_id), *above, min(limit, _MOST))
        rows = await self._link.rows("list_states", *values)
        return [
            StateKey(tenant_id, user_id, name if in_session else None) for in_session, name in rows
        ]

    async def claim_due(
        self, tenant_id: str, *, now_us: int, limit: int, holder: str, seconds: float
    ) -> Sequence[StateKey]:
        """See ``StateStore.claim_due``: a look without locks at the tenant, then a claim of each
        user's, which passes over what another is claiming."""
        check_limit(limit)
        check_save(b"", b"", self.capabilities, by=holder, now_us=now_us)
        until_us = min(now_us + round(seconds * 1_000_000), _MOST)
        check_state_owner(tenant_id, "-")
        got: _Rows = []
        for _ in range(_CLAIM_ROUNDS):
            wanted = min(limit - len(got), _MOST)
            due = await self._link.rows("list_due_states", _fold(tenant_id), now_us, wanted)
            if due:
                got += await self._hold(_fold(tenant_id), due, (now_us, holder, until_us))
            if len(due) < wanted or len(got) >= limit:
                break
        return [
            StateKey(tenant_id, user_id, session_id if in_session else None)
            for _, _, in_session, _, user_id, session_id in sorted(got)
        ]

    async def _hold(
        self, tenant: str, due: Sequence[tuple[Any, ...]], values: tuple[object, ...]
    ) -> Sequence[tuple[Any, ...]]:
        """Those of the due states that nobody else took meanwhile."""
        by_user: dict[str, _Levels] = {}
        for user, *level in due:
            by_user.setdefault(user, []).append((level[0], level[1]))
        got: _Rows = []
        async with self._link.transaction() as one:
            for user, levels in by_user.items():
                columns = zip(*levels, strict=True)
                rows = await one.fetch(
                    self._link.queries["hold_due_states"], tenant, user, *columns, *values
                )
                got += [tuple(row) for row in rows]
        return got

    async def erase(
        self, tenant_id: str, user_id: str, *, epoch: Epoch | None = None
    ) -> Mapping[str, int]:
        """See ``StateStore.erase``. All of it is one transaction, so it happens whole or not."""
        check_state_owner(tenant_id, user_id)
        owner = (_fold(tenant_id), _fold(user_id))
        scope = Scope(tenant_id, "user", user_id)
        queries, stand_in = self._link.queries, secrets.token_bytes(16)
        async with self._link.transaction() as one:
            # Where there is no user a row stands in, so that nobody is let in meanwhile.
            await one.execute(queries["add_user"], *owner, stand_in, 0)
            # Waits for the saves under way, which hold the row.
            found = await one.fetchval(queries["erase_user"], *owner)
            for gone in {epoch, found} - {stand_in}:
                if gone is not None:
                    await one.execute(queries["add_erased"], erasure_mark(scope, gone))
            states, history = [
                touched(await one.execute(queries[query], *owner, timeout=_ERASE_SECONDS))
                for query in ("erase_states", "erase_state_history")
            ]
            self._erased_at = await one.fetchval("SELECT clock_timestamp()")
        return _places(states, history, int(found != stand_in))

    async def scan(self, tenant_id: str, user_id: str) -> Mapping[str, int]:
        """See ``StateStore.scan``."""
        check_state_owner(tenant_id, user_id)
        row = await self._link.row("count_left", _fold(tenant_id), _fold(user_id))
        states, history, users = row or (0, 0, 0)
        return _places(states, history, users)

    async def finish_erasure(self) -> ErasureResult:
        """See ``StateStore.finish_erasure``. What this process erased is vacuumed: taken out of the
        tables, so that its room is used again."""
        self._link.check_open()
        since = self._erased_at
        if since is None:
            return ErasureResult(complete=True)
        queries = self._link.queries
        try:
            async with self._link.connection() as one:
                for table in ("states", "state_history", "users"):
                    await one.execute(queries[f"vacuum_{table}"], timeout=_ERASE_SECONDS)
                readers = await one.fetchval(queries["count_old_readers"], since)
        except (StoreBusy, StoreUnavailable) as error:
            return ErasureResult(complete=False, detail=f"{error}; autovacuum does it later")
        if readers:
            return ErasureResult(
                complete=False,
                detail=f"{readers} transactions of this database are older than the erasure and "
                "keep its rows; autovacuum takes them out when those have ended",
            )
        if self._erased_at == since:
            self._erased_at = None
        return ErasureResult(complete=True, detail=_LIVES_ON)

    async def problems(self) -> Sequence[str]:
        """See ``StateStore.problems``."""
        wrong = (await self._link.row("wrong_states") or (0,))[0]
        lost = (await self._link.row("lost_state_changes") or (0,))[0]
        return [
            *([f"{wrong} states disagree with their history or have no user"] if wrong else []),
            *([f"{lost} rows of the history have no state"] if lost else []),
        ]


def state_store(url: str) -> StateStore:
    """States in the schema that the URL names, for records kept elsewhere."""
    return PostgresStates(url)


def _fold(text: str) -> str:
    """The form of an id in keys. An index takes at most 2,704 bytes, so a long id stands there with
    its beginning and a digest, which together are longer than any id that stands there whole."""
    whole = text.encode()
    if len(whole) <= _KEY_BYTES:
        return text
    return text[:_HEAD_CHARACTERS] + hashlib.blake2b(whole, digest_size=32).hexdigest()


def _level(key: StateKey) -> tuple[int, str]:
    """What tells a session's state from the user-wide one."""
    return (0, "") if key.session_id is None else (1, key.session_id)


def _place(key: StateKey) -> tuple[str, str, int, str]:
    """The four columns of a key."""
    in_session, session_id = _level(key)
    return _fold(key.tenant_id), _fold(key.user_id), in_session, _fold(session_id)


def _whole(key: StateKey, place: tuple[str, str, int, str]) -> tuple[str | None, str | None]:
    """User and session id where the key has them shortened."""
    return (
        None if key.user_id == place[1] else key.user_id,
        None if _level(key)[1] == place[3] else key.session_id,
    )


def _state(key: StateKey, row: Sequence[Any] | None) -> StoredState | None:
    if row is None:
        return None
    version, body, updated_us, updated_by, schema, expires_us, due_us = row
    return StoredState(
        key=key,
        version=version,
        body=body,
        updated_us=updated_us,
        updated_by=updated_by,
        schema=schema,
        expires_us=expires_us,
        due_us=due_us,
    )


def _places(states: int, history: int, users: int) -> Mapping[str, int]:
    return {"states": states, "state_history": history, "users": users}
