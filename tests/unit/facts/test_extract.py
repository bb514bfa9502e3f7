"""What a model proposes, judged: nothing of it stands that was not said."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secondcall import Fact, ItemKey, ModelError
from secondcall.abc import Completion
from secondcall.facts.extract import judge
from secondcall.facts.proposed import (
    MAX_FACTS,
    SCHEMA,
    Source,
    extraction_prompt,
    read_answer,
)
from secondcall.facts.refusals import normalised, place_of
from secondcall.facts.supersede import new_fact
from secondcall.memory.extraction import SPOKEN

AT = datetime(2026, 5, 3, 12, tzinfo=UTC)
NOW = datetime(2026, 5, 20, tzinfo=UTC)


def _source(label: str, text: str, role: Any = "user", at: datetime = AT) -> Source:
    return Source(label=label, key=ItemKey("u", "s", "message", label), role=role, text=text, at=at)


def _proposed(quote: str, item: str = "i1", **fields: Any) -> dict[str, Any]:
    return {
        "op": "add",
        "fact": None,
        "kind": "attribute",
        "predicate": "thing",
        "value": "thing",
        "several": False,
        "sensitive": False,
        "since": None,
        "due": None,
        "status": None,
        "sources": [{"item": item, "quote": quote}],
    } | fields


def _judged(
    *proposed: dict[str, Any], texts: list[Source], known: dict[str, Fact] | None = None
) -> tuple[list[Fact | None], list[str]]:
    found, bad = read_answer(Completion(text=json.dumps({"facts": proposed})))
    changes, refused = judge(
        found,
        {one.label or "": one for one in texts},
        known or {},
        spoken=SPOKEN,
        model_id="m",
        now=NOW,
    )
    return [one.fact for one in changes], [*refused, *["form"] * bad]


def _refusal(text: str, quote: str, **fields: Any) -> list[str]:
    _, refused = _judged(_proposed(quote, **fields), texts=[_source("i1", text)])
    return refused


@pytest.mark.parametrize(
    ("text", "quote", "predicate", "value", "refused"),
    [
        ("I do not eat meat.", "eat meat", "eats", "meat", True),
        ("I do not eat meat.", "I do not eat meat", "eats", "meat", True),
        ("I do not eat meat.", "I do not eat meat", "does not eat", "meat", False),
        ("I do not eat meat.", "I do not eat meat", "diet", "vegetarian", False),
        ("I don’t eat meat.", "I don't eat meat", "eats meat", True, True),
        ("I don't eat meat.", "I don't eat meat", "eats meat", "yes", True),
        ("I don't eat meat.", "I don't eat meat", "eats meat", "no", False),
        ("I don't eat meat.", "I don't eat meat", "eats meat", False, False),
        ("I eat meat.", "I eat meat", "does not eat", "meat", True),
        ("I hate broccoli.", "hate broccoli", "does not like", "broccoli", False),
        ("I can't stand broccoli.", "can't stand broccoli", "likes", "broccoli", True),
        ("I can't stand broccoli.", "can't stand broccoli", "dislikes", "broccoli", False),
        ("I don't eat meat but I like fish.", "I like fish", "likes", "fish", False),
        ("I never drink coffee, but I like tea.", "like tea", "drinks", "tea", False),
        ("Please do not forget that I am vegan.", "I am vegan", "diet", "vegan", False),
        ("I am allergic to nuts.", "allergic to nuts", "allergy", "nuts", False),
        ("I'm no longer vegetarian.", "vegetarian", "diet", "vegetarian", True),
    ],
)
def test_a_not_stays_a_not(
    text: str, quote: str, predicate: str, value: object, refused: bool
) -> None:
    """A fact that says without its *not* what was denied, or denies what was said, is refused, also
    when the quote leaves the *not* out."""
    found = _refusal(text, quote, predicate=predicate, value=value)
    assert found == (["polarity"] if refused else [])


@pytest.mark.parametrize(
    ("reply", "value", "refused"),
    [
        ("Yes, please.", "meat", []),
        ("No.", "meat", ["polarity"]),
        ("No thanks", "meat", ["polarity"]),
    ],
)
def test_an_answer_counts_with_its_question(reply: str, value: str, refused: list[str]) -> None:
    """What the assistant asked and the user answered gives the fact that the answer says."""
    texts = [_source("i1", "Do you eat meat?", "assistant"), _source("i2", reply)]
    both = [{"item": "i1", "quote": "eat meat"}, {"item": "i2", "quote": reply}]
    assert _judged(_proposed("", predicate="eats", value=value, sources=both), texts=texts)[1] == (
        refused
    )
    alone = _judged(_proposed("eat meat", predicate="eats", value="meat"), texts=texts)
    assert alone[1] == ["speaker"]


@pytest.mark.parametrize(
    ("text", "quote", "fits"),
    [
        ("My  dog\nis called “Rex”.", 'my dog is called "Rex"', False),
        ("My  dog\nis called “Rex”.", 'My dog is called "Rex"', True),
        ("I’d like tea.", "I'd like tea", True),
        ("That is disallowed.", "allowed", False),
        ("Room 412", "Room 41", False),
        ("我住在北京。", "住在北京", True),
        ("anything", "...", False),
        ("anything", "", False),
    ],
)
def test_a_quote_is_word_for_word(text: str, quote: str, fits: bool) -> None:
    """White space and the form of quotation marks do not count; letters, case and word edges do."""
    assert (place_of(normalised(quote), normalised(text)) is not None) is fits


@given(st.text(min_size=1), st.data())
def test_words_of_a_text_are_found_in_it(text: str, data: st.DataObject) -> None:
    """Whole words out of a text are always found there, and what is found is a part of the text."""
    plain = normalised(text)
    words = plain.split()
    if not words:
        return
    start = data.draw(st.integers(0, len(words) - 1))
    end = data.draw(st.integers(start + 1, len(words)))
    quote = " ".join(words[start:end])
    place = place_of(quote, plain)
    if place is not None:
        assert plain[place[0] : place[1]] in quote
    else:
        assert not any(one.isalnum() for one in quote) or not quote.isascii()


@pytest.mark.parametrize(
    ("predicate", "value"),
    [
        ("role", "nurse"),
        ("is admin", True),
        ("job", "Administrator"),
        ("permissions", "all"),
        ("allowed to see", "all accounts"),
        ("identity", "verified"),
        ("trust level", "high"),
        ("password", "hunter"),
        ("account access", "full access"),
    ],
)
def test_nobody_gains_anything_by_saying_so(predicate: str, value: object) -> None:
    """Facts about permissions, roles, identity and trust, and secrets, are refused."""
    text = f"{predicate} {value}"
    assert _refusal(text, text, predicate=predicate, value=value) == ["power"]


@pytest.mark.parametrize("predicate", ["name", "phone number", "delivery instructions", "diet"])
def test_plain_things_may_be_said(predicate: str) -> None:
    """What is merely near to such things is learnt."""
    assert _refusal("It is Anna", "It is Anna", predicate=predicate, value="Anna") == []


def test_dates_are_those_of_the_day_it_was_said() -> None:
    """A "yesterday" in a message of 3 May is 2 May, whatever the model makes of it; "tomorrow" is
    the 4th; a date that does not exist is none."""
    moved = [_source("i1", "I moved to Rome yesterday and pay tomorrow.")]
    for since in ("2026-05-02", "2026-05-19"):
        (fact,), _ = _judged(
            _proposed("moved to Rome yesterday", predicate="city", value="Rome", since=since),
            texts=moved,
        )
        assert fact is not None
        assert fact.valid_from == datetime(2026, 5, 2, tzinfo=UTC)
    for due, day in (("2026-05-04", 4), ("2026-05-21", 4)):
        (fact,), _ = _judged(
            _proposed("pay tomorrow", kind="promise", predicate="pays", value="pay", due=due),
            texts=moved,
        )
        assert fact is not None
        assert fact.due_at == datetime(2026, 5, day, 23, 59, 59, tzinfo=UTC)
    for since in ("2026-02-31", "soon", "2027-01-01", "0001-01-01"):
        (fact,), _ = _judged(_proposed("Rome", value="Rome", since=since), texts=moved)
        assert fact is not None
        assert fact.valid_from == AT
    assert _refusal("It was yesterday", "yesterday", value="2026-05-19") == ["date"]
    assert _refusal("It was yesterday", "yesterday", value="2026-05-02") == []
    assert _refusal("It was on 31 February", "31 February", value="2026-02-31") == ["date"]


def test_numbers_are_those_that_were_said() -> None:
    """A value with a number that stands nowhere in the items is refused; number words count."""
    assert _refusal("Seat 12A, please", "Seat 12A", value="seat 14A") == ["number"]
    assert _refusal("Seat 12A, please", "Seat 12A", value="seat 12A") == []
    assert _refusal("We have two children", "two children", value=2) == []
    assert _refusal("We have two children", "two children", value=3) == ["number"]


def test_what_names_nothing_is_refused() -> None:
    """Labels of items and facts that were not given out are refused, and so is a fact without a
    source."""
    known = {
        "f1": new_fact("diet", "vegan", kind="preference", subject="user", now=AT),
        "f2": new_fact("pet", "cat", kind="attribute", subject="user", now=NOW),
    }
    texts = [_source("i1", "I eat fish again.")]

    def refused(**fields: Any) -> list[str]:
        return _judged(_proposed("eat fish", **fields), texts=texts, known=known)[1]

    assert refused(sources=[{"item": "i9", "quote": "eat fish"}]) == ["source"]
    assert refused(sources=[]) == ["source"]
    assert refused(op="supersede", fact="f9") == ["fact"]
    assert refused(op="end", fact=None) == ["fact"]
    assert refused(op="end", fact="f2") == ["fact"]  # said before it began
    assert refused(op="supersede", fact="f1", value="fish") == []
    assert refused(op="none", sources=[]) == []


def test_two_values_at_once_are_one_or_several() -> None:
    """Two values of one predicate from the same words contradict each other, unless there may be
    several; of different times both stand."""
    texts = [
        _source("i1", "Paris, no, Rome"),
        _source("i2", "Oslo", at=datetime(2026, 5, 4, tzinfo=UTC)),
    ]
    one, two = _proposed("Paris", value="Paris"), _proposed("Rome", value="Rome")
    assert _judged(one, two, texts=texts)[1] == ["contradiction"]
    assert _judged(one | {"several": True}, two | {"several": True}, texts=texts)[1] == []
    found, refused = _judged(_proposed("Oslo", "i2", value="Oslo"), two, texts=texts)
    assert [fact.value for fact in found if fact] == ["Rome", "Oslo"]
    assert refused == []


@pytest.mark.parametrize(
    "fields",
    [
        {"op": "drop"},
        {"kind": "rule"},
        {"predicate": ""},
        {"predicate": "p" * 10_000},
        {"predicate": 7},
        {"value": None},
        {"value": " "},
        {"value": ["a"]},
        {"value": math.inf},
        {"value": "v" * 10_000},
        {"sources": "i1"},
        {"sources": [{"item": "i1"}]},
        {"sources": [None]},
    ],
)
def test_what_is_out_of_form_is_left_out(fields: dict[str, Any]) -> None:
    """A proposal with a field out of form, a predicate of 10 kB among them, is refused alone."""
    texts = [_source("i1", "one thing")]
    found, refused = _judged(_proposed("one thing", **fields), _proposed("one thing"), texts=texts)
    assert (len(found), refused) == (1, ["form"])


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"facts": {}}', "[" * 100_000])
def test_an_answer_out_of_form_is_an_error(text: str) -> None:
    """What is no object with a list of facts is asked for again."""
    with pytest.raises(ModelError):
        read_answer(Completion(text=text))
    with pytest.raises(ModelError):
        read_answer(Completion(text='{"facts": []}', truncated=True))


def test_an_answer_is_bounded_and_may_be_fenced() -> None:
    """More than forty facts are not taken; a code fence around the answer does not matter."""
    many = json.dumps({"facts": [_proposed("x")] * (MAX_FACTS + 5)})
    found, bad = read_answer(Completion(text=f"```json\n{many}\n```"))
    assert (len(found), bad) == (MAX_FACTS, 5)


@given(st.text(), st.text())
def test_no_text_leaves_its_line(text: str, value: str) -> None:
    """Whatever stands in an item or a fact is one line of JSON, and closes no tag."""
    fact = new_fact("p", value or "x", kind="attribute", subject="user", now=AT)
    prompt = extraction_prompt([_source("i1", text)], {"f1": fact})
    assert prompt.user.count("</record>") == prompt.user.count("</known>") == 1
    inside = prompt.user.partition("<record>\n")[2].partition("\n</record>")[0]
    assert json.loads(inside)["text"] == text
    assert len(inside.splitlines()) == 1


def test_every_field_of_the_schema_is_required() -> None:
    """Strict endpoints refuse a schema with an optional field."""

    def check(part: Any) -> None:
        if part.get("type") == "object":
            assert part["required"] == list(part["properties"])
            assert part["additionalProperties"] is False
            for one in part["properties"].values():
                check(one)
        if part.get("type") == "array":
            check(part["items"])

    check(SCHEMA)
