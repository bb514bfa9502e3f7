from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recall_kit import NOW, START, ask, ids, index_of, row, vectors

from secondcall.recall._weights import PROFILES
from secondcall.recall.index import UserIndex
from secondcall.recall.rank import profile_of


def test_every_signal_lies_between_zero_and_one() -> None:
    """Signals are scaled, so that weights mean the same for every record."""
    rows = [row(place, f"dog vet number {place}", speaker="Anna") for place in range(1, 9)]
    question = "Which vet did Anna visit in March 2026?"
    found = index_of(rows).signals(question, vectors([question])[0], at=NOW)
    del found["evidence"]
    assert set(found) >= {"word", "word_before", "meaning", "session_word", "speaker", "time"}
    for values in found.values():
        assert values.dtype == np.float32
        assert values.min() >= 0
        assert values.max() <= 1


def test_what_stands_beside_an_answer_counts() -> None:
    """A reply without a word of the question is found by the question before it."""
    rows = [
        row(1, "What is the name of your dog?", speaker="Tom"),
        row(2, "Biscuit", speaker="Anna"),
        row(3, "Nice weather today", speaker="Tom", session="s2"),
        row(4, "Indeed", speaker="Anna", session="s2"),
    ]
    assert set(ids(ask(index_of(rows), "name of the dog", limit=2))) == {"m001", "m002"}


def test_the_speaker_who_is_named_comes_first() -> None:
    """Of two people who said the same the one asked about is found first."""
    rows = [
        row(1, "I adopted a dog in spring", speaker="Tom", session="s1"),
        row(2, "I adopted a dog in spring too", speaker="Anna", session="s2"),
    ]
    assert ids(ask(index_of(rows), "What did Anna adopt?"))[0] == "m002"
    assert ids(ask(index_of(rows), "What did Tom adopt?"))[0] == "m001"


def test_the_time_that_is_named_comes_first() -> None:
    """Of two like items the one from the time asked for is found first."""
    rows = [
        row(1, "dentist at noon", at=START.replace(month=3), session="s1"),
        row(2, "dentist at five", at=START.replace(month=5), session="s2"),
    ]
    assert ids(ask(index_of(rows), "When was the dentist in March?"))[0] == "m001"
    assert ids(ask(index_of(rows), "When was the dentist in May?"))[0] == "m002"


@pytest.mark.parametrize(
    ("mouths", "profile"),
    [
        ([("user", None), ("assistant", None)], "assistant"),
        ([("user", "Anna"), ("user", "Tom")], "people"),
        ([("user", "Anna"), ("assistant", "Agent")], "assistant"),
        ([("user", None)], "assistant"),
    ],
)
def test_the_profile_follows_the_structure_of_the_record(
    mouths: list[tuple[str, str | None]], profile: str
) -> None:
    """Named people talking to each other are one kind, a user and an assistant the other."""
    rows = [row(1 + n, "x", role=mouth[0], speaker=mouth[1]) for n, mouth in enumerate(mouths)]
    assert profile_of(index_of(rows)._snapshot(()).view) == profile  # pyright: ignore[reportPrivateUsage] - seen from inside


def test_profiles_name_only_signals_that_exist() -> None:
    """No weight is shipped for a signal that nothing gives."""
    rows = [row(1, "dog", speaker="Anna"), row(2, "cat", role="assistant")]
    question = "What did I and Anna say about the dog in March 2026?"
    for weights in PROFILES.values():
        found = index_of(rows).signals(question, vectors([question])[0], at=NOW, weights=weights)
        assert set(weights) <= set(found)


def test_every_session_that_has_the_word_is_found() -> None:
    """The session that answers least is found too, as long as it shares a word."""
    rows = [row(1, "tea and cake", session="s1"), row(2, "some tea, cups of tea", session="s2")]
    result = index_of(rows).search("tea", None, at=NOW, limit=5)
    assert set(ids(result)) == {"m001", "m002"}


def test_corrected_words_no_longer_count() -> None:
    """Document frequency and length come from live items alone."""
    rows = [row(1, "dog"), row(2, "cat"), row(3, "cat vet seat aisle")]
    bird = row(4, "bird", item="m003", position=3, at=START + timedelta(minutes=3))
    corrected, fresh = [*rows, bird], [*rows[:2], bird]
    assert [hit.score for hit in ask(index_of(corrected), "cat dog").hits] == [
        hit.score for hit in ask(index_of(fresh), "cat dog").hits
    ]


@settings(max_examples=60, deadline=None)
@given(st.permutations(range(8)))
def test_ties_go_by_later_time_then_id(order: list[int]) -> None:
    """Items with one score come newest first, those of one moment by id. (Without vectors, which
    would tell these apart.)"""
    rows = [
        row(
            place + 1,
            f"tea {'abcdefgh'[number]}{'abcdefgh'[number]}",
            session=f"s{number}",
            item=f"i{number}",
            at=START + timedelta(days=number // 2),
        )
        for place, number in enumerate(order)
    ]
    index = UserIndex(embedder_id=None)
    index.add(rows)
    result = index.search("tea", None, at=NOW, limit=8)
    assert ids(result) == ["i6", "i7", "i4", "i5", "i2", "i3", "i0", "i1"]


def test_a_related_word_finds_what_the_question_words_do_not() -> None:
    """A question about a pet finds the dog by words alone; the exact word counts more."""
    rows = [
        row(1, "the dog likes long walks", session="s1"),
        row(2, "the pet likes long walks", session="s2"),
        row(3, "the invoice likes long walks", session="s3"),
    ]
    index = UserIndex(embedder_id=None)
    index.add(rows)
    assert ids(index.search("which pet?", None, at=NOW, limit=3)) == ["m002", "m001"]


def test_what_ranks_first_echoes_in_other_sessions() -> None:
    """A row near in meaning to the best hit comes before one that is not, at the same words."""
    rows = [
        row(1, "seat aisle", session="s1"),
        row(2, "dog", session="s2"),
        row(3, "aisle", session="s3"),
    ]
    index = index_of(rows)
    without = index.signals("seat", vectors(["seat"])[0], at=NOW)
    found = index.signals("seat", vectors(["seat"])[0], at=NOW, weights={"word": 1.0})
    assert "echo" not in without
    assert found["echo"][0] == 1.0
    assert found["echo"][2] > found["echo"][1]
