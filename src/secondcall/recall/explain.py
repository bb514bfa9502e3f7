"""How a question was read, and what of it stands in an item, for ``explain=True``. Pure.

All words in it are the question's own; nothing of the record is shown beside the names of speakers
whom the question names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from secondcall.recall.analyze import term_hash, terms
from secondcall.recall.polarity import intent
from secondcall.recall.times import TimeHint

if TYPE_CHECKING:
    from secondcall.recall.query import Query
    from secondcall.recall.rank import Postings
    from secondcall.types import JsonValue

__all__ = ["matched", "reading"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_WORDS = 64


def reading(query: Query, postings: Mapping[int, Postings]) -> dict[str, JsonValue]:
    """What a question was taken to ask: words that the record knows and others, who, when, and
    for what."""
    words = list(dict.fromkeys(terms(query.text)))[:_MOST_WORDS]
    known = [word for word in words if term_hash(word) in postings]
    return {
        "words": [*known],
        "unknown_words": [word for word in words if word not in known],
        "role": query.role,
        "speakers": [*sorted(query.speakers)],
        "times": [*map(_time, query.times)],
        "conversation": None if query.talk is None else _talk(query.talk.back, query.talk.since),
        "measured_from_events": len(query.anchors),
        "asks_for": {
            kind: "+" if sign > 0 else "-"
            for kind, sign in intent(query.text).items()
            if sign and not kind.startswith("~")
        },
    }


def matched(query: str, text: str) -> Sequence[str]:
    """The terms of a question that stand in a text, in the question's order."""
    there = set(terms(text))
    return [term for term in dict.fromkeys(terms(query)) if term in there][:_MOST_WORDS]


def _time(hint: TimeHint) -> dict[str, JsonValue]:
    return {"from": _iso(hint.start_us), "until": _iso(hint.end_us), "any_year": hint.month}


def _iso(at_us: int) -> str | None:
    try:
        return (_EPOCH + timedelta(microseconds=at_us)).isoformat()
    except OverflowError:
        return None


def _talk(back: int, since: bool) -> str:
    named = "the first" if back == 0 else f"{back} before now"
    return f"since {named}" if since else named
