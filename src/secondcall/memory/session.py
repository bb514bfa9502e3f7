"""One session: what is recorded, and reading it back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import anyio.to_thread

from secondcall.abc import Batch
from secondcall.checks import check_limit
from secondcall.errors import InvalidValue
from secondcall.record.append import encode_items, report, weight
from secondcall.types import Item, Recorded, RecordedItem

if TYPE_CHECKING:
    from secondcall.memory.shared import Place
    from secondcall.memory.user import UserMemory

__all__ = ["SessionMemory"]

_LOOK_AGAIN_SECONDS = 1.0
"""How long recording may go on in a partition after the user was merged or unmerged elsewhere."""
_INLINE_ITEMS = 50
_INLINE_CHARACTERS = 100_000
"""So much is checked and encoded at once, without the detour over a thread."""


class SessionMemory:
    """One conversation of one user. Made by ``user.session(session_id)``."""

    def __init__(self, user: UserMemory, place: Place, session_id: str) -> None:
        self._user = user
        self._place = place
        self._session_id = session_id

    @property
    def session_id(self) -> str:
        """The session that this handle is bound to."""
        return self._session_id

    @property
    def user(self) -> UserMemory:
        """The user whose session it is."""
        return self._user

    async def record(self, *items: Item) -> Recorded:
        """Append what was said and done, all of it or nothing; durable when this returns.

        An item whose id is there with the same content changes nothing; with other content it is a
        correction, which keeps its place. Recall is for finding it again, state for what must be
        true: see ``docs/which-layer.md``.

        Raises: ``InvalidValue``, ``TooLarge`` naming the item; ``UserErased``; store errors.
        """
        if not items:
            raise InvalidValue("record got no items; give at least one Message or ToolCall")
        with self._place.shared.in_flight():
            return await self._append(items)

    async def _append(self, items: Sequence[Item]) -> Recorded:
        shared = self._place.shared
        now = shared.clock.now()
        encode = partial(encode_items, self._session_id, items, now=now)
        small = len(items) <= _INLINE_ITEMS and weight(items) <= _INLINE_CHARACTERS
        entries = encode() if small else await anyio.to_thread.run_sync(encode)
        self._place.look_again(after_seconds=_LOOK_AGAIN_SECONDS)
        scope, epoch = await self._place.home(), await self._place.epoch()
        written = await shared.store.write(
            scope, Batch(entries=entries), epoch=epoch, now_us=shared.now_us()
        )
        self._place.appended(written.change, scope, epoch)
        return report(scope.name, entries, written)

    async def items(self, *, limit: int = 1_000, newest_first: bool = False) -> list[RecordedItem]:
        """The items of this session in reading order, or backwards."""
        check_limit("limit", limit)
        found: list[RecordedItem] = []
        async for item in self._user.items(session_id=self._session_id, newest_first=newest_first):
            found.append(item)
            if len(found) == limit:
                break
        return found
