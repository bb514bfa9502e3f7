from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Iterator
from typing import Any, cast

import pytest
from llama_index.core.llms import ChatMessage
from llama_index.core.memory import Memory as TheirMemory
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus

from secondcall import Memory, configure
from secondcall.adapters.llama_index.async_chat_store import SecondCallAsyncChatStore

_FROM_DEFAULTS = cast("Any", TheirMemory).from_defaults
TAKES_STORES = "chat_store" in inspect.signature(_FROM_DEFAULTS).parameters


def said(*texts: str) -> list[ChatMessage]:
    """Messages of user and assistant in turn."""
    return [
        ChatMessage(role="assistant" if place % 2 else "user", content=text)
        for place, text in enumerate(texts)
    ]


def words(text: str) -> list[str]:
    """The tokens of these tests."""
    return text.split()


@pytest.fixture
def store(url: str) -> Iterator[SecondCallAsyncChatStore]:
    """Ana's chats, in a store that is configured under the name *main*."""
    configure(main=url)
    yield SecondCallAsyncChatStore(user_id="ana", name="main")
    configure(main=None)


async def texts(
    store: SecondCallAsyncChatStore, status: MessageStatus | None = MessageStatus.ACTIVE
) -> list[str | None]:
    """The texts of a list."""
    return [one.content for one in await store.get_messages("k", status)]


async def test_archived_messages_leave_the_list_and_stay(store: SecondCallAsyncChatStore) -> None:
    """The oldest messages move into the archive in order; with no status both are given."""
    assert isinstance(store, AsyncDBChatStore)
    await store.add_messages("k", said("a", "b", "c", "d"))
    assert [one.content for one in await store.archive_oldest_messages("k", 2)] == ["a", "b"]
    assert [one.content for one in await store.archive_oldest_messages("k", 1)] == ["c"]
    assert await store.archive_oldest_messages("k", 0) == []
    assert await texts(store) == ["d"]
    assert await texts(store, MessageStatus.ARCHIVED) == ["a", "b", "c"]
    assert await texts(store, None) == ["a", "b", "c", "d"]
    assert await store.count_messages("k") == 1
    assert await store.count_messages("k", None) == 4


async def test_each_list_is_set_and_added_to_by_itself(store: SecondCallAsyncChatStore) -> None:
    """Active and archived messages are set and added to apart."""
    await store.add_message("k", said("old")[0], MessageStatus.ARCHIVED)
    await store.set_messages("k", said("a", "b"))
    await store.set_messages("k", said("older", "old"), MessageStatus.ARCHIVED)
    await store.add_messages("k", [])
    await store.add_message("k", said("c")[0])
    assert await texts(store) == ["a", "b", "c"]
    assert await texts(store, MessageStatus.ARCHIVED) == ["older", "old"]


async def test_pages_are_cut_from_the_list(store: SecondCallAsyncChatStore) -> None:
    """``offset`` and ``limit`` count messages, a limit of 0 too."""
    await store.add_messages("k", said("a", "b", "c", "d"))
    assert [one.content for one in await store.get_messages("k", limit=2, offset=1)] == ["b", "c"]
    assert await store.get_messages("k", limit=0) == []
    assert await store.get_messages("k", offset=9) == []


async def test_deleting_is_for_one_list_or_for_all(store: SecondCallAsyncChatStore) -> None:
    """A status names the list that goes; without one the whole session goes."""
    await store.add_messages("k", said("a", "b", "c", "d", "e"))
    await store.archive_oldest_messages("k", 2)
    removed = await store.delete_message("k", 1)
    assert removed is not None
    assert removed.content == "d"
    assert await store.delete_message("k", 7) is None
    assert await store.delete_message("k", -1) is None
    assert [one.content for one in await store.delete_oldest_messages("k", 1)] == ["c"]
    await store.delete_messages("k", MessageStatus.ARCHIVED)
    assert await texts(store, None) == ["e"]
    await store.delete_messages("k")
    assert await store.get_keys() == []


async def test_writers_at_once_lose_nothing(store: SecondCallAsyncChatStore) -> None:
    """Adding and archiving at once keeps every message, each in one of the lists."""
    await store.add_messages("k", said(*(f"m{n}" for n in range(20))))
    await asyncio.gather(
        *(store.add_message("k", said(f"n{n}")[0]) for n in range(20)),
        *(store.archive_oldest_messages("k", 1) for _ in range(20)),
    )
    assert sorted(map(str, await texts(store, MessageStatus.ARCHIVED))) == sorted(
        f"m{n}" for n in range(20)
    )
    assert sorted(map(str, await texts(store))) == sorted(f"n{n}" for n in range(20))


def test_the_dump_is_ids_and_a_name(store: SecondCallAsyncChatStore) -> None:
    """What is serialised holds no URL, and leads to the same lists."""
    asyncio.run(store.add_message("k", said("a secret")[0]))
    dumped = json.dumps(store.model_dump())
    assert "sqlite" not in dumped
    assert "secret" not in dumped
    again = SecondCallAsyncChatStore.model_validate(json.loads(dumped))
    assert asyncio.run(texts(again)) == ["a secret"]


def _memory(store: SecondCallAsyncChatStore, limit: int = 1_000, **settings: Any) -> TheirMemory:
    return _FROM_DEFAULTS(
        session_id="k",
        token_limit=limit,
        token_flush_size=5,
        tokenizer_fn=words,
        chat_store=store,
        **settings,
    )


def test_releases_that_take_no_store_refuse_it(store: SecondCallAsyncChatStore) -> None:
    """``Memory`` takes the store from 0.14.24 on; before, it says that it does not know it."""
    if TAKES_STORES:
        assert _memory(store).sql_store is store
    else:
        with pytest.raises(TypeError, match="chat_store"):
            _memory(store)


async def test_memory_keeps_every_message_of_concurrent_puts(
    store: SecondCallAsyncChatStore,
) -> None:
    """25 puts at once are 25 messages, where the default store loses some."""
    if not TAKES_STORES:
        pytest.skip("Memory takes stores of others from llama-index-core 0.14.24 on")
    memory = _memory(store)
    await asyncio.gather(*(memory.aput(one) for one in said(*(f"m{n}" for n in range(25)))))
    assert sorted(map(str, await texts(store))) == sorted(f"m{n}" for n in range(25))


async def test_what_memory_flushes_is_archived_and_recalled(
    store: SecondCallAsyncChatStore, url: str
) -> None:
    """Messages that overflow the queue are archived; recall finds them, and ``areset`` removes
    them."""
    if not TAKES_STORES:
        pytest.skip("Memory takes stores of others from llama-index-core 0.14.24 on")
    memory = _memory(store, limit=20)
    for number in range(6):
        await memory.aput_messages(
            said(f"vendor {number} is Acme{number} of Oslo", f"vendor {number} was noted")
        )
    assert len(await memory.aget()) < 12
    assert len(await texts(store, None)) == 12
    async with Memory.open(url) as opened:
        found = await opened.user("ana").recall("which vendor is Acme0?")
        assert any("Acme0" in str(one.item) for one in found.items)
    await memory.areset()
    assert await texts(store, None) == []
