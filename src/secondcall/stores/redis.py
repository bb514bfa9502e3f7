"""States in Redis or Valkey, one server or a cluster.

A save is one step in the user's slot: it compares epoch and version there and writes the state, its
history, its timer and the list of states, or answers with what is there. What is told of a user in
another slot (timers of a tenant, erased epochs, erasures under way) is only ever written so that a
crash in between leaves nothing wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from secondcall.abc import Epoch, ErasureResult
from secondcall.abc_state import StateCapabilities, StateChange, StateKey, StateStore, StoredState
from secondcall.errors import SchemaTooNew, StoreBusy, StoreCorrupt
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
from secondcall.stores.redis_check import find_problems
from secondcall.stores.redis_erase import Heads
from secondcall.stores.redis_keys import Keys, level, session_of
from secondcall.stores.redis_link import Link
from secondcall.stores.redis_rows import (
    LIVE,
    Write,
    as_change,
    as_fields,
    as_number,
    as_state,
    check_found,
)
from secondcall.stores.redis_server import check_servers, clean, is_durable
from secondcall.stores.redis_steps import Fields, Steps
from secondcall.stores.redis_timers import Timers, covers
from secondcall.stores.redis_url import parse_url

__all__ = ["RedisStates", "state_store"]

_SCHEMA = 1
_TRIES = 200
_MOST_BYTES = 16 * 1024 * 1024
_PAGE = 64


class RedisStates(StateStore):
    """States in Redis, Valkey or a cluster of them, found by URL; see docs/stores/redis.md.

    ``capabilities`` says ``"best_effort"`` until ``open`` has seen that every server writes each
    acknowledged change to its disk (``appendonly yes``, ``appendfsync always``).
    """

    def __init__(self, url: str) -> None:
        settings = parse_url(url)
        self.capabilities = _capabilities(durable=False)
        self._keys = Keys(settings.prefix)
        self._link = Link(settings)
        self._steps = Steps(self._link)
        self._timers = Timers(self._link, self._steps, self._keys)
        self._heads = Heads(self._link, self._steps, self._timers, self._keys)
        self._opened = False

    async def open(self) -> None:
        """See ``StateStore.open``; also looks at how the servers keep what they have."""
        if self._opened:
            return
        self._link.begin()
        try:
            await check_servers(self._link)
            self.capabilities = _capabilities(durable=await is_durable(self._link))
            await self._steps.open(self._keys.probe)
            await self._check_schema()
            await self._heads.complete_erasures()
        except BaseException:  # cancelled too: no connection stays behind; raised on
            await self._link.aclose()
            raise
        self._opened = True

    async def aclose(self) -> None:
        """See ``StateStore.aclose``."""
        self._opened = False
        await self._link.aclose()

    async def admit(self, tenant_id: str, user_id: str, *, epoch: Epoch, now_us: int) -> None:
        """See ``StateStore.admit``."""
        check_state_owner(tenant_id, user_id)
        self._link.check_open()
        await self._heads.admit(self._keys.user(tenant_id, user_id), epoch)

    async def load(self, key: StateKey) -> StoredState | None:
        """See ``StateStore.load``."""
        check_state_key(key)
        self._link.check_open()
        user = self._keys.of(key)
        values, epoch = await self._link.ask(
            user.head,
            (b"HMGET", user.state(key.session_id), *LIVE),
            (b"HGET", user.head, b"epoch"),
        )
        if epoch is None:
            return None
        found = zip(LIVE, values, strict=True)
        return as_state(key, {name: value for name, value in found if value is not None})

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
        self._link.check_open()
        write = Write(
            key=key,
            user=self._keys.of(key),
            epoch=epoch,
            body=bytes(body),
            now_us=now_us,
            by=by,
            schema=schema,
            summary=bytes(summary),
            expires_us=expires_us,
            due_us=due_us,
        )
        return StoredState(
            key=key,
            version=await self._change(write, expected_version, None),
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
        self._link.check_open()
        user = self._keys.of(key)
        state = user.state(key.session_id)
        flat, found = await self._link.ask(
            state, (b"HGETALL", state), (b"HGET", user.head, b"epoch")
        )
        seen = as_fields(flat)
        check_found(key, seen, found, epoch, expected_version)
        write = Write(
            key=key,
            user=user,
            epoch=epoch,
            body=None,
            now_us=now_us,
            by=by,
            schema=as_number(seen, b"schema"),
            summary=bytes(summary),
        )
        await self._change(write, expected_version, seen)

    async def _change(self, write: Write, expected: int | None, seen: Fields | None) -> int:
        """The version that was made. Raises: as ``StateStore.save``."""
        ticket: bytes | None = None
        for _ in range(_TRIES):
            version, step = write.step(expected, seen, ticket)
            outcome = await self._steps.run(step)
            if outcome.done:
                return version
            seen = outcome.seen[write.state]
            found = outcome.seen[write.user.head].get(b"epoch")
            if found != write.epoch and ticket is not None:
                await self._timers.settle(write.user)
            check_found(write.key, seen, found, write.epoch, expected)
            clock = outcome.seen.get(write.user.clock, {})
            if write.due_us is None or covers(clock, write.due_us):
                ticket = None
            else:
                ticket = await self._timers.announce(write.user, write.epoch, write.due_us)
        raise StoreBusy(f"others changed the user's timers {_TRIES} times; nothing was written")

    async def history(
        self, key: StateKey, *, limit: int, before: int | None = None
    ) -> Sequence[StateChange]:
        """See ``StateStore.history``."""
        check_state_key(key)
        check_limit(limit)
        check_version("before", before)
        self._link.check_open()
        user = self._keys.of(key)
        newest = b"+" if before is None else b"(%d-0" % before
        rows, epoch = await self._link.ask(
            user.head,
            (b"XREVRANGE", user.changes(key.session_id), newest, b"-", b"COUNT", b"%d" % limit),
            (b"HGET", user.head, b"epoch"),
        )
        return [] if epoch is None else [as_change(row) for row in rows]

    async def trim_history(
        self, key: StateKey, *, keep: int | None = None, older_than_us: int | None = None
    ) -> int:
        """See ``StateStore.trim_history``. By time the whole history is read, page by page."""
        check_state_key(key)
        check_number("older_than_us", older_than_us or 0)
        if keep is not None:
            check_limit(keep + 1)
        self._link.check_open()
        changes = self._keys.of(key).changes(key.session_id)
        removed = 0
        if keep is not None:
            (gone,) = await self._link.ask(
                changes, (b"XTRIM", changes, b"MAXLEN", b"=", b"%d" % keep)
            )
            removed += gone
        after = b"-"
        while older_than_us is not None:
            (rows,) = await self._link.ask(
                changes, (b"XRANGE", changes, after, b"+", b"COUNT", b"%d" % _PAGE)
            )
            if not rows:
                break
            after = b"(" + rows[-1][0]
            old = [row[0] for row in rows if as_change(row).at_us < older_than_us]
            if old:
                (gone,) = await self._link.ask(changes, (b"XDEL", changes, *old))
                removed += gone
        return removed

    async def list(
        self, tenant_id: str, user_id: str, *, after: StateKey | None = None, limit: int
    ) -> Sequence[StateKey]:
        """See ``StateStore.list``."""
        check_state_owner(tenant_id, user_id)
        check_after(tenant_id, user_id, after)
        check_limit(limit)
        self._link.check_open()
        user = self._keys.user(tenant_id, user_id)
        above = b"-" if after is None else b"(" + level(after.session_id)
        names, epoch = await self._link.ask(
            user.head,
            (b"ZRANGE", user.sessions, above, b"+", b"BYLEX", b"LIMIT", b"0", b"%d" % limit),
            (b"HGET", user.head, b"epoch"),
        )
        if epoch is None:
            return []
        return [StateKey(tenant_id, user_id, session_of(one)) for one in names]

    async def claim_due(
        self, tenant_id: str, *, now_us: int, limit: int, holder: str, seconds: float
    ) -> Sequence[StateKey]:
        """See ``StateStore.claim_due``. Of several users' timers those free the longest are looked
        at first, and of what is found the earliest due are given out."""
        check_limit(limit)
        check_save(b"", b"", self.capabilities, by=holder, now_us=now_us)
        self._link.check_open()
        until_us = now_us + round(seconds * 1_000_000)
        return await self._timers.claim(tenant_id, now_us=now_us, limit=limit, until_us=until_us)

    async def erase(
        self, tenant_id: str, user_id: str, *, epoch: Epoch | None = None
    ) -> Mapping[str, int]:
        """See ``StateStore.erase``. Looks through all keys of the user's server."""
        check_state_owner(tenant_id, user_id)
        self._link.check_open()
        return await self._heads.erase(self._keys.user(tenant_id, user_id), epoch)

    async def scan(self, tenant_id: str, user_id: str) -> Mapping[str, int]:
        """See ``StateStore.scan``. Looks through all keys of the user's server."""
        check_state_owner(tenant_id, user_id)
        self._link.check_open()
        return await self._heads.scan(self._keys.user(tenant_id, user_id))

    async def finish_erasure(self) -> ErasureResult:
        """See ``StateStore.finish_erasure``: the servers' files are written anew. Replicas and
        backups are not reached."""
        self._link.check_open()
        return await clean(self._link)

    async def problems(self) -> Sequence[str]:
        """See ``StateStore.problems``. Looks through all keys of all servers."""
        self._link.check_open()
        return await find_problems(self._link, self._keys)

    async def _check_schema(self) -> None:
        schema = self._keys.schema
        _, found = await self._link.ask(
            schema, (b"SET", schema, b"%d" % _SCHEMA, b"NX"), (b"GET", schema)
        )
        if not found.isdigit():
            raise StoreCorrupt("what is kept under this prefix does not say its form")
        if int(found) > _SCHEMA:
            raise SchemaTooNew(
                f"what is kept there has form {int(found)}, this release knows up to {_SCHEMA}; "
                "upgrade secondcall"
            )


def state_store(url: str) -> RedisStates:
    """The states at this URL, to stand beside a store of records. Raises: ``InvalidValue``."""
    return RedisStates(url)


def _capabilities(*, durable: bool) -> StateCapabilities:
    return StateCapabilities(
        durable="commit" if durable else "best_effort", shared=True, max_state_bytes=_MOST_BYTES
    )
