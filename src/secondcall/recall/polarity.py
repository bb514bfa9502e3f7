"""What a text is for and against: actions and attitudes with their opposites, read from structure.

Pure. The words are kept in ``data/opposites.txt``; what turns them round is read from the sentence:
negators up to the next action, twice is none; "don't forget to" is no negation; "used to love" is
over; a noun ("my booking") is no action. English only: other texts are for and against nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from secondcall.recall.analyze import is_stop_word, stem
from secondcall.recall.opposites import PARTICLES, Form, lexicon

__all__ = [
    "STRENGTH",
    "Stance",
    "attitude_words",
    "intent",
    "looks_further",
    "may_deny",
    "opposition",
    "stance",
]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


STRENGTH = 1.0
"""What standing for the opposite takes from a score: as much as a full match of words gives."""
_LIKELY = 0.6
"""What it counts when only being for or against is opposite, in different kinds of action."""
_GENERAL = "*"
_ATTITUDE = "like-dislike"
_MAX_CHARACTERS = 1_200
_REACH = 7
_ANY = "_"
_WORD = "~"
"""Begins the name of a kind that is a word and its denial: "working", "not working"."""
_DENIED_WORDS = 4
_DERIVED = 2
"""The sign of a word that is only read from another's prefix."""
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
    "is are am was were do does did can could may might will would has have had should shall "
    "isn't aren't wasn't weren't don't doesn't didn't can't couldn't won't wouldn't hasn't "
    "haven't hadn't shouldn't"
)
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
_REQUESTS = _words("can could would will")
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

Stance = Mapping[str, int]
"""By kind, above 0 for its first side, below for the other, 0 for both."""


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
    signs, loose, _ = _signs(_uninverted(tokens))
    if either:
        signs = [
            (kind, sign)
            for kind, sign in signs
            if kind not in _ASKED and not kind.startswith(_WORD)
        ]
    if loose and not any(not kind.startswith(_WORD) for kind, _ in signs):
        signs = [*signs, (_GENERAL, -1)]
    return _joined(signs)


def _uninverted(tokens: Sequence[str]) -> list[str]:
    """ "What can't I stand" as "what I can't stand"."""
    found = list(tokens)
    for place in range(len(found) - 1):
        if found[place] in _AUXILIARIES and found[place + 1] in _PRONOUNS:
            found[place], found[place + 1] = found[place + 1], found[place]
    return found


def attitude_words(wanted: Stance) -> Sequence[str]:
    """Words by which somebody says the liking or disliking that a question asks for."""
    sign = wanted.get(_ATTITUDE, 0)
    return lexicon().single.get((_ATTITUDE, sign), ()) if sign else ()


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


def looks_further(wanted: Stance) -> bool:
    """Whether a question asks for one side of something, so that more than it takes should be
    compared: not when all it has are plain words."""
    return any(not kind.startswith(_WORD) or sign < 0 for kind, sign in wanted.items())


def stance(text: str, wanted: Stance) -> Stance:
    """What a text is for and against where it speaks of what is asked for: in the sentences that
    share a word with the question, or in all of them when none does."""
    sentences = _sentences(text)
    near = [
        signs for signs in sentences if any(kind in wanted for kind, _ in signs if kind[0] == _WORD)
    ]
    return _joined([one for signs in near or sentences for one in signs])


@lru_cache(maxsize=4_096)
def _sentences(text: str) -> Sequence[Sequence[tuple[str, int]]]:
    """The signs of each sentence; none of a text too long to be for or against something."""
    if len(text) > _MAX_CHARACTERS:
        return ()
    found: list[list[tuple[str, int]]] = []
    for one in _SENTENCE.split(text):
        signs, _, denied = _signs(_tokens(one))
        found.append([*signs, *denied])
    return found


def opposition(wanted: Stance, found: Stance) -> float:
    """How far what was found stands against what is wanted: 1 for the opposite side of a kind, less
    for being against the same thing instead of for it; 0 when any kind agrees, or nothing compares.
    """
    compared = {
        kind: sign * found.get(kind, 0) for kind, sign in wanted.items() if kind != _GENERAL
    }
    kinds = [one for kind, one in compared.items() if one and not kind.startswith(_WORD)]
    if kinds:
        return 0.0 if max(kinds) > 0 else 1.0
    shared = [one for kind, one in compared.items() if one and kind.startswith(_WORD)]
    if shared and min(shared) < 0:
        return 1.0
    words = [one for kind, one in wanted.items() if abs(one) == 1 and kind.startswith(_WORD)]
    same = shared and 2 * len(shared) >= len(words)
    general = wanted.get(_GENERAL, 0) * found.get(_GENERAL, 0)
    return _LIKELY if same and general < 0 else 0.0


