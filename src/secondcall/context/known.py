"""What is known about a user, ready to be asked: facts searchable, sensitive sources, stale items.

Pure: made from a list of facts whenever they changed, and kept beside the user's open index.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from secondcall.abc import EntryKey
from secondcall.checks import to_us
from secondcall.facts.chain import chain_key, holds_at, is_standing, order
from secondcall.recall.index import UserIndex
from secondcall.recall.segment import IndexRow
from secondcall.types import Fact, ItemKey, Metadata, RecalledFact

__all__ = ["Known", "know"]


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """A user's facts and what follows from them."""

    facts: Sequence[Fact]
    index: UserIndex
    chains: Sequence[Sequence[Fact]]
    """The facts of each subject and predicate in order, of all partitions together."""
    chain_of: Mapping[str, Sequence[Fact]]
    by_id: Mapping[str, Fact]
    sensitive_items: frozenset[ItemKey]
    by_source: Mapping[ItemKey, Sequence[Fact]]

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
        true_then = [
            fact
            for fact in self._true_at(at)
            if (oldest is None or fact.recorded_at >= oldest)
            and (kinds is None or fact.kind in kinds)
        ]
        shown = {fact.id for fact in true_then if sensitive or not fact.sensitive}
        result = self.index.search(
            query,
            None,
            at=at,
            limit=limit,
            where=where,
            exclude_keys=[_key(fact) for fact in self.facts if fact.id not in shown],
        )
        found = [RecalledFact(fact=self.by_id[hit.key.id], score=hit.score) for hit in result.hits]
        return found, len(true_then) - len(shown)

    def _true_at(self, moment: datetime) -> list[Fact]:
        found: list[Fact] = []
        for chain in self.chains:
            last = _last(chain, moment)
            if last is not None and holds_at(last, moment):
                found.append(last)
        return found

    def stale_notes(
        self, keys: Iterable[ItemKey], *, at: datetime, sensitive: bool, oldest: datetime | None
    ) -> dict[ItemKey, str]:
        """For each item whose every fact had ended by ``at``: since when, and what is true instead.

        What the caller may not see, or what has run out, is not named.
        """
        notes: dict[ItemKey, str] = {}
        for key in keys:
            resting = [
                fact
                for fact in self.by_source.get(key, ())
                if fact.valid_from <= at and _shown(fact, sensitive=sensitive, oldest=oldest)
            ]
            if resting and not any(holds_at(fact, at) and is_standing(fact) for fact in resting):
                last = max(resting, key=order)
                notes[key] = self._note(last, at=at, sensitive=sensitive, oldest=oldest)
        return notes

    def _note(self, fact: Fact, *, at: datetime, sensitive: bool, oldest: datetime | None) -> str:
        if not is_standing(fact):
            return f"{fact.status} {fact.valid_from.date().isoformat()}"
        since = (fact.invalid_at or fact.valid_from).date().isoformat()
        instead = _last(self.chain_of[fact.id], at)
        if (
            instead is None
            or not holds_at(instead, at)
            or instead.value == fact.value
            or not _shown(instead, sensitive=sensitive, oldest=oldest)
        ):
            return f"ended {since}"
        return f"since {since}: {fact.predicate} is {instead.value}"


def _last(chain: Sequence[Fact], moment: datetime) -> Fact | None:
    """The fact of a chain that began last by ``moment``."""
    return next((fact for fact in reversed(chain) if fact.valid_from <= moment), None)


def _shown(fact: Fact, *, sensitive: bool, oldest: datetime | None) -> bool:
    return (sensitive or not fact.sensitive) and (oldest is None or fact.recorded_at >= oldest)


def know(facts: Iterable[Fact], sensitive_items: frozenset[ItemKey]) -> Known:
    """Make the view of ``facts`` (all that were ever held, ended ones included) and of the items
    that sensitive ones rest or rested on."""
    held = list(facts)
    index = UserIndex(embedder_id=None)
    index.add([_row(number, fact) for number, fact in enumerate(held, start=1)], None)
    chains: dict[str, list[Fact]] = {}
    for fact in sorted(held, key=order):
        chains.setdefault(chain_key(fact.subject, fact.predicate), []).append(fact)
    by_id = {fact.id: fact for fact in held}
    return Known(
        facts=held,
        index=index,
        chains=list(chains.values()),
        chain_of={fact.id: chain for chain in chains.values() for fact in chain},
        by_id=by_id,
        sensitive_items=sensitive_items,
        by_source=_by_source(held),
    )


def _key(fact: Fact) -> EntryKey:
    return EntryKey("facts", "message", fact.id)


def _row(number: int, fact: Fact) -> IndexRow:
    subject = "" if fact.subject == "user" else f"{fact.subject} "
    return IndexRow(
        change=number,
        position=number,
        key=_key(fact),
        at_us=to_us("valid_from", fact.valid_from),
        role="user",
        text=f"{subject}{fact.kind} {fact.predicate}: {fact.value}",
        metadata=fact.metadata,
    )


def _by_source(facts: Iterable[Fact]) -> dict[ItemKey, list[Fact]]:
    found: dict[ItemKey, list[Fact]] = {}
    for fact in facts:
        for source in fact.sources:
            found.setdefault(source, []).append(fact)
    return found
