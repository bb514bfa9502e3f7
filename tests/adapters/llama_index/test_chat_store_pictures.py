"""Pictures in chat lists: one item each, with the bytes attached to it."""

from __future__ import annotations

import base64
import json
import random
import zlib
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock
from llama_index.core.memory import ChatMemoryBuffer

from secondcall import Item, Memory, Message, SyncMemory, ToolCall
from secondcall.adapters.llama_index.blocks import RecallMemoryBlock
from secondcall.adapters.llama_index.chat_store import SecondCallChatStore
from secondcall.adapters.llama_index.places import close_places

pytestmark = pytest.mark.anyio


def _seen(number: int, size: int = 60_000) -> ChatMessage:
    data = base64.b64encode(random.Random(number).randbytes(size))
    picture = ImageBlock(image=data, image_mimetype="image/png")
    return ChatMessage(role="user", blocks=[TextBlock(text=f"see {number}"), picture])


def _items(url: str, key: str = "k") -> list[Item]:
    with SyncMemory.open(url) as memory:
        return [one.item for one in memory.user("ana").session(key).items()]


def test_a_picture_is_one_item(url: str) -> None:
    """A message with a picture is one item of the record, and comes back equal, in another process'
    place too."""
    store = SecondCallChatStore(user_id="ana", url=url)
    given = [_seen(1), ChatMessage(role="assistant", content="nice"), _seen(2, 3_000_000)]
    store.set_messages("k", given)
    store.add_message("k", _seen(3))
    close_places()
    assert SecondCallChatStore(user_id="ana", url=url).get_messages("k") == [*given, _seen(3)]
    assert len(_items(url)) == 4


def test_lists_with_pictures_are_edited(url: str) -> None:
    """Setting what is there writes nothing; inserting, moving and deleting keep each message with
    its own picture; who answers with the call of a message with one is named after it."""
    store = SecondCallChatStore(user_id="ana", url=url)
    given = [_seen(number) for number in range(4)]
    store.set_messages("k", given)
    store.set_messages("k", given)
    assert len(_items(url)) == 4
    store.set_messages("k", [given[2], given[0], _seen(9), given[1]])
    assert len(_items(url)) == 5
    store.add_message("k", _seen(8), idx=1)
    assert store.get_messages("k") == [given[2], _seen(8), given[0], _seen(9), given[1]]
    assert store.delete_message("k", 2) == given[0]
    assert store.get_messages("k") == [given[2], _seen(8), _seen(9), given[1]]
    buffer = ChatMemoryBuffer.from_defaults(chat_store=store, chat_store_key="k")
    assert buffer.get_all() == store.get_messages("k")


def test_a_deleted_picture_is_gone(url: str, tmp_path: Path) -> None:
    """What a deleted message had attached is in no byte of the store."""
    store = SecondCallChatStore(user_id="ana", url=url)
    store.add_message("k", _seen(1))
    (row,) = _items(url)
    assert isinstance(row, Message)

    def attached() -> Any:
        with SyncMemory.open(url) as memory:
            listed = memory.user("ana").session("k").listed()
            return listed.attached([("message", row.id or "")])

    (data,) = attached().values()
    assert _held(tmp_path, data)
    store.delete_message("k", 0)
    close_places()
    assert attached() == {}
    assert not _held(tmp_path, data)


def _held(folder: Path, data: bytes) -> bool:
    """Whether any hundred bytes of the data are in a file."""
    held = b"".join(path.read_bytes() for path in folder.iterdir())
    return any(data[start : start + 100] in held for start in range(0, len(data) - 100, 100))


async def test_a_block_records_a_picture_once(url: str) -> None:
    """A message with a picture that a block is given again is in the record once, with its bytes,
    and not again where the chat store has it."""
    async with Memory.open(url) as memory:
        block = RecallMemoryBlock(user_id="ana", memory=memory)
        for _ in range(2):
            await block.aput([_seen(1)], from_short_term_memory=True, session_id="k")
        store = SecondCallChatStore(user_id="ana", memory=memory)
        assert await store.aget_messages("k") == [_seen(1)]
        await store.async_add_message("k", _seen(2))
        await block.aput([_seen(2)], from_short_term_memory=True, session_id="k")
        assert len(await (await memory.user("ana").session("k")).items()) == 2


def _row_of_before(message: ChatMessage, row_id: str) -> list[Item]:
    """A message as releases before attachments recorded it."""
    beside: dict[str, Any] = {
        "role": "user",
        "kwargs": {},
        "blocks": [["text", 5], ["block", json.loads(message.blocks[1].model_dump_json())]],
    }
    packed = zlib.compress(json.dumps(beside, separators=(",", ":")).encode())
    text = base64.b64encode(packed).decode()
    chunks = [text[start : start + 15_000] for start in range(0, len(text), 15_000)]
    parts: list[Item] = [
        ToolCall(
            "_",
            "",
            call_id=f"{row_id}.{number}",
            metadata={"llama_index_part": row_id, "n": number, "data": chunk},
        )
        for number, chunk in enumerate(chunks)
    ]
    own = Message("user", "see 1", id=row_id, metadata={"llama_index_row": len(chunks)})
    return [*parts, own]


def test_rows_of_before_are_read(url: str) -> None:
    """Pictures that an earlier release recorded as items in front of their message come back, stay
    as they are where the list is set, and go with their message."""
    with SyncMemory.open(url) as memory:
        memory.user("ana").session("k").record(*_row_of_before(_seen(1), "r1"))
    store = SecondCallChatStore(user_id="ana", url=url)
    assert store.get_messages("k") == [_seen(1)]
    count = len(_items(url))
    assert count > 5
    store.set_messages("k", [_seen(1), _seen(2)])
    assert len(_items(url)) == count + 1
    assert store.get_messages("k") == [_seen(1), _seen(2)]
    store.delete_message("k", 0)
    assert store.get_messages("k") == [_seen(2)]
    assert len(_items(url)) == 1
