"""The default token counter: the shipped vocabulary, offline."""

from __future__ import annotations

from secondcall.abc import TokenCounter
from secondcall.embedders.vocabulary import count_tokens

__all__ = ["VocabularyCounter"]


class VocabularyCounter(TokenCounter):
    """Counts tokens of the shipped 32,000-piece vocabulary.

    Today's larger vocabularies need fewer tokens for the same text, so a budget kept by this count
    is kept by theirs.
    """

    id = "vocabulary:32000"

    def count(self, text: str) -> int:
        """Tokens in ``text``; 0 for empty text."""
        return count_tokens(text)
