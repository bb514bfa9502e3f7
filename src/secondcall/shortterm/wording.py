"""Sentences, clauses and words, as key facts and summaries need them. Pure, English first.

Numbers, times, amounts and capitalised names are told by the properties of their characters, so
they are found in any script that has them; decisions, promises, preferences and negations by
English words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Literal, NamedTuple

__all__ = [
    "NUMBER_WORDS",
    "Clause",
    "KeyFactKind",
    "Trigger",
    "clauses",
    "content_words",
    "is_negated",
    "names_in",
    "numbers_in",
    "said",
    "sentences",
    "tight",
    "triggers",
    "without_not",
]

KeyFactKind = Literal[
    "name", "number", "date", "amount", "decision", "promise", "preference", "negation"
]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FENCE = re.compile(r"<(/?)\s*memory\b[^>]*(?:>|$)", re.IGNORECASE)
_END = re.compile(
    r"(?:[.!?\u2026\u06d4\u0964\u061f]+[\"'\u201d\u2019)\]]*\s+|[\u3002\uff01\uff1f]+\s*|\n+)"
)
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:mr|mrs|ms|dr|prof|st|no|nr|vs|approx|ca|e\.g|i\.e|[^\W\d_])\.\s*$",
    re.IGNORECASE,
)
_BREAK = re.compile(
    r"[,;:\u3001\uff0c\uff1b]\s*(?=\s|[^\x00-\x7f])|\s[\u2013\u2014-]\s|[()\[\]]"
    r"|\s(?=(?:but|because|although|though|while|whereas|which|who|since)\s)"
    r"|\s(?=(?:and|so|or)\s(?:I|I'm|I'll|we|we'll|you|he|she|it|they|my|our|your|the|please|that|"
    r"there|this|don't|do|never|not)\b)"
)
_WORD = re.compile(r"\S+")
_EDGE = (
    "\"'.,;:!?()[]{}<>\u2018\u2019\u201c\u201d\u00ab\u00bb\u2026\u3002\u3001\uff0c\uff01\uff1f*_`"
)
_LEAD = _words(
    "and so well yes yeah yep no ok okay oh ah hi hello hey also but because actually anyway just "
    "sorry thanks sure right then um uh now fine perfect great or though although while who which "
    "that where since"
)
_MIN_WORDS = 3
_MAX_WORDS = 14

_COUNTING = (
    "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty"
)
NUMBER_WORDS = {word: str(value) for value, word in enumerate(_COUNTING.split(), start=2)}
NUMBER_WORDS.update(
    {"thirty": "30", "forty": "40", "fifty": "50", "sixty": "60", "seventy": "70", "eighty": "80"}
)
NUMBER_WORDS.update({"ninety": "90", "hundred": "100", "thousand": "1000"})
"""Number words that carry information, and their digits; *one* is left out: it is a pronoun too."""

_NUMBER = re.compile(r"\d+(?:[.,:/'\u2019\u066b\u066c-]\d+)*")
_UNITS = _words(
    "euro euros eur usd gbp chf dollar dollars cent cents pound pounds franc francs yen rupees "
    "kg kilo kilos g gram grams mg ml l litre litres liter liters km kilometres kilometers miles m "
    "metre metres meters cm percent nights people persons bags seats pieces hours minutes"
)
_MONTHS = _words(
    "january february march april may june july august september october november december jan feb "
    "mar apr jun jul aug sep sept oct nov dec"
)
_DAYS = _words("monday tuesday wednesday thursday friday saturday sunday")
_TIME = re.compile(
    r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{1,2}[:.]\d{2}(?:[ap]m)?|\d{1,2}(?:am|pm|h)"
    r"|\d{1,2}(?:st|nd|rd|th)|(?:19|20)\d\d",
    re.IGNORECASE,
)
_NOT_NAMES = _words("i i'm i'll i'd i've ok okay english tv pm am usa eu uk mr mrs ms dr sms pdf")
_NOT = re.compile(
    r"\b(?:not|never|no longer|no more|cannot|without|nobody|none|neither|refuse[sd]?|forbidden|"
    r"\w+n't)\b"
    r"|\bno (?!problem|worries|worry|rush|idea|doubt|wonder|need|matter|way|hurry|prob|see|"
    r"one\b)\w+",
    re.IGNORECASE,
)
_WEAK_NOT = re.compile(
    r"\b(?:not (?:sure|really|yet|so|too|bad|only|quite|at all|exactly|necessarily|much|that|just|"
    r"even|what|how|like|always|often|far|long|many|here)"
    r"|(?:do|did|does)(?:n't| not) (?:know|think|mind|worry|see|get|remember|have to|need|believe|"
    r"feel|look|mean|seem|matter|hesitate|really|even|notice|expect|quite|understand|care|sound|"
    r"forget|realise|realize|hear|it|we|you|they|I)"
    r"|(?:can't|cannot|can not|couldn't|could not) (?:wait|complain|believe|imagine|help|really|"
    r"tell|say|remember|find|stop|decide|quite)"
    r"|wouldn't (?:mind|worry|have|know|be|say|want|miss)|won't (?:hurt|take|be|have|keep)"
    r"|(?:is|are|was|were|has|have|had|should|would|could)n't (?:it|that|they|you|I|we|been|really|"
    r"so|too|be|sure|yet|even|have)"
    r"|why not|if not|or not|not to mention|never (?:mind|been|thought|saw|knew)|"
    r"whether)\b",
    re.IGNORECASE,
)
_MARKS: tuple[tuple[KeyFactKind, re.Pattern[str]], ...] = (
    (
        "decision",
        re.compile(
            r"\b(?:(?:have |has |'ve |'s )?decided|decision is|we'll go with|i'll go with|go ahead "
            r"with|let's go with|going with|settled on|(?:have |'ve )?agreed (?:to|on|that)|"
            r"(?:have |'ve )?chosen|i choose|i'll take|the plan is|approved|cancel (?:my|the|our)|"
            r"opted for)\b",
            re.IGNORECASE,
        ),
    ),
    (
        "promise",
        re.compile(
            r"\b(?:i promise|we promise|promised|guarantee[sd]?|you have my word|"
            r"(?:i|we|he|she|they|you)(?:'ll| will) (?:send|call|refund|pay|deliver|ship|email|"
            r"e-mail|mail|replace|credit|arrange|book|transfer|return|waive|fix|contact|reply|bring|"
            r"write|confirm|reserve|ring|post))\b",
            re.IGNORECASE,
        ),
    ),
    (
        "preference",
        re.compile(
            r"\b(?:prefer(?:s|red)?|favou?rite|would rather|'d rather|allergic|vegetarian|vegan|"
            r"i (?:really )?(?:hate|dislike|love|like|enjoy) (?!it\b|that\b|this\b|to (?:know|ask|"
            r"hear|think)\b|how\b|when\b|what\b|the (?:idea|sound|way)\b)\w+|"
            r"can't stand|instead of)\b",
            re.IGNORECASE,
        ),
    ),
)


class Clause(NamedTuple):
    """A stretch of one sentence. ``first``: it begins the sentence; ``asks``: the sentence asks."""

    text: str
    first: bool
    asks: bool


class Trigger(NamedTuple):
    """Why a clause is a key fact, and where in it: the words from ``start`` to before ``end``."""

    kind: KeyFactKind
    start: int
    end: int


def said(text: str) -> str:
    """``text`` without what stands between ``<memory …>`` and ``</memory>``.

    Fences may be nested; one that is never closed takes everything after it.
    """
    if "<" not in text:
        return text
    kept: list[str] = []
    depth = place = 0
    for fence in _FENCE.finditer(text):
        if depth == 0:
            kept.append(text[place : fence.start()])
        depth = max(0, depth - 1) if fence[1] else depth + 1
        place = fence.end()
    if depth == 0:
        kept.append(text[place:])
    return "".join(kept)


def sentences(text: str) -> list[str]:
    """The sentences of a text, word for word, without what is between them."""
    found: list[str] = []
    start = 0
    for end in _END.finditer(text):
        after = text[end.end() : end.end() + 1]
        mark = end[0].strip()
        if mark == "." and (
            after.islower() or _ABBREVIATION.search(text, max(0, end.end() - 12), end.end())
        ):
            continue
        found.append(text[start : end.end()].strip())
        start = end.end()
    found.append(text[start:].strip())
    return [one for one in found if one]


def clauses(sentence: str) -> list[Clause]:
    """A sentence cut at commas, brackets and conjunctions; a number, name or *not* of under three
    words stays with its neighbour, so that *on 3 May 2026, at 10:30* is one."""
    asks = sentence.rstrip(_EDGE.replace("?", "").replace("\uff1f", "")).endswith(("?", "\uff1f"))
    pieces: list[tuple[int, int]] = []
    start = 0
    for cut in [*((one.start(), one.end()) for one in _BREAK.finditer(sentence)), None]:
        end, following = (len(sentence), len(sentence)) if cut is None else cut
        before = sentence[slice(*pieces[-1])] if pieces else ""
        piece = sentence[start:end]
        if pieces and (_leans(piece) or _leans(before) or _goes_on(before, piece)):
            pieces[-1] = (pieces[-1][0], end)
        elif sentence[start:end].strip():
            pieces.append((start, end))
        start = following
    return [Clause(sentence[a:b].strip(), a == 0, asks) for a, b in pieces]


def triggers(clause: Clause) -> list[Trigger]:
    """What makes a clause a key fact, by word position; empty if nothing does."""
    words = [(one.start(), one.end(), one[0].strip(_EDGE)) for one in _WORD.finditer(clause.text)]
    found = [*_plain_triggers(words), *_names(words, clause.first)]
    if not clause.asks:
        found.extend(_marked(clause.text, words))
    if all(one.kind == "name" for one in found) and _only_calls(words, found):
        return []
    return found


def tight(clause: Clause, found: Sequence[Trigger]) -> str:
    """The clause without its lead-in words, and of a long one the words about its triggers."""
    words = list(_WORD.finditer(clause.text))
    first, last = 0, len(words)
    low, high = min(one.start for one in found), max(one.end for one in found)
    while first < low and words[first][0].strip(_EDGE).lower() in _LEAD:
        first += 1
    if last - first > _MAX_WORDS:
        spare = max(2, _MAX_WORDS - (high - low))
        first = max(first, low - (spare * 2) // 3)
        last = min(
            last, max(high + spare // 3, first + _MAX_WORDS), max(high, first + 2 * _MAX_WORDS)
        )
    return (
        clause.text[words[first].start() : words[last - 1].end()]
        .strip()
        .strip(",;:.!?\u3002\uff01\uff1f")
    )


def numbers_in(text: str) -> set[str]:
    """The numbers of a text in plain form, number words among them; the parts of dates and times
    count too."""
    found: set[str] = set()
    for one in _NUMBER.finditer(text):
        number = _digits(one[0])
        found.add(number)
        found.add(number.replace(",", "").replace("'", ""))
        if re.search(r"[-/:]", number):
            found.update(part.lstrip("0") or "0" for part in re.split(r"\D+", number) if part)
    for word in re.findall(r"[^\W\d_]+", text.lower()):
        if word in NUMBER_WORDS:
            found.add(NUMBER_WORDS[word])
    return found


def names_in(text: str) -> list[str]:
    """Capitalised words that do not begin a sentence, in order."""
    found: list[str] = []
    for sentence in sentences(text):
        words = [(one.start(), one.end(), one[0].strip(_EDGE)) for one in _WORD.finditer(sentence)]
        found.extend(words[one.start][2] for one in _names(words, True))
    return found


def is_negated(text: str) -> bool:
    """Whether a negation that says something stands in the text."""
    return _NOT.search(_WEAK_NOT.sub(" ", _straight(text))) is not None


def without_not(text: str) -> str:
    """The text without its negations."""
    return _NOT.sub(" ", _straight(text))


def content_words(text: str) -> list[str]:
    """The case-folded words of at least three letters, and the numbers."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return [one for one in re.findall(r"\w+", folded) if len(one) > 2 or not one.isascii()]


