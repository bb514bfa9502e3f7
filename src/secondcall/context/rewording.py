"""A recap in a model's words: what the model is asked, and whether its answer may stand. Pure.

The answer may stand if it is one short text whose names, numbers and dates all occur in the clauses
that it was made of, and that says "not" only if they do. What is written in letters without
capitals, such as Chinese, must occur word for word. Otherwise the chosen sentences stand.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from typing import TYPE_CHECKING

from secondcall.abc import Completion, Prompt
from secondcall.context.clauses import words_in
from secondcall.context.render import quote
from secondcall.shortterm.wording import is_negated, numbers_in

if TYPE_CHECKING:
    from secondcall.abc import TokenCounter
    from secondcall.context.recap import Clause
    from secondcall.types import Recap

__all__ = ["MAX_ANSWER_CHARACTERS", "recap_prompt", "reworded"]

MAX_ANSWER_CHARACTERS = 2_000
_MAX_CLAUSES = 12
_CLAUSE_CHARACTERS = 500
_WORD = re.compile(r"\w+(?:['’]\w+)*")
_START = re.compile(r"(?:^|[.!?:;]\s+)[\"'“(]*$")
_START_WORDS = (
    "the a an user caller customer assistant agent they he she it we there this that both no not "
    "asked decided promised agreed wants wanted needs left still open also and but then after "
    "before in on by at with for to"
)
_DAYS_AND_MONTHS = (
    "monday tuesday wednesday thursday friday saturday sunday january february march april june "
    "july august september october november december today tomorrow tonight yesterday"
)
_STARTS = frozenset(_START_WORDS.split())
_TIME_WORDS = frozenset(_DAYS_AND_MONTHS.split())


def recap_prompt(found: Sequence[Clause], max_tokens: int) -> Prompt:
    """What a model is asked: the rules of ``prompts/recap.md``, and the clauses as quoted data."""
    system, _, user = _text().partition("\n---\n")
    lines = [one.render(one.words[:_CLAUSE_CHARACTERS]) for one in found[:_MAX_CLAUSES]]
    return Prompt(
        system=system.replace("{max_tokens}", str(max_tokens)),
        user=user.replace("{clauses}", "\n".join(f"- {line}" for line in lines)),
        max_tokens=2 * max_tokens,
    )


def reworded(
    recap: Recap,
    found: Sequence[Clause],
    answer: Completion,
    *,
    model_id: str,
    counter: TokenCounter,
    max_tokens: int,
) -> Recap | None:
    """The recap with the model's text, resting on every clause that the model saw; ``None`` when
    the answer may not stand."""
    used = found[:_MAX_CLAUSES]
    if answer.truncated or not 0 < len(answer.text) <= MAX_ANSWER_CHARACTERS:
        return None
    words = " ".join(answer.text.split())
    text = quote(words)
    source = "\n".join(f"{one.who} {one.words[:_CLAUSE_CHARACTERS]}" for one in used)
    if not words or counter.count(text) > max_tokens or not _occurs(words, source):
        return None
    if is_negated(words) != any(is_negated(one.words) for one in used):
        return None
    return replace(
        recap,
        text=text,
        made_by=model_id,
        sources=tuple(dict.fromkeys(one.source for one in used if one.source is not None)),
        facts=tuple(dict.fromkeys(one.fact_id for one in used if one.fact_id is not None)),
    )


def _occurs(text: str, source: str) -> bool:
    """Whether every name, number and date of ``text`` stands in ``source``."""
    known = {part for word in words_in(source) for part in (word, word.removesuffix("'s"))}
    if not numbers_in(text) <= numbers_in(source):
        return False
    for found in _WORD.finditer(text):
        word = found[0].replace("’", "'")
        low = word.casefold()
        if low in known or low.removesuffix("'s") in known:
            continue
        uncased = any(one.isalpha() and one.lower() == one.upper() for one in word)
        if uncased or any(one.isdigit() for one in word) or low in _TIME_WORDS:
            return False
        starts = low in _STARTS and _START.search(text[: found.start()]) is not None
        if any(one.isupper() for one in word) and not starts:
            return False
    return True


@functools.cache
def _text() -> str:
    file = resources.files("secondcall.context") / "prompts" / "recap.md"
    return file.read_text("utf-8")
