from __future__ import annotations

import asyncio
import copy
import json
import os
import pickle  # noqa: TID251 - contexts are pickled by the framework
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from llama_index.core.base.llms import types as llms
from llama_index.core.llms import ChatMessage
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.storage.chat_store import loading
from llama_index.core.storage.chat_store.base import BaseChatStore

from secondcall import InvalidValue, Memory, TooLarge, UnknownName, UserErased, configure
from secondcall.adapters.llama_index.chat_store import SecondCallChatStore

CALLS = {
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "seats", "arguments": '{"row": 3}'}}
    ]
}
PICTURE = b"\x89PNG\r\n" + bytes(range(256)) * 800


@pytest.fixture
def store(url: str) -> Iterator[SecondCallChatStore]:
    """Ana's chats, in a store that is configured under the name *main*."""
    configure(main=url)
    yield SecondCallChatStore(user_id="ana", name="main")
    configure(main=None)


def said(*texts: str) -> list[ChatMessage]:
    """Messages of the user with these texts."""
    return [ChatMessage(role="user", content=text) for text in texts]


def texts(store: SecondCallChatStore, key: str = "k") -> list[str | None]:
    """The texts of a list."""
    return [one.content for one in store.get_messages(key)]


def every_kind() -> list[ChatMessage]:
    """A message of every kind that this release of LlamaIndex has."""
    found = [
        ChatMessage(role="system", content="Be brief."),
        ChatMessage(role="user", content=""),
        ChatMessage(role="assistant", blocks=[]),
        ChatMessage(role="developer", content="odd \ud800 text"),
        ChatMessage(role="assistant", content=None, additional_kwargs=CALLS),
        ChatMessage(role="tool", content="12 free", additional_kwargs={"tool_call_id": "c1"}),
        ChatMessage(role="tool", content="an orphan", additional_kwargs={"tool_call_id": "no"}),
        ChatMessage(
            role="user",
            blocks=[
                llms.TextBlock(text="what is\non this?"),
                llms.ImageBlock(image=PICTURE),
                llms.TextBlock(text="and this?"),
                llms.ImageBlock(url="http://localhost/picture.png"),
            ],
        ),
        ChatMessage(role="user", blocks=[llms.AudioBlock(audio=b"RIFFabc", format="wav")]),
        ChatMessage(role="user", blocks=[llms.DocumentBlock(data=b"%PDF-1.4 text")]),
        ChatMessage(role="chatbot", content="hm", additional_kwargs={"name": "x", "a": [1, None]}),
        ChatMessage(role="function", content="done", additional_kwargs={"name": "f"}),
    ]
    kinds: Any = llms
    if hasattr(llms, "ThinkingBlock"):
        blocks = [kinds.ThinkingBlock(content="let me see"), llms.TextBlock(text="yes")]
        found.append(ChatMessage(role="assistant", blocks=blocks))
    if hasattr(llms, "ToolCallBlock"):
        call = kinds.ToolCallBlock(tool_call_id="c2", tool_name="seats", tool_kwargs={"row": 4})
        found.append(ChatMessage(role="assistant", blocks=[call]))
    return found


def test_it_is_a_chat_store(store: SecondCallChatStore) -> None:
    """It is a ``BaseChatStore`` that LlamaIndex's loader knows by its class name."""
    assert isinstance(store, BaseChatStore)
    loaded = cast("Any", loading).load_chat_store(
        {**store.model_dump(), "class_name": store.class_name()}
    )
    assert isinstance(loaded, SecondCallChatStore)
    assert loaded.user_id == "ana"


def test_every_message_comes_back_equal(store: SecondCallChatStore, url: str) -> None:
    """Messages of every kind, orphans and empty ones too, come back equal and in order, through
    another object as well."""
    store.set_messages("k", every_kind())
    assert store.get_messages("k") == every_kind()
    other = SecondCallChatStore(user_id="ana", url=url, name="again")
    assert other.get_messages("k") == every_kind()


