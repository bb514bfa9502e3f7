"""What makes a shorter text of a longer one: by choosing sentences, or by asking a model."""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from secondcall.abc import LanguageModel, Prompt, TokenCounter
from secondcall.errors import ModelError
from secondcall.registry import default_counter
from secondcall.shortterm.keyfacts import normalised
from secondcall.shortterm.screening import cut_at_sentence
from secondcall.shortterm.wording import content_words, said, sentences
from secondcall.types import Item, Message

__all__ = [
    "ExtractiveSummarizer",
    "ModelSummarizer",
    "Summarizer",
    "as_text",
    "prompt_text",
]

_MAX_TEXT = 4_000
_MAX_OUTPUT = 1_000
_MAX_SENTENCES = 400
_FREQUENT = 0.25
_SPARE = 1.3
"""A model counts tokens otherwise than we do; what is too long in the end is cut by our count."""


class Summarizer(ABC):
    """Makes a shorter text of a longer one. What it gives is checked; it need not be right."""

    @abstractmethod
    async def summarise(self, text: str, *, keep: Sequence[str], max_tokens: int) -> str:
        """``text``, which has a line for each item, in at most ``max_tokens``; ``keep`` are clauses
        of it that must stand in it word for word. Raises: ``ModelError``."""

    async def merge(self, text: str, *, keep: Sequence[str], max_tokens: int) -> str:
        """The same of several summaries, one a line, oldest first."""
        return await self.summarise(text, keep=keep, max_tokens=max_tokens)

    async def repair(self, summary: str, *, lost: Sequence[str], max_tokens: int) -> str:
        """The summary with the ``lost`` clauses in it; by default as it was, which ends it."""
        return summary


