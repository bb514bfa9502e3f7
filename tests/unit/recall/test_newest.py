"""Of what answers a question about now nearly equally well, the newest comes first."""

from __future__ import annotations

from datetime import timedelta

import pytest
from recall_kit import NOW, START, ask, ids, index_of, row

from secondcall.recall.analyze import Analyzer
from secondcall.recall.query import parse
from secondcall.recall.segment import IndexRow

_TEXTS = ("my gym is the gym in town", "my gym is the gym in town, the red mill")


def _rows(*, role: str = "user", speakers: bool = False) -> list[IndexRow]:
    """The same thing told twice; then something else, in two other sessions."""
    rows = [
        row(
            place,
            text,
            session=f"s{place}",
            role=role,
            speaker="Ann" if speakers else None,
            at=START + timedelta(days=place),
        )
        for place, text in enumerate(_TEXTS, 1)
    ]
    other = row(3, "the weather is fine", session="s3", role="user", speaker="Ben")
    return [*rows, other] if speakers else [*rows, row(3, "Noted.", role="assistant")]


def test_the_newer_of_two_versions_comes_first_and_says_so() -> None:
    """Its score is raised to that of the one it passes, and the feature "newest" tells."""
    hits = ask(index_of(_rows()), "which gym in town is mine").hits
    assert [hit.key.id for hit in hits][:2] == ["m002", "m001"]
    assert hits[0].score >= hits[1].score
    assert hits[0].features["newest"] > 0
    assert sum(hits[0].features.values()) == pytest.approx(hits[0].score, abs=1e-4)


def test_it_is_the_one_that_is_given_at_limit_one() -> None:
    """The newest of the best three is found even where only one is asked for."""
    assert ids(ask(index_of(_rows()), "which gym in town is mine", limit=1)) == ["m002"]


@pytest.mark.parametrize(
    "question",
    [
        "which gym in town was mine at first",
        "which gym in town did I join",
        "which gym in town was mine in March 2026",
    ],
)
def test_a_question_about_the_past_is_left_alone(question: str) -> None:
    """What asks for the first, for what somebody did, or for a time keeps the order of scores."""
    hits = ask(index_of(_rows()), question).hits
    assert all("newest" not in hit.features for hit in hits)


def test_what_was_added_in_the_same_conversation_is_no_newer_version() -> None:
    """Only what is told in another conversation is moved."""
    rows = [row(place, text) for place, text in enumerate(_TEXTS, 1)]
    hits = ask(index_of([*rows, row(3, "Noted.", role="assistant")]), "which gym in town is mine")
    assert all("newest" not in hit.features for hit in hits.hits)


def test_people_speak_of_a_thing_again_without_a_change() -> None:
    """Between named people nothing is moved."""
    hits = ask(index_of(_rows(speakers=True)), "which gym in town is mine").hits
    assert all("newest" not in hit.features for hit in hits)


@pytest.mark.parametrize(
    ("question", "now"),
    [
        ("which gym do I go to?", True),
        ("what did I buy after the move?", False),
        ("where do I live after the move?", True),
        ("where did I live before the move?", False),
        ("how many have I seen since we last spoke?", True),
        ("what was my first car originally?", False),
        ("where did I get my guitar serviced?", True),
        ("when did I cancel the gym?", False),
        ("what was it last week?", False),
        ("what did I buy most recently?", True),
    ],
)
def test_which_questions_are_about_now(question: str, now: bool) -> None:
    """One that names no time, and asks neither for the first nor for what somebody did."""
    assert parse(question, at=NOW, speakers=(), analyzer=Analyzer()).about_now is now
