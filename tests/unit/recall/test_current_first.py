"""What states a fact that holds comes before what states its ended ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from secondcall.recall.screen import current_first

States = Mapping[str, tuple[Sequence[str], Sequence[str]]]
NOW: tuple[Sequence[str], Sequence[str]] = (["diet"], [])
THEN: tuple[Sequence[str], Sequence[str]] = ([], ["diet"])


def test_the_newer_evidence_moves_to_just_before_the_older() -> None:
    """Everything else keeps its order."""
    states: States = {"old": THEN, "new": NOW}
    assert current_first(["a", "old", "b", "new"], states, limit=4) == ["a", "new", "old", "b"]


def test_all_of_it_within_the_limit_moves_and_one_from_beyond() -> None:
    """Beyond the limit only the best is fetched, and only when none is there."""
    states: States = {"old": THEN, "n1": NOW, "n2": NOW, "n3": NOW}
    assert current_first(["old", "n1", "n2", "n3"], states, limit=3) == ["n1", "n2", "old", "n3"]
    assert current_first(["old", "a", "n1", "n2"], states, limit=2) == ["n1", "old", "a", "n2"]
    assert current_first(["n1", "old", "a", "n2"], states, limit=3) == ["n1", "old", "a", "n2"]


def test_what_is_cut_anyway_moves_nothing() -> None:
    """An ended one beyond the limit is left where it is."""
    states: States = {"old": THEN, "new": NOW}
    assert current_first(["a", "b", "old", "new"], states, limit=2) == ["a", "b", "old", "new"]


Kinds = st.lists(st.sampled_from(["now", "then", "none"]), max_size=12)


@given(Kinds, st.integers(1, 12))
def test_nothing_is_lost_and_no_ended_one_is_in_front(kinds: list[str], limit: int) -> None:
    """Whatever the order, within the limit no ended one stands before one that holds."""
    keys = [f"{kind} {place}" for place, kind in enumerate(kinds)]
    states = {
        key: NOW if key.startswith("now") else THEN for key in keys if not key.startswith("none")
    }
    found = current_first(keys, states, limit=limit)
    assert sorted(found) == sorted(keys)
    shown = [key for key in keys[:limit] if key.startswith("now")]
    first_then = next((place for place, key in enumerate(found) if key.startswith("then")), limit)
    assert all(found.index(key) < first_then for key in shown) or first_then >= limit
