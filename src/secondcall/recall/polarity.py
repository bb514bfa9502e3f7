"""What a text is for and against: actions and attitudes with their opposites, read from structure.

Pure. The words are kept in ``data/opposites.txt``; what turns them round is read from the sentence:
negators up to the next action, twice is none; "don't forget to" is no negation; "used to love" is
over; a noun ("my booking") is no action. English only: other texts are for and against nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from secondcall.recall.analyze import is_stop_word, stem
from secondcall.recall.opposites import ANY, Form, lexicon
from secondcall.recall.sides import GENERAL, WORD, Stance

__all__ = [
    "asks",
    "intent",
    "looks_further",
    "may_deny",
    "speaks_against",
    "stance",
]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MAX_CHARACTERS = 1_200
_REACH = 7
_DENIED_WORDS = 4
_DERIVED = 2
"""The sign of a word that is only read from another's prefix."""
_CATEGORY = 2
"""And that of a word which an answer need not have."""
_DENIES = _words("not never cannot longer without")
_RATHER = {"of": "instead", "than": "rather"}
_CHOOSING = _words("choose chose chosen pick picked prefer preferred take took")
_LEAST_LETTERS = 3
_PREFIXES = (
    ("un", ""), ("dis", ""), ("in", "out"), ("out", "in"), ("im", "ex"), ("ex", "im"),
    ("in", "ex"), ("ex", "in"), ("up", "down"), ("down", "up"), ("in", ""), ("im", ""), ("ir", ""),
    ("non-", ""),
)  # fmt: skip
_GAP = 4


_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_TOKEN = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*|[.!?;,:\u2014\u2013]")
_BREAKS = frozenset(".!?;,:\u2014\u2013") | {
    "but", "although", "though", "because", "while", "whereas", "however", "so", "then", "and",
}  # fmt: skip
_NEGATORS = _words(
    "not no never none nothing nobody neither nor without hardly barely scarcely rarely cannot "
    "dont cant wont didnt doesnt isnt wasnt arent werent wouldnt couldnt shouldnt havent hasnt"
)
_NOUN_SIGNS = _words(
    "a an the my your our his her their its this that these those any no some each every"
)
_BEFORE_LIKE = _words(
    "i you we they he she who to really also do does did not never always still particularly "
    "especially quite actually would'nt both all people folks just"
)
_AUXILIARIES = _words(
    "is are am was were do does did can could may might must will would has have had should shall "
    "isn't aren't wasn't weren't don't doesn't didn't can't couldn't won't wouldn't hasn't "
    "haven't hadn't shouldn't"
)
_AS_IT_IS = _words("is are am has have does do")
"""Begin a question for how it is by now: "it is not" answers it as well as "it is"."""
_FILLERS = _words(
    "um uh er erm hmm so well okay ok hey hi hello like and oh right now listen sorry please "
    "actually basically yeah"
)
_SKIPPED = _FILLERS | _BREAKS
_HEDGES = re.compile(r"\b(?:you know|i mean|sort of|kind of)\b", re.IGNORECASE)
_NEGATION = re.compile(
    r"n['\u2019]t\b|\b(?:not?|never|cannot|without|longer|instead|rather|over)\b"
)
_PREFIXED = re.compile(r"\b(?:un|dis|i[mnr]|ex|out|up|down|non-)\w+")
_QUOTED = re.compile(r"[\"\u201c][^\"\u201d]*[\"\u201d]|(?<!\w)'[^']{3,60}'(?!\w)")
_WHICH = _words("which what whose")
_EVENT = re.compile(
    r"\b(?:when|what|which|where|who|why|how)\b[^?]{0,40}?\b(?:did|was|were|had|have|has)\b",
    re.IGNORECASE,
)
"""Asks for what was the case: of the same thing, what denies it is no answer."""
_REQUESTS = _words("can could would will")
_ASKS_WHERE = _words("where when which who from at on in until with to")
_PERMITS = _words("may can can't cannot mayn't")
_PRONOUNS = _words("i you we they he she it one someone anyone")
_VERB_SIGNS = _PRONOUNS | _AUXILIARIES | {"to", "please", "will", "not", "never"}
_QUESTION_WORDS = _words("what which who whom whose when where why how tell remind find show list")
_LEADING = frozenset({"want-refuse", "remember-forget", "start-stop", "required-optional"})
"""Kinds that lead over to another action: "want to cancel", "forget to pay", "stop sending"."""
_ASKED = frozenset(
    {
        "advise-warn",
        "allow-forbid",
        "cover-exclude",
        "like-dislike",
        "want-refuse",
        "well-broken",
        "safe-risky",
    }
)
"""Kinds of which "is it ...?" asks either way: "it is not" answers as well as "it is"."""


