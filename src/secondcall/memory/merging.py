"""The entries of a user, page by page, and several partitions read as one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from secondcall.abc import Scope, Store, StoredEntry

__all__ = ["merged", "pages"]

_PAGE = 500


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


async def pages(
    store: Store,
    scope: Scope,
    *,
    session_id: str | None,
    since_us: int | None,
    until_us: int | None,
    newest_first: bool,
) -> AsyncIterator[tuple[Scope, StoredEntry]]:
    """The entries of one partition in reading order, read page by page."""
    after: tuple[int, int] | None = None
    while True:
        page = await store.read(
            scope,
            session_id=session_id,
            since_us=since_us,
            until_us=until_us,
            after=after,
            newest_first=newest_first,
            limit=_PAGE,
        )
        for entry in page:
            yield scope, entry
        if len(page) < _PAGE:
            return
        after = (page[-1].at_us, page[-1].position)
