"""What is known about a user, ready to be asked: facts searchable, sensitive sources, stale items.

Pure: made from a list of facts, and from then on with what changed, beside the user's open index.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import numpy.typing as npt

from secondcall.abc import EntryKey
from secondcall.checks import to_us
from secondcall.context.nearness import NEAR_WORD, Asked, Nearness, nearness
from secondcall.context.stale import Note, note_of
from secondcall.context.then import held_in, spans_of
from secondcall.facts.chain import holds_at, is_standing, key_of, order
from secondcall.facts.moved import is_withheld
from secondcall.facts.read import joined
from secondcall.facts.rests import Cause, causes_of, reason
from secondcall.recall.index import Hit, UserIndex
from secondcall.recall.segment import IndexRow
from secondcall.types import Fact, ItemKey, Metadata, RecalledFact

__all__ = ["Known", "Shown", "fact_text", "know", "learn", "with_chains"]

_MEANING = 3.0
"""What likeness in meaning (a cosine) counts beside the score of an item that a fact comes from."""
_LEAST_MEANING = 0.2
"""Of the facts that have nothing to do with a question nine in ten are below 0.12 (the open half of
``bench/sets/changes``, its questions asked of the other topics)."""
_UNCERTAIN = 0.8
_MOST_BY_WORDS = 200
_BEGINNINGS = 5
Shown = Callable[[Fact], bool]


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """A user's facts and what follows from them."""

    facts: Sequence[Fact]
    """In order of beginning, of all partitions together."""
    index: UserIndex
    """Their words. The session of a fact is its predicate. It is shared with the views that were
    made from this one, so that it may hold facts which this one does not."""
    changes: int
    """The change number of the rows that were added to it last."""
    spent: int
    """How many rows of it stand for facts as they were before."""
    predicates: npt.NDArray[np.int64]
    """A number for the predicate of each fact."""
    predicate_numbers: Mapping[str, int]
    vectors: npt.NDArray[np.float32]
    """What each fact means, ``(n, d)``; zeros where there is no vector, none at all without any."""
    nearness: Nearness
    """The words of the facts, by their own vectors."""
    numbers: Mapping[str, int]
    """The place of each fact, by its id."""
    chains: Mapping[str, Sequence[Fact]]
    """The facts of each chain in order, by its key."""
    sensitive_items: frozenset[ItemKey]
    by_source: Mapping[ItemKey, Sequence[Fact]]
    by_session: Mapping[tuple[str, str], Collection[str]]
    """The ids of the facts that come from items of a session."""
    hashed: Mapping[ItemKey, int]
    """The hashes of the items that facts come from, as the user's index knows them."""

    def search(
        self,
        query: str,
        vector: npt.NDArray[np.float32] | None,
        *,
        at: datetime,
        limit: int,
        sensitive: bool,
        oldest: datetime | None = None,
        kinds: Collection[str] | None = None,
        where: Metadata | None = None,
        said: Mapping[ItemKey, float] | None = None,
        answering: Collection[ItemKey] = (),
        asked: Asked | None = None,
        told: Collection[str] = (),
    ) -> tuple[list[RecalledFact], int]:
        """Facts true at ``at`` that answer ``query``, best first, and how many were withheld.

        Where the query names a time that was over by then, also the ended facts of that time: each
        before what is true now of its predicate.

        Whatever was once said of a predicate helps to find what is true of it now: its ended facts,
        and the items that any of them come from. ``said`` has the scores of those, ``answering``
        are the items that were found, ``asked`` the question's words. What is to be confirmed comes
        after what is as near and certain. Facts recorded before ``oldest`` have run out.
        """
        if not self.facts:
            return [], 0
        visible = self.shown(sensitive=sensitive, oldest=oldest)
        spans = spans_of(query, self, at=at, visible=visible)
        true_then = [
            fact
            for fact in self.facts
            if (holds_at(fact, at) or (fact.valid_from <= at and held_in(fact, spans)))
            and (oldest is None or fact.recorded_at >= oldest)
            and (kinds is None or fact.kind in kinds)
            and (where is None or _passes(fact.metadata, where))
        ]
        shown = [fact for fact in true_then if visible(fact)]
        withheld = len(true_then) - len(shown)
        shown = [fact for fact in shown if fact.id not in told]
        if not shown or not query.strip():
            return [], withheld
        mask = np.fromiter(map(visible, self.facts), np.bool_, len(self.facts))
        result = self.index.search(
            query,
            None,
            at=at,
            limit=_MOST_BY_WORDS,
            exclude_keys=[
                _key(fact) for fact, seen in zip(self.facts, mask, strict=True) if not seen
            ],
        )
        words = np.zeros(len(self.facts), np.float32)
        for hit in result.hits:
            number = self.numbers.get(hit.key.id)
            if number is not None:
                words[number] = _by_words(hit)
        near = self._near_predicates(vector, asked, words, said or {}, answering, mask)
        return self._best(shown, near, self.causes(at), visible, at, limit), withheld

    def began(self, words: str, *, at: datetime, visible: Shown) -> datetime | None:
        """When what the words tell of began: the visible fact that has most of them, if any has;
        of several the first."""
        hidden = [_key(fact) for fact in self.facts if not visible(fact)]
        result = self.index.search(words, None, at=at, limit=_BEGINNINGS, exclude_keys=hidden)
        found: list[tuple[float, datetime]] = []
        for hit in result.hits:
            number = self.numbers.get(hit.key.id)
            said = hit.features.get("word", 0.0)
            if number is not None and said > 0:
                found.append((-said, self.facts[number].valid_from))
        return min(found)[1] if found else None

    def _near_predicates(
        self,
        vector: npt.NDArray[np.float32] | None,
        asked: Asked | None,
        words: npt.NDArray[np.float32],
        said: Mapping[ItemKey, float],
        answering: Collection[ItemKey],
        visible: npt.NDArray[np.bool_],
    ) -> npt.NDArray[np.float32]:
        """How near each predicate is, below 0 for one that does not answer: by words, by a word
        near to one of the question, by meaning, or since one of its facts was told in a
        conversation of which something was found, if its meaning is not turned away."""
        meaning, nearest = self.nearness.of(asked)
        if vector is not None and self.vectors.shape[1:] == vector.shape:
            meaning = np.maximum(meaning, np.vecdot(self.vectors, vector))
        source = np.zeros(len(self.facts), np.float32)
        for item, score in said.items():
            for fact in self.by_source[item]:
                number = self.numbers[fact.id]
                source[number] = max(source[number], score)
        beside = np.zeros(len(self.facts), np.bool_)
        for session in {item[:2] for item in answering}:
            beside[[self.numbers[name] for name in self.by_session.get(session, ())]] = True
        answers = (words > 0) | (nearest >= NEAR_WORD) | (meaning >= _LEAST_MEANING)
        answers |= beside & (meaning >= 0)
        count = int(self.predicates.max(initial=-1)) + 1
        score = np.zeros(count, np.float32)
        np.maximum.at(
            score, self.predicates[visible], (words + _MEANING * meaning + source)[visible]
        )
        answering_predicates = np.zeros(count, np.bool_)
        answering_predicates[self.predicates[visible & answers]] = True
        return np.where(answering_predicates, score, np.float32(-1))

    def _best(
        self,
        shown: Sequence[Fact],
        near: npt.NDArray[np.float32],
        causes: Mapping[str, Sequence[Cause]],
        visible: Shown,
        at: datetime,
        limit: int,
    ) -> list[RecalledFact]:
        found: list[RecalledFact] = []
        for fact in shown:
            score = float(near[self.predicates[self.numbers[fact.id]]])
            if score < 0:
                continue
            score *= _UNCERTAIN if fact.id in causes else 1.0
            found.append(RecalledFact(fact=fact, score=round(score, 6)))
        found.sort(
            key=lambda one: (
                -one.score,
                holds_at(one.fact, at),
                -one.fact.valid_from.timestamp(),
                one.fact.id,
            )
        )
        return [
            replace(one, fact=replace(one.fact, to_confirm=reason(causes[one.fact.id], visible)))
            if one.fact.id in causes
            else one
            for one in found[:limit]
        ]

    def shown(self, *, sensitive: bool, oldest: datetime | None) -> Shown:
        """Whether a fact may be shown: to a verified caller the ``sensitive`` ones too and what was
        said in items that they come from, to nobody what was recorded before ``oldest``."""
        hidden = frozenset[ItemKey]() if sensitive else self.sensitive_items
        return lambda fact: (
            (sensitive or not is_withheld(fact, hidden))
            and (oldest is None or fact.recorded_at >= oldest)
        )

    def causes(self, at: datetime) -> Mapping[str, Sequence[Cause]]:
        """Why the facts that stand at ``at`` are to be confirmed, by id."""
        return causes_of(self.facts, at)

    def notes(
        self, keys: Iterable[ItemKey], *, at: datetime, visible: Shown
    ) -> dict[ItemKey, Note]:
        """For each item that states facts of which some had ended by ``at``: what is true instead.

        What may not be shown is not named.
        """
        notes: dict[ItemKey, Note] = {}
        for key in keys:
            stated = [
                fact
                for fact in self.by_source.get(key, ())
                if fact.valid_from <= at and visible(fact)
            ]
            if stated:
                note = note_of(stated, self.chains, at, visible)
                if note is not None:
                    notes[key] = note
        return notes

    def to_confirm(
        self, keys: Iterable[ItemKey], *, at: datetime, visible: Shown
    ) -> dict[ItemKey, str]:
        """For each item that states a fact which is to be confirmed at ``at``: why."""
        causes = self.causes(at)
        found: dict[ItemKey, str] = {}
        for key in keys if causes else ():
            for fact in self.by_source.get(key, ()):
                if fact.id in causes and visible(fact):
                    found[key] = reason(causes[fact.id], visible)
        return found

    def states(self, key: ItemKey, *, at: datetime, visible: Shown) -> tuple[set[str], set[str]]:
        """The single-valued predicates of which an item states what holds at ``at``, and those of
        which it only states what had ended."""
        now: set[str] = set()
        then: set[str] = set()
        for fact in self.by_source.get(key, ()):
            if visible(fact) and not fact.multi:
                holds = holds_at(fact, at) and is_standing(fact)
                (now if holds else then).add(key_of(fact))
        return now, then - now

    def sources_beside(self, keys: Collection[ItemKey], *, visible: Shown) -> set[ItemKey]:
        """The items that state other facts of the predicates which the items ``keys`` state."""
        predicates = {
            int(self.predicates[self.numbers[fact.id]])
            for key in keys
            for fact in self.by_source.get(key, ())
            if visible(fact)
        }
        if not predicates:
            return set()
        rows = np.flatnonzero(np.isin(self.predicates, list(predicates))).tolist()
        beside = [self.facts[row] for row in rows]
        return {source for fact in beside if visible(fact) for source in fact.sources} - set(keys)


