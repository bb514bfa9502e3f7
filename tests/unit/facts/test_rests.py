"""What is to be confirmed when something ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from secondcall.facts.rests import causes_of, in_a_circle, marked, reason
from secondcall.types import Fact, FactStatus

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
NOW = START + 50 * DAY


def _fact(
    name: str, *rests_on: str, ended: int | None = None, status: FactStatus = "current"
) -> Fact:
    return Fact(
        id=name,
        kind="promise" if status != "current" else "attribute",
        subject="user",
        predicate=f"predicate {name}",
        value=f"value {name}",
        status=status,
        valid_from=START,
        recorded_at=START,
        invalid_at=None if ended is None else START + ended * DAY,
        rests_on=rests_on,
    )


def _flagged(facts: Sequence[Fact], moment: datetime = NOW) -> set[str]:
    return set(causes_of(facts, moment))


def test_what_rests_on_an_ended_fact_is_to_be_confirmed() -> None:
    """Directly and over others, whatever stands; nothing else."""
    facts = [
        _fact("ground", ended=10),
        _fact("first", "ground"),
        _fact("second", "first"),
        _fact("third", "second"),
        _fact("beside"),
        _fact("over", "beside"),
        _fact("gone", "ground", ended=5),
        _fact("kept", "ground", status="kept"),
    ]
    assert _flagged(facts) == {"first", "second", "third"}
    assert _flagged(facts, START + 9 * DAY) == set()


def test_the_reason_says_what_ended_when_and_what_replaced_it() -> None:
    """In words, with what may not be shown left out."""
    ground = _fact("ground", ended=10)
    after = replace(
        _fact("after"), predicate=ground.predicate, valid_from=START + 10 * DAY, sensitive=True
    )
    facts = [ground, after, _fact("first", "ground")]
    (first,) = marked([facts[2]], causes_of(facts, NOW))
    assert first.to_confirm == (
        "predicate ground was value ground until 2026-01-11, since then value after"
    )
    causes = causes_of(facts, NOW)["first"]
    assert reason(causes, lambda fact: not fact.sensitive) == (
        "predicate ground was value ground until 2026-01-11"
    )
    assert reason(causes, lambda _: False) == "rests on a fact that ended 2026-01-11"
    alone = causes_of([ground, facts[2]], NOW)["first"]
    assert reason(alone).endswith("2026-01-11, with nothing in its place")


def test_a_ground_that_is_no_longer_kept_says_so() -> None:
    """A fact whose ground is gone without a trace is to be confirmed."""
    causes = causes_of([_fact("first", "swept")], NOW)
    assert reason(causes["first"]) == "rests on a fact that is no longer kept"


def test_confirmed_stays_confirmed_until_something_else_ends() -> None:
    """What ended before a fact was told anew is done with; what ends later counts."""
    facts = [
        _fact("a", ended=10),
        _fact("b", ended=30),
        replace(_fact("first", "a"), confirmed=("a",)),
        replace(_fact("second", "a", "b"), confirmed=("a",)),
        replace(_fact("third", "first", "b"), confirmed=("a",)),
    ]
    assert _flagged(facts) == {"second", "third"}


def test_a_kept_promise_still_carries() -> None:
    """A promise that was kept is no ground that broke away; a broken one is."""
    ended = replace(_fact("ground", ended=10, status="promised"), superseded_by="settled")
    settled = replace(
        _fact("settled", status="kept"),
        value=ended.value,
        predicate=ended.predicate,
        valid_from=START + 10 * DAY,
    )
    over = _fact("over", "ground")
    assert _flagged([ended, settled, over]) == set()
    assert _flagged([ended, replace(settled, status="broken"), over]) == {"over"}


def test_the_old_value_that_comes_back_unmarks_nothing() -> None:
    """Another spell of the same value is another fact."""
    first = replace(_fact("first", ended=10), superseded_by="second")
    second = replace(_fact("second", ended=20), predicate=first.predicate, superseded_by="third")
    third = replace(_fact("third"), predicate=first.predicate, value=first.value)
    assert _flagged([first, second, third, _fact("over", "first")]) == {"over"}


def test_a_long_row_needs_no_recursion() -> None:
    """Ten thousand facts, each on the one before, are all marked."""
    facts = [_fact("0", ended=1)]
    facts += [_fact(str(number), str(number - 1)) for number in range(1, 10_000)]
    assert len(_flagged(facts)) == 9_999
    assert len(_flagged(facts[::-1])) == 9_999


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=20))
def test_a_circle_is_named_and_never_hangs(edges: list[tuple[int, int]]) -> None:
    """A fact that reaches itself is found, and reading a circle that exists ends."""
    rests: dict[int, list[int]] = {}
    for low, high in edges:
        rests.setdefault(low, []).append(high)
    facts = {
        str(number): _fact(str(number), *map(str, rests.get(number, ()))) for number in range(10)
    }
    causes_of([*facts.values(), _fact("x", ended=1)], NOW)
    for fact in facts.values():
        reached: set[str] = set()
        ahead = list(fact.rests_on)
        while ahead:
            name = ahead.pop()
            if name not in reached:
                reached.add(name)
                ahead.extend(facts[name].rests_on)
        assert (in_a_circle(facts, fact) is not None) == (fact.id in reached)