def test_words_arguments_and_outputs_are_recalled(store: SecondCallChatStore, url: str) -> None:
    """What is put into the store is found by recall: a tool's output with the call's arguments."""
    store.add_message("k", ChatMessage(role="assistant", content=None, additional_kwargs=CALLS))
    store.add_message(
        "k",
        ChatMessage(role="tool", content="aisle only", additional_kwargs={"tool_call_id": "c1"}),
    )

    async def found() -> list[Any]:
        async with Memory.open(url) as memory:
            return list((await memory.user("ana").recall("which seats are aisle?")).items)

    best = asyncio.run(found())[0].item
    assert (best.name, best.arguments, best.output) == ("seats", {"row": 3}, "aisle only")


def test_messages_are_copied_in_and_out(store: SecondCallChatStore) -> None:
    """Changing a message after it was put, or one that was given, changes nothing in the store."""
    message = ChatMessage(role="user", content="aisle", additional_kwargs={"n": [1]})
    store.add_message("k", message)
    message.additional_kwargs["n"].append(2)
    store.get_messages("k")[0].blocks.clear()
    assert store.get_messages("k")[0].content == "aisle"
    assert store.get_messages("k")[0].additional_kwargs == {"n": [1]}


def test_setting_replaces_the_list_and_keeps_the_originals(
    store: SecondCallChatStore, url: str
) -> None:
    """After ``set_messages`` the list is the new one; what it held before is still recalled."""
    store.set_messages("k", said("the vendor is Acme", "b", "c"))
    store.set_messages("k", [ChatMessage(role="system", content="sum"), *said("c")])
    assert texts(store) == ["sum", "c"]

    async def recorded() -> list[Any]:
        async with Memory.open(url) as memory:
            session = await memory.user("ana").session("k")
            return [item.item for item in await session.items()]

    kept = [item.text for item in asyncio.run(recorded())]
    assert kept == ["the vendor is Acme", "b", "c", "sum"]


def test_setting_what_is_there_writes_nothing(store: SecondCallChatStore, url: str) -> None:
    """Setting the same list again adds no item: a chat that is set at each turn does not grow."""
    for _ in range(3):
        store.set_messages("k", every_kind())

    async def count() -> int:
        async with Memory.open(url) as memory:
            session = await memory.user("ana").session("k")
            return len([one for one in await session.items() if "_part" not in str(one.item)])

    assert asyncio.run(count()) == len(every_kind())


def test_messages_are_inserted_in_front_of_a_place(store: SecondCallChatStore) -> None:
    """``idx`` is counted as a Python list counts it."""
    expected: list[str] = []
    for number, idx in enumerate([0, 0, 1, 99, -1]):
        store.add_message("k", said(f"m{number}")[0], idx=idx)
        expected.insert(idx, f"m{number}")
        assert texts(store) == expected


def test_deleting_by_place_keeps_the_order(store: SecondCallChatStore) -> None:
    """The message at a place goes, is given back, and the others stay in order."""
    store.set_messages("k", said("a", "b", "c", "d"))
    removed = store.delete_message("k", 1)
    assert removed is not None
    assert removed.content == "b"
    last = store.delete_last_message("k")
    assert last is not None
    assert last.content == "d"
    assert texts(store) == ["a", "c"]


def test_deleting_what_is_not_there_gives_none(store: SecondCallChatStore) -> None:
    """A place beyond the list, an empty list and an unknown key are no errors."""
    store.add_message("k", said("a")[0])
    assert store.delete_message("k", 5) is None
    assert store.delete_message("k", -1) is None
    assert store.delete_last_message("none") is None
    assert store.delete_messages("none") is None
    assert store.get_messages("none") == []
    assert texts(store) == ["a"]


def test_what_is_deleted_is_gone_from_record_and_file(
    store: SecondCallChatStore, tmp_path: Path
) -> None:
    """A deleted message, and one that was replaced before its key was deleted, are in no byte of
    the store."""
    store.set_messages("k", said("keep", "the password is hunter-one"))
    store.set_messages("j", said("the code is hunter-two"))
    store.delete_message("k", 1)
    store.set_messages("j", said("other words"))
    store.delete_messages("j")
    assert store.get_keys() == ["k"]
    held = b"".join(path.read_bytes() for path in tmp_path.glob("memory.db*"))
    assert b"keep" in held
    assert b"hunter" not in held


