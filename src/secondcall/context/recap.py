"""The recap: who, what was asked, decided, promised, left open; in at most 80 tokens. Pure.

Without a model it is made of sentences of the conversation, word for word and in quotation marks,
chosen by these rules:

* *asked*: the user's first substantial sentence that asks for something, else (as *said*) the
  first one;
* *decided*, *promised*, *open*: the sentences behind the decisions, promises and issues that were
  told as facts; where none were, the user's last words that settle something, the assistant's
  promises (those with a date or an amount first) and a last question that got no answer;
* *noted*: the user's last further sentence with a number, an amount or a date;
* *who*: a sentence in which the user says who is speaking.

The first of each of *asked, promised, decided, open* are put in, as long as all of them can be,
and then the others by weight until the tokens are used. What is too long is cut at a word and says
so by "…", unless the part cut off holds a "not" or its like: then it is left out.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from secondcall.context import clauses
from secondcall.context.clauses import Sentence
from secondcall.context.render import quote
from secondcall.facts.chain import stands
from secondcall.shortterm.wording import content_words, is_negated
from secondcall.types import Fact, ItemKey, Recap, RecapKind, RecapPart

if TYPE_CHECKING:
    from secondcall.abc import TokenCounter
    from secondcall.types import RecordedItem, SessionSummary

__all__ = [
    "MAX_TOKENS",
    "RULES",
    "Clause",
    "compose_recap",
    "pick",
    "recap_of",
    "shown_recap",
    "told_in",
]

MAX_TOKENS = 80
RULES = 2
"""The version of the rules: a recap made by others is made anew."""
_MAX_CHARACTERS, _MIN_CHARACTERS = 160, 24
_SPEAKER_CHARACTERS = 40
_SHORTER = (160, 120, 90, 68, 51, 38)
_WEIGHTY: Sequence[RecapKind] = ("asked", "promised", "decided", "open")
"""A recap without one of these, where there is one, says something else."""
_AFTER = timedelta(minutes=1)
"""A fact without sources belongs to a session if it was told no later than so after its end."""
_SHOWN: Mapping[RecapKind, int] = {
    "asked": 1, "promised": 2, "decided": 2, "open": 2, "noted": 1, "who": 1
}  # fmt: skip
"""By weight: how many clauses of each kind a recap has at most."""
_ORDER: Sequence[RecapKind] = ("who", "asked", "noted", "decided", "promised", "open")
_VERBS: Mapping[RecapKind, str] = {
    "who": "said",
    "asked": "asked",
    "noted": "said",
    "decided": "decided",
    "promised": "promised",
    "open": "left open",
}
_TURNS = frozenset(
    ("but", "only", "except", "unless", "instead", "until", "if", "rather", "no", "wait")
)
"""Words that turn a statement round: what they stand in is not cut off."""
_KINDS: Mapping[str, RecapKind] = {"decision": "decided", "promise": "promised", "issue": "open"}


@dataclass(frozen=True, slots=True)
class Clause:
    """Words that may go into a recap: of an item (``source``), or of a fact that names none."""

    kind: RecapKind
    words: str
    who: str = ""
    source: ItemKey | None = None
    fact_id: str | None = None

    def render(self, words: str) -> str:
        """The clause with these of its words: who did what, and the quotation."""
        request = self.kind != "asked" or clauses.is_request(self.words)
        verb = _VERBS[self.kind] if request else "said"
        cut = "" if words == self.words else "…"
        who = "" if self.kind == "open" or not self.who else f"{self.who} "
        return f"{who}{verb} {quote(words)}{cut}"


def compose_recap(
    session: SessionSummary,
    items: Sequence[RecordedItem],
    facts: Iterable[Fact],
    *,
    counter: TokenCounter,
    made_at: datetime,
    max_tokens: int = MAX_TOKENS,
) -> Recap:
    """The recap of a session from its items in reading order and the facts told in it.

    Its text has at most ``max_tokens`` and is empty when nothing was said that is worth it.
    """
    return recap_of(
        session,
        pick(session, items, facts, now=made_at),
        counter=counter,
        made_at=made_at,
        max_tokens=max_tokens,
    )


def recap_of(
    session: SessionSummary,
    found: Sequence[Clause],
    *,
    counter: TokenCounter,
    made_at: datetime,
    max_tokens: int,
) -> Recap:
    """The recap from the clauses of ``pick``."""
    chosen = _weighty(found, counter, max_tokens)
    taken = [clause for clause, _ in chosen]
    for kind, most in _SHOWN.items():
        for clause in [one for one in found if one.kind == kind][:most]:
            words = None if clause in taken else _fitting(chosen, clause, counter, max_tokens)
            if words is not None:
                chosen.append((clause, words))
    parts = [
        RecapPart(
            kind=clause.kind,
            text=clause.render(words),
            sources=() if clause.source is None else (clause.source,),
            fact_id=clause.fact_id,
        )
        for clause, words in _in_order(chosen)
    ]
    return Recap(
        user_id=session.user_id,
        session_id=session.session_id,
        first_at=session.first_at,
        last_at=session.last_at,
        items=session.items,
        made_at=made_at,
        parts=tuple(parts),
        **_resting(parts),
    )


def pick(
    session: SessionSummary,
    items: Sequence[RecordedItem],
    facts: Iterable[Fact],
    *,
    now: datetime,
) -> list[Clause]:
    """The clauses that a recap can be made of, of each kind the weightiest first."""
    said = clauses.sentences_of(items)
    by_source: dict[ItemKey, list[Sentence]] = {}
    for sentence in said:
        by_source.setdefault(sentence.source, []).append(sentence)
    told = [fact for fact in told_in(session, facts) if stands(fact, now)]
    there = {item.key for item in items}
    found = [_of_fact(fact, by_source, there) for fact in told]
    kinds = {clause.kind for clause in found}
    found.extend(clause for clause in _by_cues(said) if clause.kind not in kinds)
    seen: set[tuple[str, ...]] = set()
    unique: list[Clause] = []
    for kind in _SHOWN:
        for clause in found:
            words = tuple(clauses.words_in(clause.words))
            if clause.kind == kind and words and words not in seen:
                seen.add(words)
                unique.append(clause)
    return unique


def told_in(session: SessionSummary, facts: Iterable[Fact]) -> list[Fact]:
    """The decisions, promises and issues that rest on items of the session, or name no source and
    were told while it went on; the newest first."""
    mine = (session.user_id, session.session_id)
    found = [
        fact
        for fact in facts
        if fact.kind in _KINDS
        and (
            any(source[:2] == mine for source in fact.sources)
            if fact.sources
            else session.first_at <= fact.recorded_at <= session.last_at + _AFTER
        )
    ]
    return sorted(found, key=lambda fact: (fact.recorded_at, fact.id), reverse=True)


def shown_recap(
    recap: Recap,
    *,
    intact: Collection[ItemKey],
    hidden: Collection[ItemKey],
    facts: Mapping[str, bool],
    over: Mapping[ItemKey, str] | None = None,
) -> tuple[Recap | None, bool]:
    """What of a recap holds and may be shown, and whether something of it was withheld.

    ``intact`` are the sources that are as they were when it was made, ``hidden`` the items and
    ``facts`` the standing facts by id with whether the caller may see them. Of the items ``over``
    what they state is settled or has ended: the clause says how, or goes if it calls it open.
    """
    ended = over or {}

    def holds(sources: Sequence[ItemKey], ids: Sequence[str]) -> bool:
        return all(one in intact for one in sources) and all(one in facts for one in ids)

    def seen(sources: Sequence[ItemKey], ids: Sequence[str]) -> bool:
        return not any(one in hidden for one in sources) and all(facts[one] for one in ids)

    def ids(part: RecapPart) -> Sequence[str]:
        return () if part.fact_id is None else (part.fact_id,)

    whole = holds(recap.sources, recap.facts)
    open_to = whole and seen(recap.sources, recap.facts)
    if open_to and not any(one in ended for one in recap.sources):
        return (recap if recap.text else None), False
    true = [part for part in recap.parts if holds(part.sources, ids(part))]
    shown = [part for part in true if seen(part.sources, ids(part))]
    withheld = (whole and not open_to) or len(shown) < len(true)
    shown = [one for part in shown if (one := _as_it_ended(part, ended)) is not None]
    if not shown:
        return None, withheld
    return replace(recap, made_by="rules", parts=tuple(shown), **_resting(shown)), withheld


def _as_it_ended(part: RecapPart, over: Mapping[ItemKey, str]) -> RecapPart | None:
    """The clause with what became of what its words state; ``None`` for one that is not open any
    more."""
    notes = list(dict.fromkeys(over[source] for source in part.sources if source in over))
    if not notes:
        return part
    if part.kind == "open":
        return None
    return replace(part, text=f"{part.text} ({quote('; '.join(notes))[1:-1]})")


def _resting(parts: Sequence[RecapPart]) -> dict[str, Any]:
    return {
        "text": "; ".join(part.text for part in parts),
        "sources": tuple(dict.fromkeys(key for part in parts for key in part.sources)),
        "facts": tuple(dict.fromkeys(part.fact_id for part in parts if part.fact_id is not None)),
    }


def _in_order(chosen: Iterable[tuple[Clause, str]]) -> list[tuple[Clause, str]]:
    return sorted(chosen, key=lambda one: _ORDER.index(one[0].kind))


def _weighty(
    found: Sequence[Clause], counter: TokenCounter, max_tokens: int
) -> list[tuple[Clause, str]]:
    """The first clause of each weighty kind, no longer than lets most of them in."""
    first = [next((one for one in found if one.kind == kind), None) for kind in _WEIGHTY]
    wanted = [one for one in first if one is not None]
    best: list[tuple[Clause, str]] = []
    for most in _SHORTER:
        chosen: list[tuple[Clause, str]] = []
        for clause in wanted:
            words = _fitting(chosen, clause, counter, max_tokens, most)
            if words is None:  # it cannot be cut so short; it may be whole
                words = _fitting(chosen, clause, counter, max_tokens)
            if words is not None:
                chosen.append((clause, words))
        if len(chosen) > len(best):
            best = chosen
        if len(best) == len(wanted):
            break
    return best


def _fitting(
    chosen: Sequence[tuple[Clause, str]],
    clause: Clause,
    counter: TokenCounter,
    max_tokens: int,
    most: int = _MAX_CHARACTERS,
) -> str | None:
    """As many of the clause's words as fit beside those chosen before."""
    while most >= _MIN_CHARACTERS:
        words = _cut(clause.words, most)
        if words is None:
            return None
        together = _in_order([*chosen, (clause, words)])
        text = "; ".join(one.render(its_words) for one, its_words in together)
        if counter.count(text) <= max_tokens:
            return words
        most = min(most, len(words)) * 3 // 4
    return None


