"""All parts of the suite of states in one class."""

from __future__ import annotations

from secondcall.testing.conformance.state_concurrency import StateConcurrencySuite
from secondcall.testing.conformance.state_erasure import StateErasureSuite
from secondcall.testing.conformance.state_isolation import StateIsolationSuite
from secondcall.testing.conformance.state_outage import StateOutageSuite
from secondcall.testing.conformance.state_refusals import StateRefusalsSuite
from secondcall.testing.conformance.state_reopening import StateReopeningSuite
from secondcall.testing.conformance.state_timers import StateTimersSuite
from secondcall.testing.conformance.state_values import StateValuesSuite

__all__ = ["StateConformance"]


class StateConformance(
    StateValuesSuite,
    StateIsolationSuite,
    StateTimersSuite,
    StateErasureSuite,
    StateConcurrencySuite,
    StateReopeningSuite,
    StateOutageSuite,
    StateRefusalsSuite,
):
    """The whole contract. Subclass it as ``TestMyStates`` and override ``harness``."""
