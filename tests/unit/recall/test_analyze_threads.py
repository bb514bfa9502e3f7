"""The analyzer under several threads."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from secondcall.recall.analyze import Analyzer

_WORDS = [f"{stem}{end}" for stem in ("topic", "relat", "nation", "organ") for end in range(999)]
_TEXTS = [f"{word}alization {word}ing {word}fulness" for word in _WORDS]


def test_threads_at_once_give_the_same_terms_as_one_alone() -> None:
    """Stemming in four threads at once neither fails nor mixes up words."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            shared = Analyzer()
            found = [list(pool.map(shared.hashes, _TEXTS)) for _ in range(2)]
    finally:
        sys.setswitchinterval(interval)
    expected = [Analyzer().hashes(text) for text in _TEXTS]
    assert found == [expected, expected]