def _cut(words: str, most: int) -> str | None:
    """The beginning of ``words`` up to a word's end; ``None`` when what goes turns it round."""
    if len(words) <= most:
        return words
    kept = words[: most + 1].rpartition(" ")[0] if " " in words[: most + 1] else words[:most]
    kept = kept.rstrip(" ,;:-–")
    rest = words[len(kept) :]
    turned = is_negated(rest) or any(one in _TURNS for one in clauses.words_in(rest))
    return None if turned or len(kept) < _MIN_CHARACTERS else kept


def _of_fact(
    fact: Fact, by_source: Mapping[ItemKey, Sequence[Sentence]], there: Collection[ItemKey]
) -> Clause:
    """The sentence that the fact rests on: of its sources' the one that shares most words."""
    value = fact.value if isinstance(fact.value, str) else json.dumps(fact.value)
    wanted = set(content_words(f"{fact.predicate} {value}"))
    best: tuple[int, int, Sentence] | None = None
    for source in fact.sources:
        for sentence in by_source.get(source, ()):
            shared = len(wanted.intersection(content_words(sentence.text)))
            if shared and (best is None or (shared, -sentence.order) > best[:2]):
                best = (shared, -sentence.order, sentence)
    kind = _KINDS[fact.kind]
    if best is not None:
        return _clause(kind, best[2], fact.id)
    subject = "" if fact.subject == "user" else f"{fact.subject} "
    source = next((one for one in fact.sources if one in there), None)
    words = " ".join(f"{subject}{fact.predicate}: {value}".split())
    return Clause(kind, words, "", source, fact.id)


