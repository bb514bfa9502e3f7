"""The default embedder: a static table of token vectors, in process, offline, under a millisecond.

A text's vector is the mean of its tokens' vectors, scaled to unit length. The table is WordLlama's
32,000 x 256 (MIT; ``data/NOTICE.md``), kept as int8 with one scale a row and memory-mapped, so that
processes share it. ``docs/decisions/default-embedder.md`` holds the measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np
import numpy.typing as npt

from secondcall.abc import Embedder
from secondcall.embedders.vocabulary import BpeVocabulary, default_vocabulary

__all__ = ["StaticEmbedder"]

_MAX_CHARACTERS = 32_768
_BATCH_TOKENS = 8_192


class StaticEmbedder(Embedder):
    """Mean of static token vectors: 256 dimensions, English first, no network, no torch.

    Of a text over 32,768 characters the beginning and the end count, half each. The same text gives
    the same vector on every machine, whatever it is batched with.
    """

    id = "static:wordllama-256-int8:1"
    local = True

    def __init__(self) -> None:
        self._vocabulary: BpeVocabulary = default_vocabulary()
        self._vectors, self._scales = _table()
        self.dimensions = int(self._vectors.shape[1])

    async def embed_documents(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Vectors ``(len(texts), 256)`` float32, unit length; zeros for empty text."""
        return self.embed(texts)

    async def embed_query(self, text: str) -> npt.NDArray[np.float32]:
        """One vector ``(256,)``, unit length."""
        return self.embed([text])[0]

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """The same as ``embed_documents``, without a coroutine: it never waits."""
        result = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        pending: list[list[int]] = []
        start = tokens = 0
        for place, text in enumerate(texts):
            ids = self._vocabulary.encode(_clamp(text))
            pending.append(ids)
            tokens += len(ids)
            if tokens >= _BATCH_TOKENS or place == len(texts) - 1:
                self._pool(pending, result[start : place + 1])
                pending, start, tokens = [], place + 1, 0
        return result

    def _pool(self, batch: Sequence[Sequence[int]], out: npt.NDArray[np.float32]) -> None:
        for row, ids in enumerate(batch):
            if ids:
                numbers = np.asarray(ids, dtype=np.int64)
                total = self._scales[numbers] @ self._vectors[numbers].astype(np.float32)
                out[row] = total / max(float(np.linalg.norm(total)), 1e-12)


def _clamp(text: str) -> str:
    if len(text) <= _MAX_CHARACTERS:
        return text
    half = _MAX_CHARACTERS // 2
    return f"{text[:half]} {text[-half:]}"


@cache
def _table() -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    folder = Path(str(resources.files("secondcall.embedders") / "data"))
    vectors: npt.NDArray[np.int8] = np.asarray(np.load(folder / "vectors.npy", mmap_mode="r"))
    scales: npt.NDArray[np.float32] = np.load(folder / "scales.npy")
    return vectors, scales
