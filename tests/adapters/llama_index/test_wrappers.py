from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from llama_index.core import Settings
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import Field
from llama_index.core.llms import ChatMessage, ChatResponse, MockLLM

from secondcall import (
    EmbedderError,
    InvalidValue,
    Memory,
    Message,
    ModelError,
)
from secondcall.abc import Prompt
from secondcall.adapters.llama_index.wrappers import (
    LlamaIndexCounter,
    LlamaIndexEmbedder,
    LlamaIndexModel,
)
from secondcall.usage import Call, collecting


class LetterEmbedding(BaseEmbedding):
    """Counts letters: enough to tell words apart."""

    broken: bool = False
    short: bool = False

    def _vector(self, text: str) -> list[float]:
        if self.broken:
            raise ConnectionError(f"no answer for {text}")
        counts = [float(text.lower().count(letter)) for letter in "abcdefghijklmnopqrstuvwxyz"]
        return counts[:3] if self.short else counts

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._vector(text)

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._vector(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._vector(query)


class AnsweringLLM(MockLLM):
    """Answers with one text and what a provider says beside it."""

    answer: str = "fine"
    raw: Any = None
    asked: list[Sequence[ChatMessage]] = Field(default_factory=list[Sequence[ChatMessage]])
    options: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])

    def __init__(self, answer: str = "fine", raw: Any = None) -> None:
        super().__init__(max_tokens=None)
        self.answer, self.raw = answer, raw

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The answer."""
        self.asked.append(messages)
        self.options.append(kwargs)
        if self.answer == "error":
            raise TimeoutError("a secret in the text")
        message = ChatMessage(role="assistant", content=self.answer)
        return ChatResponse(message=message, raw=self.raw)


async def test_an_embedding_gives_unit_vectors() -> None:
    """Vectors are of unit length, zeros for blank text, and odd characters are sent as UTF-8."""
    embedder = LlamaIndexEmbedder(LetterEmbedding(model_name="letters"))
    assert (embedder.id, embedder.dimensions) == ("llama-index:LetterEmbedding:letters", 26)
    found = await embedder.embed_documents(["aab", " ", "odd \ud800"])
    assert found.dtype == np.float32
    assert np.allclose(np.linalg.norm(found, axis=1), [1.0, 0.0, 1.0])
    assert np.allclose(await embedder.embed_query("aab"), found[0])
    assert not (await embedder.embed_query("")).any()


async def test_recall_works_with_it() -> None:
    """A memory that is opened with the embedding records and recalls."""
    embedder = LlamaIndexEmbedder(LetterEmbedding(model_name="letters"), local=True)
    async with Memory.open("memory://", embedder=embedder) as memory:
        session = await memory.user("ana").session("a")
        await session.record(Message("user", "My vendor is Acme."))
        found = await memory.user("ana").recall("Who is the vendor?")
        assert len(found.items) == 1


async def test_an_embedding_that_fails_is_an_embedder_error() -> None:
    """A provider's error, and an answer of another size, are mapped without their text."""
    model = LetterEmbedding(model_name="letters")
    embedder = LlamaIndexEmbedder(model)
    model.broken = True
    with pytest.raises(EmbedderError, match="ConnectionError") as caught:
        await embedder.embed_documents(["hidden words"])
    assert "hidden" not in str(caught.value)
    with pytest.raises(EmbedderError):
        await embedder.embed_query("x")
    with pytest.raises(EmbedderError):
        LlamaIndexEmbedder(model)
    model.broken, model.short = False, True
    with pytest.raises(EmbedderError, match="26"):
        await embedder.embed_query("x")


def test_an_embedding_without_a_name_is_refused() -> None:
    """Vectors of a model that does not say which it is could be mixed: it must be given an id."""
    with pytest.raises(InvalidValue, match="id="):
        LlamaIndexEmbedder(LetterEmbedding())
    assert LlamaIndexEmbedder(LetterEmbedding(), id="mine", dimensions=26).id == "mine"


async def test_a_model_answers_and_its_usage_is_reported() -> None:
    """The prompt is sent as system and user message, the bound under the provider's name, and what
    it used is reported."""
    usage = {"prompt_tokens": 12, "completion_tokens": 3}
    llm = AnsweringLLM(raw={"choices": [{"finish_reason": "length"}], "usage": usage})
    model = LlamaIndexModel(llm, id="m", max_tokens_name="max_new")
    calls: list[Call] = []
    with collecting(calls.append):
        completion = await model.complete(Prompt(system="Be brief.", user="hi", max_tokens=3))
    assert (completion.text, completion.truncated) == ("fine", True)
    assert [one.role.value for one in llm.asked[0]] == ["system", "user"]
    assert llm.options == [{"max_new": 3}]
    assert (calls[0].model, calls[0].input_tokens, calls[0].output_tokens) == ("m", 12, 3)
    assert calls[0].raw == usage


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ('```json\n{"a": [1, "}"]}\n``` there', '{"a": [1, "}"]}'),
        ("[1, 2] is it", "[1, 2]"),
        ("no json {", "no json {"),
        ("none", "none"),
    ],
)
async def test_a_schema_stands_in_the_prompt(answer: str, expected: str) -> None:
    """The schema is part of what is asked, and what stands around the JSON is taken off."""
    llm = AnsweringLLM(answer)
    prompt = Prompt(system="Find facts.", user="hi", schema={"type": "object"})
    completion = await LlamaIndexModel(llm, max_tokens_name=None).complete(prompt)
    assert completion.text == expected
    assert '{"type": "object"}' in str(llm.asked[0][0].content)


async def test_a_model_that_fails_is_a_model_error() -> None:
    """A provider's error is mapped, without its text."""
    llm = AnsweringLLM("error")
    with pytest.raises(ModelError, match="TimeoutError") as caught:
        await LlamaIndexModel(llm).complete(Prompt(system="", user="hi"))
    assert "secret" not in str(caught.value)


def test_tokens_are_counted_by_the_setting() -> None:
    """Without a tokenizer of its own the counter follows ``Settings.tokenizer``."""
    before = Settings.tokenizer
    counter = LlamaIndexCounter()
    try:
        Settings.tokenizer = str.split
        assert counter.count("one two three") == 3
        Settings.tokenizer = list
        assert counter.count("one") == 3
    finally:
        Settings.tokenizer = before
    assert counter.count("") == 0
    assert LlamaIndexCounter(str.split).count("a \ud800 b") == 3
    assert LlamaIndexCounter().count("hello world") >= 2