def know(
    facts: Iterable[Fact],
    sensitive_items: frozenset[ItemKey],
    *,
    vectors: Mapping[str, npt.NDArray[np.float32]] | None = None,
    words: Mapping[str, npt.NDArray[np.float32]] | None = None,
    hashed: Callable[[ItemKey], int] = hash,
) -> Known:
    """Make the view of ``facts`` (all that were ever held, ended ones included) and of the items
    that sensitive ones come or came from. ``vectors`` are those of ``fact_text``, by fact id,
    ``words`` those of ``texts_of`` (``context/nearness.py``);
    ``hashed`` gives the hash by which the user's index knows an item."""
    held = joined(facts)
    index = UserIndex(embedder_id=None)
    index.add([_row(1, fact) for fact in held], None)
    chains: dict[str, list[Fact]] = {}
    by_source: dict[ItemKey, list[Fact]] = {}
    by_session: dict[tuple[str, str], dict[str, None]] = {}
    numbers: dict[str, int] = {}
    predicates: list[int] = []
    for fact in held:
        key = key_of(fact)
        chains.setdefault(key, []).append(fact)
        predicates.append(numbers.setdefault(_predicate_of(key), len(numbers)))
        for source in fact.sources:
            by_source.setdefault(source, []).append(fact)
            by_session.setdefault(source[:2], {})[fact.id] = None
    return Known(
        facts=held,
        index=index,
        changes=1,
        spent=0,
        predicates=np.array(predicates, np.int64),
        predicate_numbers=numbers,
        vectors=_matrix(held, vectors or {}),
        nearness=nearness(held, words or {}),
        numbers={fact.id: number for number, fact in enumerate(held)},
        chains=chains,
        sensitive_items=sensitive_items,
        by_source=by_source,
        by_session=by_session,
        hashed={item: hashed(item) for item in by_source},
    )


