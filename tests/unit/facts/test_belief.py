"""What was believed, replayed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from secondcall.facts.belief import believed
from secondcall.facts.chain import end, holds_at, insert, move_start, order
from secondcall.types import Fact

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def _fact(number: int, day: int, value: int) -> Fact:
    return Fact(
        id=f"fact_{number}",
        kind="attribute",
        subject="user",
        predicate="city",
        value=value,
        status="current",
        valid_from=START + day * DAY,
        recorded_at=START + (100 + number) * DAY,
    )


Steps = st.lists(
    st.tuples(st.sampled_from(["tell", "end"]), st.integers(0, 12), st.integers(0, 2)),
    min_size=1,
    max_size=12,
)


@given(Steps)
def test_every_belief_can_be_replayed(steps: list[tuple[str, int, int]]) -> None:
    """Whatever is told or ended later, the facts come back as they stood after each step."""
    chain: dict[str, Fact] = {}
    snapshots: list[tuple[datetime, dict[str, Fact]]] = []
    for number, (step, day, value) in enumerate(steps):
        at, fact = START + (100 + number) * DAY, _fact(number, day, value)
        if step == "tell":
            changed = move_start(chain.values(), fact) or insert(chain.values(), fact)
        else:
            holder = next((one for one in chain.values() if holds_at(one, fact.valid_from)), None)
            if holder is None:
                continue
            changed = end(chain.values(), holder, fact.valid_from, at)
        chain |= {one.id: one for one in changed.facts}
        snapshots.append((at + DAY / 2, dict(chain)))
    for at, snapshot in snapshots:
        found = sorted(believed(chain.values(), at), key=order)
        assert found == sorted(snapshot.values(), key=order)


def test_an_end_was_not_known_before_what_brought_it() -> None:
    """Of facts that were stored without earlier beliefs an end counts from its cause on."""
    first = replace(_fact(1, 0, 1), invalid_at=START + 5 * DAY, superseded_by="fact_2")
    second = _fact(2, 5, 2)
    (before,) = believed([first, second], START + 101.5 * DAY)
    assert (before.id, before.invalid_at, before.superseded_by) == ("fact_1", None, None)
    assert believed([first, second], START + 103 * DAY) == [first, second]
