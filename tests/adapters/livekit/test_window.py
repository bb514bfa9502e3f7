"""A context is cut by whole turns, and nothing that must stay is cut."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from livekit.agents import llm

from secondcall.adapters.livekit.chat import memory_message
from secondcall.adapters.livekit.window import Tally, WindowOptions, condensed, tokens_of
from secondcall.errors import InvalidValue


class _Letters:
    """A counter of letters, which keeps how much it was asked."""

    id = "letters"

    def __init__(self) -> None:
        self.asked = self.read = 0

    def count(self, text: str) -> int:
        """One token a letter."""
        self.asked += 1
        self.read += len(text)
        return len(text)


COUNTER: Any = _Letters()


def _message(role: llm.ChatRole, text: str, at: float, **more: Any) -> llm.ChatMessage:
    return llm.ChatMessage(role=role, content=[text], created_at=at, **more)


def _call(call_id: str, at: float) -> llm.FunctionCall:
    return llm.FunctionCall(call_id=call_id, name="look", arguments="{}", created_at=at)


def _output(call_id: str, at: float, text: str = "found") -> llm.FunctionCallOutput:
    return llm.FunctionCallOutput(
        call_id=call_id, name="look", output=text, is_error=False, created_at=at
    )


@pytest.mark.parametrize("length", [20_000, 20_001, 3_000_000])
def test_counting_a_very_long_text_costs_no_more_than_counting_a_long_one(length: int) -> None:
    """What a reply waits for is bounded; the count is near to that of the whole text."""
    counter: Any = _Letters()
    counted = tokens_of(_message("user", "x" * length, 1.0), counter)
    assert counter.read <= 20_000
    assert abs(counted - length) <= 10


SYSTEM = _message("system", "Be brief.", 0.0, id="lk.agent_task.instructions")
BRIEF = memory_message("brief", created_at=0.5, kind="brief")


def _turns(count: int, *, text: str = "x" * 40) -> list[llm.ChatItem]:
    items: list[llm.ChatItem] = []
    for number in range(count):
        at = 10.0 + number
        items.append(_message("user", text, at, id=f"u{number}"))
        items.append(_call(f"c{number}", at + 0.1))
        items.append(_output(f"c{number}", at + 0.2))
        items.append(_message("assistant", text, at + 0.3, id=f"a{number}"))
    return items


def _tokens(items: list[llm.ChatItem]) -> int:
    return sum(tokens_of(one, COUNTER) for one in items)


def test_the_oldest_turns_go_whole() -> None:
    """What remains begins with a user message, ends with the newest turn, has every call with its
    output, and keeps instructions and brief in front."""
    items = [SYSTEM, BRIEF, _message("assistant", "Hello.", 1.0), *_turns(20)]
    kept = condensed(items, max_tokens=700, counter=COUNTER)
    assert _tokens(kept) <= 700
    assert kept[:2] == [SYSTEM, BRIEF]
    assert kept[2].id.startswith("u")
    assert kept[-1].id == "a19"
    assert len(kept[2:]) % 4 == 0
    assert kept[2:] == items[-len(kept[2:]) :]


def test_the_newest_turn_stays_even_without_room() -> None:
    """A newest turn over the whole window stays, with its tools."""
    items = [SYSTEM, *_turns(3, text="y" * 4_000)]
    kept = condensed(items, max_tokens=100, counter=COUNTER)
    assert kept == [SYSTEM, *items[-4:]]


def test_the_summary_stands_behind_the_brief_and_before_the_turns() -> None:
    """A new summary takes the place of the one before, right before the first turn that stays, and
    is older than it."""
    items: list[llm.ChatItem] = [SYSTEM, BRIEF, *_turns(4)]
    once = condensed(items, max_tokens=9_999, counter=COUNTER, summary="first", covered={"u1"})
    twice = condensed(once, max_tokens=9_999, counter=COUNTER, summary="second", covered={"u3"})
    assert [one.id for one in once][:4] == [SYSTEM.id, BRIEF.id, "memory_summary", "u1"]
    assert [one.id for one in twice] == [
        SYSTEM.id,
        BRIEF.id,
        "memory_summary",
        *(one.id for one in items[-4:]),
    ]
    assert "second" in str(twice[2])
    assert "first" not in str(twice)
    assert BRIEF.created_at < twice[2].created_at < twice[3].created_at


def test_an_answer_in_a_later_turn_keeps_its_call() -> None:
    """A call that was interrupted and answered a turn later is not parted from its output."""
    items: list[llm.ChatItem] = [
        _message("user", "x" * 100, 1.0),
        _call("late", 1.1),
        _message("user", "and?", 2.0),
        _output("late", 2.1),
        _message("assistant", "Here.", 2.2),
    ]
    kept = condensed(items, max_tokens=60, counter=COUNTER)
    assert [one.type for one in kept] == [
        "function_call", "message", "function_call_output", "message"
    ]  # fmt: skip


def test_what_was_looked_up_stays_before_its_words() -> None:
    """In a follow-up that is cut, what was found stands before the words that it was found for."""
    found = memory_message("found", created_at=13.9, kind="lookup", key="x")
    items = [SYSTEM, BRIEF, *_turns(8)]
    items.insert(-4, found)
    kept = condensed(items, max_tokens=400, counter=COUNTER)
    assert kept[:2] == [SYSTEM, BRIEF]
    assert len(kept) < len(items)
    assert kept[kept.index(found) + 1].id == "u7"
    assert condensed(items, max_tokens=9_999, counter=COUNTER, covered={"u7"})[2] is found


def test_without_a_summary_an_older_one_stays() -> None:
    """What has no new summary keeps the one that it has."""
    items = condensed([SYSTEM, *_turns(3)], max_tokens=9_999, counter=COUNTER, summary="kept")
    assert "kept" in str(condensed(items, max_tokens=200, counter=COUNTER))


def test_restored_turns_are_turns() -> None:
    """Turns of an earlier call are cut like others; the brief is not."""
    old = [
        _message(role, "z" * 60, 0.6, id=f"memory_{number}", extra={"secondcall": "turn"})
        for number, role in enumerate(("user", "assistant"))
    ]
    note = memory_message("end", created_at=0.7, kind="turns")
    kept = condensed([SYSTEM, BRIEF, *old, note, *_turns(4)], max_tokens=300, counter=COUNTER)
    assert kept[:2] == [SYSTEM, BRIEF]
    assert not {one.id for one in kept} & {"memory_0", "memory_1", note.id}


def test_an_empty_context_stays_empty() -> None:
    """Nothing is made of nothing, not even out of a summary without turns."""
    assert condensed([], max_tokens=100, counter=COUNTER) == []
    assert condensed([SYSTEM], max_tokens=100, counter=COUNTER) == [SYSTEM]


_PIECES = st.lists(
    st.tuples(st.sampled_from(["user", "assistant", "system", "call"]), st.integers(0, 120)),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(_PIECES, st.integers(100, 3_000), st.booleans())
def test_whatever_is_said_the_rules_hold(
    pieces: list[tuple[str, int]], limit: int, told: bool
) -> None:
    """For any conversation: within the limit, or nothing but front and newest turn; order is kept;
    no output without its call; all system messages and the newest user message are there."""
    items: list[llm.ChatItem] = []
    for number, (kind, length) in enumerate(pieces):
        at = float(number + 1)
        if kind == "call":
            items += [_call(f"c{number}", at), _output(f"c{number}", at, "o" * length)]
        else:
            role: Any = kind
            items.append(_message(role, "t" * length, at, id=f"m{number}"))
    kept = condensed(items, max_tokens=limit, counter=COUNTER, summary="s" * 20 if told else "")
    said = [one for one in kept if one.id != "memory_summary"]
    order = {one.id: position for position, one in enumerate(items)}
    turns = [one for one in said if not (isinstance(one, llm.ChatMessage) and one.role == "system")]
    assert [order[one.id] for one in turns] == sorted(order[one.id] for one in turns)
    systems = [one for one in items if isinstance(one, llm.ChatMessage) and one.role == "system"]
    assert all(one in kept for one in systems)
    users = [one for one in items if isinstance(one, llm.ChatMessage) and one.role == "user"]
    assert not users or users[-1] in kept
    calls = {one.call_id for one in kept if isinstance(one, llm.FunctionCall)}
    assert all(one.call_id in calls for one in kept if isinstance(one, llm.FunctionCallOutput))
    if _tokens(kept) > limit:
        left = [one for one in said if isinstance(one, llm.ChatMessage) and one.role == "user"]
        assert left == users[-1:]


def test_a_tally_counts_what_is_new() -> None:
    """Of a context that grows only the new items are counted, however long it is."""
    counter: Any = _Letters()
    tally = Tally()
    items = _turns(1_000)
    assert tally.of(items, counter) == _tokens(items)
    before = counter.asked
    items.append(_message("user", "new", 9_999.0))
    assert tally.of(items, counter) == _tokens(items)
    assert counter.asked == before + 1
    del items[10:]
    assert tally.of(items, counter) == _tokens(items)
    assert tally.of(list(items), counter) == _tokens(items)


def test_images_and_updates_are_counted_for_what_they_are() -> None:
    """An image costs a fixed estimate, a handoff nothing."""
    image = llm.ImageContent(image="https://example.com/cat.png")
    with_image = llm.ChatMessage(role="user", content=["look", image])
    assert tokens_of(with_image, COUNTER) > 500
    handoff = llm.AgentHandoff(old_agent_id="a", new_agent_id="b")
    assert tokens_of(handoff, COUNTER) == 0


@pytest.mark.parametrize("wrong", [{"max_tokens": 10}, {"keep": 0.0}, {"keep": 1.0}])
def test_wrong_windows_are_refused(wrong: dict[str, Any]) -> None:
    """A window without room, or a share that is none, is refused by name."""
    with pytest.raises(InvalidValue, match=next(iter(wrong))):
        WindowOptions(**wrong)
