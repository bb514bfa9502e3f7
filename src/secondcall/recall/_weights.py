"""The shipped weights: made by ``python bench/fit.py``, compared by ``bench/fit.py --check``."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["PROFILES"]

PROFILES: Mapping[str, Mapping[str, float]] = {
    "assistant": {
        "word": 1.0,
        "word_after": 0.3,
        "session_word": 0.4,
        "meaning": 1.7,
        "meaning_before": -0.4,
        "role": 0.8,
        "time": 1.0,
    },
    "people": {
        "word": 1.0,
        "word_before": 0.6,
        "word_after": 0.2,
        "session_word": 0.4,
        "meaning": 0.6,
        "speaker": 0.8,
        "time": 1.0,
    },
}
"""Signal -> weight, by the kind of record: named people talking, or a user and an assistant."""
