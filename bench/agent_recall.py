# pyright: reportUnknownMemberType=false
"""LlamaIndex's vector memories and ours, side by side on LoCoMo: frac@10, milliseconds, megabytes.

    bench/agent_recall.py

It needs the public data (``SECONDCALL_EVAL_DATA``). All use our static embedder, as a
LlamaIndex embedding. The tutorial's vector memory is repaired as little as makes it work: an index
over its own store, which is persisted with every add. VectorMemoryBlock refuses LlamaIndex's store
in memory, which keeps no text: here that store keeps it, and in another row one array does, all of
which is scored at once. Everything is in one session, since it finds nothing of another one.
Neither has users, a time or anything durable but the tutorial's file. Times at 600 and 20,000
messages are of 3 adds and 20 recalls at that size. llama-index-memory-mem0 is measured where it is
installed, with messages as they are: see ``agent_mem0``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from agent_mem0 import Mem0
from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.memory import (
    VectorMemoryBlock,
)
from llama_index.core.schema import BaseNode, TextNode
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    VectorStoreQuery,
    VectorStoreQueryResult,
)

from secondcall import Memory, Message
from secondcall.abc import Embedder
from secondcall.adapters.llama_index.retriever import SecondCallRetriever
from secondcall.evaluate import locomo
from secondcall.evaluate.metrics import frac_at
from secondcall.evaluate.questions import Haystack, ItemName
from secondcall.record.formats.source import Source
from secondcall.registry import embedder_from_name
from secondcall.testing.fakes import FrozenClock

T = TypeVar("T")
_HERE = Path(__file__).parent
_DATA = Path(os.environ.get("SECONDCALL_EVAL_DATA", str(_HERE.parents[1] / "shared" / "data")))
_DEPTH = 10
_SIZES = (600, 20_000)
_TIMED = 20
_ADDS = 3


def _at_once(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine gives that never waits."""
    try:
        work.send(None)
    except StopIteration as done:
        return cast("T", done.value)
    raise RuntimeError("it waited")


class StaticEmbedding(BaseEmbedding):
    """Our static embedder as an embedding of LlamaIndex."""

    _embedder: Embedder = PrivateAttr(default_factory=lambda: embedder_from_name("static"))

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return _at_once(self._embedder.embed_documents(texts)).tolist()

    def _get_query_embedding(self, query: str) -> list[float]:
        return _at_once(self._embedder.embed_query(query)).tolist()

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


class ArrayStore(BasePydanticVectorStore):
    """Vectors in one array, all scored at once; keeps what it was last asked for."""

    stores_text: bool = True
    is_embedding_query: bool = True
    _nodes: list[BaseNode] = PrivateAttr(default_factory=list[BaseNode])
    _vectors: Any = PrivateAttr(default=None)
    _filled: int = PrivateAttr(default=0)
    _last: list[int] = PrivateAttr(default_factory=list[int])

    @property
    def best(self) -> list[int]:
        """The places of what was found last, best first."""
        return self._last

    @property
    def client(self) -> Any:
        """None: there is no server."""
        return None

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Put vectors in, doubling the array when it is full."""
        for node in nodes:
            vector = np.asarray(node.get_embedding(), np.float32)
            if self._vectors is None:
                self._vectors = np.zeros((1_024, len(vector)), np.float32)
            if self._filled == len(self._vectors):
                self._vectors = np.concatenate([self._vectors, np.zeros_like(self._vectors)])
            self._vectors[self._filled] = vector
            self._filled += 1
            self._nodes.append(node)
        return [node.node_id for node in nodes]

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """As ``add``."""
        return self.add(nodes)

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Nothing is deleted here."""

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """The nearest by cosine, best first."""
        asked = np.asarray(query.query_embedding, np.float32)
        scores = self._vectors[: self._filled] @ asked
        best = np.argsort(-scores)[: query.similarity_top_k]
        self._last = [int(place) for place in best]
        nodes = [self._nodes[place] for place in self._last]
        return VectorStoreQueryResult(
            nodes=nodes,
            similarities=[float(scores[place]) for place in self._last],
            ids=[node.node_id for node in nodes],
        )

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """As ``query``."""
        return self.query(query)


class TextStore(SimpleVectorStore):
    """LlamaIndex's store in memory and its search, with the texts that a block wants kept."""

    stores_text: bool = True
    _nodes: dict[str, tuple[int, BaseNode]] = PrivateAttr(
        default_factory=dict[str, tuple[int, BaseNode]]
    )
    _last: list[int] = PrivateAttr(default_factory=list[int])

    @property
    def best(self) -> list[int]:
        """The places of what was found last, best first."""
        return self._last

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """As ever, and keep the nodes."""
        for node in nodes:
            self._nodes[node.node_id] = (len(self._nodes), node)
        return super().add(nodes, **kwargs)

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """As ever, with the nodes."""
        found = super().query(query, **kwargs)
        known = [self._nodes[one] for one in found.ids or ()]
        self._last = [place for place, _ in known]
        return VectorStoreQueryResult(
            nodes=[node for _, node in known], similarities=found.similarities, ids=found.ids
        )


