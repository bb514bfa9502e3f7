from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secondcall.recall.analyze import Analyzer, term_hash, terms


def test_inflected_words_share_a_term() -> None:
    """Singular and plural, present and past of a regular word give one term."""
    assert terms("appointments") == terms("appointment")
    assert terms("moved moving moves") == terms("move") * 3


def test_function_and_question_words_are_left_out() -> None:
    """A question made of function words has no terms."""
    assert terms("What is it that you did with the one?") == []


def test_contractions_lose_their_endings() -> None:
    """An apostrophe and what follows it does not change a word."""
    assert terms("Anna's dogs don't bark") == terms("anna dog bark")


def test_accents_do_not_matter_in_latin_words() -> None:
    """A word with accents is found without them."""
    assert terms("Café São Ångström") == terms("cafe sao angstrom")


def test_width_and_ligatures_are_folded() -> None:
    """Compatibility forms of letters count as the letters."""
    assert terms("ﬁne Ｈｅｌｌｏ１２３ straße") == terms("fine hello123 strasse")


def test_numbers_keep_their_inner_punctuation() -> None:
    """Times, amounts and versions stay whole, and thousands are written in any way."""
    assert terms("7:30 1,000 2.5") == ["7:30", "1000", "2.5"]


def test_a_single_chinese_character_finds_its_word() -> None:
    """A word of one character shares a term with the sentence it stands in."""
    assert set(terms("猫")) <= set(terms("我养了一只猫"))


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("東京", "先週東京に行きました"),
        ("고양이", "우리 고양이는 까매요"),
        ("หมา", "ฉันเลี้ยงหมาสองตัว"),
        ("咖啡", "她每天早上喝咖啡"),
    ],
)
def test_words_are_found_in_scripts_without_spaces(word: str, sentence: str) -> None:
    """Pairs of characters of a word stand in a sentence that holds it."""
    assert set(terms(word)) & set(terms(sentence))


def test_words_with_vowel_signs_stay_whole() -> None:
    """A Hindi word is one term, signs included."""
    assert terms("हिन्दी") == ["हिन्दी"]


def test_hebrew_and_arabic_points_do_not_matter() -> None:
    """Pointed and plain spelling give the same terms."""
    assert terms("שָׁלוֹם") == terms("שלום")
    assert terms("مَرْحَبًا") == terms("مرحبا")


def test_emoji_are_terms() -> None:
    """An emoji can be searched for."""
    assert "🐶" in terms("look 🐶!")


def test_null_bytes_and_lone_surrogates_are_no_words() -> None:
    """Control characters and broken text separate words and are no terms."""
    assert terms("dog\x00cat\ud800bird") == terms("dog cat bird")


def test_a_term_has_the_same_hash_everywhere() -> None:
    """The 64-bit name of a term is fixed for all time."""
    assert term_hash("dog") == 11501171807684625465


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=200))
def test_any_text_has_terms_without_an_error(text: str) -> None:
    """Every string has terms, and they are the same each time."""
    analyzer = Analyzer()
    assert analyzer.hashes(text) == analyzer.hashes(text) == [term_hash(t) for t in terms(text)]


@given(st.text(max_size=60), st.text(max_size=60))
def test_terms_of_a_text_are_those_of_its_lines(one: str, other: str) -> None:
    """Terms never reach over a line break."""
    assert terms(f"{one}\n{other}") == terms(one) + terms(other)


@given(st.text(alphabet=st.characters(max_codepoint=0x24F), max_size=60))
def test_case_does_not_matter(text: str) -> None:
    """Latin text in capitals has the terms of the small letters."""
    assert terms(text.upper()) == terms(text.upper().lower())