def _leans(piece: str) -> bool:
    """Whether a piece is too short to stand alone, but says something: a number, or a *not*."""
    if len(piece.split()) >= _MIN_WORDS or not piece.isascii():
        return False
    return any(one.isdigit() for one in piece) or _NOT.search(piece) is not None


def _goes_on(before: str, piece: str) -> bool:
    """Whether a short piece goes on with a name or an address, as in *Elm Street 12, Springfield*;
    after other words it is somebody spoken to."""
    words = piece.split()
    if not 0 < len(words) < _MIN_WORDS or not _is_name(words[0].strip(_EDGE)) or not before.split():
        return False
    last = before.split()[-1].strip(_EDGE)
    return last[:1].isupper() or last[-1:].isdecimal()


def _straight(text: str) -> str:
    return text.replace("\u2019", "'").replace("\u2018", "'")


def _digits(number: str) -> str:
    if number.isascii():
        return number
    return "".join(
        str(unicodedata.decimal(one)) if one.isdecimal() else unicodedata.normalize("NFKC", one)
        for one in number
    )


def _plain_triggers(words: Sequence[tuple[int, int, str]]) -> list[Trigger]:
    found: list[Trigger] = []
    for place, (_, _, word) in enumerate(words):
        low = word.lower()
        after = words[place + 1][2].lower() if place + 1 < len(words) else ""
        if any(one.isdecimal() for one in word) and (len(words) > 1 or len(word) > 1):
            found.append(Trigger(_number_kind(word, after), place, place + 1))
        elif low in NUMBER_WORDS and after:
            found.append(Trigger("amount" if after in _UNITS else "number", place, place + 1))
        elif low in _DAYS or (low in _MONTHS and word[:1].isupper() and len(low) > 2):
            found.append(Trigger("date", place, place + 1))
        elif any(unicodedata.category(one) == "Sc" for one in word):
            found.append(Trigger("amount", place, place + 1))
    return found


