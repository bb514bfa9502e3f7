from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recall_kit import micros

from secondcall.recall.analyze import Analyzer, term_hash
from secondcall.recall.query import Query, parse
from secondcall.recall.times import time_hints

AT = datetime(2026, 6, 17, 12, tzinfo=UTC)  # a Wednesday


def _parse(text: str, *speakers: str) -> Query:
    return parse(text, at=AT, speakers=speakers, analyzer=Analyzer())


def _covers(text: str, moment: datetime) -> bool:
    return any(
        hint.start_us <= micros(moment) < hint.end_us
        for hint in time_hints(text, at=AT)
        if hint.month is None
    )


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("What did I book on 2026-05-08?", datetime(2026, 5, 8, 15, tzinfo=UTC)),
        ("Where was she on 8 May, 2023?", datetime(2023, 5, 8, 15, tzinfo=UTC)),
        ("the call of May 8th, 2023", datetime(2023, 5, 8, 1, tzinfo=UTC)),
        ("What happened in July 2024", datetime(2024, 7, 20, tzinfo=UTC)),
        ("what did I buy in 2022?", datetime(2022, 2, 2, tzinfo=UTC)),
        ("what did I say yesterday", AT - timedelta(days=1)),
        ("which seat did I ask for last week?", AT - timedelta(days=8)),
        ("the vendor we chose last month", AT - timedelta(days=40)),
        ("the concert last Saturday", AT - timedelta(days=4)),
        ("what did I plant two months ago", AT - timedelta(days=61)),
        ("films of the past 3 weeks", AT - timedelta(days=10)),
    ],
)
def test_a_time_that_is_named_is_understood(text: str, moment: datetime) -> None:
    """The span of a date, a month, a year or a relative time holds its moments."""
    assert _covers(text, moment)


def test_a_month_without_a_year_stands_for_every_year() -> None:
    """ "In May" is a month, "may" is not."""
    assert [hint.month for hint in time_hints("who called in May", at=AT)] == [5]
    assert time_hints("may I ask", at=AT) == []


def test_before_today_is_no_time() -> None:
    """ "Before today" names the whole past, which is no hint."""
    assert time_hints("all flights before today", at=AT) == []
    assert time_hints("all flights of today", at=AT) != []


@pytest.mark.parametrize("text", ["2026-13-45", "31 February"])
def test_impossible_dates_are_no_hint(text: str) -> None:
    """A date that does not exist is skipped."""
    assert time_hints(text, at=AT) == []


@pytest.mark.parametrize(
    ("text", "role"),
    [
        ("Where did I park my car?", "user"),
        ("Which hotel did you recommend?", "assistant"),
        ("Can you remind me of the recipe", "assistant"),
        ("the weather in Lisbon", None),
    ],
)
def test_who_is_asked_about(text: str, role: str | None) -> None:
    """ "I" asks for the user's words, "you said" for the assistant's."""
    assert _parse(text).role == role


def test_a_speaker_who_is_named_is_not_searched_as_a_word() -> None:
    """A speaker's name picks the speaker, and stays a word when nothing else is asked."""
    query = _parse("When did Anna Berg adopt the dog?", "Anna Berg", "Tom")
    assert query.speakers == {"Anna Berg"}
    assert set(query.hashes) == {term_hash("adopt"), term_hash("dog")}
    assert term_hash("anna") in _parse("Anna?", "Anna Berg").hashes


def test_the_ends_of_a_long_question_count() -> None:
    """Of a very long text the beginning and the end are read."""
    query = _parse("giraffe " + "x" * 100_000 + " okapi")
    assert {term_hash("giraff"), term_hash("okapi")} <= set(query.hashes)


@given(st.text(alphabet=st.characters(exclude_categories=())), st.datetimes())
def test_any_text_is_parsed(text: str, at: datetime) -> None:
    """Every text is taken apart, from every moment, and the same way each time."""
    moment = at.replace(tzinfo=UTC)
    first, second = (
        parse(text, at=moment, speakers=["Anna"], analyzer=Analyzer()) for _ in range(2)
    )
    assert first == second
