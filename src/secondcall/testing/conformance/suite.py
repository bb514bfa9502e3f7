"""All parts of the suite in one class."""

from __future__ import annotations

from secondcall.testing.conformance.blobs import BlobsSuite
from secondcall.testing.conformance.concurrency import ConcurrencySuite
from secondcall.testing.conformance.documents import DocumentsSuite
from secondcall.testing.conformance.entries import EntriesSuite
from secondcall.testing.conformance.erasure import ErasureSuite
from secondcall.testing.conformance.isolation import IsolationSuite
from secondcall.testing.conformance.refusals import RefusalsSuite
from secondcall.testing.conformance.reopening import ReopeningSuite

__all__ = ["StoreConformance"]


class StoreConformance(
    EntriesSuite,
    DocumentsSuite,
    IsolationSuite,
    BlobsSuite,
    ErasureSuite,
    ConcurrencySuite,
    ReopeningSuite,
    RefusalsSuite,
):
    """The whole contract. Subclass it as ``TestMyStore`` and override ``store_factory``."""
