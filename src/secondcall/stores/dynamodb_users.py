"""Users in a ``DynamoStates`` table: let in under an epoch, and erased with all that they have.

An erasure takes the epoch away first, which ends every write, and notes itself in the same
transaction, so that whoever opens the table next completes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any

from secondcall.abc import Epoch, Scope
from secondcall.errors import StoreBusy, UserErased
from secondcall.stores.dynamodb_items import (
    ERASING,
    USER,
    Item,
    Value,
    binary,
    epoch_of,
    mark_key,
    number,
    text,
    user_partition,
)
from secondcall.stores.dynamodb_rows import ABSENT, Rows, epoch_is, failed, key_at
from secondcall.stores.erased import erasure_mark

__all__ = ["Users"]

_PLACES = {b"u": "partitions", b"s": "states", b"h": "state_history", b"c": "state_counters"}
_ROUNDS = 20


class Users:
    """The users of one table."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    async def admit(self, tenant_id: str, user_id: str, *, epoch: Epoch, now_us: int) -> None:
        """See ``StateStore.admit``."""
        partition = user_partition(tenant_id, user_id)
        mark = erasure_mark(Scope(tenant_id, "user", user_id), epoch)
        user = {
            **key_at(partition, USER),
            "tenant_id": text(tenant_id),
            "user_id": text(user_id),
            "epoch": binary(epoch),
            "admitted_us": number(now_us),
        }
        for _ in range(_ROUNDS):
            found = await self._rows.item(partition, USER)
            if found is not None and "erasing" in found:
                await self._finish(partition)
                continue
            if found is not None:
                if epoch_of(found) != epoch:
                    raise UserErased(user_id)
                return
            reasons = await self._rows.calls.transact([
                self._rows.action("ConditionCheck", ABSENT, Key=mark_key(mark)),
                self._rows.action("Put", ABSENT, Item=user),
            ])  # fmt: skip
            if not reasons:
                return
            if failed(reasons, 0):
                raise UserErased(user_id)
        raise StoreBusy(f"user {user_id!r} is let in and erased by others all the time; try again")

    async def erase(self, tenant_id: str, user_id: str, epoch: Epoch | None) -> Mapping[str, int]:
        """See ``StateStore.erase``."""
        partition = user_partition(tenant_id, user_id)
        scope = Scope(tenant_id, "user", user_id)
        for _ in range(_ROUNDS):
            user = await self._rows.item(partition, USER)
            here = None if user is None else epoch_of(user)
            marks = {erasure_mark(scope, one) for one in (here, epoch) if one is not None}
            actions = [self._begin_erasure(partition, user, scope)]
            actions += [self._rows.action("Put", Item=mark_key(mark)) for mark in sorted(marks)]
            if here is not None:
                actions.append(self._rows.action("Put", Item=key_at(ERASING, partition)))
            if not await self._rows.calls.transact(actions):
                return await self._finish(partition)
        raise StoreBusy(f"user {user_id!r} is let in and erased by others all the time; try again")

    async def finish_all(self) -> None:
        """Complete every erasure that was begun."""
        rows = self._rows.between(ERASING, high=b"\xff" * 33)
        async with aclosing(rows):
            async for found in rows:
                await self._finish(found["sk"]["B"])

    async def count(self, partition: bytes) -> Mapping[str, int]:
        """How many rows a partition has, by place."""
        counts = dict.fromkeys(_PLACES.values(), 0)
        async for item in self._rows.between(partition, ProjectionExpression="sk"):
            counts[_PLACES[item["sk"]["B"][:1]]] += 1
        return counts

    def _begin_erasure(
        self, partition: bytes, user: Item | None, scope: Scope
    ) -> Mapping[str, Any]:
        """The action that takes the user's epoch away, or makes sure that there is none."""
        key = key_at(partition, USER)
        epoch = None if user is None else epoch_of(user)
        if user is None:
            return self._rows.action("ConditionCheck", ABSENT, Key=key)
        if epoch is None:
            condition = {"ConditionExpression": "attribute_exists(erasing)"}
            return self._rows.action("ConditionCheck", condition, Key=key)
        condition = epoch_is(epoch)
        condition["ExpressionAttributeValues"][":mark"] = binary(erasure_mark(scope, epoch))
        change = {"UpdateExpression": "SET erasing = :mark REMOVE epoch"}
        return self._rows.action("Update", condition, Key=key, **change)

    async def _finish(self, partition: bytes) -> Mapping[str, int]:
        """Complete the erasure of a partition, if one is under way; how many rows went by it."""
        removed = dict.fromkeys(_PLACES.values(), 0)
        user = await self._rows.item(partition, USER)
        if user is None or "erasing" not in user:
            return removed
        mark = user["erasing"]
        # Once more after the last: a query may come between the items of one transaction.
        while items := await self._written_under(partition, mark):
            gone = await self._rows.delete(items)
            for item, went in zip(items, gone, strict=True):
                removed[_PLACES[item["sk"]["B"][:1]]] += went
        condition = {
            "ConditionExpression": "erasing = :mark",
            "ExpressionAttributeValues": {":mark": mark},
        }
        reasons = await self._rows.calls.transact([
            self._rows.action("Delete", condition, Key=key_at(partition, USER)),
            self._rows.action("Delete", Key=key_at(ERASING, partition)),
        ])  # fmt: skip
        removed[_PLACES[USER]] += not reasons
        return removed

    async def _written_under(self, partition: bytes, mark: Value) -> Sequence[Item]:
        """The keys of the rows that were written under an epoch."""
        rows = self._rows.between(partition, ProjectionExpression="pk, sk, epoch_mark")
        async with aclosing(rows):
            return [item async for item in rows if item.get("epoch_mark") == mark]
