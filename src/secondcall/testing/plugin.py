"""The pytest plugin of secondcall: failed conformance tests show their values, and a still clock.

It is loaded by every pytest run where secondcall is installed, so it imports nothing of it until a
fixture is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from secondcall.testing.fakes import FrozenClock

pytest.register_assert_rewrite("secondcall.testing.conformance")


@pytest.fixture
def frozen_clock() -> FrozenClock:
    """A clock that stands at 2026-01-01 00:00 UTC until it is moved."""
    from secondcall.testing.fakes import FrozenClock

    return FrozenClock()
