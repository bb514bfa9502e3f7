"""Why a fact that a model proposes may not stand: what it is about, and what its quote says. Pure.

A word list decides what a fact may not be about: who may do what, and who somebody is held to be,
are never learnt from what was said. It is a second wall behind the prompt and errs on the safe
side: what is refused can still be remembered by the host's own code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Literal

__all__ = [
    "Reason",
    "Spoken",
    "contradicts",
    "gives_orders",
    "invents_numbers",
    "is_about_power",
    "normalised",
    "place_of",
]

Reason = Literal[
    "form",
    "source",
    "quote",
    "speaker",
    "orders",
    "power",
    "polarity",
    "number",
    "date",
    "fact",
    "contradiction",
    "gone",
]
"""Why a proposal was refused; ``docs/how-to/extract-facts.md`` says what each means."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """What is known of language where the judging is done: how to cut a text into clauses, whether
    one is negated, its numbers, and the days that it names as seen from a time."""

    clauses: Callable[[str], Sequence[str]]
    is_negated: Callable[[str], bool]
    numbers: Callable[[str], set[str]]
    days: Callable[[str, datetime], Sequence[tuple[date, date]]]


_QUOTES = str.maketrans({
    "\u2018": "'", "\u2019": "'", "\u201a": "'", "\u201b": "'", "\u2032": "'", "`": "'",
    "\u201c": '"', "\u201d": '"', "\u201e": '"', "\u00ab": '"', "\u00bb": '"', "\u2033": '"',
    "\u2010": "-", "\u2011": "-", "\u00ad": None, "\u200b": None, "\ufeff": None,
})  # fmt: skip
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_DIGITS = re.compile(r"\d+")
_ISO_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_EDGES = " \t\"'.,;:!?\u2026\u3002\uff01\uff1f()[]"

_POWER = re.compile(
    r"\b(?:admin\w*|amministrat\w*|superuser|sudo\w*|privileg\w*|permi(?:ssion\w*|tted)|"
    r"authori[sz]\w*|authenti[cf]\w*|credential\w*|pass(?:word|code|phrase)\w*|pin|clearance|"
    r"impersonat\w*|verified|unverified|verification|allowed|entitled|entitlement\w*|"
    r"jailbreak\w*|developer mode|system (?:prompt|message)|(?:root|full|unlimited|admin|has|"
    r"have) access|access (?:level|right|role|control|token|code)\w*)\b",
    re.IGNORECASE,
)
_POWER_ABOUT = re.compile(
    r"^access$|\b(?:roles?|rights|trust(?:ed|s|worthy)?|identity|user id|account id|prompt)\b",
    re.IGNORECASE,
)
_ORDERS = re.compile(
    r"\b(?:ignor\w*|disregard\w*|override|overrule|bypass|forget)\b[^.!?\n]{0,40}?"
    r"\b(?:all|any|previous|prior|above|earlier|preceding|your|system|the)\b[^.!?\n]{0,30}?"
    r"\b(?:instruction|rule|prompt|guideline|restriction|polic(?:y|ies)|safeguard)s?\b"
    r"|\bsystem prompt\b|\byou are now\b|\b(?:developer|debug|god|admin) mode\b"
    r"|^\s*(?:system|assistant|developer)\s*:",
    re.IGNORECASE | re.MULTILINE,
)
_AVERSE = re.compile(
    r"\b(?:no|non|none|not|never|without|avoid\w*|dislik\w*|hat(?:e|es|ed|ing)|detest\w*|"
    r"loath\w*|allerg\w*|intoleran\w*|refus\w*|reject\w*|declin\w*|exclu\w*|forbid\w*|forbidden|"
    r"ban(?:s|ned)?|unable|cannot|can't|stopp?\w*|quit|former\w*|previous\w*|past|against|"
    r"object\w*|cancel\w*|g(?:ave|iven) up|lack\w*|missing|unwanted|dealbreaker|free|"
    r"opt\w* out|unsubscrib\w*|problem\w*|issue\w*|broken|fail\w*|defect\w*|complain\w*|abst\w+|"
    r"\w+n't)\b|-free\b",
    re.IGNORECASE,
)
_REFUSAL = re.compile(r"^\W*(?:no|nope|nah|nein|non|never|not really)\b", re.IGNORECASE)


def normalised(text: str) -> str:
    """How quotes are compared: white space collapsed, quotation marks and hyphens made plain."""
    return " ".join(text.translate(_QUOTES).split())


def place_of(quote: str, text: str) -> tuple[int, int] | None:
    """Where ``quote`` stands in ``text`` as whole words; both are normalised."""
    words = quote.strip(_EDGES)
    if not any(one.isalnum() for one in words):
        return None
    start = text.find(words)
    while start >= 0:
        end = start + len(words)
        if _is_edge(text[start - 1 : start], words[0]) and _is_edge(text[end : end + 1], words[-1]):
            return start, end
        start = text.find(words, start + 1)
    return None


def is_about_power(predicate: str, value: object) -> bool:
    """Whether a fact is about permissions, roles, identity or trust, or holds a secret."""
    words = predicate.replace("_", " ").replace("-", " ")
    if _POWER.search(words) or _POWER_ABOUT.search(words):
        return True
    return isinstance(value, str) and _POWER.search(value) is not None


def gives_orders(text: str) -> bool:
    """Whether a text speaks to the machine behind the conversation, as an injection does."""
    return _ORDERS.search(text) is not None


def contradicts(
    predicate: str,
    value: object,
    quoted: Sequence[tuple[str, tuple[int, int], bool]],
    spoken: Spoken,
) -> bool:
    """Whether the words say "not" where the fact does not, or the other way round.

    ``quoted`` are the normalised texts, where in them the quotes stand, and whether it is the user
    who speaks. The whole clause counts, so that leaving the "not" out of a quote does not help;
    and of the clauses those that the value's words stand in, where there are any.
    """
    value = _PLAIN.get(value.casefold(), value) if isinstance(value, str) else value
    about = f"{predicate} {value}" if isinstance(value, str) else predicate
    clauses = [
        (clause, mine)
        for text, span, mine in quoted
        for clause in _touched(text, span, spoken.clauses)
    ]
    words = _words(value if isinstance(value, str) else predicate)
    near = [(clause, mine) for clause, mine in clauses if words & _words(clause)]
    says_no = any(spoken.is_negated(clause) for clause, _ in near or clauses)
    if not any(mine for _, mine in near):  # what the assistant asked, the user answers
        says_no = says_no or any(mine and _REFUSAL.match(clause) for clause, mine in clauses)
    fact_denies = spoken.is_negated(about) or value is False
    if says_no:
        averse = fact_denies or _AVERSE.search(about) is not None
        return not averse and bool(near or not isinstance(value, str) or _only_refuses(clauses))
    return fact_denies and not any(_AVERSE.search(clause) for clause, _ in clauses)


def invents_numbers(value: object, texts: Sequence[str], spoken: Spoken) -> bool:
    """Whether a number of the value stands in none of the texts; dates are judged apart."""
    if isinstance(value, bool):
        return False
    plain = _ISO_DAY.sub(" ", str(value).removesuffix(".0"))
    wanted = {one.lstrip("0") for one in _DIGITS.findall(plain)} - {"", "1"}
    said = {
        part.lstrip("0")
        for text in texts
        for number in spoken.numbers(text)
        for part in (number, *_DIGITS.findall(number))
    }
    return not wanted <= said


def _only_refuses(clauses: Sequence[tuple[str, bool]]) -> bool:
    return any(mine and _REFUSAL.match(clause) for clause, mine in clauses)


def _touched(text: str, span: tuple[int, int], cut: Callable[[str], Sequence[str]]) -> list[str]:
    """The clauses of the text that the span touches; the quote itself where none can be told."""
    found: list[str] = []
    place = 0
    for clause in cut(text):
        start = text.find(clause, place)
        if start < 0:
            continue
        place = start + len(clause)
        if start < span[1] and span[0] < place:
            found.append(clause)
    return found or [text[span[0] : span[1]]]


def _words(text: str) -> set[str]:
    """The words that say something, cut at five letters, so that forms of one word are one."""
    found = _WORD.findall(text.casefold())
    return {one[:5] for one in found if (len(one) > 2 or not one.isascii()) and one not in _EMPTY}


_PLAIN = {"yes": True, "true": True, "no": False, "false": False, "none": False}
_FILLERS = (
    "the and for that this with from are was were has have had does did you your our his her "
    "they them their not user any some who what when where how its it's i'm i've"
)
_EMPTY = frozenset(_FILLERS.split())


def _is_edge(outside: str, inside: str) -> bool:
    """Whether a word ends between the two; scripts that part no words have no edges."""
    cased = outside.isalnum() and inside.isalnum() and outside.lower() != outside.upper()
    return not (cased or (outside.isdecimal() and inside.isdecimal()))