def test_the_same_key_of_two_users_is_two_lists(url: str) -> None:
    """Users and tenants are apart, whatever the key says."""
    stores = [
        SecondCallChatStore(user_id=user, tenant_id=tenant, url=url, name="apart")
        for user, tenant in [("ana", "one"), ("bob", "one"), ("ana", "two")]
    ]
    for number, one in enumerate(stores):
        one.add_message("ana", said(f"m{number}")[0])
    assert [texts(one, "ana") for one in stores] == [["m0"], ["m1"], ["m2"]]
    stores[0].delete_messages("ana")
    assert [texts(one, "ana") for one in stores] == [[], ["m1"], ["m2"]]


def test_keys_come_in_the_order_in_which_they_began(store: SecondCallChatStore) -> None:
    """``get_keys`` gives this user's sessions only, the first one first."""
    SecondCallChatStore(user_id="bob", name="main").add_message("of bob", said("x")[0])
    for key in ("b", "a/../c", "long " * 200):
        store.add_message(key, said("x")[0])
    assert store.get_keys() == ["b", "a/../c", "long " * 200]


@pytest.mark.parametrize(("key", "error"), [("", InvalidValue), ("k" * 1_025, TooLarge)])
def test_a_key_that_is_no_session_id_is_refused(
    store: SecondCallChatStore, key: str, error: type[Exception]
) -> None:
    """An empty key, and one of more than 1,024 characters, raise an error that names the field."""
    with pytest.raises(error, match="session_id"):
        store.add_message(key, said("x")[0])


def test_a_refused_message_leaves_the_list_as_it_was(store: SecondCallChatStore) -> None:
    """A list with one message that is too large is not set, in no part."""
    store.set_messages("k", said("a", "b"))
    with pytest.raises(TooLarge):
        store.set_messages("k", said("c", "x" * 5_000_000))
    assert texts(store) == ["a", "b"]


def test_a_tool_output_of_two_megabytes_comes_back(store: SecondCallChatStore) -> None:
    """A message of 2 MB is kept whole."""
    message = ChatMessage(
        role="tool", content="seat " * 400_000, additional_kwargs={"tool_call_id": "c1"}
    )
    store.add_message("k", message)
    assert store.get_messages("k") == [message]


def test_threads_lose_nothing(store: SecondCallChatStore) -> None:
    """Forty messages put from eight threads at once are all in the list, once."""

    def put(message: ChatMessage) -> None:
        store.add_message("k", message)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, said(*(f"m{n}" for n in range(40)))))
    assert sorted(texts(store), key=str) == sorted(f"m{n}" for n in range(40))


async def test_it_blocks_and_awaits_inside_a_running_loop(store: SecondCallChatStore) -> None:
    """Both faces work inside a loop, and both see the same lists."""
    store.add_message("k", said("a")[0])
    await store.async_add_message("k", said("b")[0])
    await store.async_add_message("k", said("c")[0], idx=0)
    assert [one.content for one in await store.aget_messages("k")] == ["c", "a", "b"]
    removed = await store.adelete_message("k", 0)
    assert removed is not None
    assert await store.adelete_last_message("k") == said("b")[0]
    await store.aset_messages("k", said("z"))
    assert texts(store) == ["z"]
    assert await store.aget_keys() == ["k"]
    assert await store.adelete_messages("k") == said("z")
    assert await store.adelete_message("k", -1) is None


async def test_a_memory_of_the_host_is_used_in_its_own_loop(url: str) -> None:
    """With ``memory=`` the store works in the loop that opened it, and is not serialised."""
    async with Memory.open(url, tenant_id="acme") as memory:
        store = SecondCallChatStore(user_id="ana", memory=memory)
        await store.async_add_message("k", said("a")[0])
        assert store.tenant_id == "acme"
        assert len([one async for one in memory.user("ana").items()]) == 1
    data = store.to_dict()
    del store
    with pytest.raises(InvalidValue, match="memory="):
        SecondCallChatStore.from_dict(data)


