"""LlamaIndex's embeddings, models and tokenizer as secondcall's ports."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.utils import get_tokenizer  # pyright: ignore[reportUnknownVariableType] - a bare List

from secondcall.abc import Completion, Embedder, LanguageModel, Prompt, TokenCounter
from secondcall.adapters.llama_index.jsonable import jsonable
from secondcall.checks import check_limit
from secondcall.errors import EmbedderError, InvalidValue, ModelError
from secondcall.usage import Call, report

if TYPE_CHECKING:
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.llms.llm import LLM

    from secondcall.types import JsonValue

__all__ = ["LlamaIndexCounter", "LlamaIndexEmbedder", "LlamaIndexModel"]

_CUT = frozenset({"length", "max_tokens", "MAX_TOKENS"})
_INPUT = ("prompt_tokens", "input_tokens", "prompt_token_count")
_OUTPUT = ("completion_tokens", "output_tokens", "candidates_token_count")
_USAGE = ("usage", "usage_metadata")


class LlamaIndexEmbedder(Embedder):
    """An embedding model of LlamaIndex, for ``Memory.open(url, embedder=...)``.

    ``id`` is kept beside the vectors, so that those of two models are never mixed: give one where
    the model's class and ``model_name`` do not say everything that changes them. Without
    ``dimensions`` the model is asked once, here, for a vector. Say ``local`` when it embeds in this
    process, fast: then its blocking methods are called at once, and facts are embedded too.

    Raises: ``InvalidValue`` for a model without a name, ``EmbedderError`` when asking it failed.
    """

    def __init__(
        self,
        model: BaseEmbedding,
        *,
        id: str | None = None,
        dimensions: int | None = None,
        local: bool = False,
    ) -> None:
        self._model = model
        self.id = _embedder_id(model) if id is None else id
        self.local = local
        if dimensions is None:
            with self._asking():
                dimensions = len(model.get_text_embedding("dimensions"))
        self.dimensions = check_limit("dimensions", dimensions)

    async def embed_documents(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Vectors ``(len(texts), dimensions)``, unit length; zeros for blank text.

        Raises: ``EmbedderError``.
        """
        found = np.zeros((len(texts), self.dimensions), np.float32)
        places = [place for place, text in enumerate(texts) if text.strip()]
        if places:
            asked = [_sendable(texts[place]) for place in places]
            with self._asking():
                if self.local:
                    vectors = self._model.get_text_embedding_batch(asked)
                else:
                    vectors = await self._model.aget_text_embedding_batch(asked)
            found[places] = self._unit(vectors, len(places))
        return found

    async def embed_query(self, text: str) -> npt.NDArray[np.float32]:
        """One vector ``(dimensions,)``, unit length. Raises: ``EmbedderError``."""
        if not text.strip():
            return np.zeros(self.dimensions, np.float32)
        with self._asking():
            if self.local:
                vector = self._model.get_query_embedding(_sendable(text))
            else:
                vector = await self._model.aget_query_embedding(_sendable(text))
        return self._unit([vector], 1)[0]

    def _unit(self, vectors: Sequence[Sequence[float]], count: int) -> npt.NDArray[np.float32]:
        try:
            found = np.asarray(vectors, np.float32)
        except (ValueError, TypeError):
            found = np.zeros((0, 0), np.float32)
        if found.shape != (count, self.dimensions) or not np.isfinite(found).all():
            raise EmbedderError(
                f"{self.id!r} answered {found.shape} numbers, expected {count} vectors of "
                f"{self.dimensions}, all finite"
            )
        length = np.linalg.norm(found, axis=1, keepdims=True)
        return np.divide(found, length, out=np.zeros_like(found), where=length > 0)

    @contextmanager
    def _asking(self) -> Generator[None]:
        """Whatever the model fails with is an ``EmbedderError`` that holds none of its text."""
        try:
            yield
        except Exception as error:  # each of LlamaIndex's models raises what its own client does
            raise EmbedderError(f"{self.id!r} failed ({type(error).__name__})") from None


