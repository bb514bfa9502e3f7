"""What stands against the question goes back, and what answers takes its place."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from secondcall.memory.reordering import for_and_against
from secondcall.recall.polarity import intent
from secondcall.types import ItemKey, Message, RecalledItem

_AT = datetime(2026, 5, 1, 12, tzinfo=UTC)


def _item(
    name: str, text: str, score: float, *, session: str = "s", later: int = 0
) -> RecalledItem:
    return RecalledItem(
        key=ItemKey("u", session, "message", name),
        item=Message("user", text),
        at=_AT + timedelta(minutes=later),
        score=score,
    )


def _order(question: str, *items: RecalledItem) -> list[str]:
    return [one.key.id for one in for_and_against(items, intent(question))]


def test_what_answers_takes_the_place_of_the_opposite() -> None:
    """However far behind it was found, what takes the side that is asked for stands first."""
    found = for_and_against(
        [
            _item("joined", "I joined the choir", 3.0),
            _item("other", "the choir sings", 2.5),
            _item("left", "I left the choir", 0.5),
        ],
        intent("when did I quit the choir?"),
    )
    assert [one.key.id for one in found] == ["left", "other", "joined"]
    assert found[0].score == 3.0
    assert found[0].features["instead"] > 0
    assert found[2].features["opposite"] < 0


def test_a_thing_that_was_just_named_needs_no_name() -> None:
    """Beside the opposite, in the same conversation, an answer need not repeat what it is about."""
    question = "what did I borrow from Tom?"
    lent = _item("lent", "I lent Tom my mower", 3.0)
    saw = "and the saw is borrowed"
    assert _order(question, lent, _item("saw", saw, 0.5, later=1)) == ["saw", "lent"]
    assert _order(question, lent, _item("saw", saw, 0.5, later=60)) == ["lent", "saw"]
    assert _order(question, lent, _item("saw", saw, 0.5, session="t")) == ["lent", "saw"]


def test_without_an_opposite_nothing_takes_a_place() -> None:
    """What agrees with a question that denies nothing keeps its score and has no new feature."""
    one = _item("joined", "I joined the choir", 1.0)
    assert for_and_against([one], intent("when did I join the choir?")) == [one]
    assert for_and_against([one], intent("what is the choir's name?")) == [one]
