"""Small talk is recorded, but not searched."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recall_kit import ask, ids, index_of, row

from secondcall.recall.smalltalk import is_small_talk


@pytest.mark.parametrize(
    "text",
    ["hello", "Thank you!", "uh-huh", "Hi Anna, how are you?", "ok great, thanks", "Danke schön!"],
)
def test_greetings_and_thanks_are_small_talk(text: str) -> None:
    """Greetings, thanks and sounds of listening are small talk, names in them included."""
    assert is_small_talk(text)


@pytest.mark.parametrize(
    "text",
    ["yes", "No.", "", "?", "👍", "ok 5", "Hello, I need a refund", "right?", "thanks " * 40],
)
def test_an_answer_is_no_small_talk(text: str) -> None:
    """Yes and no answer something; so does whatever else is in the text."""
    assert not is_small_talk(text)


@given(st.text(max_size=150))
def test_any_text_is_judged(text: str) -> None:
    """Every text is judged, and more said to it makes no small talk of it."""
    assert not is_small_talk(f"{text} refund 4711")


@pytest.mark.parametrize("cuts", [(), (3,)])
def test_small_talk_is_found_only_when_asked_for(cuts: tuple[int, ...]) -> None:
    """It has no vector and is no hit, from a segment or the tail, unless asked for."""
    rows = [row(1, "hello there"), row(2, "my parcel is late"), row(3, "thank you so much")]
    index = index_of(rows, cuts=cuts)
    assert ids(ask(index, "hello parcel")) == ["m002"]
    assert set(ids(ask(index, "hello there parcel late", small_talk=True))) >= {"m002"}