def _only_calls(words: Sequence[tuple[int, int, str]], names: Sequence[Trigger]) -> bool:
    """Whether a clause says nothing but a name, as in *thanks, Anna*."""
    named = {one.start for one in names}
    rest = [
        word
        for place, (_, _, word) in enumerate(words)
        if place not in named and word.lower() not in _LEAD
    ]
    return len(rest) < 2


def _number_kind(word: str, after: str) -> KeyFactKind:
    if after in _UNITS or "%" in word or any(unicodedata.category(one) == "Sc" for one in word):
        return "amount"
    if _TIME.fullmatch(_digits(word)) or after in ("am", "pm", "o'clock") or after in _MONTHS:
        return "date"
    return "number"


def _names(words: Sequence[tuple[int, int, str]], first: bool) -> list[Trigger]:
    """Capitalised words; where most words are (German, titles), only runs of two and more."""
    inner = [place for place in range(len(words)) if place > 0 or not first]
    capital = [place for place in inner if _is_name(words[place][2])]
    crowded = len(capital) >= 3 and len(capital) * 3 > len(inner)
    if words and first and _is_name(words[0][2]) and len(words) > 1 and _is_name(words[1][2]):
        capital.insert(0, 0)
    if crowded:
        runs = set(capital)
        capital = [place for place in capital if runs & {place - 1, place + 1}]
    return [Trigger("name", place, place + 1) for place in capital]


def _is_name(word: str) -> bool:
    low = _straight(word).lower()
    if len(word) < 2 or not (word[0].isupper() or word[0].istitle()):
        return False
    known = low in _NOT_NAMES or low in _MONTHS or low in _DAYS or low in NUMBER_WORDS
    return not known and not any(one.isdecimal() for one in word)


def _marked(text: str, words: Sequence[tuple[int, int, str]]) -> list[Trigger]:
    straight = _straight(text)
    spans: list[tuple[KeyFactKind, int, int]] = [
        (kind, one.start(), one.end()) for kind, mark in _MARKS for one in mark.finditer(straight)
    ]
    without_weak = _WEAK_NOT.sub(lambda one: " " * len(one[0]), straight)
    spans.extend(("negation", one.start(), one.end()) for one in _NOT.finditer(without_weak))
    found: list[Trigger] = []
    for kind, start, end in spans:
        touched = [n for n, (a, b, _) in enumerate(words) if a < end and b > start]
        if touched:
            found.append(Trigger(kind, touched[0], touched[-1] + 1))
    return found
