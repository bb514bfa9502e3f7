"""The best rows ranked once more by token vectors, with vectors that can be worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recall_kit import EMBEDDER_ID, NOW, blob, index_of, row, vectors

from secondcall.recall.index import SearchResult, UserIndex
from secondcall.recall.maxsim import WEIGHT, QueryTokens, whole_tokens
from secondcall.recall.segment import IndexRow, decode, embedding_text, encode, merge

AXES = ("ferry", "boat", "garden", "violin")
"""A ferry and a boat are near (0.8), the others at right angles."""
VECTORS = np.array([[1, 0, 0], [0.8, 0.6, 0], [0, 1, 0], [0, 0, 1]], np.float32)


def _tokens(text: str) -> npt.NDArray[np.float32]:
    known = [VECTORS[AXES.index(word)] for word in text.lower().split() if word in AXES]
    return np.array(known, np.float32).reshape(-1, 3)


def _asked(question: str) -> QueryTokens:
    spans = [
        (question.index(word), question.index(word) + len(word))
        for word in question.split()
        if word in AXES
    ]
    return QueryTokens(text=question, vectors=_tokens(question), spans=spans)


def _whole(text: str) -> npt.NDArray[np.int8]:
    return whole_tokens(_tokens(text))


def _blob(rows: Sequence[IndexRow]) -> bytes:
    return blob(rows, tokens_of=_whole)


def _index(rows: Sequence[IndexRow], cuts: Sequence[int] = ()) -> UserIndex:
    return index_of(rows, cuts=cuts, tokens_of=_whole)


def _ask(index: UserIndex, question: str, *, tokens: bool = True) -> SearchResult:
    asked = _asked(question) if tokens else None
    return index.search(question, vectors([question])[0], at=NOW, limit=10, query_tokens=asked)


def _people(*texts: str) -> list[IndexRow]:
    return [
        row(n, text, speaker=("Ann", "Ben")[n % 2], session=f"s{n}")
        for n, text in enumerate(texts, 1)
    ]


def _added(result: SearchResult) -> dict[str, float]:
    return {hit.key.id: hit.features.get("maxsim", 0.0) for hit in result.hits}


def test_the_nearest_token_speaks_for_a_row() -> None:
    """The word itself gains the whole weight, a near one a part of it, none of it nothing."""
    rows = _people("the ferry sails", "a sails boat", "garden sails now", "violin sails")
    added = _added(_ask(_index(rows), "does the ferry have sails ?"))
    assert added["m001"] == WEIGHT
    assert added["m002"] == pytest.approx(0.8 * WEIGHT, abs=0.02)
    assert added["m003"] == added["m004"] == 0


def test_what_was_found_says_what_token_vectors_gave() -> None:
    """The features of a hit sum up to its score with the part "maxsim" among them."""
    rows = _people("the ferry sails", "a boat sails", "garden sails")
    for hit in _ask(_index(rows), "does the ferry have sails ?").hits:
        assert sum(hit.features.values()) == pytest.approx(hit.score, abs=1e-5)


def test_the_rarer_word_counts_more() -> None:
    """Of two words of the question the one that fewer rows have decides."""
    rows = _people("ferry", "violin", "ferry again", "ferry boat", "ferry garden")
    added = _added(_ask(_index(rows), "a ferry or a violin ?"))
    assert added["m002"] == WEIGHT > added["m001"]


def test_neighbours_answer_with_a_row_where_people_talk() -> None:
    """What stands up to three items away in the session counts as a row's own words."""
    texts = ["ferry sails", *(f"{word} garden sails" for word in ("one", "two", "three", "four"))]
    rows = [row(n, text, speaker=("Ann", "Ben")[n % 2]) for n, text in enumerate(texts, 1)]
    rows.append(row(6, "five garden sails", speaker="Ann", session="s2"))
    added = _added(_ask(_index(rows), "does the ferry have sails ?"))
    assert added["m001"] == added["m002"] == added["m003"] == added["m004"] == WEIGHT
    assert added["m005"] == added["m006"] == 0


