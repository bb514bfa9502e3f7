"""What tries to crowd out, mask or turn round what a summarising buffer keeps does not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import pytest

from secondcall.errors import OverBudget
from secondcall.shortterm.buffer import ChatBuffer
from secondcall.shortterm.keyfacts import check, find_key_facts
from secondcall.shortterm.summary import Summarizer, SummarizingBuffer
from secondcall.types import Item, Message, ToolCall

CHAT = "And then we went for a walk by the lake, which was nice."
FACT = "My account number is 4417-882."


class Answering(Summarizer):
    """Answers with a function that may raise before there is anything to wait for."""

    def __init__(self, answer: Callable[[str, Sequence[str]], str]) -> None:
        self.answer = answer

    def summarise(self, text: str, *, keep: Sequence[str], max_tokens: int) -> Awaitable[str]:  # pyright: ignore[reportIncompatibleMethodOverride] - a mistake that hosts make
        """What is answered, at once."""
        given = self.answer(text, keep)

        async def later() -> str:
            return given

        return later()


def _refuse(text: str, keep: Sequence[str]) -> str:
    raise RuntimeError("no")


async def _chat(buffer: SummarizingBuffer, turns: int) -> None:
    for _ in range(turns):
        buffer.put(Message("user", CHAT), Message("assistant", f"I see. {CHAT}"))
        if buffer.due():
            await buffer.settle()
        assert buffer.tokens <= buffer.token_limit


def _whole(buffer: SummarizingBuffer) -> str:
    return buffer.summary() + "".join(
        one.text if isinstance(one, Message) else one.output or "" for one in buffer.get()
    )


async def test_calls_that_share_an_id_are_both_summarised() -> None:
    """A second, different call with the id of an answered one does not take its place in what is
    summarised; a correction of a call does."""
    buffer = SummarizingBuffer(600)
    buffer.put(
        Message("user", "Look both orders up."),
        ToolCall("order", {"n": 1}, call_id="c1", output="order 1 costs 11 EUR"),
        ToolCall("order", {"n": 1}, call_id="c1", output="order 1 costs 77 EUR"),
        ToolCall("order", {"n": 2}, call_id="c1", output="order 2 costs 99 EUR"),
        ToolCall("order", {"n": 2}, call_id="c1", output="order 2 costs 88 EUR"),
    )
    await _chat(buffer, 40)
    assert buffer.summaries
    context = _whole(buffer)
    assert ("77 EUR" in context, "88 EUR" in context) == (True, True)
    assert ("11 EUR" in context, "99 EUR" in context) == (False, False)


@pytest.mark.parametrize("system_words", [50, 200, 400])
async def test_a_summary_never_crowds_out_the_newest_turn(system_words: int) -> None:
    """What a plain buffer of the size can show, this one shows too: summaries and key facts yield
    to the system text and the newest turn, and come back when there is room."""
    buffer = SummarizingBuffer(800)
    buffer.put(Message("system", "word " * system_words))
    for number in range(40):
        buffer.put(Message("user", f"The code of room {number} is {number * 7}."))
        await _chat(buffer, 1)
    before = buffer.summary()
    for words in (50, 250, 350, 700):
        items: list[Item] = [
            Message("system", "word " * system_words),
            Message("user", "hello " * words),
            ToolCall("look", {}, call_id=f"c{words}", output="much " * 500),
        ]
        plain = ChatBuffer(800)
        plain.put(*items)
        buffer.put(*items[1:])
        try:
            plain.get()
        except OverBudget:
            with pytest.raises(OverBudget):
                buffer.get()
            continue
        assert cast("Message", buffer.get()[-2]).text == "hello " * words
        assert buffer.tokens <= 800
    buffer.put(Message("user", "Bye."))
    assert cast("Message", buffer.get()[-1]).text == "Bye."
    if system_words == 50:
        assert before
        assert buffer.summary() == before


async def test_a_summariser_that_raises_before_it_is_waited_for_loses_nothing() -> None:
    """One that is no coroutine function and raises when called is treated as any that fails."""
    buffer = SummarizingBuffer(600, summarizer=Answering(_refuse))
    buffer.put(Message("user", FACT))
    await _chat(buffer, 40)
    assert "4417-882" in _whole(buffer)


@pytest.mark.parametrize(
    "denial",
    [
        "The user falsely claimed that {}.",
        "It is not true at all that {}.",
        "It is neither the case that {}.",
        "{} was wrong.",
        "{} is no longer so.",
        "{} turned out to be untrue.",
    ],
)
async def test_a_summary_that_denies_a_key_fact_does_not_hold_it(denial: str) -> None:
    """A key fact that stands in the summary word for word, in a sentence that says that it is not
    so, is carried in the list."""
    (fact,) = find_key_facts([Message("user", FACT)])
    assert not check([fact], denial.format(fact.text))
    assert check([fact], f"We spoke of that. {fact.text}, and we do not know more. It was wrong.")

    def answer(text: str, keep: Sequence[str]) -> str:
        return " ".join(denial.format(one) for one in keep) + f" {CHAT}"

    buffer = SummarizingBuffer(600, summarizer=Answering(answer))
    buffer.put(Message("user", FACT))
    await _chat(buffer, 40)
    words = buffer.summary().partition("Word for word:")[2]
    assert "4417-882" in words


@pytest.mark.parametrize("fact", ["I do not want the insurance", "We never agreed on 40 euros"])
def test_a_denied_negation_is_not_held(fact: str) -> None:
    """To deny that somebody does not want something is to turn it round."""
    (found,) = find_key_facts([Message("user", f"{fact}.")])
    assert check([found], f"The user said: {found.text}.")
    assert not check([found], f"It is not true that {found.text}.")
