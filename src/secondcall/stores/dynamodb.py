"""States in one DynamoDB table: every save a transaction of conditions on the items themselves.

A save is one ``TransactWriteItems``: the user's epoch is checked, the state put if it is at its
version, and a row of the history put. On a conflict DynamoDB gives the item back, so nothing is
read again. ``docs/stores/dynamodb.md`` tells options, limits and what it costs.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio

from secondcall.abc import Epoch, ErasureResult, Scope
from secondcall.abc_state import (
    StateCapabilities,
    StateChange,
    StateConflict,
    StateKey,
    StateStore,
    StoredState,
)
from secondcall.errors import StoreBusy, UserErased
from secondcall.stores.dynamodb_calls import Calls, Refused, parse_url
from secondcall.stores.dynamodb_items import (
    SHARDS,
    USER,
    Item,
    binary,
    change_of,
    check_size,
    counter_key,
    due_partition,
    epoch_of,
    group_of,
    history_key,
    key_of,
    number,
    owner_of,
    session_floor,
    state_key,
    state_of,
    text,
    user_partition,
    version_of,
)
from secondcall.stores.dynamodb_rows import (
    ABSENT,
    LOST_CONDITION,
    Rows,
    all_of,
    epoch_is,
    failed,
    first,
    key_at,
    order_of,
)
from secondcall.stores.dynamodb_table import INDEX, TTL, backups_of, make_ready, problems_of
from secondcall.stores.dynamodb_users import Users
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

__all__ = ["DynamoStates", "state_store"]

_LAST_STATE = b"s2"
_MOST_VERSION = 2**63
_ROUNDS, _CLAIM_ROUNDS = 20, 3
_PAGE = 1_000
_DELETED_AT_ONCE = 500
_TTL_GRACE_SECONDS = 86_400
"""Nothing is left to DynamoDB's own deletion sooner than this, whatever the caller's clock says."""


def state_store(url: str) -> DynamoStates:
    """The states in a table: ``dynamodb://table?region=eu-west-1``.

    Raises: ``InvalidValue``, ``MissingExtra``.
    """
    return DynamoStates(Calls(parse_url(url)))


@dataclass(frozen=True, slots=True)
class _Base:
    """What a save builds upon: the state at ``version``, there or deleted; or no item (0), when
    ``counted`` is the last version of one that DynamoDB let expire."""

    version: int = 0
    deleted: bool = False
    counted: int = 0

    @property
    def next(self) -> int:
        return max(self.version, self.counted) + 1

    def condition(self) -> Mapping[str, Any]:
        """The condition on the state's item."""
        if not self.version:
            return ABSENT
        there = "attribute_exists" if self.deleted else "attribute_not_exists"
        return {
            "ConditionExpression": f"version = :version AND {there}(deleted)",
            "ExpressionAttributeValues": {":version": number(self.version)},
        }

    def counter_condition(self) -> Mapping[str, Any]:
        """The condition on the item that counts for one that expired; none if there is an item."""
        if self.version:
            return {}
        if not self.counted:
            return ABSENT
        return {
            "ConditionExpression": "version = :counted",
            "ExpressionAttributeValues": {":counted": number(self.counted)},
        }


@dataclass(frozen=True, slots=True)
class _Found:
    """What stood where a save expected something else."""

    state: Item | None = None
    counter: Item | None = None

    def base(self) -> _Base:
        """What a save of an absent state builds upon."""
        if self.state is not None:
            return _Base(version_of(self.state), deleted=True)
        return _Base(counted=0 if self.counter is None else version_of(self.counter))


