"""What an item has no room for: bytes that are written with it, read by its key, and gone with it.

A host that has to give back more than words, as the pictures of a message, attaches them. They are
documents beside the record: no search, summary or prompt ever sees them. They go in the batch of
their item, and whatever removes the item (``remove``, retention, ``forget``) removes them too.
Exports hold them in their item's line.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from secondcall.abc import ANY_VERSION, DocumentWrite, EntryKey
from secondcall.errors import InvalidValue, SchemaTooNew, StoreCorrupt, TooLarge
from secondcall.types import ItemKey, ItemKind

if TYPE_CHECKING:
    from secondcall.abc import NewEntry, Scope, Store

    Attached: TypeAlias = Mapping[tuple[ItemKind, str], bytes]
    """Bytes by the kind and id of the item that they belong to."""

__all__ = ["MAX_ATTACHED_BYTES", "attachment_writes", "detached", "read_attached"]

MAX_ATTACHED_BYTES = 128 * 1024 * 1024
"""So much goes with one item."""
_KIND = "attachment"
_FORMAT = 1
_PIECE_BYTES = 4 * 1024 * 1024
_MAX_PIECES = 1_000
_AT_ONCE = 20
_PIECES_AT_ONCE = 8


def attachment_writes(
    session_id: str, entries: Sequence[NewEntry], attached: Attached
) -> list[DocumentWrite]:
    """The documents that go into the batch of these entries.

    Raises: ``InvalidValue`` for bytes of no item of the batch; ``TooLarge``.
    """
    keys = {(entry.key.kind, entry.key.id): entry.key for entry in entries}
    writes: list[DocumentWrite] = []
    for name, data in attached.items():
        key = keys.get(name)
        if key is None:
            raise InvalidValue(f"{name!r} of session {session_id!r} is no item of this batch")
        if len(data) > MAX_ATTACHED_BYTES:
            raise TooLarge(
                f"{len(data):,} bytes are attached to the {key.kind} {key.id!r}, at most "
                f"{MAX_ATTACHED_BYTES:,} are accepted; keep them elsewhere and record a reference"
            )
        writes += _writes(_name(key), data)
    return writes


async def read_attached(
    store: Store, scopes: Sequence[Scope], keys: Sequence[ItemKey]
) -> dict[ItemKey, bytes]:
    """What is attached to these items; those without are left out.

    Raises: ``StoreCorrupt``, ``SchemaTooNew``, store errors.
    """
    found: dict[ItemKey, bytes] = {}
    places = {scope.name: scope for scope in scopes if await store.documents(scope, _KIND, limit=1)}
    for key in keys:
        scope = places.get(key.user_id)
        data = None if scope is None else await _read(store, scope, EntryKey(*key[1:]))
        if data is not None:
            found[key] = data
    return found


async def detached(
    store: Store, scope: Scope, keys: Sequence[EntryKey]
) -> dict[EntryKey, list[DocumentWrite]]:
    """The deletions of what is attached to these items; those without are left out. One small read
    for each item, and for a user without attachments one in all."""
    if not keys or not await store.documents(scope, _KIND, limit=1):
        return {}
    found: dict[EntryKey, list[DocumentWrite]] = {}
    for start in range(0, len(keys), _AT_ONCE):
        page = keys[start : start + _AT_ONCE]
        heads = await asyncio.gather(*(store.document(scope, _KIND, _name(key)) for key in page))
        for key, head in zip(page, heads, strict=True):
            if head is not None:
                found[key] = [
                    DocumentWrite(kind=_KIND, key=one, body=None, expected_version=ANY_VERSION)
                    for one in await _all_names(store, scope, _name(key))
                ]
    return found


async def _all_names(store: Store, scope: Scope, name: str) -> list[str]:
    """The head and every piece that was ever written, read or not."""
    names: list[str] = []
    while True:
        after = names[-1] if names else ""
        page = await store.documents(scope, _KIND, prefix=name, after=after, limit=_PIECES_AT_ONCE)
        names += [one.key for one in page]
        if len(page) < _PIECES_AT_ONCE:
            return names


def _writes(name: str, data: bytes) -> list[DocumentWrite]:
    digest = hashlib.blake2b(data, digest_size=16).hexdigest()
    pieces = [data[at : at + _PIECE_BYTES] for at in range(0, len(data), _PIECE_BYTES)]
    head = {"v": _FORMAT, "pieces": len(pieces), "digest": digest}
    bodies = {name: json.dumps(head).encode()}
    bodies |= dict(zip(_piece_names(name, len(pieces)), pieces, strict=True))
    return [
        DocumentWrite(kind=_KIND, key=key, body=body, expected_version=ANY_VERSION)
        for key, body in bodies.items()
    ]


async def _read(store: Store, scope: Scope, key: EntryKey) -> bytes | None:
    name = _name(key)
    head = await store.document(scope, _KIND, name)
    while head is not None:
        count, digest = _pieces(head.body, key)
        pieces = [await store.document(scope, _KIND, one) for one in _piece_names(name, count)]
        data = b"".join(one.body for one in pieces if one is not None)
        if hashlib.blake2b(data, digest_size=16).hexdigest() == digest:
            return data
        before, head = head, await store.document(scope, _KIND, name)
        if head is not None and head.version == before.version:
            raise _unreadable(key, "other bytes")
    return None


def _pieces(body: bytes, key: EntryKey) -> tuple[int, str]:
    """How many pieces there are, and the digest of the whole."""
    try:
        head = cast("dict[str, Any]", json.loads(body))
        if head["v"] > _FORMAT:
            raise SchemaTooNew(
                f"what is attached to the {key.kind} {key.id!r} has format {head['v']}, this "
                f"release reads {_FORMAT}; upgrade secondcall"
            )
        return min(int(head["pieces"]), _MAX_PIECES), str(head["digest"])
    except (ValueError, KeyError, TypeError) as error:
        raise _unreadable(key, type(error).__name__) from None


def _unreadable(key: EntryKey, why: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"what is attached to the {key.kind} {key.id!r} of session {key.session_id!r} cannot be "
        f"read ({why}); run 'secondcall doctor'"
    )


def _name(key: EntryKey) -> str:
    """A name of letters and digits, whatever the ids hold; no two keys have the same."""
    text = json.dumps([key.session_id, key.kind, key.id], ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()


def _piece_names(name: str, count: int) -> list[str]:
    return [f"{name}.{number:04}" for number in range(count)]
