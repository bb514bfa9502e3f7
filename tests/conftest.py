"""What all tests share."""

from __future__ import annotations

import os

import apsw
import pytest

pytest_plugins = ["services.postgresql", "services.redis"]

KNOBS = ("SECONDCALL_KILL_", "SECONDCALL_CONTENTION_", "SECONDCALL_EVAL_")
"""Variables that steer the tests themselves; every other ``SECONDCALL_*`` is a setting."""


def pytest_configure() -> None:
    """Take the settings of whoever runs the tests out of the environment."""
    for name in list(os.environ):
        if name.startswith("SECONDCALL_") and not name.startswith(KNOBS):
            del os.environ[name]


def pytest_report_header() -> str:
    """Say which SQLite is under test."""
    return f"SQLite {apsw.sqlite_lib_version()} (apsw {apsw.apsw_version()})"


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The event loop that async tests run on."""
    return "asyncio"
