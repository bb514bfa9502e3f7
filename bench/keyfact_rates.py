"""What the key-fact finder takes for a key fact in messages that people really wrote.

``SECONDCALL_EVAL_DATA`` (default ``../shared/data``) names a file of LongMemEval, gzipped or not,
or the folder in which ``longmemeval_s_dev.json.gz`` is looked for; without it nothing is done. Its
messages that hold an answer are marked. What is printed says how often the rules find something
there and how much they take elsewhere; not whether it is the right clause, which nobody has marked.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from secondcall import Message
from secondcall.embedders.counting import VocabularyCounter
from secondcall.shortterm.keyfacts import find_key_facts

__all__ = ["Rates", "rates", "user_messages"]

_DATA = Path(__file__).parents[2] / "shared" / "data"
_FILE = "longmemeval_s_dev.json.gz"


@dataclass(slots=True)
class Rates:
    """Counts of some messages: how many, how many with a key fact, how many facts and tokens."""

    messages: int = 0
    with_fact: int = 0
    facts: int = 0
    tokens: int = 0
    words: int = 0

    def line(self, name: str) -> str:
        """The counts as a row of a table."""
        per_hundred = 100 * self.facts / max(1, self.messages)
        share = 100 * self.with_fact / max(1, self.messages)
        each = self.tokens / max(1, self.facts)
        length = self.words / max(1, self.messages)
        return (
            f"| {name} | {self.messages:,} | {length:.0f} | {share:.0f} % | {per_hundred:.0f} | "
            f"{each:.0f} |"
        )


def user_messages(questions: list[dict[str, Any]]) -> Iterator[tuple[str, bool]]:
    """Each different message of a user, and whether it holds an answer."""
    known: dict[str, bool] = {}
    for question in questions:
        for session in question["haystack_sessions"]:
            for turn in session:
                if turn["role"] == "user":
                    text = cast("str", turn["content"])
                    known[text] = known.get(text, False) or bool(turn.get("has_answer"))
    yield from known.items()


def rates(messages: Iterator[tuple[str, bool]]) -> tuple[Rates, Rates]:
    """The rates of the messages that hold an answer, and of the others."""
    count = VocabularyCounter().count
    answering, others = Rates(), Rates()
    for text, has_answer in messages:
        found = find_key_facts([Message("user", text)])
        one = answering if has_answer else others
        one.messages += 1
        one.with_fact += bool(found)
        one.facts += len(found)
        one.tokens += sum(count(fact.text) for fact in found)
        one.words += len(text.split())
    return answering, others


def _data() -> Path | str:
    """The file, or why there is none."""
    path = Path(os.environ.get("SECONDCALL_EVAL_DATA") or _DATA)
    path = path / _FILE if path.is_dir() else path
    return path if path.is_file() else f"there is no file {path}; set SECONDCALL_EVAL_DATA"


def main() -> None:
    """Print the table of ``docs/summaries.md``."""
    path = _data()
    if isinstance(path, str):
        print(f"skipped: {path}")
        return
    open_ = gzip.open if path.suffix == ".gz" else open
    with open_(path, "rt", encoding="utf-8") as file:
        questions = cast("list[dict[str, Any]]", json.load(file))
    answering, others = rates(user_messages(questions))
    print("| messages of users | messages | words | with a key fact | facts of 100 | tokens |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    print(answering.line("that hold an answer"))
    print(others.line("others"))


if __name__ == "__main__":
    sys.exit(main())
