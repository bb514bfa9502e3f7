"""What would keep the first call of a process waiting, done when the first memory is opened."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

from secondcall import identity
from secondcall.recall.opposites import lexicon

__all__ = ["are_words_loaded", "load_words", "warm"]

_loading = threading.Lock()
_collecting = threading.Lock()
_collected = threading.Event()


def warm(is_wanted: Callable[[], bool]) -> None:
    """Load what calls need and collect garbage once, as long as it ``is_wanted``. Blocking."""
    for step in (load_words, identity.warm_phone, _collect):
        if is_wanted():
            step()


def load_words() -> None:
    """Load the words that questions are read by, about 35 ms of work. Blocking."""
    with _loading:
        lexicon()


def are_words_loaded() -> bool:
    """Whether a question can be read at once."""
    return lexicon.cache_info().currsize > 0


def _collect() -> None:
    """A full collection looks at every object of the process, for 15 ms and more. The first one
    falls due soon after all the imports, which is in a call; after this one it is due only when a
    quarter more objects have come to stay."""
    with _collecting:
        if not _collected.is_set():
            _collected.set()
            gc.collect()
