from __future__ import annotations

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine

from secondcall import Memory, Message, ToolCall, UnknownName
from secondcall.adapters.llama_index.retriever import SecondCallRetriever


async def _filled(memory: Memory) -> None:
    session = await memory.user("ana").session("monday")
    await session.record(
        Message("user", "My vendor is Acme in Oslo.", id="u1", speaker="Ana"),
        ToolCall("find_vendor", {"name": "Acme"}, call_id="c1", output="Acme AS, Oslo"),
    )
    await memory.user("ana").remember("vendor", "Acme")
    await (await memory.user("bob").session("monday")).record(
        Message("user", "My vendor is Bobco in Rome.")
    )


async def test_nodes_say_where_they_come_from() -> None:
    """Each item and fact is a node with its id, score, session, time and speaker; nothing of
    another user is among them."""
    async with Memory.open("memory://") as memory:
        await _filled(memory)
        retriever = SecondCallRetriever(user_id="ana", memory=memory)
        assert isinstance(retriever, BaseRetriever)
        nodes = {one.node_id: one for one in await retriever.aretrieve("Who is my vendor?")}
        assert "Bobco" not in str(nodes)
        assert nodes["u1"].metadata["speaker"] == "Ana"
        assert nodes["u1"].metadata["session_id"] == "monday"
        assert nodes["u1"].text == "My vendor is Acme in Oslo."
        assert nodes["c1"].metadata["tool"] == "find_vendor"
        assert any(one.text == "user vendor: Acme" for one in nodes.values())
        scores = [one.score or 0.0 for one in nodes.values()]
        assert scores == sorted(scores, reverse=True)


async def test_filters_narrow_what_is_found() -> None:
    """``roles``, ``sessions``, ``limit`` and ``facts`` are those of recall."""
    async with Memory.open("memory://") as memory:
        await _filled(memory)
        only = SecondCallRetriever(user_id="ana", memory=memory, roles=["user"], facts=False)
        assert [one.node_id for one in await only.aretrieve("vendor?")] == ["u1"]
        none = SecondCallRetriever(user_id="ana", memory=memory, sessions=["x"], facts=False)
        assert await none.aretrieve("vendor?") == []


async def test_an_empty_query_finds_nothing() -> None:
    """No words, no nodes and no error."""
    async with Memory.open("memory://") as memory:
        await _filled(memory)
        assert await SecondCallRetriever(user_id="ana", memory=memory).aretrieve("  ") == []


def test_it_works_without_a_loop_and_in_a_query_engine(url: str) -> None:
    """By URL it retrieves from a plain thread, and a query engine answers from its nodes."""
    import asyncio

    async def fill() -> None:
        async with Memory.open(url) as memory:
            await _filled(memory)

    asyncio.run(fill())
    retriever = SecondCallRetriever(user_id="ana", url=url)
    assert retriever.retrieve("Who is my vendor?")[0].text
    engine = RetrieverQueryEngine.from_args(retriever, llm=MockLLM())
    assert "Acme in Oslo" in str(engine.query("Who is my vendor?"))


def test_an_unknown_name_is_refused_at_once() -> None:
    """A name that nobody configured raises when the retriever is made."""
    with pytest.raises(UnknownName, match="'nowhere'"):
        SecondCallRetriever(user_id="ana", name="nowhere")