def _joined(signs: Sequence[tuple[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    general = lexicon().general
    for kind, sign in signs:
        for name in (kind, _GENERAL) if kind in general else (kind,):
            found[name] = sign if found.get(name, sign) * sign > 0 else 0
    return found


def _tokens(text: str) -> list[str]:
    plain = text.lower().replace("\u2019", "'")
    plain = plain.replace("anything but", "not").replace("nothing but", "only")
    return _TOKEN.findall(plain)


def _signs(
    tokens: Sequence[str],
) -> tuple[list[tuple[str, int]], bool, list[tuple[str, int]]]:
    """The sides that the clauses take, whether a negation was left that turns no action, and the
    words of the actions that are denied: "won't pay for it" against "what will they pay?"."""
    found: list[tuple[str, int]] = []
    denied: list[tuple[str, int]] = []
    loose = False
    for clause in _clauses(tokens):
        actions, plain, left = _actions(clause)
        loose |= left
        found += _led(clause, actions)
        found += _plain_words(clause, plain)
        words = (clause[action.place] for action in actions if action.turned)
        denied += [(f"{_WORD}{stem(word)}", -1) for word in words if not is_stop_word(word)]
    return found, loose, denied


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
    """The sides of the actions, where one leads to the next: "I don't want to cancel" keeps."""
    found: list[tuple[str, int]] = []
    turn = 1
    for action, following in zip(actions, [*actions[1:], None], strict=False):
        sign = -turn if action.turned else turn
        turn = 1
        leading = next((side for kind, side in action.sides if kind in _LEADING), 0)
        wanting = any(kind == "want-refuse" for kind, _ in action.sides)
        if (
            leading
            and following is not None
            and _leads(clause, action.place, following.place, wanting)
        ):
            turn = sign * leading
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
    found = [(f"{_WORD}{stem(word)}", 1)]
    for prefix, other in _PREFIXES:
        if word.startswith(prefix) and len(word) - len(prefix) >= _LEAST_LETTERS:
            found.append((f"{_WORD}{stem(other + word[len(prefix) :])}", -_DERIVED))
    return found


def _asks_how(clause: Sequence[str], place: int) -> bool:
    return place > 0 and clause[place - 1] == "how"


def _denies(clause: Sequence[str], place: int) -> bool:
    word, before = clause[place], clause[place - 1] if place else ""
    return (
        word in ("not", "never", "cannot", "longer", "without")
        or word.endswith("n't")
        or (before, word) in (("instead", "of"), ("rather", "than"))
    )


def _form_at(clause: Sequence[str], place: int) -> tuple[Sequence[tuple[str, int]], int]:
    """The sides of the longest form that begins here, and how many words it takes, or 0."""
    for form in lexicon().forms.get(clause[place], ()):
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
    if len(following) == len(rest) and all(
        one in (other, _ANY) for one, other in zip(rest, following, strict=True)
    ):
        return 1 + len(rest)
    parted = len(rest) == 1 and form.sides and rest[0] in PARTICLES
    return int(bool(parted) and rest[0] in clause[place + 2 : place + 2 + _GAP])


def _compares(clause: Sequence[str], place: int) -> bool:
    """Whether "like" or "without" compares or says how: "like that", "without asking"."""
    word, before = clause[place], clause[place - 1] if place else ""
    if word == "like":
        return before not in _BEFORE_LIKE and not before.endswith("n't")
    return word == "without" and any(one.endswith("ing") for one in clause[place + 1 : place + 2])


def _is_noun(clause: Sequence[str], place: int) -> bool:
    """Whether a word stands as a noun: "my order", "the noodle order was late"."""
    word, before = clause[place], clause[place - 1] if place else ""
    if before in _NOUN_SIGNS:
        return True
    after = clause[place + 1] if place + 1 < len(clause) else ""
    farther = set(clause[max(0, place - 3) : max(0, place - 1)])
    return (
        not word.endswith(("ed", "ing"))
        and before not in _VERB_SIGNS
        and after not in _NOUN_SIGNS | _PRONOUNS | {"to", "that", "me", "him", "them", "us"}
        and bool(_NOUN_SIGNS & farther)
        and not _PRONOUNS & farther
    )