class DynamoStates(StateStore):
    """The states in one table; made by ``state_store``."""

    capabilities = StateCapabilities(durable="commit", shared=True, max_state_bytes=350 * 1024)

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._ready = False
        self._rows = Rows(calls)
        self._users = Users(self._rows)

    async def open(self) -> None:
        """See ``StateStore.open``."""
        mine = self._calls.start()
        if not mine and self._ready:
            return
        try:
            await make_ready(self._calls)
            await self._users.finish_all()
            self._ready = True
        except BaseException:  # cancelled too: no client stays behind; raised on
            if mine:
                with anyio.CancelScope(shield=True):
                    await self._calls.stop()
            raise

    async def aclose(self) -> None:
        """See ``StateStore.aclose``."""
        self._ready = False
        await self._calls.stop()

    async def admit(self, tenant_id: str, user_id: str, *, epoch: Epoch, now_us: int) -> None:
        """See ``StateStore.admit``."""
        check_state_owner(tenant_id, user_id)
        check_number("now_us", now_us)
        await self._users.admit(tenant_id, user_id, epoch=epoch, now_us=now_us)

    async def load(self, key: StateKey) -> StoredState | None:
        """See ``StateStore.load``."""
        check_state_key(key)
        partition = user_partition(key.tenant_id, key.user_id)
        return state_of(key, await self._rows.item(partition, state_key(key.session_id)))

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
        change: Item = {
            "at_us": number(now_us),
            "by": text(by),
            "schema": number(schema),
            "body": binary(bytes(body)),
        }
        state = {**owner_of(key), **change, **_times(key, expires_us, due_us)}
        change["summary"] = binary(bytes(summary))
        base = _Base() if expected_version is None else _Base(expected_version)
        for _ in range(_ROUNDS):
            version, found = await self._write(
                key, state, change, base=base, epoch=epoch, expires=expires_us is not None
            )
            if version:
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
            current = state_of(key, found.state)
            if current is not None or expected_version is not None:
                raise StateConflict(expected=expected_version, current=current)
            base = found.base()
        raise StoreBusy("the state is saved and deleted by others all the time; try again")

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
        current = await self.load(key)
        if current is None or current.version != expected_version:
            user = await self._rows.item(user_partition(key.tenant_id, key.user_id), USER)
            if user is None or epoch_of(user) != epoch:
                raise UserErased(key.user_id)
            raise StateConflict(expected=expected_version, current=current)
        change: Item = {
            "at_us": number(now_us), "by": text(by), "schema": number(current.schema)
        }  # fmt: skip
        state = {**owner_of(key), **change, "deleted": number(1)}
        change["summary"] = binary(bytes(summary))
        base = _Base(expected_version)
        version, found = await self._write(key, state, change, base=base, epoch=epoch)
        if not version:
            raise StateConflict(expected=expected_version, current=state_of(key, found.state))

    async def history(
        self, key: StateKey, *, limit: int, before: int | None = None
    ) -> Sequence[StateChange]:
        """See ``StateStore.history``."""
        check_state_key(key)
        check_limit(limit)
        check_version("before", before)
        rows = self._history(key, below=before, Limit=min(limit, _PAGE))
        return [change_of(item) for item in await first(rows, limit)]

    async def trim_history(
        self, key: StateKey, *, keep: int | None = None, older_than_us: int | None = None
    ) -> int:
        """See ``StateStore.trim_history``. It reads the whole history."""
        check_state_key(key)
        check_number("older_than_us", older_than_us or 0)
        if keep is not None:
            check_limit(keep + 1)
        self._calls.require_open()
        if keep is None and older_than_us is None:
            return 0
        going: list[Item] = []
        rows = removed = 0
        async for item in self._history(key, ProjectionExpression="pk, sk, epoch_mark, at_us"):
            old = older_than_us is not None and int(item["at_us"]["N"]) < older_than_us
            if old or (keep is not None and rows >= keep):
                going.append(item)
            rows += 1
            if len(going) >= _DELETED_AT_ONCE:
                removed += sum(await self._rows.delete(going))
                going.clear()
        return removed + sum(await self._rows.delete(going))

    async def list(
        self, tenant_id: str, user_id: str, *, after: StateKey | None = None, limit: int
    ) -> Sequence[StateKey]:
        """See ``StateStore.list``."""
        check_state_owner(tenant_id, user_id)
        check_after(tenant_id, user_id, after)
        check_limit(limit)
        low = state_key(None) if after is None else session_floor(after.session_id)
        rows = self._rows.between(
            user_partition(tenant_id, user_id),
            low,
            _LAST_STATE,
            FilterExpression="attribute_not_exists(deleted)",
            ProjectionExpression="sk, tenant_id, user_id, session_id",
            Limit=min(limit + 1, _PAGE),
        )
        found: list[StateKey] = []
        last = b""
        async with aclosing(rows):
            async for item in rows:
                key, group = key_of(item), group_of(item["sk"]["B"])
                if len(found) >= limit and group != last:
                    break
                if after is None or order_of(key) > order_of(after):
                    found.append(key)
                last = group
        return sorted(found, key=order_of)[:limit]

    async def claim_due(
        self, tenant_id: str, *, now_us: int, limit: int, holder: str, seconds: float
    ) -> Sequence[StateKey]:
        """See ``StateStore.claim_due``.

        The index is read first and may lag by a moment; the claim itself is a condition on the
        state's own item.
        """
        # The tenant is checked in the words of all other methods.
        check_state_owner(tenant_id, "-")
        check_limit(limit)
        check_save(b"", b"", self.capabilities, by=holder, now_us=now_us)
        until_us = now_us + round(seconds * 1_000_000)
        check_number("the end of the claim", until_us)
        for _ in range(_CLAIM_ROUNDS):
            due = await self._due(tenant_id, now_us, limit)
            claims = [
                partial(self._claim, item, now_us=now_us, until_us=until_us, holder=holder)
                for item in due
            ]
            got = await all_of(claims)
            if any(got) or not due:
                return [key_of(item) for item, won in zip(due, got, strict=True) if won]
        return []

    async def erase(
        self, tenant_id: str, user_id: str, *, epoch: Epoch | None = None
    ) -> Mapping[str, int]:
        """See ``StateStore.erase``."""
        check_state_owner(tenant_id, user_id)
        return await self._users.erase(tenant_id, user_id, epoch)

    async def scan(self, tenant_id: str, user_id: str) -> Mapping[str, int]:
        """See ``StateStore.scan``."""
        check_state_owner(tenant_id, user_id)
        return await self._users.count(user_partition(tenant_id, user_id))

    async def finish_erasure(self) -> ErasureResult:
        """See ``StateStore.finish_erasure``. Point-in-time recovery holds what was erased for its
        days; backups, exports and streams of the table are not looked for."""
        detail = await backups_of(self._calls)
        return ErasureResult(complete=not detail, detail=detail)

    async def problems(self) -> Sequence[str]:
        """See ``StateStore.problems``. The settings of the table; its items are not read."""
        return await problems_of(self._calls)

    async def _write(
        self,
        key: StateKey,
        state: Item,
        change: Item,
        *,
        base: _Base,
        epoch: Epoch,
        expires: bool = False,
    ) -> tuple[int, _Found]:
        """Put a state and a row of its history onto this base: the version it got; 0 if the base
        is not what was found. Raises: ``UserErased``, ``TooLarge``."""
        partition = user_partition(key.tenant_id, key.user_id)
        mark = binary(erasure_mark(Scope(key.tenant_id, "user", key.user_id), epoch))
        common = {"version": number(base.next), "epoch_mark": mark}
        item = {**key_at(partition, state_key(key.session_id)), **state, **common}
        row = {**key_at(partition, history_key(key.session_id, base.next)), **change, **common}
        check_size("the state", [item, row])
        actions = [
            self._rows.action("ConditionCheck", epoch_is(epoch), Key=key_at(partition, USER)),
            self._rows.action("Put", base.condition(), Item=item),
            self._rows.action("Put", Item=row),
        ]
        counter = key_at(partition, counter_key(key.session_id))
        condition = base.counter_condition()
        if expires:
            actions.append(self._rows.action("Put", condition, Item={**counter, **common}))
        elif condition:
            actions.append(self._rows.action("ConditionCheck", condition, Key=counter))
        reasons = await self._calls.transact(actions)
        if not reasons:
            return base.next, _Found()
        if failed(reasons, 0):
            raise UserErased(key.user_id)
        return 0, _Found(state=reasons[1].get("Item"), counter=reasons[-1].get("Item"))

    async def _due(self, tenant_id: str, now_us: int, limit: int) -> Sequence[Item]:
        """States that are due and nobody's, the earliest first."""

        async def of_shard(shard: int) -> Sequence[Item]:
            rows = self._calls.rows(
                IndexName=INDEX,
                KeyConditionExpression="due_partition = :shard AND due_us <= :now",
                FilterExpression="attribute_not_exists(held_until_us) OR held_until_us <= :now",
                ExpressionAttributeValues={
                    ":shard": binary(due_partition(tenant_id, shard)),
                    ":now": number(now_us),
                },
                Limit=min(limit + _PAGE // 10, _PAGE),
            )
            return await first(rows, limit)

        shares = await all_of([partial(of_shard, shard) for shard in range(SHARDS)])
        due = [item for share in shares for item in share]
        due.sort(key=lambda item: int(item["due_us"]["N"]))
        return due[:limit]

    async def _claim(self, item: Item, *, now_us: int, until_us: int, holder: str) -> bool:
        """Whether this due state, unchanged and nobody's, is the holder's now."""
        try:
            await self._calls.send(
                "update_item",
                expected=LOST_CONDITION,
                TableName=self._rows.table,
                Key={"pk": item["pk"], "sk": item["sk"]},
                UpdateExpression="SET held_until_us = :until, holder = :holder, claim = :claim",
                # A repeat after a lost answer finds the claim of its own.
                ConditionExpression=(
                    "version = :version AND due_us = :due AND (attribute_not_exists(held_until_us) "
                    "OR held_until_us <= :now OR claim = :claim)"
                ),
                ExpressionAttributeValues={
                    ":version": item["version"],
                    ":due": item["due_us"],
                    ":now": number(now_us),
                    ":until": number(until_us),
                    ":holder": text(holder),
                    ":claim": binary(uuid.uuid4().bytes),
                },
            )
        except Refused:
            return False
        return True

    def _history(
        self, key: StateKey, *, below: int | None = None, **more: Any
    ) -> AsyncGenerator[Item]:
        """The rows of a history, the newest first."""
        return self._rows.between(
            user_partition(key.tenant_id, key.user_id),
            history_key(key.session_id, 0),
            history_key(key.session_id, _MOST_VERSION if below is None else below - 1),
            ScanIndexForward=False,
            **more,
        )


def _times(key: StateKey, expires_us: int | None, due_us: int | None) -> Item:
    """The attributes by which a state expires and its timer is found."""
    item: Item = {}
    if expires_us is not None:
        last = max(math.ceil(expires_us / 1_000_000), math.ceil(time.time()))
        item |= {"expires_us": number(expires_us), TTL: number(last + _TTL_GRACE_SECONDS)}
    if due_us is not None:
        shard = user_partition(key.tenant_id, key.user_id)[0] % SHARDS
        item |= {
            "due_us": number(due_us),
            "due_partition": binary(due_partition(key.tenant_id, shard)),
        }
    return item
