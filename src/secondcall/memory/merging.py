"""Several partitions of one user read as one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from secondcall.abc import Scope, StoredEntry

__all__ = ["merged"]


async def merged(
    streams: Sequence[AsyncIterator[tuple[Scope, StoredEntry]]], *, newest_first: bool
) -> AsyncIterator[tuple[Scope, StoredEntry]]:
    """The entries of several partitions in one reading order."""
    if len(streams) == 1:
        async for one in streams[0]:
            yield one
        return
    heads: dict[int, tuple[Scope, StoredEntry]] = {}
    for number, stream in enumerate(streams):
        if (first := await anext(stream, None)) is not None:
            heads[number] = first
    choose = max if newest_first else min
    while heads:
        number = choose(heads, key=lambda one: (heads[one][1].at_us, heads[one][1].position, -one))
        yield heads[number]
        following = await anext(streams[number], None)
        if following is None:
            del heads[number]
        else:
            heads[number] = following
