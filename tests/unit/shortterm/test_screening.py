from __future__ import annotations

import asyncio

import pytest

from secondcall.embedders.counting import VocabularyCounter
from secondcall.errors import ModelError
from secondcall.shortterm.keyfacts import find_key_facts
from secondcall.shortterm.screening import cut_at_sentence, is_foreign, lost_facts, struck
from secondcall.shortterm.summarizers import (
    ExtractiveSummarizer,
    ModelSummarizer,
    as_text,
    prompt_text,
)
from secondcall.testing.models import ScriptedModel
from secondcall.types import Message, ToolCall

COUNT = VocabularyCounter().count
SAID = (
    Message("user", "My name is Dolores and I ordered a sofa for 899 euros on 2026-05-03."),
    Message("user", "Please don't call me before noon. The cover of the sofa is torn."),
)
SOURCE = as_text(SAID)
FACTS = find_key_facts(SAID)


@pytest.mark.parametrize(
    "sentence",
    [
        "The sofa cost 900 euros.",
        "The sofa was ordered 2026-05-04.",
        "Please call me before noon.",
        "The user Marguerite ordered a sofa, and so did Marguerite.",
        "Two sofas were ordered.",
    ],
)
def test_what_nobody_said_is_struck_out(sentence: str) -> None:
    """Sentences with another number, date or name, or without a "not", do not stay."""
    assert struck(f"The sofa is torn. {sentence}", SOURCE, FACTS) == "The sofa is torn."


@pytest.mark.parametrize(
    "sentence",
    [
        "Dolores ordered a sofa for 899 euros.",
        "It was ordered on 3 5 2026.",
        "The user does not want to be called before noon.",
    ],
)
def test_what_was_said_stays(sentence: str) -> None:
    """Numbers and names of the source, other words and parts of a date are fine."""
    assert struck(sentence, SOURCE, FACTS) == sentence


def test_list_marks_and_fences_go() -> None:
    """A numbered list is read as sentences; recalled text that a model repeats is dropped."""
    text = "1. The sofa is torn.\n2. The cover is torn.\n<memory>My seat is 12A.</memory>"
    assert struck(text, SOURCE, FACTS) == "The sofa is torn. The cover is torn."


def test_lost_facts_are_named() -> None:
    """What a summary does not have word for word is lost."""
    assert [one.text for one in lost_facts(FACTS, "Please don't call me before noon.")] == [
        one.text for one in FACTS if "call" not in one.text
    ]


def test_another_language_is_foreign() -> None:
    """A text without one word of the source is not its summary."""
    assert is_foreign("Ein Möbel ging kaputt.", SOURCE)
    assert not is_foreign("The sofa.", SOURCE)
    assert not is_foreign("anything", "12")


def test_too_long_is_cut_at_a_sentence() -> None:
    """Whole sentences stay as far as they fit; one that is too long is cut at a word."""
    text = "One two three. Four five six. Seven eight nine."
    assert cut_at_sentence(text, COUNT("One two three. Four five six."), COUNT).endswith("six.")
    assert cut_at_sentence("word " * 100, 10, COUNT).endswith("…")
    assert COUNT(cut_at_sentence("word " * 100, 10, COUNT)) <= 10
    assert cut_at_sentence("word " * 100, 0, COUNT) == ""


def test_tool_calls_are_read_as_words() -> None:
    """A call stands in the text with its arguments and its output; system text does not."""
    text = as_text(
        [
            Message("system", "secret"),
            ToolCall("find", {"order": 1}, call_id="a", output="sofa", is_error=True),
            ToolCall("wait", "now", call_id="b"),
            Message("user", "x" * 10_000),
        ]
    )
    assert text.startswith('tool: find was called with {"order": 1} and failed and gave sofa\n')
    assert "tool: wait was called with now and did not answer" in text
    assert "(cut, 6,000 characters)" in text
    assert "secret" not in text


def test_sentences_are_chosen_whole() -> None:
    """Without a model the summary is made of sentences of the source, with what is to be kept."""
    keep = [one.text for one in FACTS]
    text = asyncio.run(ExtractiveSummarizer().summarise(SOURCE, keep=keep, max_tokens=60))
    assert "Please don't call me before noon." in text
    assert COUNT(text) <= 60
    assert ExtractiveSummarizer().choose("", keep=[], max_tokens=40) == ""


def test_prompts_are_filled_in_one_pass() -> None:
    """The prompts are packaged; what was said can name no place in them and close no tag."""
    model = ScriptedModel(lambda prompt: "fine")
    text = "user: {keep} </conversation> {max_tokens}"
    asyncio.run(ModelSummarizer(model).summarise(text, keep=["{text}"], max_tokens=30))
    (prompt,) = model.prompts
    assert "- {text}\n" in prompt.user
    assert "{keep} <\u200b/conversation> {max_tokens}" in prompt.user
    assert prompt.user.count("</conversation>") == 1
    assert "At most 30 tokens" in prompt.system
    assert prompt.max_tokens == 39
    for name in ("summarise", "merge", "repair"):
        assert all(prompt_text(name))


async def test_a_used_up_script_says_so() -> None:
    """A scripted model that has no more answers raises, as a failing one would."""
    with pytest.raises(ModelError, match="asked again"):
        await ModelSummarizer(ScriptedModel([])).merge("x", keep=[], max_tokens=5)
