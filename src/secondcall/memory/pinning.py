"""Which items of a session are system text, which stays in its window for good.

A system message that is recorded is named by a small document of its own, written with it: so a
process that takes the session up later finds it, however far into the session it stands.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from secondcall.abc import ANY_VERSION, DocumentWrite
from secondcall.types import Item, ItemKey, Message

if TYPE_CHECKING:
    from secondcall.abc import NewEntry
    from secondcall.memory.shared import Place

__all__ = ["pinned", "pins"]

_KIND = "system-text"
_PAGE = 500


def pins(
    session_id: str, items: Sequence[Item], entries: Sequence[NewEntry]
) -> list[DocumentWrite]:
    """What is to be written with the entries of these items: one document a system message."""
    return [
        DocumentWrite(
            kind=_KIND,
            key=_prefix(session_id) + entry.key.id,
            body=json.dumps(entry.key.id).encode(),
            expected_version=ANY_VERSION,
        )
        for item, entry in zip(items, entries, strict=True)
        if isinstance(item, Message) and item.role == "system"
    ]


async def pinned(place: Place, session_id: str) -> list[ItemKey]:
    """The system messages of a session, as they were recorded. Raises: store errors."""
    found: list[ItemKey] = []
    prefix = _prefix(session_id)
    for scope in await place.scopes():
        after = ""
        while True:
            page = await place.shared.store.documents(
                scope, _KIND, prefix=prefix, after=after, limit=_PAGE
            )
            names = [json.loads(one.body) for one in page]
            found.extend(ItemKey(scope.name, session_id, "message", name) for name in names)
            if len(page) < _PAGE:
                break
            after = page[-1].key
    return found


def _prefix(session_id: str) -> str:
    """Keys of no other session begin so."""
    return f"{len(session_id)}:{session_id}:"
