"""The default embedder's vectors, and token vectors of a sentence model to rank the best again."""

from __future__ import annotations

from collections.abc import Sequence

import anyio.to_thread
import numpy as np
import numpy.typing as npt

from secondcall.abc_tokens import DocumentVectors, QueryVectors, TokenEmbedder
from secondcall.embedders.onnx import SentenceModel, TokenStates
from secondcall.embedders.static import StaticEmbedder

__all__ = ["MaxSimEmbedder"]


class MaxSimEmbedder(TokenEmbedder):
    """A folder with ``model.onnx`` and ``tokenizer.json``, for token vectors; the vectors of whole
    texts are those of ``StaticEmbedder``.

    Of a message its first ``most_tokens`` tokens with a letter or digit count, each with the first
    ``token_dimensions`` numbers of its hidden state. The file's hash is part of ``id``, so that
    another export never mixes with this one. Runs in a worker thread, on ``threads`` cores.
    """

    def __init__(
        self,
        model: str,
        *,
        most_tokens: int = 48,
        token_dimensions: int = 64,
        batch_size: int = 32,
        threads: int = 1,
    ) -> None:
        self._static = StaticEmbedder()
        self._model = SentenceModel(model, max_tokens=2 * most_tokens, threads=threads)
        self._batch_size = batch_size
        self.most_tokens = most_tokens
        self.token_dimensions = min(token_dimensions, self._model.dimensions)
        self.dimensions = self._static.dimensions
        self.id = f"maxsim:{self._model.id}:{most_tokens}x{self.token_dimensions}+{self._static.id}"

    async def embed_documents(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Vectors ``(len(texts), 256)`` float32, unit length; zeros for empty text."""
        return await anyio.to_thread.run_sync(self._static.embed, texts)

    async def embed_query(self, text: str) -> npt.NDArray[np.float32]:
        """One vector ``(256,)``, unit length."""
        return await self._static.embed_query(text)

    async def embed_document_tokens(self, texts: Sequence[str]) -> DocumentVectors:
        """The texts' vectors and those of their tokens. Raises: ``EmbedderError``."""
        return await anyio.to_thread.run_sync(self._documents, texts)

    async def embed_query_tokens(self, text: str) -> QueryVectors:
        """The question's vector and those of its tokens. Raises: ``EmbedderError``."""
        return await anyio.to_thread.run_sync(self._query, text)

    def _documents(self, texts: Sequence[str]) -> DocumentVectors:
        blank = np.empty((0, self.token_dimensions), np.float32)
        tokens = [blank] * len(texts)
        places = [place for place, text in enumerate(texts) if text.strip()]
        # Texts of like length share a batch: less padding, and padding is most of the cost.
        places.sort(key=lambda place: len(texts[place]))
        for start in range(0, len(places), self._batch_size):
            batch = places[start : start + self._batch_size]
            for place, states in zip(
                batch, self._model.states([texts[place] for place in batch]), strict=True
            ):
                tokens[place] = self._kept(states, texts[place])[0]
        return DocumentVectors(vectors=self._static.embed(texts), tokens=tokens)

    def _query(self, text: str) -> QueryVectors:
        vectors, spans = self._kept(self._model.states([text])[0], text)
        return QueryVectors(vector=self._static.embed([text])[0], tokens=vectors, spans=spans)

    def _kept(
        self, states: TokenStates, text: str
    ) -> tuple[npt.NDArray[np.float32], list[tuple[int, int]]]:
        """The unit vectors of the tokens that count, and their places in the text."""
        places = [
            place
            for place, (begin, end) in enumerate(states.spans)
            if any(map(str.isalnum, text[begin:end]))
        ][: self.most_tokens]
        vectors = states.hidden[places, : self.token_dimensions]
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        unit = (vectors / np.maximum(norms, 1e-12)).astype(np.float32)
        return unit, [states.spans[place] for place in places]
