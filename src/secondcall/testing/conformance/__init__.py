"""The contracts of ``secondcall.abc.Store`` and ``secondcall.abc_state.StateStore`` as pytest tests
that any store can run.

``docs/how-to/write-a-store.md`` shows how. A test of it needs nothing but the store.
"""

from __future__ import annotations

from secondcall.testing.conformance.material import StoreFactory, StoreSuite
from secondcall.testing.conformance.runner import failures, state_failures
from secondcall.testing.conformance.state_material import StateHarness, StateSuite
from secondcall.testing.conformance.state_suite import StateConformance
from secondcall.testing.conformance.suite import StoreConformance

__all__ = [
    "StateConformance",
    "StateHarness",
    "StateSuite",
    "StoreConformance",
    "StoreFactory",
    "StoreSuite",
    "failures",
    "state_failures",
]
