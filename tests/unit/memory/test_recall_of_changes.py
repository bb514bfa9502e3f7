"""Recall of what was said about facts that changed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from secondcall import InvalidValue, ItemKey, Memory, Message, Recalled
from secondcall.testing.fakes import FrozenClock

pytestmark = pytest.mark.anyio
DAY = timedelta(days=1)


async def _say(memory: Memory, text: str, session_id: str = "s") -> ItemKey:
    session = await memory.user("ann").session(session_id)
    return (await session.record(Message("user", text, id=text))).keys[0]


def _found(recalled: Recalled) -> list[str]:
    return [item.key.id for item in recalled.items]


VEGETARIAN = "I am a vegetarian, I never eat meat and I love vegetarian food."
VEGAN = "Vegan now."


async def _diet(memory: Memory, clock: FrozenClock) -> None:
    user = memory.user("ann")
    await user.remember("diet", "vegetarian", sources=[await _say(memory, VEGETARIAN)])
    for number in range(6):
        await _say(memory, f"We cooked food number {number} with friends.", f"talk {number}")
    clock.advance(30 * DAY)
    await user.remember("diet", "vegan", sources=[await _say(memory, VEGAN, "later")])


async def test_what_holds_comes_before_what_has_ended(memory: Memory, clock: FrozenClock) -> None:
    """However much better the older words fit, the newer evidence stands above them."""
    await _diet(memory, clock)
    user = memory.user("ann")
    found = await user.recall("Is she a vegetarian, does she eat meat or vegetarian food?", limit=3)
    order = _found(found)
    assert order.index(VEGAN) < order.index(VEGETARIAN)
    scores = [item.score for item in found.items]
    assert scores == sorted(scores, reverse=True)
    moved = found.items[order.index(VEGAN)]
    assert sum(moved.features.values()) == pytest.approx(moved.score, abs=1e-4)
    assert found.facts[0].fact.value == "vegan"
    plain = await user.recall("vegetarian food", limit=3, prefer_current=False)
    assert _found(plain)[0] == VEGETARIAN


async def test_what_has_ended_is_marked_or_dropped(memory: Memory, clock: FrozenClock) -> None:
    """By default it says what replaced it and when; "drop" leaves it out, if anything is left."""
    await _diet(memory, clock)
    user = memory.user("ann")
    marked = await user.recall("vegetarian food", limit=8)
    stale = {item.key.id: item.stale for item in marked.items if item.stale}
    assert stale == {VEGETARIAN: "since 2026-06-03: diet is vegan"}
    assert "(since 2026-06-03: diet is vegan)" in marked.text
    dropped = await user.recall("vegetarian food", limit=8, stale="drop")
    assert VEGETARIAN not in _found(dropped)
    assert set(_found(dropped)) == set(_found(marked)) - {VEGETARIAN}
    only = await user.recall("never eat meat", limit=1, stale="drop", sessions=["s"])
    assert _found(only) == [VEGETARIAN]
    assert only.items[0].stale is not None
    with pytest.raises(InvalidValue, match="stale is 'hide', expected 'mark' or 'drop'"):
        await user.recall("food", stale="hide")  # pyright: ignore[reportArgumentType] - a caller's slip


async def test_the_past_is_still_found(memory: Memory, clock: FrozenClock) -> None:
    """Asked as of then, or in words about then, the old value is found, unmarked then."""
    start = clock.now()
    await _diet(memory, clock)
    user = memory.user("ann")
    then = await user.recall("vegetarian food", at=start + DAY, stale="drop", limit=3)
    assert _found(then)[0] == VEGETARIAN
    assert then.items[0].stale is None
    assert then.facts[0].fact.value == "vegetarian"
    clock.advance(60 * DAY)
    words = await user.recall("vegetarian food in May 2026", limit=3, stale="drop")
    assert _found(words)[0] == VEGETARIAN


async def test_what_came_before_is_found_by_what_holds(memory: Memory, clock: FrozenClock) -> None:
    """Where there is room, what states other values of the predicate comes along, filters kept."""
    user = memory.user("ann")
    old = await _say(memory, "Dr Amberley looks after me.", "2023")
    await user.remember("doctor", "Dr Amberley", sources=[old])
    clock.advance(DAY)
    new = await _say(memory, "I am registered with the health centre.", "2024")
    await user.remember("doctor", "Dr Quill", sources=[new])
    assert set(_found(await user.recall("health centre"))) == {old.id, new.id}
    assert _found(await user.recall("health centre", limit=1)) == [new.id]
    assert _found(await user.recall("health centre", sessions=["2024"])) == [new.id]


async def test_an_item_of_two_facts_is_marked_in_part(memory: Memory, clock: FrozenClock) -> None:
    """What of it has ended is named; it is not dropped while the rest holds."""
    user = memory.user("ann")
    key = await _say(memory, "Edda is allergic to hazelnut and milk.")
    for value in ("hazelnut", "milk"):
        await user.remember("allergy", value, kind="issue", multi=True, sources=[key])
    clock.advance(DAY)
    await user.retract("allergy", value="milk")
    found = await user.recall("allergic", stale="drop")
    assert found.items[0].stale == "allergy milk ended 2026-05-05"
    clock.advance(DAY)
    await user.settle("allergy", "resolved", value="hazelnut")
    found = await user.recall("allergic")
    assert set((found.items[0].stale or "").split("; ")) == {
        "allergy resolved 2026-05-06",
        "allergy milk ended 2026-05-05",
    }


async def test_a_resolved_issue_is_not_brought_up_as_open(
    memory: Memory, clock: FrozenClock
) -> None:
    """Recall says that it is resolved, reopened it is open again; promises likewise."""
    user = memory.user("ann")
    parcel = await _say(memory, "My parcel never came.")
    await user.remember("parcel", "lost", kind="issue", sources=[parcel])
    clock.advance(DAY)
    await user.settle("parcel", "resolved")
    found = await user.recall("parcel")
    assert found.items[0].stale == "resolved 2026-05-05"
    assert found.facts[0].fact.status == "resolved"
    assert "issue, resolved" in found.text
    assert "parcel" not in (await user.brief(max_tokens=60, deadline_seconds=None)).text
    await user.settle("parcel", "open")
    assert (await user.recall("parcel")).items[0].stale is None
    assert len((await user.brief(deadline_seconds=None)).issues) == 1


async def test_an_unrelated_question_finds_no_fact(memory: Memory) -> None:
    """Facts have to do with the question, or they are not given."""
    user = memory.user("ann")
    await user.remember("diet", "vegan")
    await user.remember("seat", "aisle")
    found = await user.recall("quantum chromodynamics lattice")
    assert (found.facts, found.items) == ((), ())
    assert found.reason is not None


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What did I eat before I turned vegan?", ["everything", "vegan"]),
        ("What was my diet in March?", ["everything", "vegan"]),
        ("What is my diet?", ["vegan"]),
        ("What was my diet in 2019?", ["vegan"]),
    ],
)
async def test_a_question_about_the_past_is_given_the_facts_of_then(
    memory: Memory, clock: FrozenClock, question: str, expected: list[str]
) -> None:
    """Where the time is known, by the calendar or by what began then, the ended fact of that time
    comes first, with its dates; a time of which nothing is known adds none."""
    user = memory.user("ann")
    begun = clock.now() - timedelta(days=100)
    await user.remember("diet", "everything", valid_from=begun)
    await user.remember("diet", "vegan", valid_from=begun + timedelta(days=70))
    found = await user.recall(question)
    assert [one.fact.value for one in found.facts] == expected
    if len(expected) > 1:
        assert "until 2026-04-04" in found.text


async def test_the_past_of_secrets_is_not_told(memory: Memory) -> None:
    """A merely claimed caller learns from no question what a secret was, nor when it began."""
    caller = await memory.identify(phone="+14155550100")
    user = memory.user(caller.user_id)
    await user.remember("illness", "asthma", sensitive=True)
    await user.remember("sport", "rowing")
    await user.retract("illness")
    found = await memory.user(caller).recall("Which sport did I do before the asthma in 2026?")
    assert "asthma" not in found.text
