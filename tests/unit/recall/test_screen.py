from __future__ import annotations

import numpy as np

from secondcall.recall.screen import screen, unrepeated


def test_ended_items_are_marked() -> None:
    """An item whose facts have ended keeps its place and carries the note."""
    assert screen(["a", "b"], {"b": "ended 2026-05-01"}) == [("a", None), ("b", "ended 2026-05-01")]


def test_ended_items_are_dropped_on_request() -> None:
    """With "drop" only what still holds is left."""
    assert screen(["a", "b"], {"b": "ended"}, mode="drop") == [("a", None)]


def test_dropping_never_empties_a_list() -> None:
    """When everything has ended, everything is marked instead."""
    assert screen(["b"], {"b": "ended"}, mode="drop") == [("b", "ended")]


def test_a_text_comes_once() -> None:
    """Rows with the same text are one, the first."""
    assert list(unrepeated([2, 0, 1], np.array([7, 8, 7], np.uint64))) == [2, 1]