class LlamaIndexModel(LanguageModel):
    """A model of LlamaIndex, for ``Memory.open(url, model=...)``: it works in the background.

    The answer's bound is sent as ``max_tokens_name``, which providers name differently; with
    ``None`` it is not sent. A schema is put into the prompt, since LlamaIndex has no common way to
    enforce one; what comes back around the JSON is taken off. Usage is reported where the answer
    has it.
    """

    def __init__(
        self, model: LLM, *, id: str | None = None, max_tokens_name: str | None = "max_tokens"
    ) -> None:
        self._model = model
        self._max_tokens_name = max_tokens_name
        self.id = _name("llama-index", model, model.metadata.model_name) if id is None else id

    async def complete(self, prompt: Prompt) -> Completion:
        """The answer to one prompt. Raises: ``ModelError``."""
        options: dict[str, Any] = {}
        if prompt.max_tokens is not None and self._max_tokens_name is not None:
            options[self._max_tokens_name] = prompt.max_tokens
        try:
            answer = await self._model.achat(_asked(prompt), **options)
        except Exception as error:  # providers raise what they like
            raise ModelError(f"{self.id!r} failed ({type(error).__name__})") from None
        raw = _object(answer.raw)
        report(_call(self.id, raw))
        text = answer.message.content or ""
        return Completion(
            text=text if prompt.schema is None else _json_in(text), truncated=_is_cut(raw)
        )


class LlamaIndexCounter(TokenCounter):
    """Counts with LlamaIndex's tokenizer, for ``Memory.open(url, counter=...)``.

    Without ``tokenizer`` it is the one of ``Settings.tokenizer``, as it is at the time of counting.
    """

    def __init__(
        self, tokenizer: Callable[[str], Sequence[Any]] | None = None, *, id: str | None = None
    ) -> None:
        self._tokenizer = tokenizer
        self.id = "llama-index:tokenizer" if id is None else id

    def count(self, text: str) -> int:
        """Tokens in ``text``; 0 for empty text."""
        if not text:
            return 0
        tokenizer = cast("Any", self._tokenizer or get_tokenizer())
        return len(tokenizer(_sendable(text)))


def _embedder_id(model: BaseEmbedding) -> str:
    if model.model_name in ("", "unknown"):
        raise InvalidValue(
            f"{type(model).__name__} does not say which model it is; name it: "
            "LlamaIndexEmbedder(model, id='provider:model')"
        )
    return _name("llama-index", model, model.model_name)


def _name(*parts: object) -> str:
    return ":".join(part if isinstance(part, str) else type(part).__name__ for part in parts)


def _sendable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _asked(prompt: Prompt) -> list[ChatMessage]:
    system = prompt.system
    if prompt.schema is not None:
        system += (
            "\n\nAnswer with one JSON value and nothing else. It must follow this JSON Schema:\n"
            f"{json.dumps(prompt.schema, ensure_ascii=False)}"
        )
    pairs = ((MessageRole.SYSTEM, system), (MessageRole.USER, prompt.user))
    return [ChatMessage(role=role, content=_sendable(text)) for role, text in pairs if text]


def _json_in(text: str) -> str:
    """The JSON in an answer that may have a fence or a sentence around it."""
    starts = [place for mark in "{[" if (place := text.find(mark)) >= 0]
    if not starts:
        return text
    start = min(starts)
    try:
        _, length = json.JSONDecoder().raw_decode(text[start:])
    except (ValueError, RecursionError):
        return text
    return text[start : start + length]


def _object(value: object) -> Mapping[str, JsonValue]:
    """What a provider answered, as JSON; empty where it is no object."""
    found = jsonable(value)
    return found if isinstance(found, Mapping) else {}


def _is_cut(raw: Mapping[str, JsonValue]) -> bool:
    choices = raw.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else raw
    if not isinstance(first, Mapping):
        return False
    reasons = (first.get("finish_reason"), first.get("stop_reason"), first.get("done_reason"))
    return any(reason in _CUT for reason in reasons if isinstance(reason, str))


def _call(model_id: str, raw: Mapping[str, JsonValue]) -> Call:
    found = [one for name in _USAGE if isinstance(one := raw.get(name), Mapping)]
    usage: Mapping[str, JsonValue] = found[0] if found else {}
    return Call(
        model=model_id,
        operation="complete",
        input_tokens=_whole(usage, _INPUT),
        output_tokens=_whole(usage, _OUTPUT),
        raw=usage,
    )


def _whole(usage: Mapping[str, JsonValue], names: Sequence[str]) -> int:
    for name in names:
        found = usage.get(name)
        if isinstance(found, int) and not isinstance(found, bool) and found >= 0:
            return found
    return 0
