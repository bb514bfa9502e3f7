from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secondcall.embedders.counting import VocabularyCounter
from secondcall.errors import InvalidValue, TooLarge, UnknownName
from secondcall.shortterm.keyfacts import KeyFact, KeyFactList, check, find_key_facts
from secondcall.types import Message, ToolCall

COUNT = VocabularyCounter().count


def _texts(*items: str | Message | ToolCall) -> list[str]:
    said = [Message("user", one) if isinstance(one, str) else one for one in items]
    return [fact.text for fact in find_key_facts(said)]


def _list(*texts: str, limit_tokens: int = 600) -> KeyFactList:
    facts = KeyFactList(limit_tokens=limit_tokens, count=COUNT)
    facts.add(find_key_facts([Message("user", text) for text in texts]))
    return facts


@pytest.mark.parametrize(
    ("text", "clause", "kind"),
    [
        ("Hi there, my name is Dolores Whitfield.", "my name is Dolores Whitfield", "name"),
        ("Well, the order is 48213, thanks.", "the order is 48213", "number"),
        ("It has three doors.", "It has three doors", "number"),
        ("We fly on 3 May 2026, at 10:30, I think.", "We fly on 3 May 2026, at 10:30", "date"),
        ("It was 1,250.00 euros all in all.", "It was 1,250.00 euros all in all", "amount"),
        ("Please don't call me, I work nights.", "Please don't call me", "negation"),
        ("I am not the owner.", "I am not the owner", "negation"),
        ("We decided to take the blue tiles.", "We decided to take the blue tiles", "decision"),
        ("I'll send you the contract by post.", "I'll send you the contract by post", "promise"),
        ("I prefer the aisle, always.", "I prefer the aisle", "preference"),
        ("Меня зовут Анна Петрова.", "Меня зовут Анна Петрова", "name"),
        ("Ich wohne in der Lindenstraße 12.", "Ich wohne in der Lindenstraße 12", "number"),
        ("我的电话是 13800138000。谢谢", "我的电话是 13800138000", "number"),
        ("رقمي ٤٤١٧.", "رقمي ٤٤١٧", "number"),
    ],
)
def test_each_kind_is_found(text: str, clause: str, kind: str) -> None:
    """A clause of each kind is found, tight and word for word, in several scripts."""
    facts = find_key_facts([Message("user", text)])
    assert clause in [fact.text for fact in facts]
    assert any(kind in fact.kinds for fact in facts)


@pytest.mark.parametrize(
    "text",
    [
        "That's so kind of you, I'm not sure what to say.",
        "No problem at all, I can't wait.",
        "I don't know, why not?",
        "The garden looks lovely and we sit outside with a book.",
        "",
        "?!",
    ],
)
def test_small_talk_has_none(text: str) -> None:
    """What has to be kept by nobody is no key fact."""
    assert _texts(text) == []


def test_what_was_not_said_does_not_count() -> None:
    """System text and fenced memory, nested or never closed, is not looked at."""
    fence = '<memory note="x">My seat is 99Z.<memory>Room 7.</memory> Gate 5.</memory>'
    assert _texts(Message("system", "Never mention the 12 rules.")) == []
    assert _texts(f"{fence} My seat is 12A.") == ["My seat is 12A"]
    assert _texts("My seat is 12A. <memory> My seat is 99Z.") == ["My seat is 12A"]


def test_a_tool_call_adds_what_nobody_had_said() -> None:
    """A value that was said, or stands in a call twice, is not a second fact."""
    call = ToolCall(
        "book", {"seat": "12A", "on": "2026-06-01"}, call_id="c", output='{"ref":"ZX81","s":"12A"}'
    )
    assert _texts("My seat is 12A.", call) == ["My seat is 12A", "on: 2026-06-01", "ref: ZX81"]


def test_a_flood_is_bounded() -> None:
    """One item gives at most 12 facts, whatever its size."""
    assert len(_texts(" ".join(f"Number {one} is {one}." for one in range(5_000)))) == 12


def test_the_same_clause_is_one_fact_with_both_sources() -> None:
    """Saying again what was said makes no second fact."""
    assert _texts("My seat is 12A.", "My seat  is 12A.") == ["My seat is 12A"]


