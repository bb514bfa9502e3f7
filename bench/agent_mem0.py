# pyright: basic, reportMissingImports=false
"""``Mem0Memory`` of llama-index-memory-mem0 as ``agent_recall.py`` measures it, where installed.

What its ``put`` stores is extracted by a model, with each message: offline it raises ``LLMError``.
So messages go in through its ``add`` with ``infer=False``, which stores them as they are, one
vector each, in mem0's default store (Qdrant, in this process) with the embedder of the others.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from secondcall import Message
from secondcall.evaluate.questions import ItemName

__all__ = ["Mem0"]

_DIMENSIONS = 256
_SCOPE = {"user_id": "bench"}


class _Embedder:
    """An embedding of LlamaIndex in the form that mem0 asks for."""

    def __init__(self, config: Any, embedding: Any) -> None:
        self.config = config
        self._embedding = embedding

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        """The vector of a text, as a question when it is searched for."""
        if memory_action == "search":
            return self._embedding.get_query_embedding(text)
        return self._embedding.get_text_embedding(text)

    def embed_batch(
        self, texts: Sequence[str], memory_action: str | None = None
    ) -> list[list[float]]:
        """The vectors of texts."""
        return [self.embed(text, memory_action) for text in texts]


class Mem0:
    """Each message put by itself, word for word."""

    def __init__(self, folder: Path, embedding: Any, depth: int) -> None:
        os.environ |= {"MEM0_TELEMETRY": "False", "MEM0_DIR": str(folder)}
        from llama_index.memory.mem0 import Mem0Memory

        unused = {"provider": "openai", "config": {"model": "none", "api_key": "none"}}
        store = {
            "path": str(folder / "vectors"),
            "collection_name": "bench",
            "embedding_model_dims": _DIMENSIONS,
            "on_disk": True,
        }
        self._memory: Any = Mem0Memory.from_config(
            context=_SCOPE,
            config={
                "vector_store": {"provider": "qdrant", "config": store},
                "llm": unused,
                "embedder": unused,
                "history_db_path": str(folder / "history.db"),
            },
        )
        client = self._memory._client
        client.embedding_model = _Embedder(client.embedding_model.config, embedding)
        self._depth = depth

    async def fill(self, items: Sequence[tuple[ItemName, Message]]) -> None:
        """Put messages in, one by one."""
        for name, message in items:
            await self.add(name, message)

    async def add(self, name: ItemName, message: Message) -> None:
        """Put one message in."""
        said = f"{message.speaker}: {message.text}" if message.speaker else message.text
        self._memory.add(
            [{"role": message.role, "content": said}],
            metadata={"name": json.dumps(name)},
            infer=False,
            **_SCOPE,
        )

    async def recall(self, question: str) -> list[ItemName]:
        """The ten best."""
        found = self._memory.search(question, filters=_SCOPE, top_k=self._depth)
        return [ItemName(*json.loads(one["metadata"]["name"])) for one in found["results"]]

    async def aclose(self) -> None:
        """Close the store."""
        self._memory._client.vector_store.client.close()
