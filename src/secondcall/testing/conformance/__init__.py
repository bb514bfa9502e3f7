"""The contract of ``secondcall.abc.Store`` as pytest tests that any store can run.

``docs/how-to/write-a-store.md`` shows how. A test of it needs nothing but the store.
"""

from __future__ import annotations

from secondcall.testing.conformance.material import StoreFactory, StoreSuite
from secondcall.testing.conformance.runner import failures
from secondcall.testing.conformance.suite import StoreConformance

__all__ = ["StoreConformance", "StoreFactory", "StoreSuite", "failures"]