class Tutorial:
    """A vector memory as tutorials have it: one node for each message, persisted with each add."""

    def __init__(self, folder: Path, haystack: Haystack | None = None) -> None:
        self._path = str(folder / "vectors.json")
        self._store = SimpleVectorStore()
        context = StorageContext.from_defaults(vector_store=self._store)
        self._index = VectorStoreIndex(
            [], storage_context=context, embed_model=StaticEmbedding(), store_nodes_override=True
        )

    async def fill(self, items: Sequence[tuple[ItemName, Message]]) -> None:
        """Put messages in without persisting."""
        nodes = [TextNode(id_=json.dumps(name), text=_said(one)) for name, one in items]
        self._index.insert_nodes(nodes)

    async def add(self, name: ItemName, message: Message) -> None:
        """Put one message in."""
        await self.fill([(name, message)])
        self._store.persist(self._path)

    async def recall(self, question: str) -> list[ItemName]:
        """The ten best."""
        # a retriever that was made before a node was added does not find it
        retriever = self._index.as_retriever(similarity_top_k=_DEPTH)
        return [ItemName(*json.loads(one.node_id)) for one in retriever.retrieve(question)]

    async def aclose(self) -> None:
        """Nothing is open."""


class Block:
    """``VectorMemoryBlock``, each message put by itself."""

    store: Callable[[], Any] = TextStore

    def __init__(self, folder: Path, haystack: Haystack | None = None) -> None:
        self._store = self.store()
        self._block = VectorMemoryBlock(
            vector_store=self._store, embed_model=StaticEmbedding(), similarity_top_k=_DEPTH
        )
        self._names: list[ItemName] = []

    async def fill(self, items: Sequence[tuple[ItemName, Message]]) -> None:
        """Put messages in, one by one."""
        for name, message in items:
            await self.add(name, message)

    async def add(self, name: ItemName, message: Message) -> None:
        """Put one message in."""
        self._names.append(name)
        await self._block.aput([ChatMessage(role=message.role, content=_said(message))])

    async def recall(self, question: str) -> list[ItemName]:
        """The ten best."""
        await self._block.aget([ChatMessage(role="user", content=question)])
        return [self._names[place] for place in self._store.best]

    async def aclose(self) -> None:
        """Nothing is open."""


class ArrayBlock(Block):
    """The same, over one array."""

    store = ArrayStore


class Ours:
    """``SecondCallRetriever`` over a SQLite file, each message recorded by itself."""

    def __init__(self, folder: Path, haystack: Haystack | None = None) -> None:
        clock = None
        if haystack is not None and haystack.questions:
            clock = FrozenClock(haystack.questions[0].asked_at)
        self._memory = Memory.open(f"sqlite:///{folder / 'memory.db'}", clock=clock)
        self._retriever = SecondCallRetriever(
            user_id="bench", memory=self._memory, limit=_DEPTH, facts=False
        )

    async def fill(self, items: Sequence[tuple[ItemName, Message]]) -> None:
        """Record session by session."""
        await self._memory.__aenter__()
        user = self._memory.user("bench")
        for session_id in dict.fromkeys(name.session_id for name, _ in items):
            session = await user.session(session_id)
            mine = [one for name, one in items if name.session_id == session_id]
            for start in range(0, len(mine), 500):
                await session.record(*mine[start : start + 500])
        await user.brief(deadline_seconds=None)
        await self._memory.flush()

    async def add(self, name: ItemName, message: Message) -> None:
        """Record one message, durably."""
        session = await self._memory.user("bench").session(name.session_id)
        await session.record(message)

    async def recall(self, question: str) -> list[ItemName]:
        """The ten best."""
        nodes = await self._retriever.aretrieve(question)
        return [ItemName(str(one.metadata["session_id"]), one.node_id) for one in nodes]

    async def aclose(self) -> None:
        """Close the store."""
        await self._memory.aclose()


def _mem0(folder: Path, haystack: Haystack | None = None) -> Mem0:
    return Mem0(folder, StaticEmbedding(), _DEPTH)


_SYSTEMS: dict[str, Callable[[Path, Haystack | None], Any]] = {
    "tutorial": Tutorial,
    "block": Block,
    "array-block": ArrayBlock,
    "ours": Ours,
}
with suppress(PackageNotFoundError):
    version("llama-index-memory-mem0")
    _SYSTEMS["mem0"] = _mem0
