"""The stores of this package keep the contract of ``Store``."""

from __future__ import annotations

from pathlib import Path

import pytest

from secondcall.stores.memory import MemoryStore
from secondcall.stores.sqlite import SqliteStore
from secondcall.testing.conformance import StoreConformance, StoreFactory


class TestMemoryStore(StoreConformance):
    @pytest.fixture
    def store_factory(self) -> StoreFactory:
        return MemoryStore


class TestSqliteStore(StoreConformance):
    @pytest.fixture
    def store_factory(self, tmp_path: Path) -> StoreFactory:
        return lambda: SqliteStore(f"sqlite:///{tmp_path}/memory.db")


class TestSqliteStoreWithNormalSynchronous(StoreConformance):
    @pytest.fixture
    def store_factory(self, tmp_path: Path) -> StoreFactory:
        return lambda: SqliteStore(f"sqlite:///{tmp_path}/memory.db?synchronous=normal")
