"""Embeddings from any endpoint that speaks OpenAI's ``POST /embeddings``: hosted, or your own.

Vectors are asked for as plain floats, in batches, with a timeout and a few repeats; they are
checked and scaled to unit length. Texts and keys never stand in an error.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import anyio
import numpy as np
import numpy.typing as npt

from secondcall.abc import Embedder
from secondcall.errors import EmbedderError, InvalidValue, MissingExtra
from secondcall.usage import Call, report

try:
    import httpx
except ImportError:
    raise MissingExtra(
        "the OpenAI-compatible embedder needs httpx; pip install 'secondcall[openai]'"
    ) from None

__all__ = ["OpenAIEmbedder"]

_DIMENSIONS = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
}
_BATCH_CHARACTERS = 100_000
_MAX_CHARACTERS = 24_000
_TRIES = 3
_MAX_WAIT_SECONDS = 10.0
_BUSY = frozenset({408, 409, 429, 500, 502, 503, 504})


class OpenAIEmbedder(Embedder):
    """A model behind an OpenAI-compatible endpoint.

    ``model`` may carry the endpoint, as in ``"bge-m3@http://localhost:8080/v1"``, which is how a
    setting names both. ``dimensions`` is sent only when given (then the model must support it);
    else it is known for OpenAI's own models and learnt from the first answer for others. Prefixes
    are put before queries and documents for models that want them; they are part of ``id``.

    Empty text is not sent and has a zero vector; text over 24,000 characters is cut.
    """

    def __init__(
        self,
        model: str = "text-embedding-3-small",
        *,
        base_url: str = "https://api.openai.com/v1",
        api_key: str | None = None,
        dimensions: int | None = None,
        query_prefix: str = "",
        document_prefix: str = "",
        batch_size: int = 128,
        timeout_seconds: float = 30.0,
    ) -> None:
        name, _, address = model.partition("@")
        base_url = address or base_url
        if urlsplit(base_url).scheme not in ("http", "https"):
            raise InvalidValue("base_url must begin with http:// or https://")
        if batch_size < 1 or (dimensions is not None and dimensions < 1):
            raise InvalidValue("batch_size and dimensions must be at least 1")
        self._model = name
        self._url = f"{base_url.rstrip('/')}/embeddings"
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._asked_dimensions = dimensions
        self._query_prefix = query_prefix
        self._document_prefix = document_prefix
        self._batch_size = batch_size
        self._timeout = httpx.Timeout(timeout_seconds)
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = (
            WeakKeyDictionary()
        )
        self.dimensions = dimensions or _DIMENSIONS.get(name, 0)
        prefixes = f":{query_prefix}|{document_prefix}" if query_prefix or document_prefix else ""
        size = f":{dimensions}" if dimensions else ""
        self.id = f"openai:{urlsplit(base_url).hostname}:{name}{size}{prefixes}"

    async def embed_documents(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Vectors ``(len(texts), dimensions)``, unit length. Raises: ``EmbedderError``."""
        return await self._embed(texts, self._document_prefix)

    async def embed_query(self, text: str) -> npt.NDArray[np.float32]:
        """One vector ``(dimensions,)``, unit length. Raises: ``EmbedderError``."""
        return (await self._embed([text], self._query_prefix))[0]

    async def aclose(self) -> None:
        """Close the connections of this event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    async def _embed(self, texts: Sequence[str], prefix: str) -> npt.NDArray[np.float32]:
        places = [place for place, text in enumerate(texts) if text.strip()]
        found = [
            self._checked(await self._request(batch), len(batch))
            for batch in self._batches([f"{prefix}{texts[place]}" for place in places])
        ]
        result = np.zeros((len(texts), self.dimensions), np.float32)
        if places:
            result[places] = np.concatenate(found)
        return result

    def _batches(self, texts: Sequence[str]) -> list[list[str]]:
        batches: list[list[str]] = []
        characters = 0
        for text in texts:
            sent = text[:_MAX_CHARACTERS].encode("utf-8", "replace").decode("utf-8")
            full = not batches or len(batches[-1]) >= self._batch_size
            if full or characters + len(sent) > _BATCH_CHARACTERS:
                batches.append([])
                characters = 0
            batches[-1].append(sent)
            characters += len(sent)
        return batches

    async def _request(self, batch: Sequence[str]) -> object:
        body: dict[str, object] = {
            "model": self._model,
            "input": batch,
            "encoding_format": "float",
        }
        if self._asked_dimensions is not None:
            body["dimensions"] = self._asked_dimensions
        problem = "no answer"
        for attempt in range(1, _TRIES + 1):
            wait = 0.25 * 2**attempt
            try:
                answer = await self._client().post(self._url, json=body, headers=self._headers)
            except httpx.HTTPError as error:
                problem = type(error).__name__
            else:
                if answer.status_code == 200:
                    return self._used(_json(answer))
                problem = f"HTTP {answer.status_code}"
                if answer.status_code not in _BUSY:
                    break
                wait = _retry_after(answer) or wait
            if attempt < _TRIES:
                await anyio.sleep(min(wait, _MAX_WAIT_SECONDS))
        raise EmbedderError(
            f"embedding {len(batch)} texts with {self._model!r} failed: {problem}; "
            "check base_url, api_key and the model's name"
        )

    def _used(self, answer: object) -> object:
        """The answer, after what it says that it used was reported."""
        said = cast("dict[str, Any]", answer).get("usage") if isinstance(answer, dict) else None
        used = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
        tokens = used.get("prompt_tokens", used.get("total_tokens", 0))
        report(
            Call(
                model=self._model,
                operation="embed",
                input_tokens=tokens if isinstance(tokens, int) else 0,
                cost=used.get("cost"),
                raw=used,
            )
        )
        return cast("object", answer)

    def _client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._clients[loop] = httpx.AsyncClient(timeout=self._timeout)
        return client

    def _checked(self, answer: object, expected: int) -> npt.NDArray[np.float32]:
        try:
            data = cast("dict[str, Any]", answer)["data"]
            ordered = sorted(data, key=lambda one: int(one["index"]))
            vectors = np.array([one["embedding"] for one in ordered], dtype=np.float32)
        except (KeyError, TypeError, ValueError) as error:
            raise EmbedderError(
                f"the endpoint of {self._model!r} answered out of form ({type(error).__name__})"
            ) from None
        width = self.dimensions or (vectors.shape[1] if vectors.ndim == 2 else 0)
        if vectors.shape != (expected, width) or not width or not np.isfinite(vectors).all():
            raise EmbedderError(
                f"the endpoint of {self._model!r} answered vectors of shape {vectors.shape}, "
                f"expected ({expected}, {width}) finite numbers"
            )
        self.dimensions = width
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        return (vectors / np.maximum(norms, 1e-12)).astype(np.float32)


def _json(answer: httpx.Response) -> object:
    try:
        return answer.json()
    except ValueError:
        raise EmbedderError("the embedding endpoint did not answer with JSON") from None


def _retry_after(answer: httpx.Response) -> float:
    try:
        seconds = float(answer.headers.get("retry-after", "0"))
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0