def test_what_is_serialised_holds_no_url_and_no_message(
    store: SecondCallChatStore, url: str
) -> None:
    """The dump is ids and a name; in this process it leads to the same lists."""
    store.add_message("k", said("a secret word")[0])
    dumped = json.dumps(store.to_dict())
    assert "sqlite" not in dumped
    assert "secret" not in dumped
    for again in (
        SecondCallChatStore.from_dict(json.loads(dumped)),
        pickle.loads(pickle.dumps(store)),
        copy.deepcopy(store),
        copy.copy(store),
    ):
        assert texts(again) == ["a secret word"]
    assert copy.deepcopy(store) is store


def test_a_handle_of_somebody_else_opens_nothing(store: SecondCallChatStore) -> None:
    """A dump whose user was changed does not reach the list that its handle is of."""
    store.add_message("k", said("of ana")[0])
    forged = SecondCallChatStore.from_dict({**store.to_dict(), "user_id": "bob"})
    assert texts(forged) == []


def test_a_name_that_nobody_configured_is_named() -> None:
    """Reading a dump without the name configured raises an error with that name."""
    with pytest.raises(UnknownName, match="'elsewhere'"):
        SecondCallChatStore.from_dict({"user_id": "ana", "name": "elsewhere", "handle": "x"})


def test_another_process_finds_the_lists_by_name(store: SecondCallChatStore, url: str) -> None:
    """A buffer that was dumped here goes on in another process that knows the name."""
    store.add_message("k", said("hello from here")[0])
    buffer = ChatMemoryBuffer.from_defaults(chat_store=store, chat_store_key="k")
    program = (
        "import json, sys, secondcall\n"
        "from secondcall.adapters.llama_index import chat_store\n"
        "from llama_index.core.memory import ChatMemoryBuffer\n"
        f"secondcall.configure(main={url!r})\n"
        "memory = ChatMemoryBuffer.from_dict(json.load(sys.stdin))\n"
        "print([one.content for one in memory.get_all()])\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        input=json.dumps(buffer.to_dict()),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "NLTK_DATA": os.environ.get("NLTK_DATA", "/nonexistent")},
    )
    assert done.stdout.strip() == "['hello from here']"


def test_a_buffer_that_resets_deletes_and_one_that_sets_does_not(
    store: SecondCallChatStore, url: str
) -> None:
    """``set`` of a buffer keeps the originals in the record, ``reset`` removes them."""
    buffer = ChatMemoryBuffer.from_defaults(chat_store=store, chat_store_key="k")
    buffer.set(said("a", "b"))
    buffer.set(said("c"))

    async def recorded() -> int:
        async with Memory.open(url) as opened:
            return len(await (await opened.user("ana").session("k")).items())

    assert asyncio.run(recorded()) == 3
    buffer.reset()
    assert asyncio.run(recorded()) == 0


async def test_after_an_erasure_the_store_begins_anew(url: str) -> None:
    """The call that meets a forgotten user fails, the next ones begin a new record."""
    async with Memory.open(url) as memory:
        store = SecondCallChatStore(user_id="ana", memory=memory)
        await store.async_add_message("k", said("a")[0])
        await memory.user("ana").forget()
        with pytest.raises(UserErased):
            await store.async_add_message("k", said("b")[0])
        await store.async_add_message("k", said("c")[0])
        assert [one.content for one in await store.aget_messages("k")] == ["c"]


async def test_a_session_of_others_is_read_as_messages(url: str) -> None:
    """Items that another host recorded are messages of the list; a call goes with its result."""
    from secondcall import Message, ToolCall

    async with Memory.open(url) as memory:
        session = await memory.user("ana").session("k")
        await session.record(
            Message("user", "Which seats?"),
            ToolCall("seats", {"row": 3}, call_id="c1", output="aisle"),
            Message("assistant", "Aisle."),
        )
        store = SecondCallChatStore(user_id="ana", memory=memory)
        roles = [one.role.value for one in await store.aget_messages("k")]
        assert roles == ["user", "assistant", "tool", "assistant"]
        await store.adelete_message("k", 2)
        roles = [one.role.value for one in await store.aget_messages("k")]
        assert roles == ["user", "assistant"]