def test_nothing_changes_without_token_vectors() -> None:
    """A question without them, or a record without them, is ranked as ever."""
    rows = _people("the ferry sails", "a boat sails", "garden sails")
    plain = _ask(_index(rows), "does the ferry have sails ?", tokens=False)
    bare = UserIndex(embedder_id=EMBEDDER_ID)
    bare.add(rows, vectors([embedding_text(one) for one in rows]))
    assert _ask(bare, "does the ferry have sails ?") == plain
    assert not any(_added(plain).values())


def test_with_an_assistant_nothing_changes() -> None:
    """Where a user and an assistant talk, token vectors are not asked."""
    rows = [row(1, "the ferry sails"), row(2, "garden sails", role="assistant")]
    result = _ask(_index(rows), "does the ferry have sails ?")
    assert result == _ask(_index(rows), "does the ferry have sails ?", tokens=False)


def test_a_row_that_waits_for_its_tokens_is_neither_first_nor_last() -> None:
    """It gains what the others gain on average, until its vectors come."""
    rows = _people("the ferry sails", "garden sails", "the ferry sails too")
    index = _index(rows[:2])
    index.add(rows[2:], vectors([embedding_text(one) for one in rows[2:]]))
    assert _added(_ask(index, "does the ferry have sails ?"))["m003"] == WEIGHT / 2
    known = vectors([embedding_text(one) for one in rows[2:]])
    index.add(rows[2:], known, [whole_tokens(_tokens(one.text)) for one in rows[2:]])
    assert _added(_ask(index, "does the ferry have sails ?"))["m003"] == WEIGHT


def test_token_vectors_survive_encoding_and_merging() -> None:
    """A merged segment holds each row's token vectors, and none for rows that have none."""
    rows = _people("the ferry sails", "nothing here", "boat garden")
    merged = decode(merge([decode(_blob(rows[:1])), decode(_blob(rows[1:]))]))
    first, second, third = merged.tokens_of(np.arange(3))
    assert first is not None
    assert third is not None
    assert second is None
    assert first.tolist() == [[127, 0, 0]]
    assert third.shape == (2, 3)


def test_a_merge_drops_the_token_vectors_of_what_was_removed() -> None:
    """Nothing of a removed item's tokens is left."""
    rows = _people("the ferry sails", "boat garden")
    merged = decode(merge([decode(_blob(rows))], dead=[rows[0].key]))
    assert merged.tokens is not None
    assert merged.tokens.tolist() == whole_tokens(_tokens("boat garden")).tolist()


def test_segments_without_token_vectors_are_as_they_were() -> None:
    """Without token vectors a segment has no section for them and merges with one that has."""
    rows = _people("the ferry sails", "boat")
    plain = encode(
        rows[:1],
        vectors(["the ferry sails"]),
        embedder_id=EMBEDDER_ID,
        first_change=1,
        last_change=1,
    )
    assert b"token" not in plain
    merged = decode(merge([decode(plain), decode(_blob(rows[1:]))]))
    first, second = merged.tokens_of(np.arange(2))
    assert first is None
    assert second is not None


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(AXES), min_size=1, max_size=3), min_size=3, max_size=9),
    st.integers(min_value=0, max_value=9),
)
def test_the_ranking_does_not_depend_on_where_segments_are_cut(
    texts: list[list[str]], cut: int
) -> None:
    """The same rows in segments or one by one give the same hits with the same scores."""
    rows = [
        row(n, " ".join(words), speaker=("Ann", "Ben")[n % 2]) for n, words in enumerate(texts, 1)
    ]
    cuts = [min(cut, len(rows))] if cut else []
    question = "the ferry , the garden and the violin"
    assert _ask(_index(rows, cuts), question).hits == _ask(_index(rows), question).hits
