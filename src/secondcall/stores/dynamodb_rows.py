"""Rows of a ``DynamoStates`` table: read consistently, deleted under their epoch only."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar

import anyio

from secondcall.abc import Epoch
from secondcall.abc_state import StateKey
from secondcall.stores.dynamodb_calls import Calls, Refused
from secondcall.stores.dynamodb_items import Item, binary

__all__ = [
    "ABSENT",
    "LOST_CONDITION",
    "Rows",
    "all_of",
    "epoch_is",
    "failed",
    "first",
    "key_at",
    "order_of",
]

_T = TypeVar("_T")
ABSENT = {"ConditionExpression": "attribute_not_exists(pk)"}
LOST_CONDITION = ("ConditionalCheckFailedException",)
_AT_ONCE = 16


class Rows:
    """The items of one table."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.table = calls.settings.table

    async def item(self, partition: bytes, sort_key: bytes) -> Item | None:
        """One item as it stands."""
        answer = await self.calls.send(
            "get_item", TableName=self.table, Key=key_at(partition, sort_key), ConsistentRead=True
        )
        return answer.get("Item")

    def between(
        self, partition: bytes, low: bytes = b"\x00", high: bytes = b"\xff", **more: Any
    ) -> AsyncGenerator[Item]:
        """The items of a partition with these sort keys, in order."""
        values = {":pk": binary(partition), ":low": binary(low), ":high": binary(high)}
        return self.calls.rows(
            KeyConditionExpression="pk = :pk AND sk BETWEEN :low AND :high",
            ExpressionAttributeValues=values,
            ConsistentRead=True,
            **more,
        )

    async def delete(self, items: Sequence[Item]) -> Sequence[bool]:
        """Delete rows, each only if it is still of the epoch it was read with; which ones went."""

        async def one(item: Item) -> bool:
            try:
                await self.calls.send(
                    "delete_item",
                    expected=LOST_CONDITION,
                    TableName=self.table,
                    Key={"pk": item["pk"], "sk": item["sk"]},
                    ConditionExpression="epoch_mark = :mark",
                    ExpressionAttributeValues={":mark": item["epoch_mark"]},
                )
            except Refused:
                return False
            return True

        return await all_of([partial(one, item) for item in items])

    def action(
        self, name: str, condition: Mapping[str, Any] | None = None, **what: Any
    ) -> Mapping[str, Any]:
        """One action of a transaction."""
        if condition:
            what |= {**condition, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
        return {name: {"TableName": self.table, **what}}


def key_at(partition: bytes, sort_key: bytes) -> Item:
    """The key of an item."""
    return {"pk": binary(partition), "sk": binary(sort_key)}


def epoch_is(epoch: Epoch) -> dict[str, Any]:
    """The condition that a user is here under this epoch."""
    return {
        "ConditionExpression": "epoch = :epoch",
        "ExpressionAttributeValues": {":epoch": binary(epoch)},
    }


def failed(reasons: Sequence[Mapping[str, Any]], index: int) -> bool:
    """Whether the condition of this action of a transaction did not hold."""
    return reasons[index].get("Code") == "ConditionalCheckFailed"


def order_of(key: StateKey) -> tuple[bool, str]:
    """What the states of a user are listed by."""
    return (key.session_id is not None, key.session_id or "")


async def first(rows: AsyncGenerator[Item], limit: int) -> Sequence[Item]:
    """So many of the rows; no more are asked for."""
    found: list[Item] = []
    async with aclosing(rows):
        async for item in rows:
            found.append(item)
            if len(found) >= limit:
                break
    return found


async def all_of(calls: Sequence[Callable[[], Awaitable[_T]]]) -> Sequence[_T]:
    """What the calls return, in order, some of them at a time. Raises: the first error."""
    results: dict[int, _T] = {}
    places = anyio.CapacityLimiter(_AT_ONCE)

    async def one(index: int, call: Callable[[], Awaitable[_T]]) -> None:
        async with places:
            results[index] = await call()

    try:
        async with anyio.create_task_group() as tasks:
            for index, call in enumerate(calls):
                tasks.start_soon(one, index, call)
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
    return [results[index] for index in range(len(calls))]
