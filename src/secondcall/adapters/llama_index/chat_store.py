"""A chat store of LlamaIndex over a user's record: for ``ChatMemoryBuffer`` and its like.

The record only grows, a chat store is a list that is edited. So the key is a session of one user,
and the list an arrangement beside its record (``secondcall.memory.listed``):

- *add* is recording: durable at once, searchable by recall, and never in the way of another writer;
- *set* and *insert* arrange: what was in the list and is not any more stays in the record, where
  recall finds it; a message that is in both keeps its item; all of it happens in one write;
- *delete* deletes: the message is gone from list, record, search index and whatever was drawn from
  it, and cannot be brought back. Deleting a key deletes everything that its session ever held,
  replaced and archived messages too. A buffer's ``reset`` deletes its key, and
  ``ChatSummaryMemoryBuffer`` resets before each summary: what it summarises is lost with it here
  as anywhere. ``SecondCallMemory`` summarises beside the record.

Every message comes back equal in every field; its text, arguments and outputs are what recall
searches. Who the user is, is said by code that makes the store, never by a key: the same key of two
users is two lists.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Self, TypeVar

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.storage.chat_store.base import BaseChatStore
from llama_index.core.storage.chat_store.loading import RECOGNIZED_CHAT_STORES

from secondcall.adapters.llama_index.bound import Bound, bound_to
from secondcall.adapters.llama_index.chat_lists import ChatLists

if TYPE_CHECKING:
    from secondcall.memory import Memory

__all__ = ["SecondCallChatStore"]

T = TypeVar("T")


class SecondCallChatStore(BaseChatStore):
    """The chats of one user, by session id: ``SecondCallChatStore(user_id=..., url=...)``.

    The store is given by ``url``, by the ``name`` that ``secondcall.configure`` knows it under, or
    as an open ``memory``; without any of them it is that of ``SECONDCALL_URL``. With ``url`` and
    ``name`` every method works from any thread and loop, inside a running one too; a ``memory``
    answers in its own loop. What is serialised is the name and the ids, no URL and no message:
    another process finds the same lists where the name is configured.

    Raises: ``InvalidValue``; ``UnknownName`` naming a store that is not configured. Its methods
    raise store errors, and ``InvalidValue`` or ``TooLarge`` for a key that is no session id.
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
        """The name that ``load_chat_store`` knows it by."""
        return "SecondCallChatStore"

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self

    def __copy__(self) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_dict, (self.to_dict(),)

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """Make the list these messages; what it held before stays in the record."""
        return self._blocking(lambda lists: lists.replace(key, messages))

    def get_messages(self, key: str) -> list[ChatMessage]:
        """The messages of a list, new objects each time."""
        return self._blocking(lambda lists: lists.messages(key))

    def add_message(self, key: str, message: ChatMessage, idx: int | None = None) -> None:
        """Add a message at the end, or in front of the one at ``idx``."""
        return self._blocking(lambda lists: _add(lists, key, message, idx))

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        """Delete everything that the session ever held, for good; what was in the list."""
        return self._blocking(lambda lists: lists.delete_all(key))

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Delete the message at ``idx`` for good; ``None`` where there is none."""
        return self._blocking(lambda lists: _delete(lists, key, idx))

    def delete_last_message(self, key: str) -> ChatMessage | None:
        """Delete the last message for good; ``None`` where there is none."""
        return self._blocking(lambda lists: lists.delete(key, -1))

    def get_keys(self) -> list[str]:
        """The ids of the user's sessions, in the order in which they began."""
        return self._blocking(lambda lists: lists.keys())

    async def aset_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """As ``set_messages``."""
        return await self._awaiting(lambda lists: lists.replace(key, messages))

    async def aget_messages(self, key: str) -> list[ChatMessage]:
        """As ``get_messages``."""
        return await self._awaiting(lambda lists: lists.messages(key))

    async def async_add_message(
        self, key: str, message: ChatMessage, idx: int | None = None
    ) -> None:
        """As ``add_message``."""
        return await self._awaiting(lambda lists: _add(lists, key, message, idx))

    async def adelete_messages(self, key: str) -> list[ChatMessage] | None:
        """As ``delete_messages``."""
        return await self._awaiting(lambda lists: lists.delete_all(key))

    async def adelete_message(self, key: str, idx: int) -> ChatMessage | None:
        """As ``delete_message``."""
        return await self._awaiting(lambda lists: _delete(lists, key, idx))

    async def adelete_last_message(self, key: str) -> ChatMessage | None:
        """As ``delete_last_message``."""
        return await self._awaiting(lambda lists: lists.delete(key, -1))

    async def aget_keys(self) -> list[str]:
        """As ``get_keys``."""
        return await self._awaiting(lambda lists: lists.keys())

    def _blocking(self, work: Callable[[ChatLists], Awaitable[T]]) -> T:
        return self._bound.run_blocking(lambda user: work(ChatLists(self._bound, user)))

    async def _awaiting(self, work: Callable[[ChatLists], Awaitable[T]]) -> T:
        return await self._bound.run(lambda user: work(ChatLists(self._bound, user)))


async def _add(lists: ChatLists, key: str, message: ChatMessage, idx: int | None) -> None:
    if idx is None:
        await lists.add(key, [message])
    else:
        await lists.insert(key, idx, message)


async def _delete(lists: ChatLists, key: str, idx: int) -> ChatMessage | None:
    return await lists.delete(key, idx) if idx >= 0 else None


RECOGNIZED_CHAT_STORES[SecondCallChatStore.class_name()] = SecondCallChatStore  # pyright: ignore[reportArgumentType] - its type is inferred from its one entry
