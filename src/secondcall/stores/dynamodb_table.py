"""The table of ``DynamoStates``: made, waited for, and looked at before it is used."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import anyio

from secondcall.errors import SchemaTooNew, StoreCorrupt, StoreUnavailable
from secondcall.stores.dynamodb_calls import Calls, Refused
from secondcall.stores.dynamodb_items import FORM, FORM_KEY, number

__all__ = ["INDEX", "TTL", "backups_of", "make_ready", "problems_of", "table_command"]

INDEX = "due"
TTL = "ttl"
_KEYS = [("pk", "HASH"), ("sk", "RANGE")]
_INDEX_KEYS = [("due_partition", "HASH"), ("due_us", "RANGE")]
_TYPES = {"pk": "B", "sk": "B", "due_partition": "B", "due_us": "N"}
_INDEXED = ["tenant_id", "user_id", "session_id", "version", "held_until_us"]
_NOT_ALLOWED = ("AccessDeniedException",)
_READY_SECONDS, _LOOK_SECONDS = 50.0, 0.2


def table_command(table: str) -> str:
    """The command that makes the table."""
    types = " ".join(f"AttributeName={name},AttributeType={kind}" for name, kind in _TYPES.items())
    keys = " ".join(f"AttributeName={name},KeyType={kind}" for name, kind in _KEYS)
    index = ",".join(f"{{AttributeName={name},KeyType={kind}}}" for name, kind in _INDEX_KEYS)
    projection = f"ProjectionType=INCLUDE,NonKeyAttributes=[{','.join(_INDEXED)}]"
    return (
        f"aws dynamodb create-table --table-name {table} --billing-mode PAY_PER_REQUEST "
        f"--attribute-definitions {types} --key-schema {keys} --global-secondary-indexes "
        f"'IndexName={INDEX},KeySchema=[{index}],Projection={{{projection}}}' && "
        f"aws dynamodb wait table-exists --table-name {table} && "
        f"aws dynamodb update-time-to-live --table-name {table} "
        f"--time-to-live-specification Enabled=true,AttributeName={TTL}"
    )


async def make_ready(calls: Calls) -> None:
    """Make the table if it is absent and that was asked for; check that it is one of ours.

    Raises: ``StoreUnavailable``, ``StoreCorrupt``, ``SchemaTooNew``.
    """
    await _wait_until_active(calls)
    await _check_form(calls)


async def _wait_until_active(calls: Calls) -> None:
    until = time.monotonic() + _READY_SECONDS
    made = False
    while True:
        found = await _describe(calls)
        if found is None:
            await _create(calls)
            made = True
        elif _is_active(found):
            _check_keys(calls, found)
            break
        if time.monotonic() > until:
            raise StoreUnavailable(f"{calls.settings} is still not active; open it again later")
        await anyio.sleep(0 if found is None else _LOOK_SECONDS)
    if made:
        await _enable_ttl(calls)


async def _describe(calls: Calls) -> Mapping[str, Any] | None:
    table = calls.settings.table
    try:
        answer = await calls.send(
            "describe_table", expected=("ResourceNotFoundException",), TableName=table
        )
    except Refused:
        return None
    return answer["Table"]


async def _create(calls: Calls) -> None:
    table = calls.settings.table
    if not calls.settings.create:
        raise StoreUnavailable(
            f"{calls.settings} does not exist; open it once with ?create=1, or run: "
            f"{table_command(table)}"
        )
    index = {
        "IndexName": INDEX,
        "KeySchema": _schema(_INDEX_KEYS),
        "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": _INDEXED},
    }
    try:
        await calls.send(
            "create_table",
            expected=("ResourceInUseException",),
            TableName=table,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[
                {"AttributeName": name, "AttributeType": kind} for name, kind in _TYPES.items()
            ],
            KeySchema=_schema(_KEYS),
            GlobalSecondaryIndexes=[index],
        )
    except Refused:
        # Another process was first.
        return


async def _enable_ttl(calls: Calls) -> None:
    try:
        await calls.send(
            "update_time_to_live",
            expected=("ValidationException",),
            TableName=calls.settings.table,
            TimeToLiveSpecification={"Enabled": True, "AttributeName": TTL},
        )
    except Refused:
        # Another process was first.
        return


def _schema(keys: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"AttributeName": name, "KeyType": kind} for name, kind in keys]


def _is_active(table: Mapping[str, Any]) -> bool:
    indexes = table.get("GlobalSecondaryIndexes", [])
    states = [table["TableStatus"], *(one.get("IndexStatus", "ACTIVE") for one in indexes)]
    return not {"CREATING", "DELETING", "INACCESSIBLE_ENCRYPTION_CREDENTIALS"} & set(states)


def _check_keys(calls: Calls, table: Mapping[str, Any]) -> None:
    types = {one["AttributeName"]: one["AttributeType"] for one in table["AttributeDefinitions"]}
    indexes = {one["IndexName"]: one for one in table.get("GlobalSecondaryIndexes", [])}
    index = indexes.get(INDEX, {"KeySchema": [], "Projection": {}})
    projected = index["Projection"]
    if (
        table["KeySchema"] != _schema(_KEYS)
        or index["KeySchema"] != _schema(_INDEX_KEYS)
        or _TYPES.items() - types.items()
        or not (
            projected.get("ProjectionType") == "ALL"
            or set(_INDEXED) <= set(projected.get("NonKeyAttributes", []))
        )
    ):
        raise StoreUnavailable(
            f"{calls.settings} has other keys than states need; name another table, made by: "
            f"{table_command(calls.settings.table)}"
        )


async def _check_form(calls: Calls) -> None:
    table = calls.settings.table
    try:
        await calls.send(
            "put_item",
            expected=("ConditionalCheckFailedException",),
            TableName=table,
            Item={**FORM_KEY, "form": number(FORM)},
            ConditionExpression="attribute_not_exists(pk)",
        )
    except Refused:
        found = await calls.send("get_item", TableName=table, Key=FORM_KEY, ConsistentRead=True)
        form = found.get("Item", {}).get("form", {}).get("N", "")
        if not form.isdecimal():
            raise StoreCorrupt(f"{calls.settings} does not say which form it has") from None
        if int(form) > FORM:
            raise SchemaTooNew(
                f"{calls.settings} has form {form}, this release knows {FORM}; upgrade secondcall"
            ) from None


async def problems_of(calls: Calls) -> Sequence[str]:
    """What is not as it should be in the table's settings."""
    try:
        answer = await calls.send(
            "describe_time_to_live", expected=_NOT_ALLOWED, TableName=calls.settings.table
        )
    except Refused as refused:
        return (f"{calls.settings} cannot be asked whether expiry is on: {refused.code}",)
    found = answer["TimeToLiveDescription"]
    if found.get("TimeToLiveStatus") in ("ENABLED", "ENABLING") and (
        found.get("AttributeName") == TTL
    ):
        return ()
    return (f"{calls.settings} does not delete expired states: enable TTL on the attribute {TTL}",)


async def backups_of(calls: Calls) -> str:
    """What still holds erased items; empty if nothing is known to."""
    try:
        answer = await calls.send(
            "describe_continuous_backups",
            expected=(*_NOT_ALLOWED, "UnknownOperationException"),
            TableName=calls.settings.table,
        )
    except Refused as refused:
        if refused.code == "UnknownOperationException":
            # DynamoDB Local has no backups.
            return ""
        return f"{calls.settings} cannot be asked whether it keeps backups: {refused.code}"
    found = answer["ContinuousBackupsDescription"].get("PointInTimeRecoveryDescription", {})
    if found.get("PointInTimeRecoveryStatus") != "ENABLED":
        return ""
    days = found.get("RecoveryPeriodInDays", 35)
    return f"point-in-time recovery of {calls.settings} holds what was erased for {days} days more"