_TITLES = {
    "mem0": "llama-index-memory-mem0, infer=False",
    "tutorial": "tutorial's VectorMemory, repaired",
    "block": "LlamaIndex VectorMemoryBlock, over its SimpleVectorStore",
    "array-block": "LlamaIndex VectorMemoryBlock, over one numpy array of this benchmark",
    "ours": "secondcall",
}


def _said(message: Message) -> str:
    return f"{message.speaker}: {message.text}" if message.speaker else message.text


def _items(haystack: Haystack) -> list[tuple[ItemName, Message]]:
    return [
        (ItemName(transcript.session_id, item.id), item)
        for transcript in haystack.sessions
        for item in transcript.items
        if isinstance(item, Message) and item.id is not None
    ]


async def _quality(make_system: Any, haystacks: Sequence[Haystack]) -> float:
    found: list[float] = []
    for haystack in haystacks:
        with tempfile.TemporaryDirectory() as folder:
            system = make_system(Path(folder), haystack)
            await system.fill(_items(haystack))
            for question in haystack.questions:
                ranking = await system.recall(question.text)
                found.append(frac_at(ranking, question.messages, _DEPTH))
            await system.aclose()
    return statistics.fmean(found)


async def _speed(
    make_system: Any, items: Sequence[tuple[ItemName, Message]], questions: Sequence[str], size: int
) -> dict[str, float]:
    """Median milliseconds per add and per recall with so many messages, and megabytes."""
    before = _resident()
    filling = [
        (ItemName(name.session_id, f"{turn}-{name.id}"), replace(one, id=f"{turn}-{name.id}"))
        for turn in range(size // len(items) + 1)
        for name, one in items
    ]
    with tempfile.TemporaryDirectory() as folder:
        system = make_system(Path(folder), None)
        await system.fill(filling[:size])
        await system.recall(questions[0])
        adds = [await _timed(system.add(*one)) for one in filling[-_ADDS:]]
        recalls = [await _timed(system.recall(one)) for one in questions[:_TIMED]]
        after = _resident()
        await system.aclose()
    return {
        "add": statistics.median(adds),
        "recall": statistics.median(recalls),
        "megabytes": (after - before) / 1e6,
    }


def _resident() -> int:
    """The bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


async def _timed(work: Awaitable[object]) -> float:
    begun = time.perf_counter()
    await work
    return (time.perf_counter() - begun) * 1_000


async def _measure(name: str, what: str) -> dict[str, float]:
    source = Source(_DATA / "locomo_dev.json")
    haystacks = locomo.load(source).haystacks
    if what == "quality":
        return {"frac@10": await _quality(_SYSTEMS[name], haystacks)}
    items = [one for haystack in haystacks for one in _items(haystack)]
    questions = [question.text for question in haystacks[0].questions]
    return await _speed(_SYSTEMS[name], items[:4_000], questions, int(what))


def side_by_side() -> int:
    """Print the table; the exit code says whether ours is ten points above the best of the others
    and faster at 20,000 messages than what is LlamaIndex's."""
    if not (_DATA / "locomo_dev.json").exists():
        print("left out: locomo_dev.json is not in the folder SECONDCALL_EVAL_DATA")
        return 0
    rows: dict[str, dict[str, float]] = {}
    for name in _SYSTEMS:
        rows[name] = {}
        for what in ("quality", *map(str, _SIZES)):
            command = [sys.executable, "-W", "ignore", __file__, name, what]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found = json.loads(done.stdout.splitlines()[-1])
            prefix = "" if what == "quality" else f"{what} "
            rows[name] |= {f"{prefix}{key}": value for key, value in found.items()}
            print(f"{name} {what}: {found}", file=sys.stderr, flush=True)
    columns = ["frac@10", *(f"{n} {m}" for n in _SIZES for m in ("add", "recall", "megabytes"))]
    print(f"| memory | {' | '.join(columns)} |")
    print(f"| --- |{' --- |' * len(columns)}")
    for name, row in rows.items():
        shown = [f"{row[one]:.3f}" if one == "frac@10" else f"{row[one]:.2f}" for one in columns]
        print(f"| {_TITLES[name]} | {' | '.join(shown)} |")
    if "mem0" not in _SYSTEMS:
        print("llama-index-memory-mem0 is not installed here")
    others = [row for name, row in rows.items() if name != "ours"]
    ahead = rows["ours"]["frac@10"] - max(row["frac@10"] for row in others)
    theirs = [
        row["20000 recall"] for name, row in rows.items() if name not in ("array-block", "ours")
    ]
    slower = rows["ours"]["20000 recall"] >= min(theirs)
    print(f"\nours is {ahead * 100:.1f} points of frac@10 above the best of the others")
    return int(ahead < 0.1 or slower)


def main() -> int:
    """Print the table, or with a name measure one of them."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("measure", nargs="*", help="one memory, and 'quality' or a size")
    given = arguments.parse_args()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    if not given.measure:
        return side_by_side()
    print(json.dumps(asyncio.run(_measure(*given.measure))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