def with_chains(known: Known, chains: Mapping[str, Sequence[Fact]]) -> list[Fact]:
    """The facts of ``known`` in order, with those of the chains that were read anew instead."""
    gone = {fact.id for key in chains for fact in known.chains.get(key, ())}
    fresh = [fact for several in chains.values() for fact in several]
    return sorted([*(fact for fact in known.facts if fact.id not in gone), *fresh], key=order)


def learn(
    known: Known,
    chains: Mapping[str, Sequence[Fact]],
    facts: Sequence[Fact],
    sensitive_items: frozenset[ItemKey],
    *,
    vectors: Mapping[str, npt.NDArray[np.float32]] | None = None,
    words: Mapping[str, npt.NDArray[np.float32]] | None = None,
    hashed: Callable[[ItemKey], int] = hash,
) -> Known:
    """The view that ``know`` would make, made from ``known``: its chains in ``chains`` are as they
    stand there (``joined``), ``facts`` are ``with_chains``, and ``sensitive_items`` are those of
    the changed predicates.

    Its index is that of ``known``, with what changed: of several threads one at a time.
    """
    gone = [fact for key in chains for fact in known.chains.get(key, ())]
    fresh = [fact for several in chains.values() for fact in several]
    changes = known.changes + 1
    added, removed = _changed_rows(gone, fresh, changes)
    known.index.remove(removed)
    known.index.add(added, None)
    numbers = dict(known.predicate_numbers)
    places = zip(known.facts, known.predicates.tolist(), strict=True)
    number_of = {fact.id: number for fact, number in places}
    for key, several in chains.items():
        number = numbers.setdefault(_predicate_of(key), len(numbers))
        number_of |= {fact.id: number for fact in several}
    by_source, by_session = _sources(known, gone, fresh)
    new_items = {source for fact in fresh for source in fact.sources} - known.hashed.keys()
    kept = {key: several for key, several in known.chains.items() if key not in chains}
    return Known(
        facts=facts,
        index=known.index,
        changes=changes,
        spent=known.spent + len(added) + len(gone) - len(fresh),
        predicates=np.array([number_of[fact.id] for fact in facts], np.int64),
        predicate_numbers=numbers,
        vectors=_matrix(facts, vectors or {}),
        nearness=nearness(facts, words or {}),
        numbers={fact.id: number for number, fact in enumerate(facts)},
        chains=kept | {key: several for key, several in chains.items() if several},
        sensitive_items=known.sensitive_items | sensitive_items,
        by_source=by_source,
        by_session=by_session,
        hashed={
            **{item: name for item, name in known.hashed.items() if item in by_source},
            **{item: hashed(item) for item in new_items},
        },
    )


