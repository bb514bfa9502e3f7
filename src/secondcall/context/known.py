"""What is known about a user, ready to be asked: facts searchable, sensitive sources, stale items.

Pure: made from a list of facts whenever they changed, and kept beside the user's open index.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from secondcall.abc import EntryKey
from secondcall.checks import to_us
from secondcall.facts.chain import stands
from secondcall.facts.read import select_at
from secondcall.recall.index import UserIndex
from secondcall.recall.segment import IndexRow
from secondcall.types import Fact, ItemKey, Metadata, RecalledFact

__all__ = ["Known", "know"]


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """A user's facts and what follows from them."""

    facts: Sequence[Fact]
    index: UserIndex
    by_id: Mapping[str, Fact]
    sensitive_items: frozenset[ItemKey]
    stale_items: Mapping[ItemKey, str]

    def search(
        self,
        query: str,
        *,
        at: datetime,
        limit: int,
        sensitive: bool,
        oldest: datetime | None = None,
        kinds: Collection[str] | None = None,
        where: Metadata | None = None,
    ) -> tuple[list[RecalledFact], int]:
        """Facts true at ``at`` that answer ``query``, best first, and how many were withheld.

        Facts recorded before ``oldest`` have run out.
        """
        true_then = {
            fact.id
            for fact in select_at(self.facts, at)
            if (oldest is None or fact.recorded_at >= oldest)
            and (kinds is None or fact.kind in kinds)
        }
        result = self.index.search(query, None, at=at, limit=len(self.facts) or 1, where=where)
        found: list[RecalledFact] = []
        withheld = 0
        for hit in result.hits:
            fact = self.by_id[hit.key.id]
            if fact.id not in true_then:
                continue
            if fact.sensitive and not sensitive:
                withheld += 1
            elif len(found) < limit:
                found.append(RecalledFact(fact=fact, score=hit.score))
        return found, withheld


def know(facts: Iterable[Fact]) -> Known:
    """Make the view of ``facts`` (all that were ever held, ended ones included)."""
    held = list(facts)
    index = UserIndex(embedder_id=None)
    index.add([_row(number, fact) for number, fact in enumerate(held, start=1)], None)
    by_id = {fact.id: fact for fact in held}
    return Known(
        facts=held,
        index=index,
        by_id=by_id,
        sensitive_items=frozenset(
            source for fact in held if fact.sensitive for source in fact.sources
        ),
        stale_items=_stale(held, by_id),
    )


def _row(number: int, fact: Fact) -> IndexRow:
    subject = "" if fact.subject == "user" else f"{fact.subject} "
    return IndexRow(
        change=number,
        position=number,
        key=EntryKey("facts", "message", fact.id),
        at_us=to_us("valid_from", fact.valid_from),
        role="user",
        text=f"{subject}{fact.kind} {fact.predicate}: {fact.value}",
        metadata=fact.metadata,
    )


def _stale(facts: Sequence[Fact], by_id: Mapping[str, Fact]) -> dict[ItemKey, str]:
    """For each item whose every fact has ended: since when, and what is true instead."""
    notes: dict[ItemKey, str] = {}
    alive = {source for fact in facts if stands(fact) for source in fact.sources}
    for fact in facts:
        if fact.invalid_at is None:
            continue
        successor = by_id.get(fact.superseded_by or "")
        since = fact.invalid_at.date().isoformat()
        note = f"ended {since}"
        if successor is not None and successor.value != fact.value:
            note = f"since {since}: {fact.predicate} is {successor.value}"
        notes.update(dict.fromkeys((key for key in fact.sources if key not in alive), note))
    return notes
