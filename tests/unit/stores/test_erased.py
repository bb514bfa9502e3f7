"""The marks of erased partitions."""

from __future__ import annotations

from itertools import combinations

from secondcall.abc import Scope
from secondcall.stores.erased import erasure_mark


def test_marks_differ_by_scope_and_epoch() -> None:
    """No two different scopes or epochs have the same mark, however their parts are cut."""
    marks = [
        erasure_mark(Scope("a", "user", "bc"), b"epoch"),
        erasure_mark(Scope("ab", "user", "c"), b"epoch"),
        erasure_mark(Scope("a", "identity", "bc"), b"epoch"),
        erasure_mark(Scope("a", "user", "bc"), b"epoch2"),
        erasure_mark(Scope("", "user", "bc"), b"epocha"),
    ]
    assert all(one != other for one, other in combinations(marks, 2))


def test_mark_shows_nothing() -> None:
    """A mark is 16 bytes, the same each time, and holds no part of the name."""
    mark = erasure_mark(Scope("tenant", "user", "alice"), b"0123456789abcdef")
    assert len(mark) == 16
    assert mark == erasure_mark(Scope("tenant", "user", "alice"), b"0123456789abcdef")
    assert b"alice" not in mark
