"""The shipped weights: made by ``python bench/fit.py``, compared by ``bench/fit.py --check``."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["PROFILES"]

PROFILES: Mapping[str, Mapping[str, float]] = {
    "assistant": {
        "word": 1.0,
        "word_after": 0.5,
        "session_word": 0.4,
        "meaning": 1.9,
        "meaning_before": -0.5,
        "role": 0.8,
        "time": 1.0,
        "echo": 0.5,
    },
    "people": {
        "word": 1.0,
        "word_before": 0.6,
        "session_word": 0.3,
        "around": 0.4,
        "meaning": 1.0,
        "meaning_after": 0.2,
        "speaker": 0.8,
        "time": 1.0,
        "length": 0.8,
    },
}
"""Signal -> weight, by the kind of record: named people talking, or a user and an assistant."""
