"""The keyword floor ranks by words and nothing else."""

from __future__ import annotations

from secondcall.evaluate.floor import Floor

TEXTS = [
    "Pim: I sold the boat in April.",
    "Ola: The kiln arrived and it is huge, huge, huge, with a chimney and three doors.",
    "Pim: Boats were all I cared for.",
    "Ola: Did you paint the doors?",
]


def test_words_are_stemmed_and_stop_words_ignored() -> None:
    """A word is found in its other forms, and words that say nothing find nothing."""
    assert sorted(Floor(TEXTS).rank("which boats did you have?")) == [0, 2]
    assert Floor(TEXTS).rank("what did the") == []


def test_rare_words_and_short_texts_win() -> None:
    """Of two texts with the word, the shorter ranks first."""
    assert Floor(TEXTS).rank("doors") == [3, 1]


def test_speakers_count_as_words() -> None:
    """The name of who speaks is found like a word."""
    assert set(Floor(TEXTS).rank("Ola")) == {1, 3}


def test_nothing_to_rank() -> None:
    """No texts and empty texts give no ranking."""
    assert Floor([]).rank("boat") == []
    assert Floor(["", "the"]).rank("boat") == []
