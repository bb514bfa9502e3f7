from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from secondcall.embedders.onnx import OnnxEmbedder
from secondcall.errors import InvalidValue


async def test_a_text_is_the_mean_of_its_tokens(folder: Path) -> None:
    """Padding does not count, vectors have unit length, empty text has zeros."""
    embedder = OnnxEmbedder(str(folder))
    vectors = await embedder.embed_documents(["dog", "", "dog tax tax dog", "cat"])
    assert embedder.dimensions == 2
    expected = [[1, 0], [0, 0], [0.5**0.5, 0.5**0.5], [0.8, 0.6]]
    assert np.allclose(vectors, expected, atol=1e-6)
    assert np.allclose(await embedder.embed_query("dog"), [1, 0])


async def test_prefixes_reach_the_model_and_the_id(folder: Path) -> None:
    """A query prefix changes the query's vector, and the id names it."""
    embedder = OnnxEmbedder(str(folder), query_prefix="tax ")
    assert np.allclose(await embedder.embed_query("dog"), [0.5**0.5, 0.5**0.5])
    assert np.allclose(await embedder.embed_documents(["dog"]), [[1, 0]])
    assert embedder.id != OnnxEmbedder(str(folder)).id


async def test_broken_text_is_embedded(folder: Path) -> None:
    """Lone surrogates and null bytes do not stop a batch."""
    vectors = await OnnxEmbedder(str(folder)).embed_documents(["dog \ud800", "\x00"])
    assert np.isfinite(vectors).all()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A folder without a model says which file is missing."""
    with pytest.raises(InvalidValue, match=r"model\.onnx"):
        OnnxEmbedder(str(tmp_path))
