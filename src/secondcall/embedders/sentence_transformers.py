"""Embeddings from a model of the ``sentence-transformers`` package, in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import anyio.to_thread
import numpy as np
import numpy.typing as npt

from secondcall.abc import Embedder
from secondcall.errors import EmbedderError, MissingExtra

try:
    import sentence_transformers  # pyright: ignore[reportMissingImports] - an extra
except ImportError:
    raise MissingExtra(
        "this embedder needs sentence-transformers; pip install 'secondcall[sentence-transformers]'"
    ) from None

__all__ = ["SentenceTransformersEmbedder"]


class SentenceTransformersEmbedder(Embedder):
    """A sentence-transformers model by name or folder; runs in a worker thread.

    The model's own prompts are used where it has ones called "query" and "document"; ``revision``
    pins a version, and is part of ``id``. A name that is not on this machine is downloaded by that
    package.
    """

    def __init__(
        self,
        model: str = "all-MiniLM-L6-v2",
        *,
        revision: str | None = None,
        device: str | None = None,
        batch_size: int = 32,
    ) -> None:
        self._batch_size = batch_size
        self._model = cast("Any", sentence_transformers).SentenceTransformer(
            model, revision=revision, device=device
        )
        self._prompts = cast("dict[str, str]", getattr(self._model, "prompts", None) or {})
        self.dimensions = int(self._model.get_sentence_embedding_dimension())
        self.id = f"sentence-transformers:{model}" + (f"@{revision}" if revision else "")

    async def embed_documents(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Vectors ``(len(texts), dimensions)``, unit length. Raises: ``EmbedderError``."""
        return await anyio.to_thread.run_sync(self._encode, list(texts), "document")

    async def embed_query(self, text: str) -> npt.NDArray[np.float32]:
        """One vector ``(dimensions,)``, unit length. Raises: ``EmbedderError``."""
        return (await anyio.to_thread.run_sync(self._encode, [text], "query"))[0]

    def _encode(self, texts: list[str], kind: str) -> npt.NDArray[np.float32]:
        result = np.zeros((len(texts), self.dimensions), np.float32)
        places = [place for place, text in enumerate(texts) if text.strip()]
        if not places:
            return result
        try:
            vectors = self._model.encode(
                [texts[place].encode("utf-8", "replace").decode("utf-8") for place in places],
                batch_size=self._batch_size,
                normalize_embeddings=True,
                prompt_name=kind if self._prompts.get(kind) else None,
                show_progress_bar=False,
            )
        except (RuntimeError, ValueError, OSError) as error:
            raise EmbedderError(f"{self.id!r} failed ({type(error).__name__})") from None
        result[places] = np.asarray(vectors, dtype=np.float32)
        return result
