"""Judges a list of OpenAI messages that a memory gave for a history. Standard library only.

It knows nothing of how any memory works: only what providers refuse, what was said, and how many
words there may be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from chat_histories import History, words

__all__ = ["Verdict", "judge", "least_words", "words_of"]

Chat: TypeAlias = Sequence[dict[str, Any]]
_MARKER_WORDS = 10
"""Words of "(cut, 1,234 characters more; the record has all of it)"."""


@dataclass(frozen=True)
class Verdict:
    """What is wrong with a list; all ``False`` or empty for a right one."""

    invalid: str = ""
    over: bool = False
    lost_system: bool = False
    lost_newest_user: bool = False

    @property
    def right(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.invalid or self.over or self.lost_system or self.lost_newest_user)


def judge(history: History, given: Chat) -> Verdict:
    """The verdict on what a memory gave for a history."""
    texts = [one["content"] for one in given if one["role"] == "user"]
    newest = [one["content"] for one in history.messages if one["role"] == "user"][-1]
    kept = "\n".join(str(one["content"]) for one in given if one["role"] == "system")
    asked = [one["content"] for one in history.messages if one["role"] == "system"]
    return Verdict(
        invalid=next(_faults(history, given), ""),
        over=words_of(given) > history.token_limit,
        lost_system=any(text not in kept for text in asked),
        lost_newest_user=newest not in texts,
    )


def words_of(given: Chat) -> int:
    """All words that are sent: contents, and the names and arguments of calls."""
    total = 0
    for one in given:
        total += len(words(one.get("content") or ""))
        for call in one.get("tool_calls") or ():
            function = call["function"]
            total += len(words(function["name"])) + len(words(function["arguments"]))
    return total


def least_words(history: History) -> int:
    """The fewest words in which system text and newest turn can be given, each output cut to its
    marker and calls without an output left out."""
    system = [one for one in history.messages if one["role"] == "system"]
    begins = max(i for i, one in enumerate(history.messages) if one["role"] == "user")
    turn = [one for one in history.messages[begins:] if one["role"] != "system"]
    answered = {one["tool_call_id"] for one in turn if one["role"] == "tool"}
    total = words_of(system)
    for one in turn:
        if one["role"] == "tool":
            total += min(words_of([one]), _MARKER_WORDS)
            continue
        calls = [call for call in one.get("tool_calls") or () if call["id"] in answered]
        total += words_of([{**one, "tool_calls": calls}])
    return total


def _faults(history: History, given: Chat) -> Iterator[str]:
    rest = list(given)
    while rest and rest[0]["role"] == "system":
        rest.pop(0)
    if not rest:
        yield "nothing but system text"
        return
    yield from _beginning(history, rest)
    yield from _pairs(rest)
    if any(one["role"] == "system" for one in rest):
        yield "a system message in the middle"
    if any(not one.get("tool_calls") and one.get("content") is None for one in rest):
        yield "an empty message"


def _pairs(rest: Chat) -> Iterator[str]:
    """Each call is answered once, right after the message that makes it."""
    waiting: set[str] = set()
    used: set[str] = set()
    for one in rest:
        if one["role"] == "tool":
            if one["tool_call_id"] not in waiting:
                yield "an output without its call"
            waiting.discard(one["tool_call_id"])
            continue
        if waiting:
            yield "a call without its output"
        waiting = {call["id"] for call in one.get("tool_calls") or ()}
        if waiting & used:
            yield "a call id twice"
        used |= waiting
    if waiting:
        yield "a call without its output"


def _beginning(history: History, rest: Chat) -> Iterator[str]:
    """A list may begin with the assistant only where the conversation itself did."""
    if rest[0]["role"] == "user":
        return
    first = next(one for one in history.messages if one["role"] != "system")
    if rest[0]["role"] != first["role"] or rest[0].get("content") != first.get("content"):
        yield f"it begins with {rest[0]['role']}"
