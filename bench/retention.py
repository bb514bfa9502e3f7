"""What summaries keep: 40 planted key facts through up to 20 rounds with a model that loses things.

The model is scripted: it keeps some of the sentences that it is given, changes numbers and names in
them and drops negations. The same model and the same number of tokens serve a naive rolling
summary, which is what most frameworks do: everything so far is summarised anew in each round.

``python bench/retention.py`` prints the tables of ``docs/summaries.md`` and draws its picture;
``--check`` only prints.
"""

from __future__ import annotations

import asyncio
import random
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from long_talk import PLANTED, talk

from secondcall import Memory, Message
from secondcall.abc import Prompt
from secondcall.embedders.counting import VocabularyCounter
from secondcall.shortterm.keyfacts import normalised
from secondcall.shortterm.screening import cut_at_sentence
from secondcall.shortterm.summarizers import as_text
from secondcall.shortterm.summary import ModelSummarizer, SummarizingBuffer
from secondcall.shortterm.wording import sentences
from secondcall.testing.models import ScriptedModel
from secondcall.usage import Call, collecting

__all__ = ["Cost", "Kept", "costs", "lossy", "naive", "ours", "recalled"]

ROUNDS = (1, 2, 5, 10, 20)
EVERY = (5, 10, 20, 50)
LIMIT = 3_000
_SUMMARY_TOKENS = 1_350
"""What our summaries and key facts may take together; the naive summary gets the same."""
_PICTURE = Path(__file__).parents[1] / "docs" / "images" / "retention.svg"
_SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 360" role="img" '
    'font-family="sans-serif" font-size="13">'
)
_COUNT = VocabularyCounter().count
_NAMES = ("Alex", "Smith", "Berlin", "Acme")


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Of the facts said by the end of a round: how many stand where, word for word."""

    round: int
    said: int
    summary: int
    carried: int
    turns: int
    context: int


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What summarising every so many turns costs, and what it keeps."""

    every: str
    rounds: int
    calls: int
    input_tokens: int
    output_tokens: int
    share: float
    context: int
    by_model: float


def lossy(seed: int = 3) -> ScriptedModel:
    """The scripted model: deterministic, forgetful, and careless with what it remembers."""
    chooser = random.Random(seed)

    def answer(prompt: Prompt) -> str:
        body = re.split(r"<(?:conversation|summaries|summary)>", prompt.user)[-1]
        body = re.sub(r"<[/\u200b]+\w+>\s*$", "", body.strip())
        kept = [one for one in sentences(body) if chooser.random() < 0.45]
        text = " ".join(_careless(chooser, one) for one in kept) or "They talked."
        return cut_at_sentence(text, prompt.max_tokens or 150, _COUNT)

    return ScriptedModel(answer, id="lossy")


def _careless(chooser: random.Random, sentence: str) -> str:
    if chooser.random() < 0.5:
        sentence = re.sub(r"\d", lambda one: str((int(one[0]) + 1) % 10), sentence, count=1)
    if chooser.random() < 0.5:
        sentence = re.sub(r"\b(?:not|never) |n't\b", "", sentence)
    if chooser.random() < 0.3:
        sentence = re.sub(r"(?<=[a-z] )[A-Z][a-z]{3,}", chooser.choice(_NAMES), sentence)
    return sentence


def _standing(text: str, facts: Sequence[str]) -> set[str]:
    plain = normalised(text.replace('\\"', '"')).lower()
    return {one for one in facts if normalised(one).lower() in plain}


def _said(messages: Sequence[Message]) -> list[str]:
    text = normalised(" ".join(one.text for one in messages)).lower()
    return [one.clause for one in PLANTED if one.clause.lower() in text]


def _now(rounds: int, buffer: SummarizingBuffer, put: Sequence[Message]) -> Kept:
    said = _said(put)
    summaries = _standing("\n".join(one.text for one in buffer.summaries), said)
    front = _standing(buffer.summary(), said)
    turns = _standing("\n".join(m.text for m in buffer.get() if isinstance(m, Message)), said)
    return Kept(
        round=rounds,
        said=len(said),
        summary=len(summaries),
        carried=len(front - summaries),
        turns=len(turns - front),
        context=len(front | turns),
    )


async def ours(
    messages: Sequence[Message], *, every: int | None = None, limit: int = LIMIT
) -> list[Kept]:
    """How it stands after each round of a ``SummarizingBuffer`` with the careless model."""
    buffer = SummarizingBuffer(limit, summarizer=ModelSummarizer(lossy()), every=every)
    found: list[Kept] = []
    for number, message in enumerate(messages):
        buffer.put(message)
        if buffer.due() and await buffer.settle():
            found.append(_now(len(found) + 1, buffer, messages[: number + 1]))
    return found


async def naive(messages: Sequence[Message], *, limit: int = LIMIT) -> list[Kept]:
    """The same with one summary that is summarised again, with the oldest half, in each round."""
    model = lossy()
    summary, turns = "", list[Message]()
    found: list[Kept] = []
    for number, message in enumerate(messages):
        turns.append(message)
        if _COUNT(summary) + sum(_COUNT(one.text) + 4 for one in turns) <= limit:
            continue
        half = len(turns) // 4 * 2
        old, turns = turns[:half], turns[half:]
        prompt = Prompt(
            system="Summarise the conversation.",
            user=f"<conversation>\nsummary: {summary}\n{as_text(old)}\n</conversation>",
            max_tokens=_SUMMARY_TOKENS,
        )
        summary = (await model.complete(prompt)).text
        said = _said(messages[: number + 1])
        front = _standing(summary, said)
        window = _standing("\n".join(one.text for one in turns), said)
        found.append(
            Kept(
                round=len(found) + 1,
                said=len(said),
                summary=len(front),
                carried=0,
                turns=len(window - front),
                context=len(front | window),
            )
        )
    return found