@dataclass(slots=True)
class _Action:
    sides: Sequence[tuple[str, int]]
    place: int
    turned: bool


@lru_cache(maxsize=256)
def intent(question: str) -> Stance:
    """What a question asks for. Whether something is allowed, covered, liked or wanted ("is it
    ...") asks for neither side."""
    tokens = _tokens(_QUOTED.sub(" ", _HEDGES.sub(" ", question)))
    tokens = tokens[next((n for n, word in enumerate(tokens) if word not in _SKIPPED), 0) :]
    if tokens[1:2] == ["you"] and tokens[0] in _REQUESTS:
        return {}
    either = bool(tokens) and tokens[0] in _AUXILIARIES and not _QUESTION_WORDS & set(tokens)
    if either:
        tokens[0] = tokens[0].removesuffix("n't")
    clauses = [_signs(clause) for clause in _clauses(_uninverted(tokens))]
    signs = [sign for found, _, _ in clauses for sign in found]
    loose = any(left for _, left, _ in clauses)
    if either:
        open_kinds = None if tokens[0] in _AS_IT_IS else _ASKED
        signs = [
            (kind, sign)
            for kind, sign in signs
            if open_kinds and kind not in open_kinds and not kind.startswith(WORD)
        ]
    if loose and not any(not kind.startswith(WORD) for kind, _ in signs):
        signs = [*signs, (GENERAL, -1)]
    wanted = _joined([*signs, *_permission(tokens, signs)])
    for name in _asked_kinds_of_thing(tokens):
        if name in wanted:
            wanted[name] *= _CATEGORY
    if _EVENT.search(question) is not None and all(kind.startswith(WORD) for kind in wanted):
        wanted[GENERAL] = 1
    return wanted


def _asked_kinds_of_thing(tokens: Sequence[str]) -> Iterator[str]:
    """The words for the kind of thing that is asked for: an answer to "which drink can't I ...?"
    says "tea", and need not say "drink"."""
    for word, following, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if word in _WHICH and following not in _AUXILIARIES and after in _AUXILIARIES | _PRONOUNS:
            yield f"{WORD}{stem(following)}"


def _permission(
    tokens: Sequence[str], signs: Sequence[tuple[str, int]]
) -> Sequence[tuple[str, int]]:
    """ "When may children go in?", "where can the dog not come?": of somebody else, and when it
    asks for nothing else or denies, it is whether that is allowed."""
    if not tokens or tokens[0] not in _ASKS_WHERE:
        return ()
    acts = any(kind[0] != WORD for kind, _ in signs)
    for place, word in enumerate(tokens[:-1]):
        if word in _PERMITS and tokens[place + 1] not in _PRONOUNS:
            denied = any(_negates(tokens, n) for n in range(place, len(tokens)))
            if denied or not acts:
                return [("allow-forbid", -1 if denied else 1)]
    return ()


def _uninverted(tokens: Sequence[str]) -> list[str]:
    """ "What can't I stand" as "what I can't stand"."""
    found = list(tokens)
    for place in range(len(found) - 1):
        if found[place] in _AUXILIARIES and found[place + 1] in _PRONOUNS:
            found[place], found[place + 1] = found[place + 1], found[place]
    return found


