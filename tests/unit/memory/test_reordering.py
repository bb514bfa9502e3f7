"""What stands against the question goes back, and what answers takes its place."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from secondcall.memory.reordering import for_and_against
from secondcall.recall.polarity import intent
from secondcall.types import ItemKey, Message, RecalledItem, Role

_AT = datetime(2026, 5, 1, 12, tzinfo=UTC)


def _item(
    name: str,
    text: str,
    score: float,
    *,
    session: str = "s",
    later: int = 0,
    role: Role = "user",
) -> RecalledItem:
    return RecalledItem(
        key=ItemKey("u", session, "message", name),
        item=Message(role, text),
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


def test_a_denial_right_after_the_matter_answers_what_is_denied() -> None:
    """Where a denial is asked for, what denies something right after the thing was named comes
    before it; what was said earlier, much later or elsewhere does not."""
    question = "which bin must I not put glass in?"
    glass = _item("glass", "glass belongs in the blue bin", 3.0, later=10)

    def order(**when: Any) -> list[str]:
        return _order(question, glass, _item("yellow", "and never in the yellow one", 0.5, **when))

    assert order(later=11) == ["yellow", "glass"]
    assert order(later=9) == ["glass", "yellow"]
    assert order(later=70) == ["glass", "yellow"]
    assert order(later=11, session="t") == ["glass", "yellow"]
    asked = "which bin do I put glass in?"
    yellow = _item("yellow", "and never in the yellow one", 0.5, later=11)
    assert _order(asked, glass, yellow) == ["glass", "yellow"]


def test_a_question_that_the_opposite_answers_goes_back_with_it() -> None:
    """Who asked whether something is so, and was told that it is not, said nothing for it."""
    asked = _item("asked", "can we bring the children to the casino", 3.0)
    welcome = _item("welcome", "children are welcome in the cellar", 2.5, session="t")
    told = _item(
        "told", "No, children are not allowed in the casino", 2.0, role="assistant", later=1
    )
    question = "where are children allowed?"
    assert _order(question, asked, welcome, told)[0] == "welcome"
    assert _order(question, asked, welcome)[0] == "asked"


def test_an_event_that_is_asked_for_is_told_by_what_does_not_deny_it() -> None:
    """What speaks against a thing that is asked for as an event goes back, whatever the action."""
    refused = _item("refused", "the kitchen loan was turned down", 3.0)
    granted = _item("granted", "the loan for the car went through", 2.8)
    assert _order("which loan did they give me?", refused, granted) == ["granted", "refused"]
