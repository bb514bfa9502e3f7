"""Token vectors of a sentence model beside the default embedder's vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from secondcall.embedders.maxsim import MaxSimEmbedder
from secondcall.embedders.static import StaticEmbedder
from secondcall.memory import Memory
from secondcall.registry import embedder_from_name
from secondcall.types import Message


async def test_each_token_has_its_own_unit_vector(folder: Path) -> None:
    """Marks and padding have none, empty text has none, a long text the first few."""
    embedder = MaxSimEmbedder(str(folder), most_tokens=2)
    made = await embedder.embed_document_tokens(["dog !", "", "cat tax dog"])
    first, second, third = made.tokens
    assert np.allclose(first, [[1, 0]])
    assert second.shape == (0, 2)
    assert np.allclose(third, [[0.8, 0.6], [0, 1]], atol=1e-6)


async def test_whole_texts_are_those_of_the_default_embedder(folder: Path) -> None:
    """Vectors of texts and questions are the static ones, with and without tokens."""
    embedder, static = MaxSimEmbedder(str(folder)), StaticEmbedder()
    texts = ["the dog sleeps", ""]
    made = await embedder.embed_document_tokens(texts)
    assert embedder.dimensions == 256
    assert np.array_equal(made.vectors, static.embed(texts))
    assert np.array_equal(await embedder.embed_documents(texts), static.embed(texts))
    assert np.array_equal(await embedder.embed_query("dog"), static.embed(["dog"])[0])


async def test_tokens_of_a_question_say_where_they_stand(folder: Path) -> None:
    """The span of each token cuts its word out of the question."""
    asked = await MaxSimEmbedder(str(folder)).embed_query_tokens("dog , tax")
    assert ["dog , tax"[begin:end] for begin, end in asked.spans] == ["dog", "tax"]
    assert np.allclose(asked.tokens, [[1, 0], [0, 1]])


async def test_fewer_dimensions_are_the_first_ones(folder: Path) -> None:
    """Of each hidden state the first numbers are kept, scaled to unit length; the id says so."""
    whole, cut = MaxSimEmbedder(str(folder)), MaxSimEmbedder(str(folder), token_dimensions=1)
    assert (await cut.embed_document_tokens(["cat"])).tokens[0].tolist() == [[1]]
    assert (whole.token_dimensions, cut.token_dimensions) == (2, 1)
    assert whole.id != cut.id


async def test_recall_is_ranked_by_token_vectors(folder: Path) -> None:
    """Named as "maxsim:FOLDER", the model's tokens move what they are nearest to up, sealed or not,
    and ``explain`` says by how much."""
    embedder = embedder_from_name(f"maxsim:{folder}")
    async with Memory.open("memory://", embedder=embedder) as memory:
        user = memory.user("ana")
        for name, speaker in (("cat", "Ann"), ("tax", "Ben")):
            session = await user.session(name)
            text = f"My {name} sits by the door"
            await session.record(Message("user", text, id=name, speaker=speaker))
        await user.recall("which dog sits by the door?")
        await memory.flush()
        for _ in ("the tail", "segments"):
            found = await user.recall("which dog sits by the door?", explain=True)
            added = {one.key.id: one.features.get("maxsim", 0.0) for one in found.items}
            assert added["cat"] > added["tax"] == 0.0
            await user.reindex()
