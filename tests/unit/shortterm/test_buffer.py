"""The chat buffer keeps the newest whole turns, whatever comes in."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from buffer_kit import MARKER_WORDS, WordCounter, buffer_of, call, calls_made, reply, said, user

from secondcall.abc import TokenCounter
from secondcall.context.chat import messages_from_items
from secondcall.errors import InvalidValue, OverBudget, TooLarge
from secondcall.shortterm.buffer import ChatBuffer
from secondcall.shortterm.window import MAX_HELD_ITEMS
from secondcall.types import Item, Message, ToolCall

SYSTEM = Message("system", "be kind")


def test_newest_whole_turns_that_fit() -> None:
    """Turns are cut oldest first and whole, as soon as all of them do not fit."""
    turns = [user("one two"), reply("three four"), user("five six"), reply("seven")]
    assert said(buffer_of(7, *turns).get()) == ["one two", "three four", "five six", "seven"]
    assert said(buffer_of(6, *turns).get()) == ["five six", "seven"]
    assert said(buffer_of(3, *turns).get()) == ["five six", "seven"]


def test_system_messages_stay_in_front() -> None:
    """System messages are always kept, first and in order, wherever they came."""
    late = Message("system", "be brief")
    buffer = buffer_of(7, SYSTEM, user("one two three four"), late, user("a"), reply("b"))
    assert said(buffer.get()) == ["be kind", "be brief", "a", "b"]
    assert buffer.tokens == 6


def test_every_kind_of_content_is_counted_once() -> None:
    """Text, speaker, thinking, tool name, arguments, output and framing each count."""
    buffer = buffer_of(100, framing_tokens=3)
    buffer.put(Message("user", "a b", speaker="Ada", metadata={"thinking": "c d e"}))
    assert buffer.tokens == 3 + 6
    buffer.put(call("1", "x y", {"k": "v"}))
    assert buffer.tokens == 9 + 6 + 1 + 2 + 2


def test_nothing_is_counted_twice() -> None:
    """Reading counts nothing: each text is counted when it comes in."""
    counter = WordCounter()
    buffer = ChatBuffer(1_000, counter=counter)
    buffer.put(SYSTEM, user("hello"), call("1", "an output", {"k": "v"}), reply("bye"))
    before = list(counter.texts)
    for _ in range(3):
        buffer.get()
        buffer.explain()
        assert buffer.tokens
    assert counter.texts == before
    assert sorted(before) == ["an output", "be kind", "bye", "hello", "look", '{"k": "v"}']


def test_cost_does_not_grow_with_history() -> None:
    """Reading and adding after 10,000 items take as many steps as after 100."""

    def filled(items: int) -> ChatBuffer:
        buffer = buffer_of(60)
        for number in range(items // 2):
            buffer.put(user(f"question {number}", id=f"u{number}"), reply(f"answer {number}"))
        return buffer

    def steps(buffer: ChatBuffer) -> list[int]:
        add = partial(buffer.put, user("one more"), reply("yes"))
        return [calls_made(act) for act in (buffer.get, buffer.explain, add, buffer.get)]

    for few, many in zip(steps(filled(100)), steps(filled(10_000)), strict=True):
        assert many <= few * 1.1


def test_opening_goes_first() -> None:
    """What came before the first user message stays while all fits, and is cut first."""
    opening = [reply("welcome to us"), call("0")]
    assert said(buffer_of(9, *opening, user("hi"), reply("yes")).get())[0] == "welcome to us"
    assert said(buffer_of(6, *opening, user("hi"), reply("yes")).get()) == ["hi", "yes"]


def test_nobody_has_spoken_yet() -> None:
    """Without a user message the newest items that fit are given, the newest one always."""
    assert buffer_of(10).get() == []
    assert said(buffer_of(6, *(call(str(n)) for n in range(9))).get()) == [
        "6: done",
        "7: done",
        "8: done",
    ]
    only = buffer_of(12, call("0"), call("1", "word " * 50)).get()
    assert said(only)[0].endswith("characters more; the record has all of it)")


def test_large_outputs_are_shortened() -> None:
    """A newest turn over the limit has its largest outputs shortened; small ones stay whole."""
    buffer = buffer_of(
        50, user("old"), reply("old"), user("q"), call("a", "x " * 400), call("b", "y"), reply("ok")
    )
    question, big, small, answer = buffer.get()
    assert isinstance(big, ToolCall)
    assert big.output is not None
    assert big.output.startswith("x x x")
    shown = big.output.split(" (cut, ")[0]
    assert f"(cut, {800 - len(shown):,} characters more; the record has all of it)" in big.output
    assert said([question, small, answer]) == ["q", "b: y", "ok"]
    assert 45 <= buffer.tokens <= 50
    assert buffer.tokens == 1 + 1 + len(big.output.split()) + 2 + 1


def test_largest_output_is_shortened_first() -> None:
    """Two large outputs come down to one size; the smaller is touched only below that."""
    items = [user("q"), call("a", "x " * 100), call("b", "y " * 30)]
    outputs = [item.output for item in buffer_of(80, *items).get() if isinstance(item, ToolCall)]
    assert outputs[1] == "y " * 30
    outputs = [item.output for item in buffer_of(43, *items).get() if isinstance(item, ToolCall)]
    assert [len((output or "").split()) for output in outputs] == [20, 20]


def test_shortened_turn_is_cut_when_it_is_old() -> None:
    """A turn that was shortened is whole or gone once another one follows."""
    buffer = buffer_of(40, user("q"), call("a", "x " * 100), reply("ok"))
    assert len(buffer.get()) == 3
    buffer.put(user("and now"))
    assert said(buffer.get()) == ["and now"]


def test_megabyte_output() -> None:
    """A megabyte of output is brought down to the limit, and memory holds no more than needed."""
    counter = WordCounter()
    buffer = ChatBuffer(100, counter=counter, framing_tokens=0)
    buffer.put(user("q"), call("a", "word " * 200_000))
    output = buffer.get()[1]
    assert isinstance(output, ToolCall)
    assert len((output.output or "").split()) <= 98
    assert buffer.tokens <= 100
    assert max(len(text) for text in counter.texts) < 10_000
    held = buffer.turns()[0][1]
    assert isinstance(held, ToolCall)
    assert len(held.output or "") < 10_000
    report = buffer.explain().items[1]
    assert (report.fate, report.estimated) == ("shortened", True)
    assert report.tokens == pytest.approx(200_000, rel=0.01)


@pytest.mark.parametrize(
    ("items", "part", "tokens", "limit"),
    [
        ([Message("system", "a " * 30)], "the system text", 30, 10),
        ([SYSTEM, user("a " * 9)], "the newest user message", 9, 8),
        ([user("a"), reply("b " * 12)], "the assistant message of 12 tokens", 13, 10),
        ([user("a"), call("1", "ok", "b " * 9)], "the tool call 'look'", 12, 10),
    ],
)
def test_what_cannot_fit_is_named(items: list[Item], part: str, tokens: int, limit: int) -> None:
    """Reading names the part that is too large and by how much; putting it in works."""
    buffer = buffer_of(10, *items)
    with pytest.raises(OverBudget) as raised:
        buffer.get()
    assert part in raised.value.part
    assert (raised.value.tokens, raised.value.limit) == (tokens, limit)
    assert buffer.explain().problem == str(raised.value)
    buffer.put(user("next"))
    if items[0] is SYSTEM or not isinstance(items[0], Message) or items[0].role != "system":
        assert said(buffer.get())[-1] == "next"


def test_marker_is_the_least() -> None:
    """Outputs are cut to their markers at most; below that the turn is refused."""
    items = [user("q"), call("a", "x " * 50), call("b", "y " * 50)]
    least = 1 + 2 + 2 * MARKER_WORDS
    assert all("(cut, " in text for text in said(buffer_of(least, *items).get())[1:])
    with pytest.raises(OverBudget):
        buffer_of(least - 1, *items).get()


def test_waiting_call_appears_with_its_output() -> None:
    """A call without its output is held and not given; with it, it takes its first place."""
    buffer = buffer_of(50, user("q"), call("1", None), call("2"))
    assert said(buffer.get()) == ["q", "2: done"]
    assert [report.fate for report in buffer.explain().items] == ["kept", "waiting", "kept"]
    buffer.put(call("1", "late"))
    assert said(buffer.get()) == ["q", "1: late", "2: done"]
    assert buffer.tokens == 5


def test_corrections_take_the_first_place() -> None:
    """A known id replaces what was said, in its place, and its turn is counted anew."""
    buffer = buffer_of(50, user("wrong words here", id="u1"), reply("ok"), user("next"))
    buffer.put(user("right", id="u1"))
    assert said(buffer.get()) == ["right", "ok", "next"]
    assert buffer.tokens == 3


def test_correction_of_what_was_cut_is_ignored() -> None:
    """A correction or late output of something cut before does not come back as news."""
    buffer = buffer_of(4, user("first one", id="u1"), call("1", None), user("a b"), reply("c"))
    buffer.put(user("first two", id="u1"), call("1", "late"))
    assert said(buffer.get()) == ["a b", "c"]
    assert buffer.explain().counts["ignored"] == 2


def test_correction_may_change_the_role() -> None:
    """A correction of who said something moves the border of the turn."""
    buffer = buffer_of(50, user("a"), Message("assistant", "b", id="m"), reply("c"))
    buffer.put(user("b", id="m"))
    assert buffer.explain().turns == 2
    buffer.put(Message("system", "b", id="m"))
    assert said(buffer.get()) == ["b", "a", "c"]


def test_reused_call_ids_get_a_number() -> None:
    """Another call with the id of an answered one is kept under an id of its own."""
    buffer = buffer_of(90, user("q"), call("1", "a", "x"), call("1", "b", "y"), call("1", "c", "z"))
    assert said(buffer.get()) == ["q", "1: a", "1#2: b", "1#3: c"]
    buffer.put(call("1", "d", "y"))
    assert said(buffer.get()) == ["q", "1: a", "1#2: d", "1#3: c"]


def test_output_without_its_call() -> None:
    """An output whose call is missing stays a whole pair, so that the list is valid."""
    orphan = ToolCall("unknown", None, call_id="9", output="what?", metadata={"call": "missing"})
    buffer = buffer_of(90, user("q"), orphan)
    assert buffer.get()[1] == orphan
    roles = [message["role"] for message in messages_from_items(buffer.get())]
    assert roles == ["user", "assistant", "tool"]


def test_arguments_of_a_waiting_call_may_change() -> None:
    """A call that waits is corrected by its id alone, as its arguments arrive in pieces."""
    buffer = buffer_of(90, user("q"), call("1", None, "x"), call("1", "done", "x y"))
    assert said(buffer.get()) == ["q", "1: done"]


def test_nothing_can_be_changed_from_outside() -> None:
    """What is put in and what comes out share nothing with what is held."""
    arguments: dict[str, Any] = {"k": ["v"]}
    metadata: dict[str, Any] = {"m": {"n": 1}}
    buffer = buffer_of(90, user("q"), ToolCall("t", arguments, call_id="1", output="o"))
    buffer.put(Message("assistant", "a", metadata=metadata))
    arguments["k"].append("w")
    metadata["m"]["n"] = 2
    for _ in range(2):
        first, second = buffer.get()[1:]
        assert isinstance(first, ToolCall)
        assert first.arguments == {"k": ["v"]}
        assert second.metadata == {"m": {"n": 1}}
        changed: Any = first.arguments
        changed["k"].append("x")
        changed = second.metadata
        changed["m"]["n"] = 3


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "9", None, 10_000_001])
def test_bad_limits(limit: Any) -> None:
    """A limit that is no whole number from 1 on is refused."""
    with pytest.raises(InvalidValue, match="token_limit"):
        ChatBuffer(limit)
    with pytest.raises(InvalidValue, match="framing_tokens"):
        ChatBuffer(framing_tokens=-1)


def test_limit_of_one() -> None:
    """The smallest limit holds one word, and refuses two."""
    assert said(buffer_of(1, user("a"), user("b")).get()) == ["b"]
    with pytest.raises(OverBudget):
        buffer_of(1, user("a b")).get()


@pytest.mark.parametrize(
    ("item", "field"),
    [
        (Message("user", None), "items[1].text"),  # pyright: ignore[reportArgumentType] - callers err
        (Message("tool", "x"), "items[1].role"),  # pyright: ignore[reportArgumentType] - callers err
        (Message("user", "x", metadata={"a": float("nan")}), "items[1].metadata.a"),
        (ToolCall("t", {1: 2}, call_id="1"), "items[1].arguments"),  # pyright: ignore[reportArgumentType] - callers err
        (ToolCall("t", {}, call_id=""), "items[1].call_id"),
        ({"role": "user"}, "items[1]"),
        (user("x" * 5_000_000), "items[1].text"),
    ],
)
def test_bad_items(item: Any, field: str) -> None:
    """What could not be recorded is refused by name, and nothing of its batch goes in."""
    buffer = buffer_of(10)
    with pytest.raises(InvalidValue) as raised:
        buffer.put(user("fine"), item)
    assert str(raised.value).startswith(field)
    assert isinstance(raised.value, TooLarge) == ("bytes" in str(raised.value))
    assert buffer.get() == []


class Failing(TokenCounter):
    """Counts nothing."""

    id = "failing"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def count(self, text: str) -> int:
        """An error, or something that is no count."""
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("answer", [RuntimeError("no"), None, -1, 2.5, True])
def test_failing_counter_loses_nothing(answer: Any) -> None:
    """A counter that fails is replaced by two bytes a token, and the report says so."""
    buffer = ChatBuffer(1_000, counter=Failing(answer), framing_tokens=0)
    buffer.put(user("12345"), call("1", "x" * 100_000))
    assert buffer.tokens <= 1_000
    assert len(buffer.get()) == 2
    report = buffer.explain()
    assert report.counter_failure in ("RuntimeError", "TypeError")
    assert [one.estimated for one in report.items] == [True, True]
    assert report.items[0].tokens == 3
    assert report.items[1].tokens == 2 + 50_000


def test_hopeless_turn_does_not_grow() -> None:
    """A turn of many times the limit is not held to its end, and is still refused, not given."""
    buffer = buffer_of(10, user("q"))
    for number in range(200):
        buffer.put(call(str(number), "ok", "a b c"))
    assert len(buffer.turns()[0]) < 30
    with pytest.raises(OverBudget) as raised:
        buffer.get()
    assert raised.value.tokens == 1 + 200 * 5
    buffer.put(call("150", "corrected", "a b c"), user("next"))
    assert said(buffer.get()) == ["next"]


def test_hopeless_system_text_does_not_grow() -> None:
    """System text of many times the limit is not held to its end, and always refused."""
    buffer = buffer_of(10, *(Message("system", "a b c", id=str(n)) for n in range(500)))
    assert len(buffer.explain().items) < 100
    with pytest.raises(OverBudget, match="1,500 tokens"):
        buffer.get()


def test_items_held_are_bounded() -> None:
    """However large the limit, only so many items are held."""
    buffer = ChatBuffer(10_000_000, counter=WordCounter(), framing_tokens=0)
    for number in range(MAX_HELD_ITEMS + 500):
        buffer.put(user(str(number)))
    assert len(buffer.get()) == MAX_HELD_ITEMS
    waiting = ChatBuffer(10, counter=WordCounter(), framing_tokens=0)
    for number in range(500):
        waiting.put(call(str(number), None, "some words"))
    assert sum(map(len, waiting.turns())) < 50


def test_report_is_bounded() -> None:
    """The report lists at most 250 items, counts them all, and says how many it does not list."""
    buffer = buffer_of(1_000)
    for number in range(3_000):
        buffer.put(user(f"question {number}"))
    report = buffer.explain()
    assert len(report.items) == 250
    assert report.counts == {"kept": 500, "cut": 2_500}
    assert report.not_listed == 2_750
    assert report.cut_tokens == 5_000
    assert (report.tokens, report.turns) == (1_000, 500)


def test_report_says_why() -> None:
    """Each item has its fate and a reason, without its words."""
    buffer = buffer_of(
        30, SYSTEM, user("private one"), reply("x"), user("private two"), call("1", "z " * 99)
    )
    buffer.put(call("2", None))
    report = buffer.explain()
    assert [(one.label, one.fate) for one in report.items] == [
        ("user", "cut"),
        ("assistant", "cut"),
        ("system", "kept"),
        ("user", "kept"),
        ("tool look", "shortened"),
        ("tool look", "waiting"),
    ]
    assert all(one.why for one in report.items)
    assert sum(one.shown_tokens for one in report.items) == report.tokens
    assert "private" not in repr(report)


def test_reserved_tokens_are_kept_free() -> None:
    """Reserved tokens are taken off what the turns may take, at once."""
    buffer = buffer_of(6, user("a b"), reply("c"), user("d e"), reply("f"))
    buffer.reserve(2)
    assert said(buffer.get()) == ["d e", "f"]
    assert buffer.explain().reserved_tokens == 2
    with pytest.raises(InvalidValue):
        buffer.reserve(-1)
    buffer.reserve(7)
    with pytest.raises(OverBudget, match="reserved"):
        buffer.get()


def test_summarised_turns_are_dropped() -> None:
    """Turns that a summary stands for are let go, never the newest."""
    buffer = buffer_of(60, user("a"), reply("b"), user("c"), user("d"))
    assert [said(turn) for turn in buffer.turns()] == [["a", "b"], ["c"], ["d"]]
    buffer.drop_oldest(1, why="in a summary")
    assert said(buffer.get()) == ["c", "d"]
    assert buffer.explain().counts["summarised"] == 2
    buffer.drop_oldest(9, why="in a summary")
    assert said(buffer.get()) == ["d"]


def test_whoever_asks_is_told_what_is_cut() -> None:
    """``on_cut`` gets the items that are cut, in order, once."""
    cut: list[str] = []
    buffer = ChatBuffer(
        4, counter=WordCounter(), framing_tokens=0, on_cut=lambda items: cut.extend(said([*items]))
    )
    for number in range(6):
        buffer.put(user(f"q {number}"), reply("a"))
    assert cut == ["q 0", "a", "q 1", "a", "q 2", "a", "q 3", "a", "q 4", "a"]


def test_clear() -> None:
    """A cleared buffer is as new."""
    buffer = buffer_of(9, SYSTEM, user("a", id="1"), *(user(f"b {n}") for n in range(9)))
    buffer.clear()
    assert buffer.get() == []
    assert buffer.explain() == buffer_of(9).explain()
    buffer.put(user("again", id="1"))
    assert said(buffer.get()) == ["again"]


def test_threads_lose_nothing() -> None:
    """Eight threads at once: every turn that is given is whole and as its thread put it."""
    buffer = buffer_of(400)

    def talk(name: str) -> None:
        for number in range(200):
            buffer.put(user(f"{name} {number}"), reply(f"{name} {number}"))
            buffer.get()

    threads = [threading.Thread(target=talk, args=(f"t{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    texts = said(buffer.get())
    assert len(texts) == 200
    assert texts[::2] == texts[1::2]
    assert sum(buffer.explain().counts.values()) == 8 * 200 * 2


def test_default_counter_and_limit() -> None:
    """Without arguments it takes 3,000 tokens of the shipped vocabulary."""
    buffer = ChatBuffer()
    buffer.put(user("Hello there."))
    assert buffer.token_limit == 3_000
    assert 4 < buffer.tokens < 12


def test_late_items_keep_the_order_of_arrival() -> None:
    """An item with an earlier time comes where it arrived, since a reply may rest on that."""
    from datetime import UTC, datetime

    early = replace(user("early"), at=datetime(2020, 1, 1, tzinfo=UTC))
    now = replace(user("now"), at=datetime(2026, 1, 1, tzinfo=UTC))
    assert said(buffer_of(9, now, early).get()) == ["now", "early"]


def test_items_can_be_let_go_of() -> None:
    """What is named goes, wherever it stands, without being told to ``on_cut``; the rest is whole,
    counted as before, and a later correction of what went is news."""
    told: list[Item] = []
    buffer = ChatBuffer(100, counter=WordCounter(), framing_tokens=0, on_cut=told.extend)
    buffer.put(SYSTEM, user("one", id="1"), reply("two"), call("c", output="x"), user("three"))
    gone = buffer.let_go(lambda item: isinstance(item, ToolCall) or item.text in ("one", "be kind"))
    assert gone == 3
    assert told == []
    assert said(buffer.get()) == ["two", "three"]
    assert buffer.tokens == 2
    assert buffer.let_go(lambda _: False) == 0
    buffer.put(user("ONE", id="1"))
    assert said(buffer.get()) == ["two", "three", "ONE"]


def test_known_sizes_are_not_counted_again() -> None:
    """``take`` gives what each item was counted at, and believes what it is told."""
    counter = WordCounter()
    buffer = ChatBuffer(100, counter=counter, framing_tokens=1)
    sizes = buffer.take([user("one two")])
    counter.texts.clear()
    buffer.clear()
    assert buffer.take([user("one two")], sizes) == sizes
    assert counter.texts == []
    assert buffer.tokens == sizes[0].tokens == 3