@pytest.mark.parametrize(
    ("text", "stands"),
    [
        ("The user said: my seat is 12A.", True),
        ("The user said: my  seat\nis 12A", True),
        ("my seat is 12AB", False),
        ("my seat is 12A.5", True),
        ("It is not true that my seat is 12A.", False),
        ("my seat is 12B", False),
        ("My seat is 12A", False),
    ],
)
def test_verbatim_is_verbatim(text: str, stands: bool) -> None:
    """White space may differ; letters, digits, word ends and a denial in front may not."""
    fact = KeyFact(
        id="f", text="my seat is 12A", kinds=frozenset(["number"]), item_id="", speaker="user"
    )
    assert (check([fact], text) == {"f"}) is stands


def test_numbers_end_where_they_end() -> None:
    """12 does not stand in 120, 12.5, 3,512 or 12:30; quotation marks may be of another kind."""
    fact = KeyFact(id="f", text="it's 12", kinds=frozenset(), item_id="", speaker="user")
    assert check([fact], "it’s 12, yes")
    for other in ("it's 120", "it's 12.5", "it's 12:30", "it's 12,500", "it's 12-3"):
        assert not check([fact], other), other


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    """Whatever is in a text, its facts are found, and stand in it."""
    facts = find_key_facts([Message("user", text)])
    assert all(fact.text and len(fact.text) <= 400 for fact in facts)
    if "<" not in text:
        assert all(fact.text in text for fact in facts)


def test_forty_facts_fit() -> None:
    """Forty ordinary key facts take less than the 600 tokens of the default list."""
    facts = _list(*(f"By the way, the code of room {one} is {one * 37}." for one in range(40)))
    assert len(facts.facts) == 40
    assert facts.tokens <= 600


def test_the_oldest_are_moved() -> None:
    """Past the limit the oldest go, one by one; pinned ones stay."""
    facts = _list(*(f"The code is {one}." for one in range(30)), limit_tokens=100)
    first = facts.facts[0]
    facts.pin(first.id)
    moved = facts.overflow()
    assert facts.tokens <= 100
    assert [one.text for one in moved] == [f"The code is {one}" for one in range(1, len(moved) + 1)]
    assert facts.facts[0].id == first.id
    assert facts.moved_count == len(moved)


def test_what_a_summary_holds_is_not_carried() -> None:
    """The list shows what no summary has, and pinned facts always."""
    facts = _list("My seat is 12A.", "My gate is B7.")
    seat, gate = facts.facts
    facts.hold([seat.id, gate.id])
    assert facts.carried == ()
    assert facts.text() == ""
    facts.pin(gate.id)
    assert [one.text for one in facts.carried] == ["My gate is B7"]


def test_the_list_is_edited() -> None:
    """Each change counts a version; what was removed by hand is not found again."""
    facts = _list("My seat is 12A.", "My gate is B7.")
    seat, gate = facts.facts
    before = facts.version
    facts.replace(seat.id, "the seat is 14C")
    facts.remove(gate.id)
    facts.add(find_key_facts([Message("user", "My gate is B7.")]))
    assert [one.text for one in facts.facts] == ["the seat is 14C"]
    assert facts.version == before + 2
    with pytest.raises(UnknownName, match="no key fact"):
        facts.remove("nothing")
    with pytest.raises(InvalidValue, match="empty"):
        facts.replace(seat.id, " ")
    with pytest.raises(TooLarge, match="characters"):
        facts.replace(seat.id, "x" * 401)


def test_pins_have_a_limit() -> None:
    """What is pinned cannot take more than the list has."""
    facts = _list("My seat is 12A and my gate is B7 today.", limit_tokens=5)
    with pytest.raises(TooLarge, match="unpin"):
        facts.pin(facts.facts[0].id)


def test_facts_survive_json() -> None:
    """A fact is the same after it was kept."""
    for fact in find_key_facts([Message("user", "My name is Ana Petrović, not Anna.")]):
        assert KeyFact.from_json(fact.to_json()) == fact
