"""Times that a text names: on a calendar, in conversations, by events, and inside messages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recall_kit import micros

from secondcall.recall.mentions import Mention, mentions
from secondcall.recall.talks import Anchor, Talk, anchors, names_the_past, order, talk
from secondcall.recall.times import time_hints

AT = datetime(2026, 6, 17, 12, tzinfo=UTC)  # a Wednesday
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _spans(text: str, at: datetime = AT) -> list[tuple[str, str]]:
    return [
        tuple(
            (_EPOCH + timedelta(microseconds=us)).strftime("%Y-%m-%d")
            for us in (hint.start_us, hint.end_us)
        )
        for hint in time_hints(text, at=at)
    ]  # pyright: ignore[reportReturnType] - two of each


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("on 2026-05-08", ("2026-05-08", "2026-05-09")),
        ("12.05.2026", ("2026-05-12", "2026-05-13")),
        ("5/12/2026", ("2026-05-12", "2026-05-13")),
        ("8 May, 2023", ("2023-05-08", "2023-05-09")),
        ("May 8th", ("2026-05-08", "2026-05-09")),
        ("in December", ("2025-12-01", "2026-01-01")),
        ("last week", ("2026-06-08", "2026-06-15")),
        ("last month", ("2026-05-01", "2026-06-01")),
        ("yesterday", ("2026-06-16", "2026-06-17")),
        ("on Monday", ("2026-06-15", "2026-06-16")),
        ("next Tuesday", ("2026-06-23", "2026-06-24")),
        ("on the 12th", ("2026-06-12", "2026-06-13")),
        ("last summer", ("2025-06-01", "2025-09-01")),
        ("from March 3 to March 10", ("2026-03-03", "2026-03-11")),
        ("between March and May", ("2026-03-01", "2026-06-01")),
        ("since March", ("2026-03-01", "2026-06-17")),
        ("a fortnight ago", ("2026-06-01", "2026-06-05")),
    ],
)
def test_a_time_is_a_span_of_the_calendar(text: str, span: tuple[str, str]) -> None:
    """Dates, months, weekdays, distances and ranges become the span that they name."""
    assert _spans(f"what did I say {text}?") == [span]


@pytest.mark.parametrize("text", ["31 February", "31 February 2024", "the 5th week", "2026-13-45"])
def test_what_does_not_exist_names_nothing(text: str) -> None:
    """An impossible expression is no time, and the rest of it is not guessed at."""
    assert time_hints(f"what about {text}", at=AT) == []


def test_a_future_date_is_a_time_like_any_other() -> None:
    """What has not come yet is understood, and is not the past."""
    assert _spans("on 2031-01-02") == [("2031-01-02", "2031-01-03")]
    assert not names_the_past("on 2031-01-02", at=AT)
    assert names_the_past("in May", at=AT)


def test_a_day_begins_where_the_user_is() -> None:
    """ "Yesterday" half past midnight in Berlin is another day than in UTC."""
    berlin = datetime(2026, 6, 17, 0, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    (hint,) = time_hints("yesterday", at=berlin)
    assert hint.start_us == micros(datetime(2026, 6, 15, 22, tzinfo=UTC))
    (other,) = time_hints("yesterday", at=berlin.astimezone(UTC))
    assert other.start_us == micros(datetime(2026, 6, 15, tzinfo=UTC))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("what did we agree two calls ago", Talk(2)),
        ("the call before last", Talk(2)),
        ("what happened since we last spoke?", Talk(1, since=True)),
        ("our last conversation", Talk(1)),
        ("what did I want in our first call", Talk(0)),
        ("what is the last call for boarding", None),
    ],
)
def test_conversations_are_counted_back(text: str, expected: Talk | None) -> None:
    """A conversation is named by its place, counted back from now."""
    assert talk(text) == expected


def test_an_event_is_an_anchor_unless_its_distance_is_asked() -> None:
    """ "Before the move" measures from the move; "how many days before" wants both ends."""
    assert anchors("where did I park before the move?") == [Anchor("before", "the move")]
    assert anchors("after my surgery did I swim") == [Anchor("after", "my surgery")]
    assert anchors("How many days before the party did I order it?") == []
    assert anchors("before the last call") == []


def test_the_first_or_the_last_is_asked_for() -> None:
    """The order that a question asks for is read from set phrases."""
    assert order("my most recent address") == "last"
    assert order("what did I originally want") == "first"
    assert order("which shoe is left") is None


def test_a_message_speaks_of_days_seen_from_its_own_date() -> None:
    """ "Last week" in a message is the week before the message, not before the question."""
    at_us = micros(AT)
    assert mentions("We went to the zoo last week.", at_us) == [
        Mention(micros(datetime(2026, 6, 8, tzinfo=UTC)) // 86_400_000_000, 7)
    ]
    assert mentions("It is nice today.", at_us) == []
    assert mentions("I like May best, and holidays.", at_us) == []


@given(st.text(alphabet="ay 2026-/.marchlstwekdo0139until", max_size=60))
def test_mentions_are_few_and_short(text: str) -> None:
    """Whatever is said, at most two spans are kept, of 62 days at most."""
    found = mentions(f"yesterday {text} last month", micros(AT))
    assert len(found) <= 2
    assert all(0 < one.days <= 62 for one in found)


@given(st.text(max_size=200), st.datetimes())
def test_any_text_at_any_moment_is_read(text: str, at: datetime) -> None:
    """No text and no moment is an error, and spans do not end before they begin."""
    moment = at.replace(tzinfo=UTC)
    for hint in time_hints(f"in May {text} yesterday 3 weeks ago", at=moment):
        assert hint.start_us <= hint.end_us
    assert len(anchors(text)) <= 2
    assert order(text) in (None, "first", "last")
    assert talk(text) is None or isinstance(talk(text), Talk)
