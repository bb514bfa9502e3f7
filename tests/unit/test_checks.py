"""What every verb accepts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secondcall.checks import (
    MAX_ID_CHARACTERS,
    MAX_METADATA_BYTES,
    check_id,
    check_json,
    check_limit,
    check_metadata,
    check_text,
    from_us,
    parse_duration,
    to_us,
)
from secondcall.errors import InvalidValue, TooLarge

HOSTILE_IDS = ["/", ":", "_", ".", "..", "%", "a b", " a", "a ", "😀", "é", "é", "x" * 1_000]


@pytest.mark.parametrize("value", HOSTILE_IDS)
def test_ids_of_any_characters_are_kept(value: str) -> None:
    """Separators, dots, spaces, emoji and 1,000 characters are accepted and not changed."""
    assert check_id("session_id", value) == value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("", "must not be empty"),
        (7, "must be text, not int"),
        (None, "must be text, not NoneType"),
        ("a\x00b", "NUL character at position 1"),
        ("ab\ud800", "lone surrogate at position 2"),
    ],
)
def test_bad_ids_are_named_with_field_and_place(value: object, words: str) -> None:
    """A refused id's error names the field and what was wrong."""
    with pytest.raises(InvalidValue, match=rf"session_id .*{words}"):
        check_id("session_id", value)


def test_an_id_over_the_limit_says_both_lengths() -> None:
    """An id of 1,025 characters is refused with its length and the limit."""
    with pytest.raises(TooLarge, match=r"1025 characters, at most 1024"):
        check_id("user_id", "x" * (MAX_ID_CHARACTERS + 1))


def test_lone_surrogates_in_text_become_replacement_characters() -> None:
    """Text keeps everything but lone surrogates, which become U+FFFD; pairs stay characters."""
    assert check_text("text", "a\ud800b\x00😀", max_bytes=100) == "a\ufffdb\x00😀"


@given(st.text(st.characters(codec="utf-8"), max_size=200))
def test_text_that_utf8_can_hold_is_not_changed(text: str) -> None:
    """Every text without lone surrogates is kept as it is."""
    assert check_text("text", text, max_bytes=10_000) == text


def test_text_is_measured_in_bytes() -> None:
    """The limit counts UTF-8 bytes, not characters."""
    with pytest.raises(TooLarge, match="has 40 bytes, at most 39"):
        check_text("text", "é" * 20, max_bytes=39)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (float("nan"), "metadata is nan"),
        ({"a": [1, float("inf")]}, r"metadata\.a\[1\] is inf"),
        ({"a": {1: 2}}, r"metadata\.a has a key of type int"),
        ({"a": object()}, r"metadata\.a is a object"),
        ({"a": "\udc00"}, r"metadata\.a holds a lone surrogate"),
        ({"\udc00": 1}, "metadata has a key with a lone surrogate"),
    ],
)
def test_what_json_does_not_have_is_refused_with_its_path(value: object, path: str) -> None:
    """A value that JSON cannot hold is refused, naming where it stands."""
    with pytest.raises(InvalidValue, match=path):
        check_json("metadata", value)


def test_deep_json_is_refused_without_recursing_for_ever() -> None:
    """A value nested 10,000 deep is refused at the 33rd level."""
    value: object = 1
    for _ in range(10_000):
        value = [value]
    with pytest.raises(InvalidValue, match="more than 32 levels deep"):
        check_json("value", value)


def test_metadata_must_be_an_object_of_limited_size() -> None:
    """Metadata that is no dict, or over 16 KiB, is refused."""
    with pytest.raises(InvalidValue, match="must be a dict, not list"):
        check_metadata("metadata", [])
    with pytest.raises(TooLarge, match="at most 16,384"):
        check_metadata("metadata", {"a": "x" * MAX_METADATA_BYTES})


@pytest.mark.parametrize("value", [0, -1, 10**9])
def test_limits_outside_their_range_are_refused(value: int) -> None:
    """Zero, negative and absurd limits are refused, naming the range."""
    with pytest.raises(InvalidValue, match=f"limit is {value}, expected 1 to"):
        check_limit("limit", value)


@pytest.mark.parametrize("value", [True, 1.5, "5", None])
def test_limits_must_be_whole_numbers(value: object) -> None:
    """A limit that is no whole number is refused."""
    with pytest.raises(InvalidValue, match="must be a whole number"):
        check_limit("limit", value)


@given(st.datetimes(timezones=st.just(UTC)))
def test_times_come_back_exactly(moment: datetime) -> None:
    """Every UTC time of the years 1 to 9999 survives storage to the microsecond."""
    assert from_us(to_us("at", moment)) == moment


def test_naive_times_are_refused() -> None:
    """A datetime without a zone is an error, not a guess."""
    with pytest.raises(InvalidValue, match="at is a naive datetime"):
        to_us("at", datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point


def test_a_time_that_utc_cannot_hold_is_refused() -> None:
    """Year 1 east of Greenwich lies before year 1 in UTC and is refused."""
    east = timezone(timedelta(hours=5))
    with pytest.raises(InvalidValue, match="outside the years 1 to 9999"):
        to_us("at", datetime(1, 1, 1, tzinfo=east))


@pytest.mark.parametrize(
    ("value", "expected"),
    [("90d", timedelta(days=90)), ("2w", timedelta(weeks=2)), ("30m", timedelta(minutes=30))],
)
def test_durations_are_read(value: str, expected: timedelta) -> None:
    """Text like 90d is a length of time."""
    assert parse_duration("retain", value) == expected


@pytest.mark.parametrize("value", ["", "90", "d", "-1d", "0d", "1.5d", 90, None, "9" * 30 + "w"])
def test_durations_that_are_none_are_refused(value: object) -> None:
    """A length of time that cannot be read, or is nothing, is refused."""
    with pytest.raises(InvalidValue, match="retain"):
        parse_duration("retain", value)