async def recalled(messages: Sequence[Message], *, limit: int) -> tuple[int, int, int, int]:
    """With a small limit and a record: how many facts were said, stand in the context, were moved
    out of it, and of those are found by ``recall`` for a question without their value."""
    async with Memory.open("memory://", model=lossy(), extract=False) as memory:
        user = memory.user("ana")
        session = await user.session("s")
        buffer = await session.buffer(limit)
        assert isinstance(buffer, SummarizingBuffer)
        for start in range(0, len(messages), 2):
            await session.record(*messages[start : start + 2])
            await memory.flush()
        said = _said(messages)
        window = "\n".join(m.text for m in buffer.get() if isinstance(m, Message))
        context = _standing(f"{buffer.summary()}\n{window}", said)
        moved = [one for one in said if one not in context]
        found = 0
        for clause in moved:
            question = " ".join(word for word in clause.split() if word.islower())
            answer = await user.recall(question, limit=5)
            found += clause in _standing(answer.text, [clause])
    return len(said), len(context), len(moved), found


async def costs(messages: Sequence[Message]) -> list[Cost]:
    """What each interval costs and keeps; the last line is without one."""
    found: list[Cost] = []
    for every in (*EVERY, None):
        calls: list[Call] = []
        with collecting(calls.append):
            kept = await ours(messages, every=every)
        last = kept[-1]
        sent = sum(call.input_tokens for call in calls)
        found.append(
            Cost(
                every="when full" if every is None else str(every),
                rounds=len(kept),
                calls=len(calls),
                input_tokens=sent,
                output_tokens=sum(call.output_tokens for call in calls),
                share=sent / sum(_COUNT(one.text) for one in messages),
                context=last.context,
                by_model=last.summary / last.said,
            )
        )
    return found


def _rows(name: str, found: Sequence[Kept]) -> list[str]:
    rows: list[str] = []
    for one in found:
        if one.round in ROUNDS:
            share = 100 * one.context / one.said
            rows.append(
                f"| {name} | {one.round} | {one.said} | **{one.context}** ({share:.0f} %) | "
                f"{one.summary} | {one.carried} | {one.turns} |"
            )
    return rows


def picture(lines: Sequence[tuple[str, str, Sequence[Kept]]]) -> str:
    """The curves as SVG: rounds to the right, the share of facts in the context upwards."""
    parts = [
        _SVG,
        "<title>Key facts in the context, word for word, by summary round</title>",
        '<rect width="640" height="360" fill="#ffffff"/>',
    ]
    for percent in (0, 25, 50, 75, 100):
        y = 300 - 2.5 * percent
        parts.append(f'<line x1="60" y1="{y:g}" x2="620" y2="{y:g}" stroke="#dddddd"/>')
        parts.append(f'<text x="52" y="{y + 4:g}" text-anchor="end">{percent} %</text>')
    parts += [
        f'<text x="{60 + 28 * number}" y="320" text-anchor="middle">{number}</text>'
        for number in (1, 5, 10, 15, 20)
    ]
    parts.append('<text x="340" y="345" text-anchor="middle">summary rounds</text>')
    for place, (name, colour, found) in enumerate(lines):
        points = " ".join(
            f"{60 + 28 * one.round},{300 - 250 * one.context / one.said:.1f}"
            for one in found
            if one.round <= ROUNDS[-1]
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.5"/>'
        )
        y = 120 + 22 * place
        parts.append(
            f'<line x1="370" y1="{y}" x2="400" y2="{y}" stroke="{colour}" stroke-width="2.5"/>'
        )
        parts.append(f'<text x="408" y="{y + 4}">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])


async def _run(*, draw: bool) -> int:
    early, spread = talk(last_planted=80), talk()
    print(
        f"{len(early)} messages, {sum(_COUNT(one.text) for one in early):,} tokens, "
        f"{len(PLANTED)} key facts; limit {LIMIT:,} tokens\n"
    )
    print("| summary | round | said | in the context | in summaries | in the list | in turns |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    series = {
        "ours, all said at the beginning": await ours(early),
        "naive, all said at the beginning": await naive(early),
        "ours, said all along": await ours(spread),
        "naive, said all along": await naive(spread),
    }
    for name, found in series.items():
        print("\n".join(_rows(name, found)))
    print(
        "\n| every N turns | rounds | calls | tokens in | tokens out | in, of the talk | "
        "in the context | in summaries |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for one in await costs(early):
        print(
            f"| {one.every} | {one.rounds} | {one.calls} | {one.input_tokens:,} | "
            f"{one.output_tokens:,} | {one.share:.1f} times | {one.context} | "
            f"{100 * one.by_model:.0f} % |"
        )
    print("\n| limit | said | in the context | moved out | of those found by recall |")
    print("| --- | --- | --- | --- | --- |")
    for limit in (500, 1_000, 2_000):
        numbers = await recalled(early, limit=limit)
        print(f"| {limit:,} | {' | '.join(map(str, numbers))} |")
    if draw:
        _PICTURE.parent.mkdir(parents=True, exist_ok=True)
        colours = ("#1a7f5a", "#c0392b", "#7fbf9f", "#e59866")
        lines = [
            (name, colour, found)
            for (name, found), colour in zip(series.items(), colours, strict=True)
        ]
        _PICTURE.write_text(picture(lines), "utf-8")
    lost = [
        one
        for name, found in series.items()
        if name.startswith("ours")
        for one in found
        if one.context < one.said
    ]
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_run(draw="--check" not in sys.argv[1:])))
