"""How far a record was when something was read of it, and what has come since."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from secondcall.abc import Change, Epoch, Header, Scope
    from secondcall.memory.shared import Place

    Reach: TypeAlias = Mapping[Scope, tuple[Epoch, int] | None]
    """The epoch and the newest change number of each partition; ``None`` for one that is empty."""

__all__ = ["changes_since", "reach"]

_MAX_CHANGES = 256


async def reach(
    place: Place, known: Mapping[Scope, Header | None] | None = None
) -> dict[Scope, tuple[Epoch, int] | None]:
    """How far each partition of the user is; of those in ``known`` the header was just read."""
    headers = dict(known or {})
    scopes = await place.scopes()
    rest = [scope for scope in scopes if scope not in headers]
    read = await asyncio.gather(*(place.shared.store.header(scope) for scope in rest))
    headers.update(zip(rest, read, strict=True))
    return {
        scope: None if header is None else (header.epoch, header.change)
        for scope, header in headers.items()
    }


async def changes_since(place: Place, before: Reach, now: Reach) -> list[tuple[str, Change]] | None:
    """What came in between, each with its partition's user id; ``None`` when it is too much, or the
    partitions are others, so that all of it is better read anew."""
    if before.keys() != now.keys():
        return None
    found: list[tuple[str, Change]] = []
    for scope, header in now.items():
        known = before[scope]
        if header == known:
            continue
        if header is None or known is None or header[0] != known[0]:
            return None
        page = await place.shared.store.changes(scope, after=known[1], limit=_MAX_CHANGES)
        if len(page) == _MAX_CHANGES:
            return None
        found += [(scope.name, change) for change in page]
    return found
