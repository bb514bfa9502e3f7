"""The port of token vectors: an embedder that gives a vector of each token beside that of the text.

Recall ranks the best of its candidates once more by them (``recall/maxsim.py``). An embedder that
gives no token vectors is asked for none.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from secondcall.abc import Embedder

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["DocumentVectors", "QueryVectors", "TokenEmbedder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentVectors:
    """Vectors of several texts: ``vectors`` ``(texts, dimensions)`` float32, unit length, zeros for
    empty text, and for each text its ``tokens`` ``(count, token_dimensions)`` float32, unit length,
    at most ``most_tokens``; none for empty text."""

    vectors: npt.NDArray[np.float32]
    tokens: Sequence[npt.NDArray[np.float32]]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryVectors:
    """Vectors of a question: ``vector`` ``(dimensions,)``, and its ``tokens`` ``(count,
    token_dimensions)``, unit length, each from the characters ``spans[i]`` (begin, end) of it."""

    vector: npt.NDArray[np.float32]
    tokens: npt.NDArray[np.float32]
    spans: Sequence[tuple[int, int]]


class TokenEmbedder(Embedder):
    """An embedder that gives token vectors too. ``id`` names what changes them as well."""

    token_dimensions: int
    """Kept as one byte each, so a message takes up to ``most_tokens`` times as many bytes."""
    most_tokens: int

    @abstractmethod
    async def embed_document_tokens(self, texts: Sequence[str]) -> DocumentVectors:
        """The texts' vectors and those of their tokens. Raises: ``EmbedderError``."""

    @abstractmethod
    async def embed_query_tokens(self, text: str) -> QueryVectors:
        """The question's vector and those of its tokens. Raises: ``EmbedderError``."""