def _changed_rows(
    gone: Sequence[Fact], fresh: Sequence[Fact], change: int
) -> tuple[list[IndexRow], list[EntryKey]]:
    """The rows of facts that are new or are found otherwise than before, and the keys of those
    that are no more."""
    before = {fact.id: fact for fact in gone}
    after = {fact.id for fact in fresh}

    def found_as_before(fact: Fact) -> bool:
        old = before.get(fact.id)
        return (
            old is not None
            and (old.valid_from, old.metadata) == (fact.valid_from, fact.metadata)
            and fact_text(old) == fact_text(fact)
        )

    added = [_row(change, fact) for fact in fresh if not found_as_before(fact)]
    return added, [_key(fact) for fact in gone if fact.id not in after]


def _sources(
    known: Known, gone: Sequence[Fact], fresh: Sequence[Fact]
) -> tuple[dict[ItemKey, Sequence[Fact]], dict[tuple[str, str], Collection[str]]]:
    """Which facts come from which items, and from which conversations, after a change."""
    by_source, by_session = dict(known.by_source), dict(known.by_session)
    ids = {fact.id for fact in gone}
    stated: dict[ItemKey, list[Fact]] = {source: [] for fact in gone for source in fact.sources}
    for fact in fresh:
        for source in fact.sources:
            stated.setdefault(source, []).append(fact)
    for source, several in stated.items():
        others = [fact for fact in by_source.pop(source, ()) if fact.id not in ids]
        if others or several:
            by_source[source] = sorted([*others, *several], key=order)
    told: dict[tuple[str, str], dict[str, None]] = {source[:2]: {} for source in stated}
    for source, several in stated.items():
        told[source[:2]] |= {fact.id: None for fact in several}
    for session, names in told.items():
        kept = {name: None for name in by_session.pop(session, ()) if name not in ids}
        if kept or names:
            by_session[session] = kept | names
    return by_source, by_session


