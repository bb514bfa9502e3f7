"""Finds the sentences of a conversation that say what it came to, by small rules. Pure.

Sentences are taken word for word; only white space is collapsed. Left out are system text, tool
calls, what stands between memory fences (it was recalled, not said), the unfinished end of a reply
that was interrupted, and small talk. The cue words are English; in other languages the first
substantial sentence, questions, amounts and dates are still found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from secondcall.shortterm.wording import said, sentences
from secondcall.types import ItemKey, Message, RecordedItem

__all__ = [
    "Sentence",
    "has_amount",
    "is_decision",
    "is_introduction",
    "is_request",
    "is_substantial",
    "promise_weight",
    "sentences_of",
    "words_in",
]

_HEAD_CHARACTERS, _TAIL_CHARACTERS = 2_000, 1_000
"""So much of one message is looked at: its beginning and its end, whole sentences of them."""
_WORD = re.compile(r"\w+(?:'\w+)*")
_END = re.compile(r"[.!?…。！？][\"'”’)\]]*$")
_SMALL_WORDS = (
    "a about afternoon again ah all alright am and anytime are bye care course cool day do doing "
    "else evening everything fine for good goodbye got great have hello help hey hi how i i'm is "
    "it it's just kind like lovely me moment morning mhm much nice no nope now of oh ok okay one "
    "perfect please problem right see so sorry speak sure take talk thank thanks that that's the "
    "there this to too uh um very wait weekend welcome well what with wonderful yeah yep yes you "
    "you're your can may today"
)
_SMALL_TALK = frozenset(_SMALL_WORDS.split())
_REQUEST = re.compile(
    r"\b(?:please|(?:can|could|would|will) (?:you|i|we)|may i|i(?:'d| would) like|i (?:need|want)"
    r"|(?:i'm|i am) calling|calling about|(?:it's|it is|this is) about"
    r"|i have an? (?:problem|question)|i was wondering|help me)\b"
    r"|^(?:book|cancel|change|move|send|tell|show|find|order|return|refund|reserve|update|give)\b",
    re.IGNORECASE,
)
_INTRODUCTION = re.compile(
    r"\b(?:this is|my name is|my name's|name is|i am|i'm|speaking with|here is)\s+(?-i:[A-Z]\w+)",
    re.IGNORECASE,
)
_DECISION = re.compile(
    r"\b(?:(?:i|we)(?:'ve| have)? (?:decided|agreed|chose)|let's (?:go|do|take|use|keep|book)"
    r"|go ahead|i(?:'ll| will) (?:take|have|go with)|i(?:'d| would) (?:rather|prefer)"
    r"|i (?:choose|prefer)|go(?:ing)? with|stick with|works for (?:me|us)|\w+ works(?=[.,!]|$)"
    r"|don't (?:use|call|send|book)|cancel (?:it|that|the|my))\b",
    re.IGNORECASE,
)
_PROMISE = re.compile(
    r"\b(?:(?:i|we)(?:'ll| will| promise|'m going to| am going to|'re going to| are going to)"
    r"|you(?:'ll| will) (?:get|receive|have|hear))\b",
    re.IGNORECASE,
)
_AT_ONCE = re.compile(
    r"\b(?:check|look|see|transfer|connect|help|wait|pull up|just|happy to|right now|right back"
    r"|assist|be with you|have to|need (?:to|your))\b",
    re.IGNORECASE,
)
_AMOUNT = re.compile(
    r"\d|[€$£¥]|\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b|\b(?:today|tomorrow|tonight)\b"
    r"|\b(?:january|february|april|june|july|august|september|october|november|december)\b"
    r"|\bnext (?:week|month|year)\b|\bby (?:noon|evening|morning|the end)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence as it was said, by whom, and the item it stands in.

    ``order`` counts the sentences of the conversation. ``text`` is a part of the item's text with
    its white space collapsed.
    """

    text: str
    role: str
    speaker: str | None
    source: ItemKey
    order: int


def sentences_of(items: Iterable[RecordedItem]) -> list[Sentence]:
    """What was said by users and assistants, sentence by sentence, in the order of ``items``."""
    found: list[Sentence] = []
    for recorded in items:
        item = recorded.item
        if isinstance(item, Message) and item.role != "system":
            found.extend(
                Sentence(text, item.role, item.speaker, recorded.key, len(found) + number)
                for number, text in enumerate(_said(item))
            )
    return found


def words_in(text: str) -> list[str]:
    """The words of ``text``, case-folded, with straight apostrophes."""
    return _WORD.findall(_straight(text).casefold())


def is_substantial(text: str) -> bool:
    """Whether the sentence says something: three words that are no small talk, or six letters of a
    script that has no capitals."""
    words = words_in(text)
    if sum(word not in _SMALL_TALK for word in words) >= 3:
        return True
    if len(words) >= 5 and has_amount(text):
        return True
    return sum(char.isalpha() and char.lower() == char.upper() for char in text) >= 6


def is_request(text: str) -> bool:
    """Whether something is asked: a question mark or a cue such as "I need", "could you"."""
    return "?" in text or "？" in text or "؟" in text or _has(_REQUEST, text)


def is_introduction(text: str) -> bool:
    """Whether somebody says who is speaking: "this is Ines Hallberg"."""
    return _has(_INTRODUCTION, text)


def is_decision(text: str) -> bool:
    """Whether something is settled on: "let's go with", "I'd rather", "Friday works"."""
    return "?" not in text and _has(_DECISION, text)


def promise_weight(text: str) -> int:
    """How much of a promise the sentence is; below 1 it is none.

    "I'll" and its like make one, more with a date or an amount; what is done at once ("I'll check
    that") is none.
    """
    if "?" in text or not _has(_PROMISE, text):
        return 0
    if has_amount(text):
        return 2
    return 0 if _has(_AT_ONCE, text) else 1


def has_amount(text: str) -> bool:
    """Whether a number, an amount or a date stands in the sentence."""
    return _has(_AMOUNT, text)


def _said(message: Message) -> Iterator[str]:
    text = said(message.text)
    unfinished = message.interrupted
    if len(text) <= _HEAD_CHARACTERS + _TAIL_CHARACTERS:
        pieces = sentences(text)
    else:
        head, tail = sentences(text[:_HEAD_CHARACTERS]), sentences(text[-_TAIL_CHARACTERS:])
        pieces = [*head[:-1], *tail[1:]]
        unfinished = unfinished and len(tail) > 1
    found = [one for piece in pieces if (one := " ".join(piece.split()))]
    if unfinished and found and _END.search(found[-1]) is None:
        found.pop()
    yield from found


def _has(cue: re.Pattern[str], text: str) -> bool:
    return cue.search(_straight(text)) is not None


def _straight(text: str) -> str:
    return text.replace("’", "'")
