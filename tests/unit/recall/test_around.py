"""What is said around an item: the best match of each term in a window of the talk."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from recall_kit import NOW, ask, ids, index_of, row

from secondcall.recall.index import UserIndex

_WORDS = ("ferry", "sister", "garden", "invoice", "violin")


def _around(index: UserIndex, question: str) -> list[float]:
    return np.round(index.signals(question, None, at=NOW)["around"], 4).tolist()


def test_terms_of_neighbours_add_up_within_three_items() -> None:
    """A row has the terms of the three before and after it, of its own session only."""
    texts = ["ferry", "one", "two", "three", "four", "violin"]
    rows = [row(place, text, speaker="Ann") for place, text in enumerate(texts, 1)]
    rows.append(row(7, "seven", session="s2", speaker="Ben"))
    found = _around(index_of(rows), "the ferry and the violin")
    assert found[2] == found[3] == max(found) == 1.0
    assert found[0] == found[1] == found[4] == found[5]
    assert 0 < found[0] < 1
    assert found[6] == 0.0


def test_a_near_word_counts_less_than_the_word_itself() -> None:
    """ "Dog" counts for "pet", the word itself for more, an unrelated word for nothing."""
    rows = [
        row(1, "the dog sleeps", session="s1", speaker="Ann"),
        row(2, "the pet sleeps", session="s2", speaker="Ben"),
        row(3, "the invoice sleeps", session="s3", speaker="Ann"),
    ]
    near, same, other = _around(index_of(rows), "which pet?")
    assert same == 1.0
    assert 0 < near < 1
    assert other == 0.0


def test_what_was_corrected_or_removed_does_not_count() -> None:
    """Only live items lend their terms to their neighbours."""
    rows = [row(1, "the ferry", speaker="Ann"), row(2, "yes", speaker="Ben"), row(3, "ferry two")]
    index = index_of(rows)
    index.remove([rows[0].key, rows[2].key])
    assert "around" not in index.signals("ferry", None, at=NOW)


def test_the_talk_that_has_all_of_it_comes_before_the_one_that_has_a_part() -> None:
    """Where one asks and the other answers, the two turns count as one."""
    rows = [
        row(1, "How is the garden of your sister?", speaker="Ann", session="s1"),
        row(2, "She planted plums and pears there", speaker="Ben", session="s1"),
        row(3, "How is the garden?", speaker="Ann", session="s2"),
        row(4, "I planted plums and pears there", speaker="Ben", session="s2"),
    ]
    found = ids(ask(index_of(rows), "What stands in the garden, plums of the sister?", limit=4))
    assert found.index("m002") < found.index("m004")


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(_WORDS), max_size=3), min_size=2, max_size=14),
    st.lists(st.integers(1, 14), max_size=3),
)
def test_it_does_not_depend_on_where_segments_are_cut(
    texts: list[list[str]], cuts: list[int]
) -> None:
    """The same rows give the same values, whatever the segments."""
    rows = [
        row(place, " ".join(words) or "hm", session=f"s{place // 5}", speaker="AB"[place % 2])
        for place, words in enumerate(texts, 1)
    ]
    parts = sorted({cut for cut in cuts if cut <= len(rows)})
    question = " ".join(_WORDS)
    whole = index_of(rows).signals(question, None, at=NOW).get("around")
    cut = index_of(rows, cuts=parts).signals(question, None, at=NOW).get("around")
    assert (whole is None) == (cut is None)
    if whole is not None and cut is not None:
        assert np.array_equal(whole, cut)