def _matrix(
    facts: Sequence[Fact], vectors: Mapping[str, npt.NDArray[np.float32]]
) -> npt.NDArray[np.float32]:
    width = next((len(vector) for vector in vectors.values()), 0)
    found = np.zeros((len(facts), width), np.float32)
    places = [number for number, fact in enumerate(facts) if fact.id in vectors]
    if places:
        found[places] = np.stack([vectors[facts[number].id] for number in places])
    return found


def fact_text(fact: Fact) -> str:
    """The words by which a fact is found."""
    subject = "" if fact.subject == "user" else f"{fact.subject} "
    predicate = fact.predicate.replace("_", " ")
    return f"{subject}{fact.kind} {predicate}: {fact.value}"


def _by_words(hit: Hit) -> float:
    """How well the words of a fact, and of others with its predicate, fit: 0 to 1.4."""
    return hit.features.get("word", 0.0) + hit.features.get("session_word", 0.0)


def _passes(metadata: Metadata, where: Metadata) -> bool:
    return all(
        json.dumps(metadata.get(name), sort_keys=True) == json.dumps(value, sort_keys=True)
        for name, value in where.items()
    )


def _predicate_of(chain: str) -> str:
    """The key of the predicate of a chain."""
    return chain.partition("/")[0]


def _key(fact: Fact) -> EntryKey:
    return EntryKey(_predicate_of(key_of(fact)), "message", fact.id)


def _row(change: int, fact: Fact) -> IndexRow:
    return IndexRow(
        change=change,
        position=_position(fact.id),
        key=_key(fact),
        at_us=to_us("valid_from", fact.valid_from),
        role="user",
        text=fact_text(fact),
        metadata=fact.metadata,
    )


def _position(fact_id: str) -> int:
    """The place of a fact among those of its predicate that began with it: the same however the
    view was made."""
    return int.from_bytes(hashlib.blake2b(fact_id.encode(), digest_size=8).digest()) >> 1
