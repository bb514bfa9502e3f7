from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recall_kit import EMBEDDER_ID, NOW, START, ask, blob, ids, index_of, row, vectors

from secondcall.abc import EntryKey
from secondcall.errors import InvalidValue
from secondcall.recall.index import UserIndex
from secondcall.recall.segment import IndexRow, Removal, decode, encode

TALK = [
    row(1, "I would like to book a flight to Lisbon"),
    row(2, "Sure, which seat do you prefer?", role="assistant"),
    row(3, "An aisle seat, please"),
    row(4, "Done, seat 14C on the aisle", role="assistant"),
    row(5, "My dog Biscuit needs a vet", session="s2"),
    row(6, "The vet in Harbour Street is open until six", session="s2", role="assistant"),
    row(7, "Thank you, bye", session="s2"),
]


def test_the_item_that_answers_comes_first() -> None:
    """A question finds the item that holds its words."""
    assert ids(ask(index_of(TALK), "which vet is open?"))[0] == "m006"


def test_every_share_of_a_score_is_told() -> None:
    """The features of a hit sum up to its score."""
    for hit in ask(index_of(TALK), "what seat did I prefer?").hits:
        assert sum(hit.features.values()) == pytest.approx(hit.score, abs=1e-4)


def test_items_without_vectors_are_found_by_words() -> None:
    """An item that is not embedded yet can be found."""
    index = UserIndex(embedder_id=EMBEDDER_ID)
    index.add(TALK, None)
    assert ids(ask(index, "aisle seat"))[0] in ("m003", "m004")
    index.add(TALK, vectors([one.text for one in TALK]))
    assert len(index) == len(TALK)
    assert "meaning" in ask(index, "aisle seat").hits[0].features


def test_a_correction_masks_the_older_entry() -> None:
    """After a correction only the new words are found, at the first position."""
    index = index_of(TALK)
    index.add([row(8, "A window seat, please", item="m003", position=3, at=START)], None)
    assert len(index) == len(TALK)
    hits = ask(index, "window").hits
    assert (hits[0].key.id, hits[0].position, hits[0].change) == ("m003", 3, 8)
    old = [hit for hit in ask(index, "aisle").hits if hit.key.id == "m003"]
    assert all("word" not in hit.features for hit in old)


def test_a_removed_item_is_not_found() -> None:
    """After a removal nothing of the item is found or counted."""
    index = index_of(TALK)
    index.remove([TALK[5].key])
    assert "m006" not in ids(ask(index, "vet"))
    assert len(index) == len(TALK) - 1


def test_an_item_recorded_again_after_its_removal_is_found() -> None:
    """A removal with its change number spares what was recorded after it."""
    index = index_of(TALK)
    index.add([row(9, "The vet has moved", session="s2", item="m006")], None)
    index.remove([Removal(change=8, key=TALK[5].key)])
    assert "word" in next(h for h in ask(index, "moved").hits if h.key.id == "m006").features


def test_a_removal_in_one_segment_masks_an_item_of_another() -> None:
    """It does not matter in which order segments with items and removals come."""
    first, second = decode(blob(TALK)), decode(blob([], [Removal(change=8, key=TALK[5].key)]))
    for order in ((first, second), (second, first)):
        index = UserIndex(embedder_id=EMBEDDER_ID)
        for segment in order:
            index.add_segment(segment)
        assert len(index) == len(TALK) - 1


def test_a_vector_that_comes_late_does_not_bring_an_item_back() -> None:
    """Filling in vectors of a removed item leaves it removed."""
    index = UserIndex(embedder_id=EMBEDDER_ID)
    index.add(TALK, None)
    index.remove([Removal(change=8, key=TALK[5].key)])
    index.add(TALK, vectors([one.text for one in TALK]))
    assert "m006" not in ids(ask(index, "vet"))


_FILTERS: list[tuple[dict[str, Any], set[str]]] = [
    ({"roles": ["assistant"]}, {"m004", "m002"}),
    ({"sessions": ["s1"]}, {"m001", "m002", "m003", "m004"}),
    ({"kinds": ["tool_call"]}, set()),
    ({"since": START + timedelta(minutes=4)}, {"m004"}),
    ({"until": START + timedelta(minutes=2)}, {"m001"}),
    ({"where": {"topic": "food"}}, set()),
    ({"where": {"topic": None}}, {"m001", "m002", "m003", "m004"}),
]