def asks(text: str) -> bool:
    """Whether a text is a question whose answer is yes or no: "can he have breakfast"."""
    if len(text) > _MAX_CHARACTERS:
        return False
    tokens = _tokens(text)
    return not _QUESTION_WORDS & set(tokens) and any(
        word in _AUXILIARIES and following in _PRONOUNS and following != "you"
        for word, following in pairwise(tokens)
    )


def may_deny(text: str, wanted: Stance) -> bool:
    """Whether a wanted word stands shortly after a negation, or a word whose prefix turns one:
    without that no plain word in the text that is wanted is denied."""
    if len(text) > _MAX_CHARACTERS:
        return False
    lowered = text.lower()
    if _NEGATION.search(lowered) is not None and _follows_denial(_tokens(text), wanted):
        return True
    words = _PREFIXED.findall(lowered)
    return any(kind in wanted for word in words for kind, _ in _names(word))


def _follows_denial(tokens: Sequence[str], wanted: Stance) -> bool:
    near = 0
    for place, token in enumerate(tokens):
        if token == "over" or _denies(tokens, place):
            near = _DENIED_WORDS
        elif near:
            near -= 1
            if _names(token)[0][0] in wanted:
                return True
    return False


def speaks_against(text: str, wanted: Stance) -> bool:
    """Whether a clause that shares a word with a question is against something, where the question
    asks for an event: "the kitchen loan was turned down" for "which loan did I get?"."""
    return wanted.get(GENERAL, 0) > 0 and any(
        _joined(clause).get(GENERAL, 0) < 0
        for clauses in _sentences(text)
        for clause in clauses
        if _shares(clause, wanted)
    )


def looks_further(wanted: Stance) -> bool:
    """Whether a question asks for one side of something, so that more than it takes should be
    compared: not when all it has are plain words."""
    return any(sign < 0 or (kind[0] != WORD and kind != GENERAL) for kind, sign in wanted.items())


def stance(text: str, wanted: Stance) -> Stance:
    """What a text is for and against where it speaks of what is asked for: in the sentences that
    share a word with the question (in all of them when none does), and of such a sentence in the
    clauses that do, when these take a side."""
    sentences = _sentences(text)
    near = [clauses for clauses in sentences if any(_shares(one, wanted) for one in clauses)]
    return _joined([sign for clauses in near or sentences for sign in _telling(clauses, wanted)])


def _shares(signs: Sequence[tuple[str, int]], wanted: Stance) -> bool:
    return any(kind in wanted for kind, _ in signs if kind[0] == WORD)


def _telling(
    clauses: Sequence[Sequence[tuple[str, int]]], wanted: Stance
) -> Sequence[tuple[str, int]]:
    """The signs of the clauses of a sentence that decide what it is for and against."""
    near = [sign for one in clauses if _shares(one, wanted) for sign in one]
    if any(kind in wanted for kind, _ in near if kind[0] != WORD):
        return near
    if all(kind.startswith(WORD) for kind, _ in near):
        return [sign for one in clauses for sign in one]
    return [sign for one in clauses for sign in one if sign[0] != GENERAL or _shares(one, wanted)]


@lru_cache(maxsize=4_096)
def _sentences(text: str) -> Sequence[Sequence[Sequence[tuple[str, int]]]]:
    """The signs of each clause, by sentence; none of a text too long to be for or against
    something. A negation that turns no known action is against whatever it is about."""
    if len(text) > _MAX_CHARACTERS:
        return ()
    found: list[list[list[tuple[str, int]]]] = []
    for one in _SENTENCE.split(text):
        clauses: list[list[tuple[str, int]]] = []
        for clause in _clauses(_tokens(one)):
            signs, loose, denied = _signs(clause)
            if loose or denied is not None:
                signs += [*(denied or ()), *_against(signs, loose, denied is not None)]
            clauses.append(signs)
        found.append(clauses)
    return found


def _against(
    signs: Sequence[tuple[str, int]], loose: bool, denied: bool
) -> Sequence[tuple[str, int]]:
    """Against something in general: by a negation that turns nothing else, or by the denial of an
    action that by itself is neither for nor against."""
    acts = any(kind[0] != WORD for kind, _ in signs)
    sided = any(kind == GENERAL or kind in lexicon().general for kind, _ in signs)
    return [(GENERAL, -1)] if (loose and not acts) or (denied and not sided) else []


