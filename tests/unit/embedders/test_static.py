from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from secondcall.embedders.static import StaticEmbedder


async def test_like_meaning_is_nearer_than_unlike() -> None:
    """A question is nearer to its answer than to another sentence."""
    embedder = StaticEmbedder()
    answers = ["We adopted a puppy last spring", "The invoice was paid on Monday"]
    query = await embedder.embed_query("What pet do they have, a dog?")
    scores = await embedder.embed_documents(answers) @ query
    assert scores[0] > scores[1] + 0.1


async def test_vectors_have_unit_length() -> None:
    """Vectors are float32 of length 1, of empty text zeros."""
    vectors = await StaticEmbedder().embed_documents(["hello", "", "x" * 100_000])
    assert vectors.dtype == np.float32
    assert vectors.shape == (3, 256)
    assert np.allclose(np.linalg.norm(vectors, axis=1), [1, 0, 1], atol=1e-5)


def test_a_vector_does_not_depend_on_its_batch() -> None:
    """A text alone has the vector that it has among thousands of tokens of others."""
    embedder = StaticEmbedder()
    texts = [f"message number {number} about the garden " * 30 for number in range(200)]
    together = embedder.embed(texts)
    assert np.array_equal(together[77], embedder.embed([texts[77]])[0])
    assert embedder.embed([]).shape == (0, 256)


def test_the_beginning_and_the_end_of_a_long_text_count() -> None:
    """Of a text over the limit both ends reach the vector."""
    embedder = StaticEmbedder()
    begin = "dog " * 400 + "filler words " * 20_000
    one = embedder.embed([begin + "end", begin + "tax " * 400])
    assert not np.allclose(one[0], one[1], atol=1e-3)


def test_it_works_without_network_and_without_importing_frameworks() -> None:
    """Embedding in a fresh process opens no socket and imports no framework."""
    code = (
        "import socket, sys\n"
        "def refuse(*_): raise AssertionError('a socket was opened')\n"
        "socket.socket.connect = refuse\n"
        "from secondcall.embedders.static import StaticEmbedder\n"
        "StaticEmbedder().embed(['hello'])\n"
        "print(sorted({'torch', 'tokenizers', 'httpx', 'onnxruntime'} & set(sys.modules)))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        timeout=60,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "[]\n"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(alphabet=st.characters(exclude_categories=()), max_size=60), max_size=4))
def test_any_text_is_embedded(texts: list[str]) -> None:
    """Every string has a finite vector."""
    assert np.isfinite(StaticEmbedder().embed(texts)).all()
