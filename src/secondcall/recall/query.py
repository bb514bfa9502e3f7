"""What a question asks for: words, who said it, and when.

Everything here is a hint that moves scores a little; nothing is filtered out by it. English only
for now: in other languages the words still work and the hints stay silent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Literal

from secondcall.recall.analyze import Analyzer, term_hash, terms
from secondcall.recall.opposites import attitude_words
from secondcall.recall.polarity import intent, looks_further
from secondcall.recall.related import NEAREST, RELATED, related
from secondcall.recall.talks import Talk, anchors, order, talk, without_times
from secondcall.recall.times import TimeHint, time_hints

__all__ = ["Query", "parse"]

_MAX_CHARACTERS = 16_384
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_RELATED = 64
"""Of a long question so many terms are looked up for others near to them."""
_SAYING = (
    r"(?:said|say|told|tell|suggest|recommend|mention|gave|give|provid|list|explain|describ|advis|"
    r"propos|wrote|write|offer|share|outlin|creat|made|come up|came up|help|quot|promis)"
)
_ASSISTANT = re.compile(
    rf"\byou(?:'ve|'d)?(?: \w+){{0,2}}? {_SAYING}\w*|\byour (?:\w+ )?(?:suggest|recommend|advice|"
    rf"answer|response|list|tip|explanation|promise)\w*|\bour (?:previous|last|earlier|past) "
    rf"(?:chat|conversation|discussion)|\bremind me\b",
    re.IGNORECASE,
)
_USER = re.compile(r"\b(?:I|me|my|mine|myself|I'm|I've|I'd|we|our|us)\b", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]+")
_PAST = re.compile(r"\b(?:did|was|were|had|used to)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A question taken apart. ``hashes`` are its distinct terms without the speakers' names,
    ``related`` the terms near to one of them, with how near (0.5 to 1), ``near`` the nearest four
    of each (from 0.4 on) where named people talk."""

    text: str
    hashes: Sequence[int]
    related: Mapping[int, Sequence[tuple[int, float]]]
    role: Literal["user", "assistant"] | None
    speakers: frozenset[str]
    times: Sequence[TimeHint]
    at_us: int = 0
    talk: Talk | None = None
    anchors: Sequence[tuple[Literal["before", "after"], Sequence[int]]] = ()
    order: Literal["first", "last"] | None = None
    beside: frozenset[int] = frozenset()
    """The terms beside those that name a time."""
    near: Mapping[int, Sequence[tuple[int, float]]] = field(
        default_factory=dict[int, Sequence[tuple[int, float]]]
    )
    attitude: Sequence[int] = ()
    """The terms that say the liking or disliking that is asked for."""

    @property
    def about_now(self) -> bool:
        """Whether it names no time, and asks neither for the first of several nor for what somebody
        did: "when did I cancel it?" is answered by the cancelling, however old."""
        spoken = self.talk is not None and not self.talk.since
        before = any(side == "before" for side, _ in self.anchors)
        did = _PAST.search(self.text) is not None and looks_further(intent(self.text))
        event = did and self.order != "last"
        return not (self.times or spoken or before or event or self.order == "first")

    @property
    def all_hashes(self) -> Sequence[int]:
        """The terms to look up: its own, then those that are only near."""
        several = (*self.related.values(), *self.near.values())
        near = (other for others in several for other, _ in others)
        return list(dict.fromkeys((*self.hashes, *near, *self.attitude)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """What a question says, whoever talks in the record."""

    words: frozenset[str]
    hashes: Sequence[int]
    role: Literal["user", "assistant"] | None
    times: Sequence[TimeHint]
    talk: Talk | None
    anchors: Sequence[tuple[Literal["before", "after"], Sequence[int]]]
    order: Literal["first", "last"] | None
    beside: frozenset[int]
    attitude: Sequence[int]


def parse(text: str, *, at: datetime, speakers: Sequence[str], analyzer: Analyzer) -> Query:
    """Takes a question apart, as asked at ``at``, in its time zone, of a record in which
    ``speakers`` talk.

    Of a text over 16,384 characters the beginning and the end count, half each.
    """
    clamped = _clamp(text)
    reading = _read(clamped, at, at.tzinfo, analyzer)
    named, cut = _named(reading.words, speakers)
    kept = [name for name in reading.hashes if name not in cut] or reading.hashes
    others = related(kept[:_MAX_RELATED])
    people = sum(map(bool, speakers)) > 1
    return Query(
        text=clamped,
        hashes=kept,
        related=_from(RELATED, others),
        near={term: several[:NEAREST] for term, several in others.items()} if people else {},
        role=reading.role,
        speakers=named,
        times=reading.times,
        at_us=(at - _EPOCH) // timedelta(microseconds=1),
        talk=reading.talk,
        anchors=reading.anchors,
        order=reading.order,
        beside=reading.beside,
        attitude=reading.attitude,
    )


@lru_cache(maxsize=64)
def _read(text: str, at: datetime, _zone: tzinfo | None, analyzer: Analyzer) -> _Reading:
    # Record and facts are asked the same. Equal moments in two zones are equal, but "yesterday" is
    # not the same day there.
    return _Reading(
        words=frozenset(_WORD.findall(text.casefold())),
        hashes=list(dict.fromkeys(analyzer.hashes(text))),
        role=_role(text),
        times=time_hints(text, at=at),
        talk=talk(text),
        anchors=[(one.side, analyzer.hashes(one.words)) for one in anchors(text)],
        order=order(text),
        beside=frozenset(analyzer.hashes(without_times(text, at=at))),
        attitude=_attitude(text, analyzer),
    )


def _from(
    least: float, others: Mapping[int, Sequence[tuple[int, float]]]
) -> dict[int, Sequence[tuple[int, float]]]:
    """The others that are so near at least, of the terms that have any."""
    found = {term: [one for one in several if one[1] >= least] for term, several in others.items()}
    return {term: several for term, several in found.items() if several}


def _attitude(text: str, analyzer: Analyzer) -> Sequence[int]:
    words = attitude_words(intent(text))
    return list(dict.fromkeys(analyzer.hashes(" ".join(words)))) if words else ()


def _clamp(text: str) -> str:
    if len(text) <= _MAX_CHARACTERS:
        return text
    half = _MAX_CHARACTERS // 2
    return f"{text[:half]} {text[-half:]}"


def _role(text: str) -> Literal["user", "assistant"] | None:
    if _ASSISTANT.search(text):
        return "assistant"
    return "user" if _USER.search(text) else None


def _named(words: frozenset[str], speakers: Sequence[str]) -> tuple[frozenset[str], frozenset[int]]:
    found = {name for name in speakers if not words.isdisjoint(_WORD.findall(name.casefold()))}
    if not found:
        return frozenset(), frozenset()
    return frozenset(found), frozenset(map(term_hash, terms(" ".join(found))))