@pytest.mark.parametrize(("filters", "expected"), _FILTERS)
def test_filters_say_what_may_be_found(filters: dict[str, Any], expected: set[str]) -> None:
    """Only items that pass every filter are found, however well others answer."""
    found = set(ids(ask(index_of(TALK[:4]), "seat on the flight", **filters)))
    assert found == expected


def test_metadata_is_compared_as_json() -> None:
    """A filter tells true from 1, and sees segments and the tail alike."""
    rows = [row(1, "tea", metadata={"n": 1}), row(2, "tea time", metadata={"n": True})]
    for cuts in ((), (1,), (2,)):
        assert ids(ask(index_of(rows, cuts=cuts), "tea", where={"n": True})) == ["m002"]
        assert ids(ask(index_of(rows, cuts=cuts), "tea", where={"n": 1})) == ["m001"]


def test_excluded_items_leave_no_trace() -> None:
    """Scores with excluded items are those of an index that never had them."""
    hidden = [TALK[2].key, TALK[5].key]
    without = index_of([one for one in TALK if one.key not in hidden])
    for question in ("aisle seat", "the vet in Harbour Street"):
        found = ask(index_of(TALK), question, exclude_keys=hidden).hits
        expected = ask(without, question).hits
        assert [hit.key for hit in found] == [hit.key for hit in expected]


def test_repeated_words_are_found_once() -> None:
    """The same words from the same mouth are one hit, the latest."""
    rows = [row(place, "call me back please", session=f"s{place}") for place in (1, 2, 3)]
    assert ids(ask(index_of(rows), "call back")) == ["m003"]


def test_by_turn_and_by_session_give_one_hit_each() -> None:
    """A user's words and the reply are one turn, and a session is one session."""
    index = index_of(TALK)
    turns = ids(ask(index, "aisle seat", by="turn", sessions=["s1"]))
    assert len(turns) == 2
    assert len({"m003", "m004"} & set(turns)) == 1
    found = ask(index, "aisle seat or vet", by="session").hits
    assert sorted(hit.session_id for hit in found) == ["s1", "s2"]


@pytest.mark.parametrize("question", ["", "  \n", "\x00"])
def test_an_empty_question_says_so(question: str) -> None:
    """White space alone finds nothing and says why."""
    result = ask(index_of(TALK), question)
    assert result.hits == ()
    assert result.reason_if_empty


@pytest.mark.parametrize("question", ["what is it", '"', "- * AND", "*", "(", "\\"])
def test_a_question_without_words_finds_nothing_by_words(question: str) -> None:
    """Stop words and operators have no effect of their own, and the result says why."""
    result = index_of(TALK).search(question, None, at=NOW, limit=5)
    assert result.hits == ()
    assert result.reason_if_empty


def test_an_unknown_word_finds_nothing() -> None:
    """A word that the record lacks finds nothing, and the result says why."""
    result = ask(index_of(TALK), "xylophone")
    assert result.reason_if_empty is None or result.hits == ()


def test_a_megabyte_of_question_is_answered_by_its_rare_words() -> None:
    """A long prompt pasted as a question still finds what its rare words name."""
    prompt = "You are a helpful agent. Be kind. " * 30_000 + "Which seat on the aisle?"
    result = index_of(TALK).search(prompt, None, at=NOW, limit=5)
    assert ids(result)[0] in ("m003", "m004")


def test_an_empty_index_says_so() -> None:
    """Without a record nothing is found, and the result says why."""
    assert ask(index_of([]), "vet").reason_if_empty == "nothing is recorded"
    assert ask(index_of(TALK), "vet", limit=0).reason_if_empty == "the limit is below 1"


def test_two_embedders_never_mix() -> None:
    """Vectors of another model or size are refused."""
    other = encode(TALK[:1], vectors(["x"]), embedder_id="other", first_change=1, last_change=1)
    index = index_of(TALK)
    with pytest.raises(InvalidValue, match="reindex"):
        index.add_segment(decode(other))
    with pytest.raises(InvalidValue, match="reindex"):
        index.add([row(8, "x")], np.ones((1, 3), np.float32))
    with pytest.raises(InvalidValue, match="shape"):
        index.add([row(8, "x")], np.ones((2, 32), np.float32))