def _joined(signs: Sequence[tuple[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    general = lexicon().general
    for kind, sign in signs:
        for name in (kind, GENERAL) if kind in general else (kind,):
            found[name] = sign if found.get(name, sign) * sign > 0 else 0
    return found


def _tokens(text: str) -> list[str]:
    plain = text.lower().replace("\u2019", "'")
    plain = plain.replace("anything but", "not").replace("nothing but", "only")
    return _TOKEN.findall(plain)


def _signs(
    clause: Sequence[str],
) -> tuple[list[tuple[str, int]], bool, list[tuple[str, int]] | None]:
    """The sides that a clause takes, whether a negation was left that turns no action, and the
    words of the actions that are denied, if any is: "won't pay for it" against "what will they
    pay?"."""
    actions, plain, loose = _actions(clause)
    found = _led(clause, actions) if actions else []
    found += _plain_words(clause, plain)
    words = [clause[action.place] for action in actions if action.turned]
    denied = [(f"{WORD}{stem(word)}", -1) for word in words if not is_stop_word(word)]
    return found, loose, denied if words else None


def _clauses(tokens: Sequence[str]) -> Iterator[list[str]]:
    clause: list[str] = []
    for token in tokens:
        if token in _BREAKS:
            if clause:
                yield clause
            clause = []
        else:
            clause.append(token)
    if clause:
        yield clause


def _actions(clause: Sequence[str]) -> tuple[list[_Action], list[int], bool]:
    """The actions of a clause in order, each with whether it is negated; the places of the words
    that belong to none; and whether a negation is left."""
    found: list[_Action] = []
    plain: list[int] = []
    negated_at: int | None = None
    place = 0
    while place < len(clause):
        sides, length = _form_at(clause, place)
        if length:
            if sides:
                turned = negated_at is not None and place - negated_at <= _REACH
                found.append(_Action(sides, place, turned))
                negated_at = None
            elif length == 1:
                plain.append(place)
            place += length
            continue
        if _negates(clause, place):
            again = negated_at is not None and place - negated_at <= 3
            negated_at = None if again else place
        plain.append(place)
        place += 1
    left = negated_at is not None and clause[negated_at] != "without"
    return found, plain, left


def _negates(clause: Sequence[str], place: int) -> bool:
    return clause[place] in _NEGATORS or clause[place].endswith("n't")


def _led(clause: Sequence[str], actions: Sequence[_Action]) -> list[tuple[str, int]]:
    """The sides of the actions, where one leads to the next: "I don't want to cancel" keeps. What
    "do not forget to" leads to is spoken for, what "stop" leads to is spoken against."""
    found: list[tuple[str, int]] = []
    turn, led = 1, False
    for action, following in zip(actions, [*actions[1:], None], strict=False):
        sign = -turn if action.turned else turn
        if led and all(kind not in lexicon().general for kind, _ in action.sides):
            found.append((GENERAL, sign))
        turn, led = 1, False
        leading = next((side for kind, side in action.sides if kind in _LEADING), 0)
        wanting = any(kind == "want-refuse" for kind, _ in action.sides)
        if (
            leading
            and following is not None
            and _leads(clause, action.place, following.place, wanting)
        ):
            turn, led = sign * leading, True
            continue
        found += [(kind, side * sign) for kind, side in action.sides]
    return found


def _leads(clause: Sequence[str], place: int, following: int, wanting: bool) -> bool:
    """ "Want to cancel", "stop sending", "want it cancelled", "ask for a refund"."""
    if wanting:
        return following - place <= _REACH
    return following == place + 1 or (
        following - place <= _GAP
        and ("to" in clause[place:following] or clause[following].endswith("ing"))
    )


def _plain_words(clause: Sequence[str], plain: Sequence[int]) -> Iterator[tuple[str, int]]:
    """Every other word with whether it is denied, by "not" or "instead of" just before it or by its
    own prefix."""
    denied, last = -1, -1
    for place in plain:
        word = clause[place]
        if place != last + 1:
            denied = -1  # the negation went to the action between
        last = place
        chosen = word == "over" and not _CHOOSING.isdisjoint(clause[:place])
        if chosen or _denies(clause, place):
            denied = place + _DENIED_WORDS
        elif (
            len(word) >= _LEAST_LETTERS and not is_stop_word(word) and not _asks_how(clause, place)
        ):
            sign = -1 if place <= denied else 1
            denied = -1
            yield from ((name, value * sign) for name, value in _names(word))


@lru_cache(maxsize=8_192)
def _names(word: str) -> Sequence[tuple[str, int]]:
    """The kinds that a word by itself belongs to: its own, and that of what its prefix denies."""
    found = [(f"{WORD}{stem(word)}", 1)]
    for prefix, other in _PREFIXES:
        if word.startswith(prefix) and len(word) - len(prefix) >= _LEAST_LETTERS:
            found.append((f"{WORD}{stem(other + word[len(prefix) :])}", -_DERIVED))
    return found


def _asks_how(clause: Sequence[str], place: int) -> bool:
    return place > 0 and clause[place - 1] == "how"


def _denies(clause: Sequence[str], place: int) -> bool:
    word = clause[place]
    if word in _DENIES or word.endswith("n't"):
        return True
    other = _RATHER.get(word)
    return other is not None and place > 0 and clause[place - 1] == other


def _form_at(clause: Sequence[str], place: int) -> tuple[Sequence[tuple[str, int]], int]:
    """The sides of the longest form that begins here, and how many words it takes, or 0."""
    forms = lexicon().forms.get(clause[place])
    if forms is None:
        return (), 0
    following = clause[place + 1] if place + 1 < len(clause) else ""
    for form in forms:
        if form.rest and form.rest[0] != following and form.rest[0] != ANY:
            length = _apart(form.rest[0], clause, place) if form.parted else 0
        else:
            length = _fits(form, clause, place)
        if length:
            if form.rest:
                return form.sides, length
            if not _compares(clause, place):
                return form.as_noun if _is_noun(clause, place) else form.sides, length
    return (), 0


def _fits(form: Form, clause: Sequence[str], place: int) -> int:
    """How many words from ``place`` on are taken by the form; 0 when it is not there."""
    rest = form.rest
    following = clause[place + 1 : place + 1 + len(rest)]
    whole = len(following) == len(rest) and all(
        one in (other, ANY) for one, other in zip(rest, following, strict=True)
    )
    return 1 + len(rest) if whole else 0


def _apart(particle: str, clause: Sequence[str], place: int) -> int:
    """1 if the particle stands a few words later and belongs to no noun: "the back door"."""
    if particle not in clause:
        return 0
    later = range(place + 2, min(place + 2 + _GAP, len(clause)))
    return int(any(clause[n] == particle and clause[n - 1] not in _NOUN_SIGNS for n in later))


def _compares(clause: Sequence[str], place: int) -> bool:
    """Whether "like" or "without" compares or says how: "like that", "without asking"."""
    word, before = clause[place], clause[place - 1] if place else ""
    if word == "like":
        return before not in _BEFORE_LIKE and not before.endswith("n't")
    return word == "without" and any(one.endswith("ing") for one in clause[place + 1 : place + 2])


def _is_noun(clause: Sequence[str], place: int) -> bool:
    """Whether a word stands as a noun: "my order", "the noodle order was late"."""
    word, before = clause[place], clause[place - 1] if place else ""
    after = clause[place + 1] if place + 1 < len(clause) else ""
    if before in _NOUN_SIGNS or (before in _WHICH and after in _AUXILIARIES | _PRONOUNS):
        return True
    farther = set(clause[max(0, place - 3) : max(0, place - 1)])
    return (
        not word.endswith(("ed", "ing"))
        and before not in _VERB_SIGNS
        and after not in _NOUN_SIGNS | _PRONOUNS | {"to", "that", "me", "him", "them", "us"}
        and bool(_NOUN_SIGNS & farther)
        and not _PRONOUNS & farther
    )
