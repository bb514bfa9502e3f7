"""Products of a question's vector with the rows of an index."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secondcall.recall.products import Halves, largest_whole, products


@given(dimensions=st.integers(1, 1_600), rows=st.integers(0, 40), seed=st.integers(0, 2**32 - 1))
def test_products_are_exact(dimensions: int, rows: int, seed: int) -> None:
    """Every product is the whole number that integers give, at every width."""
    random = np.random.default_rng(seed)
    vectors = random.integers(-127, 128, (rows, dimensions), dtype=np.int8)
    most = largest_whole(dimensions)
    whole = random.integers(-most, most + 1, dimensions)
    found = products(vectors, Halves(whole.astype(np.float32)))
    assert found.dtype == np.float32
    assert found.astype(np.int64).tolist() == (vectors.astype(np.int64) @ whole).tolist()


@pytest.mark.parametrize("dimensions", [1, 9, 256, 1_536])
def test_the_largest_products_are_exact(dimensions: int) -> None:
    """Rows and questions of nothing but the largest numbers, of either sign, lose nothing."""
    most = largest_whole(dimensions)
    vectors = np.array([[127] * dimensions, [-127] * dimensions], dtype=np.int8)
    for sign in (1, -1):
        found = products(vectors, Halves(np.full(dimensions, sign * most, np.float32)))
        assert found.tolist() == [sign * 127 * most * dimensions, -sign * 127 * most * dimensions]


def test_rows_beyond_one_chunk_and_apart_in_memory_count_as_any() -> None:
    """Where rows are cut into chunks, or are every second of others, changes no product."""
    random = np.random.default_rng(1)
    vectors = random.integers(-127, 128, (20_001, 8), dtype=np.int8)
    whole = random.integers(-500, 501, 8)
    halves = Halves(whole.astype(np.float32))
    exact = vectors.astype(np.int64) @ whole
    assert products(vectors, halves).tolist() == exact.tolist()
    assert products(vectors[::2], halves).tolist() == exact[::2].tolist()