def test_times_at_the_ends_of_the_calendar_are_fine() -> None:
    """Items of the years 1 and 9999 are found, and asking from there works."""
    rows = [
        row(1, "an old oath", at=START.replace(year=1)),
        row(2, "a far oath", at=START.replace(year=9999)),
    ]
    for at in (START.replace(year=1), START.replace(year=9999)):
        vector = vectors(["oath"])[0]
        result = index_of(rows).search("oath last year in May 2020", vector, at=at, limit=5)
        assert set(ids(result)) == {"m001", "m002"}


def test_neighbours_follow_time_then_position() -> None:
    """Items that come late stand where their time puts them, in bulk or one by one."""
    late = [row(1, "one"), row(2, "three", at=START + timedelta(hours=3))]
    late.append(row(3, "two", at=START + timedelta(hours=2)))
    for cuts in ((), (1,), (3,)):
        index = index_of(late, cuts=cuts)
        found = index.signals("three", None, at=NOW)
        assert found["word_after"].tolist() == [0, 0, 1]


_WORDS = st.sampled_from(
    ["dog", "vet", "seat", "aisle", "lisbon", "flight", "tea", "rain", "music", "biscuit"]
)
_TEXT = st.lists(_WORDS, min_size=0, max_size=6).map(" ".join)
_ENTRY = st.tuples(_TEXT, st.integers(0, 5), st.sampled_from("ab"), st.booleans())


def _rows(entries: list[tuple[str, int, str, bool]]) -> list[IndexRow]:
    """Rows with corrections in them: entries with the same number and session are one item."""
    first: dict[tuple[str, int], int] = {}
    rows: list[IndexRow] = []
    for change, (text, number, session, user) in enumerate(entries, start=1):
        position = first.setdefault((session, number), change)
        rows.append(
            row(
                change,
                text,
                session=session,
                item=f"m{number}",
                position=position,
                role="user" if user else "assistant",
                at=START + timedelta(days=number * 7),
            )
        )
    return rows


@settings(max_examples=150, deadline=None)
@given(
    st.lists(_ENTRY, min_size=1, max_size=16),
    st.lists(st.integers(0, 16), max_size=4),
    _TEXT.filter(bool),
)
def test_the_ranking_does_not_depend_on_where_segments_are_cut(
    entries: list[tuple[str, int, str, bool]], cuts: list[int], question: str
) -> None:
    """Any cuts, and any merge of them, give the same hits with the same scores."""
    rows = _rows(entries)
    expected = ask(index_of(rows), question).hits
    chosen = sorted({cut for cut in cuts if 0 < cut <= len(rows)})
    found = ask(index_of(rows, cuts=chosen), question).hits
    assert [(hit.key, hit.score, hit.change) for hit in found] == [
        (hit.key, hit.score, hit.change) for hit in expected
    ]
    final = {one.key: one for one in rows}
    newest = sorted(final.values(), key=lambda one: one.change)
    found = ask(index_of(newest), question).hits
    assert [(hit.key, hit.score) for hit in found] == [(hit.key, hit.score) for hit in expected]


_HOSTILE = st.text(alphabet=st.characters(exclude_categories=()), max_size=80)


@settings(max_examples=100, deadline=None)
@given(st.lists(_HOSTILE, max_size=6), _HOSTILE)
def test_no_text_breaks_a_search(texts: list[str], question: str) -> None:
    """Items and questions of any characters are indexed and searched without an error."""
    rows = [row(place, text) for place, text in enumerate(texts, start=1)]
    cuts = (len(rows) // 2,) if len(rows) > 1 else ()
    assert len(ask(index_of(rows, cuts=cuts), question).hits) <= len(rows)


def test_readers_and_a_writer_do_not_disturb_each_other() -> None:
    """Searching in threads while items come, are corrected and go raises nothing."""
    index = index_of(TALK, cuts=(3,))
    problems: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                ask(index, "which seat on the aisle, and the vet?")
        except BaseException as error:  # judged by the test, in its own thread
            problems.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for change in range(8, 400):
        item = row(change, f"seat {change} aisle vet", item=f"m{change % 50:03d}")
        index.add([item], vectors([item.text]))
        if change % 7 == 0:
            index.remove([EntryKey("s1", "message", f"m{change % 50:03d}")])
    done.set()
    for reader in readers:
        reader.join()
    assert problems == []