def _by_cues(said: Sequence[Sentence]) -> list[Clause]:
    users = [one for one in said if one.role == "user"]
    substantial = [one for one in users if clauses.is_substantial(one.text)]
    found: list[Clause] = []
    asked = next((one for one in substantial if clauses.is_request(one.text)), None) or next(
        (one for one in substantial if not clauses.is_introduction(one.text)), None
    )
    if asked is not None:
        found.append(_clause("asked", asked))
    promised = [
        (clauses.promise_weight(one.text), one.order, one) for one in said if one.role != "user"
    ]
    promised = sorted((one for one in promised if one[0]), reverse=True, key=lambda one: one[:2])
    found.extend(_clause("promised", one) for _, _, one in promised[:3])
    decided = [one for one in users if clauses.is_decision(one.text)]
    found.extend(_clause("decided", one) for one in reversed(decided[-3:]))
    if said and said[-1].role == "user":
        last = [one for one in users if one.source == said[-1].source and "?" in one.text]
        found.extend(_clause("open", one) for one in last[-1:])
    noted = [one for one in substantial if clauses.has_amount(one.text)]
    found.extend(_clause("noted", one) for one in reversed(noted[-3:]))
    found.extend(_clause("who", one) for one in users if clauses.is_introduction(one.text))
    return found


def _clause(kind: RecapKind, sentence: Sentence, fact_id: str | None = None) -> Clause:
    speaker = sentence.speaker
    who = (
        sentence.role
        if speaker is None
        else f"{sentence.role} {quote(speaker[:_SPEAKER_CHARACTERS])}"
    )
    return Clause(kind, sentence.text, who, sentence.source, fact_id)
