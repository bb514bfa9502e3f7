"""A chat store of LlamaIndex's ``Memory`` over a user's record.

The same lists as those of ``SecondCallChatStore``, with an archive: what ``Memory`` moves out of
its short-term queue is archived, and stays in the record word for word, whatever its memory blocks
make of it. Archiving, like setting, is one write that never changes a message.

``Memory(chat_store=...)`` accepts stores of others from llama-index-core 0.14.24 on; before, this
one can be used by itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Self, TypeVar

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus

from secondcall.adapters.llama_index.bound import Bound, bound_to
from secondcall.adapters.llama_index.chat_lists import ChatLists, Part

if TYPE_CHECKING:
    from secondcall.memory import Memory

__all__ = ["SecondCallAsyncChatStore"]

T = TypeVar("T")
_PARTS: dict[MessageStatus, Part] = {
    MessageStatus.ACTIVE: "active",
    MessageStatus.ARCHIVED: "archived",
}


class SecondCallAsyncChatStore(AsyncDBChatStore):
    """The chats of one user, for ``Memory.from_defaults(session_id=..., chat_store=...)``.

    How the store is given, what is serialised and what is raised: as ``SecondCallChatStore``. The
    ``session_id`` of the ``Memory`` is the session. ``idx`` is the place in the list of active
    messages, not a row's id.
    """

    user_id: str
    tenant_id: str | None = None
    name: str | None = None
    handle: str | None = None
    _bound: Bound = PrivateAttr()

    def __init__(
        self,
        *,
        user_id: str,
        url: str | None = None,
        name: str | None = None,
        memory: Memory | None = None,
        tenant_id: str | None = None,
        handle: str | None = None,
    ) -> None:
        bound = bound_to(
            user_id=user_id,
            tenant_id=tenant_id,
            url=url,
            name=name,
            memory=memory,
            handle=handle,
        )
        super().__init__(**bound.locator)
        self._bound = bound

    @classmethod
    def class_name(cls) -> str:
        """The name of the class."""
        return "SecondCallAsyncChatStore"

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self

    def __copy__(self) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).model_validate, (self.model_dump(),)

    async def get_messages(
        self,
        key: str,
        status: MessageStatus | None = MessageStatus.ACTIVE,
        limit: int | None = None,
        offset: int | None = None,
    ) -> list[ChatMessage]:
        """The messages of a list, new objects each time; with ``status=None`` the archived ones and
        then the active."""
        found = await self._awaiting(lambda lists: lists.messages(key, _part(status)))
        found = found[offset or 0 :]
        return found if limit is None else found[:limit]

    async def count_messages(
        self, key: str, status: MessageStatus | None = MessageStatus.ACTIVE
    ) -> int:
        """How many there are."""
        return len(await self.get_messages(key, status))

    async def add_message(
        self, key: str, message: ChatMessage, status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Add a message at the end."""
        await self.add_messages(key, [message], status)

    async def add_messages(
        self,
        key: str,
        messages: list[ChatMessage],
        status: MessageStatus = MessageStatus.ACTIVE,
    ) -> None:
        """Add messages at the end, all of them or none; an empty list does nothing."""
        await self._awaiting(lambda lists: lists.add(key, messages, _PARTS[status]))

    async def set_messages(
        self,
        key: str,
        messages: list[ChatMessage],
        status: MessageStatus = MessageStatus.ACTIVE,
    ) -> None:
        """Make the list of this status these messages; what it held before stays in the record."""
        await self._awaiting(lambda lists: lists.replace(key, messages, _PARTS[status]))

    async def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Delete the active message at ``idx`` for good; ``None`` where there is none."""
        if idx < 0:
            return None
        return await self._awaiting(lambda lists: lists.delete(key, idx))

    async def delete_messages(self, key: str, status: MessageStatus | None = None) -> None:
        """Delete the messages of a status for good; without one everything that the session ever
        held, replaced messages too."""
        await self._awaiting(lambda lists: lists.delete_all(key, _part(status)))

    async def delete_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Delete the oldest active messages for good; what they were."""
        return await self._awaiting(lambda lists: lists.delete_oldest(key, n))

    async def archive_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Archive the oldest active messages, all of them or none; what they were."""
        return await self._awaiting(lambda lists: lists.archive_oldest(key, n))

    async def get_keys(self) -> list[str]:
        """The ids of the user's sessions, in the order in which they began."""
        return await self._awaiting(lambda lists: lists.keys())

    async def _awaiting(self, work: Callable[[ChatLists], Awaitable[T]]) -> T:
        return await self._bound.run(lambda user: work(ChatLists(self._bound, user)))


def _part(status: MessageStatus | None) -> Part | None:
    return None if status is None else _PARTS[status]
