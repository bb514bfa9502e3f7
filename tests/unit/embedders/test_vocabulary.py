from __future__ import annotations

import re
import time
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secondcall.embedders.vocabulary import BpeVocabulary, count_tokens, default_vocabulary


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", []),
        ("Hello world", [15043, 3186]),
        ("The aisle seat, please!", [450, 263, 275, 280, 12949, 29892, 3113, 29991]),
        ("a  b\n\nc ", [263, 29871, 289, 13, 13, 29883, 29871]),
        ("naïve 東京 🎉", [1055, 30085, 345, 29871, 30591, 30675, 29871, 243, 162, 145, 140]),
    ],
)
def test_ids_are_those_of_the_tokenizers_package(text: str, ids: list[int]) -> None:
    """Known texts give the ids that the original tokenizer gives."""
    assert default_vocabulary().encode(text) == ids


def test_the_vocabulary_is_complete() -> None:
    """All 32,000 pieces are there, those with carriage returns included."""
    assert len(default_vocabulary()) == 32_000


def test_no_piece_crosses_from_a_letter_to_a_sign() -> None:
    """What lets a text be cut between an ASCII letter and an ASCII sign or digit is true of every
    piece of the vocabulary."""
    crossing = re.compile(r"[A-Za-z][!-@\[-`{-~]|[!-@\[-`{-~][A-Za-z]")
    path = resources.files("secondcall.embedders") / "data" / "vocabulary.txt"
    pieces = path.read_bytes().decode("utf-8").split("\n")
    assert len(pieces) > 31_000
    assert [piece for piece in pieces if crossing.search(piece)] == []


@given(st.text(alphabet="abXY09_'\"-.,()é漢² ", min_size=1, max_size=60))
def test_cutting_into_units_changes_no_id(text: str) -> None:
    """A line has the ids that it has when it is not cut."""
    vocabulary = default_vocabulary()
    whole = vocabulary._merge(" " + text)  # pyright: ignore[reportPrivateUsage] - no public name encodes a line without cutting it
    assert vocabulary.encode(text) == list(whole)


def test_a_long_run_without_spaces_costs_linear_time() -> None:
    """A megabyte of one letter is counted within two seconds."""
    begin = time.perf_counter()
    assert count_tokens("x" * 1_000_000) > 0
    assert time.perf_counter() - begin < 2


def test_many_different_words_do_not_pile_up() -> None:
    """The cache of words is bounded."""
    vocabulary = BpeVocabulary(["ab"])
    vocabulary.encode(" ".join(f"w{number}" for number in range(80_000)))
    kept = len(vocabulary._recent) + len(vocabulary._older)  # pyright: ignore[reportPrivateUsage] - its bound is what is tested
    assert kept <= 50_000


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=200))
def test_any_text_is_counted(text: str) -> None:
    """Every string has as many tokens as it has ids, and none is out of range."""
    ids = default_vocabulary().encode(text)
    assert len(ids) == count_tokens(text)
    assert all(3 <= number < 32_000 for number in ids)


@given(st.text(max_size=100), st.text(max_size=100))
def test_counts_of_lines_add_up(one: str, other: str) -> None:
    """A line break is a token of its own, or makes room for at most one more."""
    together = count_tokens(f"{one}\n{other}")
    assert together <= count_tokens(one) + count_tokens(other) + 3
