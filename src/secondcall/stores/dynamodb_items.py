"""The items of a ``DynamoStates`` table: their keys, their attributes, their size.

All of a user is one partition, named by a hash of tenant and user that no two pairs share. In it:

====================  ==========================================================================
``u``                 the user: ``epoch``, or ``erasing`` while an erasure is under way
``s0``, ``s1``…       a state, the user-wide one and by session; also when deleted
``h`` hash version    one row of a state's history, 8 bytes of version, big-endian
``c`` hash            the last version of a state that DynamoDB may let expire
====================  ==========================================================================

The last three carry ``epoch_mark``, of the epoch they were written under: whoever deletes them
names it, and so never deletes what a user wrote who came back meanwhile. Elsewhere stand the marks
of erased epochs, which tell nothing without the epoch; the erasures under way; and the number of
this form.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from secondcall.abc import Epoch
from secondcall.abc_state import StateChange, StateKey, StoredState
from secondcall.errors import StoreCorrupt, TooLarge

__all__ = [
    "ERASING",
    "FORM",
    "FORM_KEY",
    "MAX_ITEM_BYTES",
    "SHARDS",
    "USER",
    "Item",
    "Value",
    "binary",
    "change_of",
    "check_size",
    "counter_key",
    "due_partition",
    "epoch_of",
    "group_of",
    "history_key",
    "key_of",
    "mark_key",
    "number",
    "owner_of",
    "session_floor",
    "state_key",
    "state_of",
    "text",
    "user_partition",
    "version_of",
]

Value: TypeAlias = Mapping[str, Any]
"""A typed value as the API takes it: ``{"S": "text"}``."""
Item: TypeAlias = dict[str, Value]

FORM = 1
MAX_ITEM_BYTES = 400 * 1024
SHARDS = 4
USER = b"u"
ERASING = b"erasing"
_STATE, _HISTORY, _COUNTER = b"s", b"h", b"c"
_PLAIN_BYTES = 900
"""Of a session id this much stands in the sort key as it is, so that states are listed in order."""


def text(value: str) -> Value:
    """A text as a value."""
    return {"S": value}


def number(value: int) -> Value:
    """A whole number as a value."""
    return {"N": str(value)}


def binary(value: bytes) -> Value:
    """Bytes as a value."""
    return {"B": value}


FORM_KEY: Item = {"pk": binary(b"form"), "sk": binary(b"form")}


def user_partition(tenant_id: str, user_id: str) -> bytes:
    """The partition of a user: 32 bytes."""
    return _hash("user", tenant_id, user_id)


def due_partition(tenant_id: str, shard: int) -> bytes:
    """The partition of the index ``due`` that holds a share of a tenant's timers."""
    return _hash("due", tenant_id)[:16] + bytes([shard])


def mark_key(mark: bytes) -> Item:
    """The key of the mark of an erased epoch."""
    return {"pk": binary(b"x" + mark), "sk": binary(b"x")}


def state_key(session_id: str | None) -> bytes:
    """The sort key of a state.

    A session id over 900 bytes goes in with its beginning and a hash of the whole; no shorter id is
    as long as that.
    """
    if session_id is None:
        return _STATE + b"0"
    plain = session_id.encode()
    if len(plain) > _PLAIN_BYTES:
        plain = plain[:_PLAIN_BYTES] + hashlib.sha256(plain).digest()
    return _STATE + b"1" + plain


def session_floor(session_id: str | None) -> bytes:
    """The lowest sort key that a state after this one can have: of long ids with the same beginning
    none comes before it."""
    return state_key(session_id)[: _PLAIN_BYTES + 2]


def group_of(sort_key: bytes) -> bytes:
    """The same for states whose order their keys do not tell: long ids that begin alike."""
    return sort_key if len(sort_key) <= _PLAIN_BYTES + 2 else sort_key[: _PLAIN_BYTES + 2]


