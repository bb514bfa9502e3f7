"""The lists of messages of one user, by key: what both kinds of chat store do.

A key is a session, and a list its ``ListedSession``: adding is recording; setting, inserting and
archiving rearrange; only deleting takes anything out of the record. See ``chat_store``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from llama_index.core.base.llms.types import ChatMessage, MessageRole

from secondcall.adapters.llama_index.rows import (
    Row,
    RowItem,
    apart_of_rows,
    items_of_rows,
    mark_of_message,
    rows_from,
)
from secondcall.memory.listed import Arrangement

if TYPE_CHECKING:
    from secondcall.adapters.llama_index.bound import Bound
    from secondcall.adapters.llama_index.rows import Attached
    from secondcall.memory import UserMemory
    from secondcall.memory.listed import ListedSession, Listing
    from secondcall.types import Item, RecordedItem

__all__ = ["ChatLists", "Part"]

Part = Literal["active", "archived"]
_LOOKED_AT = 50
"""So far back the call of a result is looked for."""
_MAX_KEYS = 1_000_000


class ChatLists:
    """The lists of one user, in the loop of its memory. Made anew for each call."""

    def __init__(self, bound: Bound, user: UserMemory) -> None:
        self._bound = bound
        self._user = user

    async def messages(self, key: str, part: Part | None = "active") -> list[ChatMessage]:
        """The messages of a list; with ``None`` the archived ones and then the others."""
        listed = await self._listed(key)
        listing = await listed.read()
        rows = [
            *(await _whole_rows(listed, listing.archived) if part != "active" else ()),
            *(await _whole_rows(listed, listing.active) if part != "archived" else ()),
        ]
        return [row.message for row in rows]

    async def add(self, key: str, messages: Sequence[ChatMessage], part: Part = "active") -> None:
        """Add messages at the end, all of them or none."""
        if not messages:
            return
        listed = await self._listed(key)
        made = items_of_rows(messages, await _before(listed, messages))
        items, attached = [one.item for one in made], _attached(made)
        if part == "active":
            await listed.append(items, attached)
            return
        await listed.arrange(
            lambda stands: Arrangement(
                active=stands.active, archived=[*stands.archived, *items], attached=attached
            )
        )

    async def insert(self, key: str, index: int, message: ChatMessage) -> None:
        """Add a message in front of the one at ``index``, counted as a Python list does."""
        listed = await self._listed(key)
        (made,) = items_of_rows([message], await _before(listed, [message]))

        def change(stands: Listing) -> Arrangement:
            rows = rows_from(stands.active)
            rows = rows[: _whole(rows, slice(None, index).indices(len(rows))[1])]
            before = _items(rows)
            after = stands.active[len(before) :]
            return Arrangement(
                active=[*before, made.item, *after],
                archived=stands.archived,
                attached=made.attached,
            )

        await listed.arrange(change)

    async def replace(
        self, key: str, messages: Sequence[ChatMessage], part: Part = "active"
    ) -> None:
        """Make a list these messages, all of it or nothing. Messages that are in it already keep
        their items; setting the list that is there writes nothing."""
        listed = await self._listed(key)
        fresh = items_of_rows(messages)
        marks = [mark_of_message(message) for message in messages]

        def change(stands: Listing) -> Arrangement | None:
            old = stands.active if part == "active" else stands.archived
            new = _rearranged(rows_from(old), marks, fresh)
            if len(new) == len(old) and all(one is two for one, two in zip(new, old, strict=True)):
                return None
            written = set(map(id, new))
            attached = _attached([one for one in fresh if id(one.item) in written])
            if part == "active":
                return Arrangement(active=new, archived=stands.archived, attached=attached)
            return Arrangement(active=stands.active, archived=new, attached=attached)

        await listed.arrange(change)

    async def delete(self, key: str, index: int) -> ChatMessage | None:
        """Delete the message at ``index``, -1 for the last, from the record too; the message, or
        ``None`` where there is none."""
        listed = await self._listed(key)
        rows = await _whole_rows(listed, (await listed.read()).active)
        if not -1 <= index < len(rows) or not rows:
            return None
        removed = await listed.remove(rows[index].keys)
        return rows[index].message if removed else None

    async def delete_oldest(self, key: str, count: int) -> list[ChatMessage]:
        """Delete the oldest messages, from the record too; what they were."""
        listed = await self._listed(key)
        rows = await _whole_rows(listed, (await listed.read()).active)
        rows = rows[: _whole(rows, count)]
        await listed.remove([one.key for one in _items(rows)])
        return [row.message for row in rows]

    async def archive_oldest(self, key: str, count: int) -> list[ChatMessage]:
        """Move the oldest messages into the archive, all of them or none; what they were."""
        found: list[Row] = []

        def change(stands: Listing) -> Arrangement | None:
            rows = rows_from(stands.active)
            found[:] = rows[: _whole(rows, count)]
            moved = _items(found)
            if not moved:
                return None
            return Arrangement(
                active=stands.active[len(moved) :], archived=[*stands.archived, *moved]
            )

        listed = await self._listed(key)
        await listed.arrange(change)
        return [row.message for row in await _whole_rows(listed, _items(found))]

    async def delete_all(self, key: str, part: Part | None = None) -> list[ChatMessage] | None:
        """Delete a list from the record, without ``part`` everything that the session ever held;
        what was in it, ``None`` where there was nothing."""
        listed = await self._listed(key)
        messages = await self.messages(key, part)
        if part is None:
            removed = await listed.clear()
        else:
            listing = await listed.read()
            items = listing.active if part == "active" else listing.archived
            removed = await listed.remove([one.key for one in items])
        return messages if removed else None

    async def keys(self) -> list[str]:
        """The keys that hold something, in the order in which they were begun."""
        sessions = await self._user.sessions(limit=_MAX_KEYS)
        sessions.sort(key=lambda one: (one.first_at, one.session_id))
        return list(dict.fromkeys(one.session_id for one in sessions))

    async def _listed(self, key: str) -> ListedSession:
        return (await self._bound.session(self._user, key)).listed()


def _rearranged(
    rows: Sequence[Row], marks: Sequence[str], fresh: Sequence[RowItem]
) -> list[RecordedItem | Item]:
    """The list with these marks: what it begins with as it stands, then rows that are the same
    message, wherever they stood, and new items for the rest."""
    old = [row.mark for row in rows]
    pairs = zip(old, marks, strict=False)
    same = next((n for n, (one, two) in enumerate(pairs) if one != two), min(len(old), len(marks)))
    same = _whole(rows, same, more=False)
    known: dict[str, deque[Row]] = {}
    for place in range(same, len(rows)):
        if not _is_shared(rows, place):
            known.setdefault(old[place], deque()).append(rows[place])
    found: list[RecordedItem | Item] = list(_items(rows[:same]))
    for mark, made in zip(marks[same:], fresh[same:], strict=True):
        queue = known.get(mark)
        found += queue.popleft().items if queue else [made.item]
    return found


def _whole(rows: Sequence[Row], count: int, *, more: bool = True) -> int:
    """``count``, or where it would part two messages of one item, one more or less."""
    count = max(0, min(count, len(rows)))
    while 0 < count < len(rows) and rows[count - 1].items[-1] is rows[count].items[-1]:
        count += 1 if more else -1
    return count


def _is_shared(rows: Sequence[Row], place: int) -> bool:
    own = rows[place].items[-1]
    neighbours = (*rows[max(0, place - 1) : place], *rows[place + 1 : place + 2])
    return any(row.items[-1] is own for row in neighbours)


def _items(rows: Sequence[Row]) -> list[RecordedItem]:
    """The items of the rows, each once, in order."""
    return list({one.key: one for row in rows for one in row.items}.values())


def _attached(made: Sequence[RowItem]) -> Attached:
    return {key: data for one in made for key, data in one.attached.items()}


async def _whole_rows(listed: ListedSession, items: Sequence[RecordedItem]) -> list[Row]:
    """The rows with what is attached to them."""
    apart = apart_of_rows(items)
    return rows_from(items, await listed.attached(apart) if apart else {})


async def _before(listed: ListedSession, messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The messages that hold the calls of results, newest first; not read where there are none."""
    if not any(one.role in (MessageRole.TOOL, MessageRole.FUNCTION) for one in messages):
        return []
    newest = (await listed.read()).active[-_LOOKED_AT:]
    return [row.message for row in reversed(await _whole_rows(listed, newest))]
