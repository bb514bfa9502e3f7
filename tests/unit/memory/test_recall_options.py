"""What recall can be asked for: time, opposites, screens, neighbours, small talk, abstention."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from secondcall import InvalidValue, Memory, Message, RecalledItem
from secondcall.evaluate.abstention import abstention_report, abstention_text, run_abstention
from secondcall.evaluate.questions import Data, Haystack, ItemName, Question
from secondcall.record.transfer import Transcript

pytestmark = pytest.mark.anyio

AT = datetime(2026, 6, 17, 12, tzinfo=UTC)


async def _say(memory: Memory, *said: tuple[str, str, datetime]) -> None:
    for number, (session_id, text, at) in enumerate(said):
        session = await memory.user("ann").session(session_id)
        role = "assistant" if text.startswith(">") else "user"
        await session.record(Message(role, text.lstrip("> "), id=f"m{number}", at=at))


def _ids(items: Sequence[RecalledItem]) -> list[str]:
    return [one.key.id for one in items]


async def _vendor(memory: Memory) -> None:
    await _say(
        memory,
        ("a", "The vendor should be Acme.", AT - timedelta(days=40)),
        ("b", "The vendor should be Birch.", AT - timedelta(days=9)),
        ("c", "The vendor should be Cedar.", AT - timedelta(days=2)),
    )


async def test_a_named_time_moves_up_or_filters(memory: Memory) -> None:
    """A time in the question is a hint by default and a filter on request."""
    await _vendor(memory)
    user = memory.user("ann")
    soft = await user.recall("which vendor last week?", at=AT)
    times = {one.key.id: one.features.get("time", 0) for one in soft.items}
    assert len(times) == 3
    assert times["m1"] == max(times.values()) > times["m2"] > times["m0"]
    hard = await user.recall("which vendor last week?", at=AT, time="hard")
    assert _ids(hard.items) == ["m1"]
    none = await user.recall("which vendor in 2019?", at=AT, time="hard")
    assert not none.items
    assert none.reason is not None


async def test_the_conversation_that_asks_is_left_out_from_a_time_on(memory: Memory) -> None:
    """Apart from a session means: nothing of it from that time on, its earlier part and every other
    session as ever, in the hits and not in what they score."""
    await _vendor(memory)
    await _say(memory, ("c", "The vendor should be Dune.", AT - timedelta(hours=1)))
    user = memory.user("ann")
    everything = await user.recall("which vendor?", at=AT, limit=10)
    apart = await user.recall(
        "which vendor?", at=AT, limit=10, apart_from=("c", AT - timedelta(hours=2))
    )
    whole = await user.recall("which vendor?", at=AT, apart_from=("c", AT - timedelta(days=3)))
    other = await user.recall("which vendor?", at=AT, apart_from=("d", AT - timedelta(days=99)))
    asking = {one.key for one in everything.items} - {one.key for one in apart.items}
    assert {(key.session_id, key.id) for key in asking} == {("c", "m0")}
    assert {one.key.session_id for one in whole.items} == {"a", "b"}
    assert len(other.items) == len(everything.items)


@pytest.mark.parametrize("given", ["c", ("c",), ("c", "yesterday"), ("", AT), ("c", AT, AT)])
async def test_what_to_leave_out_is_a_session_and_a_time(memory: Memory, given: Any) -> None:
    """Anything else is refused, and the error names the field."""
    with pytest.raises(InvalidValue, match="apart_from"):
        await memory.user("ann").recall("which vendor?", apart_from=given)


async def test_days_begin_in_the_time_zone_of_the_user(memory: Memory) -> None:
    """At half past midnight in Berlin, "yesterday" is the Berlin day before."""
    at = datetime(2026, 6, 16, 22, 30, tzinfo=UTC)
    await _say(memory, ("a", "The parcel came.", datetime(2026, 6, 16, 9, tzinfo=UTC)))
    user = memory.user("ann")
    berlin = await user.recall(
        "the parcel yesterday", at=at, time="hard", time_zone="Europe/Berlin"
    )
    utc = await user.recall("the parcel yesterday", at=at, time="hard")
    assert (_ids(berlin.items), _ids(utc.items)) == (["m0"], [])


@pytest.mark.parametrize(
    "wrong",
    [
        {"time_zone": "Mars/Olympus"},
        {"time_zone": "../etc/passwd"},
        {"time": "firm"},
        {"neighbours": -1},
        {"neighbours": 11},
        {"min_confidence": 2},
        {"screen": "drop"},
    ],
)
async def test_wrong_options_are_named(memory: Memory, wrong: dict[str, Any]) -> None:
    """What is no option is refused by name, before anything is read."""
    with pytest.raises(InvalidValue, match=next(iter(wrong))):
        await memory.user("ann").recall("vendor", **wrong)


@pytest.mark.parametrize(
    ("question", "right", "opposite"),
    [("what do I like?", "m0", "m1"), ("what can't I stand?", "m1", "m0")],
)
async def test_likes_and_dislikes_are_told_apart(
    memory: Memory, question: str, right: str, opposite: str
) -> None:
    """What is liked answers what is liked, also at limit 1, and the reverse."""
    await _say(memory, ("a", "I love pizza.", AT), ("a", "I hate broccoli.", AT))
    user = memory.user("ann")
    ranked = _ids((await user.recall(question)).items)
    assert right in ranked
    assert opposite not in ranked or ranked.index(right) < ranked.index(opposite)
    assert opposite not in _ids((await user.recall(question, limit=1)).items)


async def test_the_opposite_is_explained(memory: Memory) -> None:
    """An item that was moved back says so in its features."""
    await _say(
        memory,
        ("a", "How do I subscribe to the news service?", AT - timedelta(days=3)),
        ("b", "Please cancel my news service subscription.", AT - timedelta(days=1)),
    )
    found = await memory.user("ann").recall("cancel my subscription to the news service", at=AT)
    assert _ids(found.items) == ["m1", "m0"]
    assert found.items[1].features["opposite"] < 0
    assert "opposite" not in found.items[0].features


async def test_small_talk_is_recorded_but_not_found(memory: Memory) -> None:
    """Greetings are in the record, and are found only when they are asked for."""
    await _say(memory, ("a", "Hello there!", AT), ("a", "My parcel is late.", AT))
    user = memory.user("ann")
    assert _ids((await user.recall("hello parcel")).items) == ["m1"]
    asked = await user.recall("hello parcel", small_talk=True, min_confidence=0)
    assert "m1" in _ids(asked.items)
    assert [one.key.id async for one in user.items()] == ["m0", "m1"]


async def test_neighbours_come_along_as_context(memory: Memory) -> None:
    """The answer to a question comes with it, in the text too, and is no hit of its own."""
    await _say(
        memory,
        ("a", "Where can I park the camper?", AT),
        ("a", "> Behind the mill, gate four.", AT + timedelta(seconds=5)),
        ("b", "Bread again today.", AT + timedelta(days=1)),
    )
    found = await memory.user("ann").recall("where to park the camper", limit=1, neighbours=1)
    (item,) = found.items
    assert item.key.id == "m0"
    assert [one.key.id for one in (*item.before, *item.after)] == ["m1"]
    assert "gate four" in found.text
    both = await memory.user("ann").recall("park the camper behind the mill", neighbours=2)
    shown = [one.key.id for item in both.items for one in (*item.before, *item.after)]
    assert not set(shown) & set(_ids(both.items))


async def test_an_application_screens_what_was_found(memory: Memory) -> None:
    """A screen, plain or async, sees the scored items last and says which come out."""
    await _vendor(memory)
    user = memory.user("ann")

    def last(items: list[RecalledItem]) -> list[RecalledItem]:
        return items[-1:]

    async def none(items: list[RecalledItem]) -> list[RecalledItem]:
        return []

    everything = await user.recall("vendor", at=AT)
    assert _ids((await user.recall("vendor", at=AT, screen=last)).items) == [
        everything.items[-1].key.id
    ]
    empty = await user.recall("vendor", at=AT, screen=none)
    assert not empty.items
    assert empty.reason is not None
    assert "screen" in empty.reason


async def test_a_screen_that_fails_is_reported(memory: Memory) -> None:
    """A screen that raises, returns nonsense or is late leaves the items; the answer says so."""
    await _vendor(memory)
    user = memory.user("ann")
    await user.recall("vendor", at=AT)

    def broken(items: list[RecalledItem]) -> list[RecalledItem]:
        raise KeyError("x")

    def nonsense(items: list[RecalledItem]) -> list[RecalledItem]:
        return ["vendor"]  # pyright: ignore[reportReturnType] - what a careless host does

    async def slow(items: list[RecalledItem]) -> list[RecalledItem]:
        await asyncio.sleep(60)
        return items

    for screen in (broken, nonsense):
        found = await user.recall("vendor", at=AT, screen=screen)
        assert len(found.items) == 3
        assert "not screened" in found.warnings[0]
    late = await user.recall("vendor", at=AT, screen=slow, deadline_seconds=0.5)
    assert len(late.items) == 3
    assert "deadline" in late.warnings[0]


async def test_an_unrelated_question_is_answered_by_nothing(memory: Memory) -> None:
    """Nothing found says how sure recall was, and asking for less finds the least bad item."""
    await _vendor(memory)
    user = memory.user("ann")
    found = await user.recall("the boiling point of tungsten", at=AT)
    assert not found.items
    assert found.reason == "nothing in the record answers this"
    strict = await user.recall("who should the vendor be", at=AT, min_confidence=1)
    assert strict.reason is not None
    assert "confidence" in strict.reason
    sure = await user.recall("who should the vendor be", at=AT)
    assert sure.confidence > found.confidence


async def test_recall_explains_itself(memory: Memory) -> None:
    """With ``explain`` the answer says how the question was read, and each item what matched."""
    await _vendor(memory)
    found = await memory.user("ann").recall("which vendor last week, Zeus?", at=AT, explain=True)
    assert found.explanation is not None
    assert found.explanation["words"] == ["vendor"]
    assert "zeus" in str(found.explanation["unknown_words"])
    assert found.explanation["times"]
    assert found.items[0].matched == ("vendor",)
    assert abs(sum(found.items[0].features.values()) - found.items[0].score) < 1e-4
    assert (await memory.user("ann").recall("which vendor", at=AT)).explanation is None


async def test_the_same_words_in_other_dress_are_found_once(memory: Memory) -> None:
    """Case, punctuation and spaces make no other message; a negation does."""
    await _say(
        memory,
        ("a", "Parking is allowed.", AT),
        ("b", "parking is ALLOWED!!", AT),
        ("c", "Parking is not allowed.", AT),
    )
    found = await memory.user("ann").recall("parking", at=AT + timedelta(days=1))
    assert len(found.items) == 2


async def test_chatty_and_pasted_questions_are_answered(memory: Memory) -> None:
    """Fillers do not count, a long pasted text is read by its informative words, a name alone is
    a question, and another language finds nothing without an error."""
    await _say(memory, ("a", "My dog Rex likes the beach.", AT), ("a", "I work in Porto.", AT))
    user = memory.user("ann")
    chatty = await user.recall("um, so, you know, what did I, uh, say about the dog?", limit=1)
    pasted = await user.recall("You are a helpful assistant. " * 200 + " dog Rex beach", limit=1)
    name = await user.recall("Rex?", limit=1)
    assert [_ids(one.items) for one in (chatty, pasted, name)] == [["m0"]] * 3
    other = await user.recall("Wie heißt mein Haustier?", limit=1)
    assert other.items or other.reason


def test_abstention_is_measured_on_own_and_other_records() -> None:
    """The curve has a default, and a strict threshold loses no less than a mild one."""
    haystacks = [
        Haystack(
            user_id=name,
            sessions=[Transcript(session_id="s", items=[Message("user", text, id="m", at=AT)])],
            questions=[
                Question(
                    id=name,
                    category="x",
                    text=question,
                    asked_at=AT,
                    messages=frozenset({ItemName("s", "m")}),
                    sessions=frozenset({"s"}),
                )
            ],
        )
        for name, text, question in (
            ("a", "My dog is called Rex.", "what is my dog called"),
            ("b", "The boiler leaks again.", "what did I say about the boiler"),
        )
    ]
    asked = run_abstention(Data(name="own", haystacks=haystacks, left_out={}), [])
    report = abstention_report(asked, file="own", embedder="static")
    assert report["questions"] == {"own": 2, "other": 2, "unanswerable": 0}
    assert report["default"] == {
        "threshold": 0.08,
        "lost": 0.0,
        "false_others": 0.0,
        "false_unanswerable": None,
    }
    assert len(list(abstention_text(asked))) == 9