def history_key(session_id: str | None, version: int) -> bytes:
    """The sort key of a row of a state's history; rows sort by version."""
    return _HISTORY + _session_hash(session_id) + version.to_bytes(8, "big")


def counter_key(session_id: str | None) -> bytes:
    """The sort key of the last version of a state that may expire."""
    return _COUNTER + _session_hash(session_id)


def _session_hash(session_id: str | None) -> bytes:
    return _hash("wide") if session_id is None else _hash("session", session_id)


def _hash(*parts: str) -> bytes:
    whole = hashlib.sha256()
    for part in parts:
        encoded = part.encode()
        whole.update(len(encoded).to_bytes(8, "big"))
        whole.update(encoded)
    return whole.digest()


def owner_of(key: StateKey) -> Item:
    """The ids as they are, which the hash in the key cannot give back."""
    item: Item = {"tenant_id": text(key.tenant_id), "user_id": text(key.user_id)}
    if key.session_id is not None:
        item["session_id"] = text(key.session_id)
    return item


def key_of(item: Item) -> StateKey:
    """Whose state the item is. Raises: ``StoreCorrupt``."""
    session = item.get("session_id")
    return StateKey(
        _get(item, "tenant_id", "S"),
        _get(item, "user_id", "S"),
        None if session is None else _get(item, "session_id", "S"),
    )


def version_of(item: Item) -> int:
    """The version of a state, also of a deleted one. Raises: ``StoreCorrupt``."""
    return _int(item, "version")


def state_of(key: StateKey, item: Item | None) -> StoredState | None:
    """The state in an item; ``None`` if there is none or it is deleted. Raises: ``StoreCorrupt``
    also for an item of somebody else."""
    if item is None:
        return None
    if key_of(item) != key:
        raise StoreCorrupt("the item of a state holds the ids of another; it was written by others")
    if "deleted" in item:
        return None
    return StoredState(
        key=key,
        version=_int(item, "version"),
        body=_get(item, "body", "B"),
        updated_us=_int(item, "at_us"),
        updated_by=_get(item, "by", "S"),
        schema=_int(item, "schema"),
        expires_us=_int_or_none(item, "expires_us"),
        due_us=_int_or_none(item, "due_us"),
    )


def change_of(item: Item) -> StateChange:
    """The row of a history in an item. Raises: ``StoreCorrupt``."""
    return StateChange(
        version=_int(item, "version"),
        at_us=_int(item, "at_us"),
        by=_get(item, "by", "S"),
        body=_get(item, "body", "B") if "body" in item else None,
        schema=_int(item, "schema"),
        summary=_get(item, "summary", "B"),
    )


def epoch_of(user: Item) -> Epoch | None:
    """The user's epoch; ``None`` while being erased. Raises: ``StoreCorrupt``."""
    return None if "erasing" in user else _get(user, "epoch", "B")


def check_size(what: str, items: Sequence[Item]) -> None:
    """Raises: ``TooLarge`` for an item that DynamoDB would refuse, with its size."""
    for item in items:
        size = sum(len(name) + _size(value) for name, value in item.items())
        if size > MAX_ITEM_BYTES:
            raise TooLarge(
                f"{what} makes an item of {size:,} bytes with its ids, DynamoDB accepts at most "
                f"{MAX_ITEM_BYTES:,}"
            )


def _size(value: Value) -> int:
    ((_, content),) = value.items()
    return len(content.encode()) if isinstance(content, str) else len(content)


def _get(item: Item, name: str, kind: str) -> Any:
    value = item.get(name, {})
    if kind not in value:
        raise StoreCorrupt(f"an item of a state has no attribute {name} of type {kind}")
    return value[kind]


def _int(item: Item, name: str) -> int:
    value = _get(item, name, "N")
    try:
        return int(value)
    except ValueError:
        raise StoreCorrupt(f"the attribute {name} of a state's item is not whole") from None


def _int_or_none(item: Item, name: str) -> int | None:
    return _int(item, name) if name in item else None
