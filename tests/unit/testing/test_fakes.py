"""The still clock and the embedder whose meaning can be read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest

from secondcall.errors import InvalidValue
from secondcall.testing.fakes import FrozenClock, WordAxisEmbedder

pytestmark = pytest.mark.anyio


def test_clock_stands_still(frozen_clock: FrozenClock) -> None:
    """The plugin's clock shows the same time until it is moved, forwards or back."""
    assert frozen_clock.now() == frozen_clock.now() == datetime(2026, 1, 1, tzinfo=UTC)
    assert frozen_clock.advance(timedelta(hours=1)) == datetime(2026, 1, 1, 1, tzinfo=UTC)
    frozen_clock.advance(timedelta(hours=-2))
    assert frozen_clock.now() == datetime(2025, 12, 31, 23, tzinfo=UTC)


def test_clock_speaks_utc() -> None:
    """A time of any zone is shown in UTC, a naive one is refused."""
    clock = FrozenClock()
    clock.set(datetime(2026, 5, 1, 2, tzinfo=timezone(timedelta(hours=2))))
    assert clock.now() == datetime(2026, 5, 1, tzinfo=UTC)
    assert clock.now().tzinfo is UTC
    with pytest.raises(InvalidValue, match="naive"):
        clock.set(datetime(2026, 5, 1))  # noqa: DTZ001 - that is the point - the point of the test
    with pytest.raises(InvalidValue, match="naive"):
        FrozenClock(datetime(2026, 5, 1))  # noqa: DTZ001 - that is the point


async def test_embedder_ranks_by_shared_words() -> None:
    """The more words a text shares with the query, the nearer it is; none is a right angle."""
    embedder = WordAxisEmbedder(["seat", "aisle", "window", "refund"])
    documents = await embedder.embed_documents(["Aisle seat!", "a window seat", "refund", "hello"])
    query = await embedder.embed_query("aisle seat")
    assert documents.shape == (4, 4)
    assert documents.dtype == query.dtype == np.float32
    scores = documents @ query
    assert scores == pytest.approx([1.0, 0.5, 0.0, 0.0])
    assert np.linalg.norm(documents, axis=1) == pytest.approx([1, 1, 1, 0])


async def test_embedder_knows_synonyms() -> None:
    """Words on one line of the vocabulary mean the same, whatever their case."""
    embedder = WordAxisEmbedder(["car automobile", "red"])
    (car,) = await embedder.embed_documents(["My CAR"])
    assert car @ await embedder.embed_query("automobile") == pytest.approx(1)


async def test_embedder_keeps_what_it_saw() -> None:
    """``seen`` holds every embedded text in order, so that repeats show."""
    embedder = WordAxisEmbedder(["a"])
    assert (await embedder.embed_documents([])).shape == (0, 1)
    await embedder.embed_documents(["x", "y"])
    await embedder.embed_query("z")
    assert embedder.seen == ["x", "y", "z"]
