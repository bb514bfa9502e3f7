"""How long a lost compare-and-set is tried again."""

from __future__ import annotations

import pytest

from secondcall.races import RACE_SECONDS, Race

pytestmark = pytest.mark.anyio


class _Waits:
    """A clock that only the waits move, and what was waited."""

    def __init__(self, taken: float = 0.0) -> None:
        self.seconds = 0.0
        self.waited: list[float] = []
        self._taken = taken

    def now(self) -> float:
        """The time; each look takes a while of its own."""
        self.seconds += self._taken
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        """Let the time pass."""
        self.waited.append(seconds)
        self.seconds += seconds


async def test_the_first_lost_race_is_run_again_at_once() -> None:
    """Nothing is waited before the second try, and something random before the third."""
    waits = _Waits()
    race = Race(now=waits.now, sleep=waits.sleep)
    assert await race.goes_on()
    assert waits.waited == []
    assert await race.goes_on()
    assert len(waits.waited) == 1


async def test_a_pause_stays_short_however_often_a_race_is_lost() -> None:
    """After a thousand lost races no pause was longer than 64 milliseconds, and not all are 0."""
    waits = _Waits()
    race = Race(limit_seconds=1e9, now=waits.now, sleep=waits.sleep)
    for _ in range(1_000):
        assert await race.goes_on()
    assert 0 < max(waits.waited) <= 0.064


async def test_a_race_ends_when_its_time_is_used_up() -> None:
    """By default it goes on for thirty seconds and no longer."""
    waits = _Waits(taken=1.0)
    race = Race(now=waits.now, sleep=waits.sleep)
    tries = 0
    while await race.goes_on():
        tries += 1
    assert RACE_SECONDS == 30
    assert RACE_SECONDS <= waits.seconds - 1.0 <= RACE_SECONDS + 1.0
    assert tries > 20
