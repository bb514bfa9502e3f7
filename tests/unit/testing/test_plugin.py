"""The pytest plugin, as a third party meets it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SUITE = """
import pytest
from secondcall.stores.memory import MemoryStore
from secondcall.testing.conformance import StoreConformance, StoreFactory


class TestMyStore(StoreConformance):
    @pytest.fixture
    def store_factory(self) -> StoreFactory:
        return MemoryStore


def test_clock(frozen_clock):
    assert frozen_clock.now().year == 2026
"""

LIGHT = """
import sys
import secondcall.testing.plugin
late = ("stores", "testing.conformance", "testing.fakes")
print([n for n in sys.modules if n.startswith(tuple(f"secondcall.{one}" for one in late))])
"""


def test_third_party_runs_the_suite(tmp_path: Path) -> None:
    """A dozen lines in another project run the whole suite, without any configuration."""
    (tmp_path / "test_mine.py").write_text(SUITE)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2_000:]
    assert "passed" in done.stdout
    assert "failed" not in done.stdout


def test_forgotten_fixture_is_explained(tmp_path: Path) -> None:
    """A class that does not override ``store_factory`` is told what to do."""
    lines = [
        "from secondcall.testing.conformance import StoreConformance",
        "class TestMine(StoreConformance): pass",
    ]
    (tmp_path / "test_mine.py").write_text("\n".join(lines))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-k",
            "absent_partition_is_empty",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "override the fixture store_factory" in done.stdout


def test_plugin_is_light() -> None:
    """Loading the plugin, which every pytest run does, loads no store, suite or fake."""
    done = subprocess.run([sys.executable, "-c", LIGHT], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"
