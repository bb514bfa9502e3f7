"""The view of a user's facts: made anew or from what changed, it is the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from secondcall.context.known import Known, know, learn, with_chains
from secondcall.context.nearness import Asked, texts_of
from secondcall.facts.chain import end, holds_at, insert, key_of
from secondcall.facts.read import joined
from secondcall.types import Fact, ItemKey

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
VALUES = ("tea in the morning", "coffee", "water", "tea with milk")
PREDICATES = ("drink", "morning_drink", "guest")
QUERIES = ("What tea do I drink?", "coffee", "guest in the morning", "milk")


def _item(number: int) -> ItemKey:
    return ItemKey("ann", f"s{number % 2}", "message", f"m{number}")


def _fact(number: int, predicate: str, day: int, value: int) -> Fact:
    return Fact(
        id=f"fact_{number}",
        kind="preference",
        subject="user",
        predicate=predicate,
        value=VALUES[value],
        status="current",
        valid_from=START + day * DAY,
        recorded_at=START + (100 + number) * DAY,
        multi=predicate == "guest",
        sensitive=value == 3,
        sources=() if number % 3 == 0 else (_item(number % 5), _item(number % 4)),
    )


def _vector(fact: Fact) -> npt.NDArray[np.float32]:
    rng = np.random.default_rng(int(fact.id.removeprefix("fact_")))
    made = rng.normal(size=8).astype(np.float32)
    return (made / np.linalg.norm(made)).astype(np.float32)


def _vectors(facts: Sequence[Fact]) -> Mapping[str, npt.NDArray[np.float32]]:
    return {fact.id: _vector(fact) for fact in facts if fact.id != "fact_2"}


def _words(facts: Sequence[Fact]) -> Mapping[str, npt.NDArray[np.float32]]:
    rng = np.random.default_rng(3)
    texts = sorted({text for fact in facts for text in texts_of(fact)})
    return dict(zip(texts, rng.normal(size=(len(texts), 8)).astype(np.float32), strict=True))


def _hidden(facts: Sequence[Fact]) -> frozenset[ItemKey]:
    return frozenset(source for fact in facts if fact.sensitive for source in fact.sources)


def _changed(chain: Sequence[Fact], what: str, fact: Fact) -> list[Fact]:
    """The chain after a fact was told, what holds was ended, or told again with a new source, or
    after the chain was removed."""
    by_id = {one.id: one for one in chain}
    holder = next((one for one in chain if holds_at(one, fact.valid_from)), None)
    if what == "remove":
        return []
    if what == "again" and holder is not None:
        by_id[holder.id] = replace(holder, sources=fact.sources, metadata={"n": fact.id})
    elif what == "end" and holder is not None:
        done = end(chain, holder, fact.valid_from, fact.recorded_at)
        by_id |= {one.id: one for one in done.facts}
    else:
        by_id |= {one.id: one for one in insert(chain, fact).facts}
    return [*by_id.values()]


def _answers(known: Known, vector: npt.NDArray[np.float32]) -> list[object]:
    found: list[object] = []
    for query in QUERIES:
        for sensitive in (True, False):
            said = dict.fromkeys(sorted(known.by_source)[:2], 0.5)
            facts, withheld = known.search(
                query,
                vector,
                at=START + 6 * DAY,
                limit=5,
                sensitive=sensitive,
                said=said,
                answering=[_item(1)],
                asked=Asked(vector, np.stack([vector, -vector])),
            )
            found.append(([(one.fact, one.score) for one in facts], withheld))
    return found


def _same(one: Known, other: Known) -> None:
    assert one.facts == other.facts
    assert one.numbers == other.numbers
    assert one.chains == other.chains
    assert one.by_source == other.by_source
    assert {k: set(v) for k, v in one.by_session.items()} == {
        k: set(v) for k, v in other.by_session.items()
    }
    assert one.hashed == other.hashed
    assert one.sensitive_items >= other.sensitive_items
    assert np.array_equal(one.vectors, other.vectors)
    names = ({n: k for k, n in each.predicate_numbers.items()} for each in (one, other))
    ours, theirs = names
    assert [ours[n] for n in one.predicates] == [theirs[n] for n in other.predicates]
    assert len(one.index) == len(other.index)


Step = st.tuples(
    st.sampled_from(["tell", "tell", "tell", "end", "again", "remove"]),
    st.sampled_from(PREDICATES),
    st.integers(0, 8),
    st.integers(0, 3),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(Step, min_size=1, max_size=3), min_size=1, max_size=8))
def test_a_view_made_from_changes_is_the_one_made_anew(
    rounds: list[list[tuple[str, str, int, int]]],
) -> None:
    """After any changes, several of them at a time, facts, sources, vectors and all answers are as
    if the view had been made of everything at once."""
    chains: dict[str, list[Fact]] = {}
    known = know([], frozenset(), vectors={}, hashed=hash)
    number = 0
    for steps in rounds:
        touched: set[str] = set()
        for what, predicate, day, value in steps:
            fact = _fact(number, predicate, day, value)
            number += 1
            key = key_of(fact)
            touched.add(key)
            chains[key] = _changed(chains.get(key, []), what, fact)
        facts = [fact for several in chains.values() for fact in several]
        anew = know(facts, _hidden(facts), vectors=_vectors(facts), words=_words(facts))
        changed = {key: joined(chains[key]) for key in touched}
        held = with_chains(known, changed)
        fresh = [fact for several in changed.values() for fact in several]
        vectors, words = _vectors(facts), _words(facts)
        known = learn(known, changed, held, _hidden(fresh), vectors=vectors, words=words)
        _same(known, anew)
        vector = _vector(_fact(1, "drink", 0, 0))
        if known.sensitive_items == anew.sensitive_items:
            assert _answers(known, vector) == _answers(anew, vector)


def test_a_view_still_answers_when_a_newer_one_was_made() -> None:
    """Who searches an older view meanwhile is given nothing that it does not hold."""
    first = _fact(1, "drink", 0, 0)
    second = _fact(2, "guest", 0, 1)
    known = know([first], frozenset())
    chains = {key_of(second): [second]}
    newer = learn(known, chains, with_chains(known, chains), frozenset())
    for view, expected in ((known, set[str]()), (newer, {"fact_2"})):
        found, _ = view.search("coffee", None, at=START + DAY, limit=5, sensitive=True)
        assert {one.fact.id for one in found} == expected
