"""What a question means: its vector, and its token vectors where the embedder gives any."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from typing import TYPE_CHECKING, NamedTuple

from secondcall.abc_tokens import TokenEmbedder
from secondcall.errors import EmbedderError
from secondcall.recall.maxsim import QueryTokens

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from secondcall.abc import Embedder
    from secondcall.memory.shared import Place

__all__ = ["NO_MEANING", "Meaning", "meaning_of"]

_log = logging.getLogger("secondcall")
_EMBED_CHARACTERS = 8_000
_LONG_CHARACTERS = 1_000
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


class Meaning(NamedTuple):
    """A question's vector ``(dimensions,)`` and token vectors, as far as there are any."""

    vector: npt.NDArray[np.float32] | None = None
    tokens: QueryTokens | None = None


NO_MEANING = Meaning()


async def meaning_of(place: Place, query: str, until: float | None) -> Meaning:
    """The query's vectors; a model that fails or is late leaves the search to the words."""
    if not query.strip():
        return NO_MEANING
    embedder = place.shared.embedder
    text = _meant(query)
    if embedder.local:
        return Meaning(await embedder.embed_query(text))
    timeout = None if until is None else max(0.0, until - time.perf_counter())
    try:
        async with asyncio.timeout(timeout):
            with place.metered("recall"):
                return await _asked(embedder, text)
    except (EmbedderError, TimeoutError) as error:
        _log.warning(
            "the query could not be embedded; searched by words only",
            extra={"error": type(error).__name__},
        )
        return NO_MEANING


async def _asked(embedder: Embedder, text: str) -> Meaning:
    if not isinstance(embedder, TokenEmbedder):
        return Meaning(await embedder.embed_query(text))
    made = await embedder.embed_query_tokens(text)
    tokens = QueryTokens(text=text, vectors=made.tokens, spans=made.spans)
    return Meaning(made.vector, tokens if len(made.spans) else None)


def _meant(query: str) -> str:
    """What of a query is embedded: of a long one, each sentence once, as far as fits."""
    if len(query) > _LONG_CHARACTERS:
        query = " ".join(dict.fromkeys(_SENTENCE.split(query)))
    return query[:_EMBED_CHARACTERS]
