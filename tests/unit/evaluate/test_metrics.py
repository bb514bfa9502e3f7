"""The figures are what their definitions say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secondcall.evaluate.metrics import (
    MESSAGE_FIGURES,
    SESSION_FIGURES,
    all_at,
    any_at,
    figures,
    frac_at,
    mean_figures,
    newest_first,
    percentile,
    reciprocal_rank,
    unique,
)

RANKINGS = st.lists(st.integers(0, 30), unique=True, max_size=30)
GOLDS = st.frozensets(st.integers(0, 30), min_size=1, max_size=6)


def test_two_of_three_found() -> None:
    """With two of three gold items in the first ten, the figures are those counted by hand."""
    found = figures(MESSAGE_FIGURES, list("abcdefghijkl"), {"c", "h", "l"})
    assert found == {
        "frac@5": pytest.approx(1 / 3),
        "frac@10": pytest.approx(2 / 3),
        "any@10": 1.0,
        "all@10": 0.0,
        "mrr": pytest.approx(1 / 3),
    }


def test_sessions() -> None:
    """Session figures count a session at its best message."""
    sessions = unique(["s2", "s2", "s1", "s2", "s3"])
    assert sessions == ["s2", "s1", "s3"]
    assert figures(SESSION_FIGURES, sessions, {"s1", "s3"}) == {
        "any@1": 0.0,
        "any@5": 1.0,
        "all@5": 1.0,
        "any@10": 1.0,
    }


@given(RANKINGS, GOLDS, st.integers(1, 12))
def test_figures_agree(ranking: list[int], gold: frozenset[int], k: int) -> None:
    """A share lies between all and any, grows with k, and a first place has reciprocal rank 1."""
    assert all_at(ranking, gold, k) <= frac_at(ranking, gold, k) <= any_at(ranking, gold, k)
    assert frac_at(ranking, gold, k) <= frac_at(ranking, gold, k + 1)
    assert (reciprocal_rank(ranking, gold) == 1.0) == (any_at(ranking, gold, 1) == 1.0)


def test_the_newest_evidence_is_first_or_not() -> None:
    """What is not ranked stands below all that is; nothing ranked is no success."""
    assert newest_first(["x", "new", "old"], {"new"}, {"new", "old"}) == 1.0
    assert newest_first(["old", "new"], {"new"}, {"new", "old"}) == 0.0
    assert newest_first(["new"], {"new"}, {"new", "old"}) == 1.0
    assert newest_first(["x"], {"new"}, {"new", "old"}) == 0.0


def test_means() -> None:
    """Means are taken over questions and are absent where there is none."""
    assert mean_figures(["mrr"], [{"mrr": 1.0}, {"mrr": 0.5}]) == {"mrr": 0.75}
    assert mean_figures(["mrr"], []) == {"mrr": None}


def test_percentiles() -> None:
    """A percentile is one of the values, by nearest rank."""
    values = [float(number) for number in range(100, 0, -1)]
    assert percentile(values, 0.5) == 50
    assert percentile(values, 0.99) == 99
    assert percentile([7.0], 0.99) == 7
    assert percentile([], 0.5) is None
