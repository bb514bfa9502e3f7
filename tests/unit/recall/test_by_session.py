"""Which conversation answers: its best item, and between people its further ones."""

from __future__ import annotations

import pytest
from recall_kit import ask, index_of, row

from secondcall.recall.segment import IndexRow


def _rows(*, assistant: bool) -> list[IndexRow]:
    """Two sessions with the same best item; the first has a second item that answers."""
    mouths = [("user", None), ("assistant", None)] if assistant else [("user", "A"), ("user", "B")]
    texts = [
        ("s1", "the ferry to the island"),
        ("s1", "the island had one ferry"),
        ("s2", "the ferry to the island "),
        ("s2", "we ate soup"),
    ]
    return [
        row(place, text + f" x{place}", session=session, role=role, speaker=speaker)
        for place, ((session, text), (role, speaker)) in enumerate(
            zip(texts, [*mouths, *mouths], strict=True), 1
        )
    ]


def test_between_people_the_session_with_more_of_it_comes_first() -> None:
    """What the further items add is a feature, and the features sum up to the score."""
    hits = ask(index_of(_rows(assistant=False)), "ferry island", by="session").hits
    assert [hit.session_id for hit in hits] == ["s1", "s2"]
    for hit in hits:
        assert hit.features["session"] > 0
        assert sum(hit.features.values()) == pytest.approx(hit.score, abs=1e-4)


def test_with_an_assistant_the_best_item_decides() -> None:
    """Nothing is added where a user talks to an assistant."""
    hits = ask(index_of(_rows(assistant=True)), "ferry island", by="session").hits
    assert all("session" not in hit.features for hit in hits)


def test_messages_are_ranked_without_it() -> None:
    """By message nothing is added."""
    hits = ask(index_of(_rows(assistant=False)), "ferry island").hits
    assert all("session" not in hit.features for hit in hits)