class ModelSummarizer(Summarizer):
    """Asks a language model, with the prompts of ``secondcall/shortterm/prompts``."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model

    async def summarise(self, text: str, *, keep: Sequence[str], max_tokens: int) -> str:
        """The model's summary. Raises: ``ModelError``."""
        return await self._ask("summarise", text, keep, max_tokens)

    async def merge(self, text: str, *, keep: Sequence[str], max_tokens: int) -> str:
        """The model's summary of summaries. Raises: ``ModelError``."""
        return await self._ask("merge", text, keep, max_tokens)

    async def repair(self, summary: str, *, lost: Sequence[str], max_tokens: int) -> str:
        """The model's second try. Raises: ``ModelError``."""
        return await self._ask("repair", summary, lost, max_tokens)

    async def _ask(self, name: str, text: str, keep: Sequence[str], max_tokens: int) -> str:
        system, user = prompt_text(name)
        values = {
            "{max_tokens}": str(max_tokens),
            "{keep}": "\n".join(f"- {one}" for one in keep) or "(nothing)",
            "{text}": text.replace("</", "<\u200b/"),
        }
        answer = await self._model.complete(
            Prompt(
                system=_filled(system, values),
                user=_filled(user, values),
                max_tokens=math.ceil(max_tokens * _SPARE),
            )
        )
        if not isinstance(answer.text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - models err
            raise ModelError("the model answered something that is not text")
        return answer.text


@dataclass(slots=True)
class _Candidate:
    place: int
    speaker: str
    text: str
    words: Counter[str]
    tokens: int
    keeps: frozenset[int]


class ExtractiveSummarizer(Summarizer):
    """Chooses sentences, word for word; no model, no network, the same every time.

    A sentence is worth the frequencies of its words in the whole text (SumBasic: Nenkova and
    Vanderwende, 2005), by the root of its length; what words were chosen before count a quarter, so
    that it does not say the same twice; each clause to be kept that it brings counts as much as the
    best sentence. The chosen ones stand in their order, with who said them.
    """

    def __init__(self, counter: TokenCounter | None = None) -> None:
        self._count = (default_counter() if counter is None else counter).count

    async def summarise(self, text: str, *, keep: Sequence[str], max_tokens: int) -> str:
        """The sentences that say most, at most ``max_tokens`` of them."""
        return self.choose(text, keep=keep, max_tokens=max_tokens)

    def choose(self, text: str, *, keep: Sequence[str], max_tokens: int) -> str:
        """The same, at once."""
        found = _candidates(text, keep, self._count)
        total: Counter[str] = Counter()
        for one in found:
            total.update(one.words.keys())
        weight = {word: count / max(1, len(found)) for word, count in total.items()}
        chosen: list[_Candidate] = []
        room, kept = max_tokens, frozenset[int]()
        while found:
            best = max(found, key=lambda one: (_worth(one, weight, kept), -one.place))
            found.remove(best)
            if best.tokens > room:
                continue
            chosen.append(best)
            room -= best.tokens
            kept |= best.keeps
            for word in best.words:
                weight[word] *= _FREQUENT
        if not chosen:
            return cut_at_sentence(text.strip(), max_tokens, self._count)
        return cut_at_sentence(_told(chosen), max_tokens, self._count)


def as_text(items: Iterable[Item]) -> str:
    """Items as a summariser reads them: a line each, with who said it; tool calls in words.

    System text and what stands between ``<memory>`` fences is left out, and so is the middle of
    what is very long.
    """
    lines: list[str] = []
    for item in items:
        if isinstance(item, Message):
            text = _one_line(_middle_out(said(item.text), _MAX_TEXT))
            if text and item.role != "system":
                lines.append(f"{item.speaker or item.role}: {text}")
            continue
        arguments = item.arguments
        given = (
            arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        )
        given = _one_line(_middle_out(said(given), _MAX_OUTPUT))
        output = "" if item.output is None else _middle_out(said(item.output), _MAX_OUTPUT)
        outcome = "did not answer" if item.output is None else f"gave {_one_line(output)}"
        failed = "failed and " if item.is_error else ""
        lines.append(f"tool: {item.name} was called with {given} and {failed}{outcome}")
    return "\n".join(lines)


@cache
def prompt_text(name: str) -> tuple[str, str]:
    """The system and the user part of a prompt file, with its places in braces."""
    file = resources.files("secondcall.shortterm") / "prompts" / f"{name}.md"
    system, _, user = file.read_text("utf-8").partition("\n---\n")
    return system.strip(), user.strip()


def _filled(template: str, values: dict[str, str]) -> str:
    """Places are filled in one pass, so that what is filled in cannot name another place."""
    return re.sub("|".join(map(re.escape, values)), lambda found: values[found[0]], template)


def _candidates(text: str, keep: Sequence[str], count: Callable[[str], int]) -> list[_Candidate]:
    found: list[_Candidate] = []
    clauses = [normalised(one) for one in keep]
    for line in text.splitlines():
        speaker, colon, words = line.partition(": ")
        if not colon or len(speaker) > 40:
            speaker, words = "", line
        for sentence in sentences(words):
            plain = normalised(sentence)
            prefix = f"{speaker}: " if speaker else ""
            found.append(
                _Candidate(
                    place=len(found),
                    speaker=speaker,
                    text=sentence,
                    words=Counter(content_words(sentence)),
                    tokens=count(f"{prefix}{sentence} "),
                    keeps=frozenset(n for n, one in enumerate(clauses) if one in plain),
                )
            )
    if len(found) > _MAX_SENTENCES:
        step = len(found) / _MAX_SENTENCES
        keeping = [one for one in found if one.keeps][:_MAX_SENTENCES]
        found = keeping + [found[int(n * step)] for n in range(_MAX_SENTENCES - len(keeping))]
        found = list({one.place: one for one in found}.values())
    return found


def _worth(one: _Candidate, weight: dict[str, float], kept: frozenset[int]) -> float:
    if not one.words:
        return 0.0
    central = sum(weight[word] for word in one.words) / math.sqrt(len(one.words) + 2)
    return central + 2.0 * len(one.keeps - kept)


def _told(chosen: list[_Candidate]) -> str:
    parts: list[str] = []
    speaker = None
    for one in sorted(chosen, key=lambda one: one.place):
        parts.append(
            one.text if one.speaker == speaker else f"{one.speaker}: {one.text}".lstrip(": ")
        )
        speaker = one.speaker
    return " ".join(parts)


def _middle_out(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]} (cut, {len(text) - 2 * half:,} characters) {text[-half:]}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
