from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from secondcall.abc import Store
from secondcall.stores.memory import MemoryStore

# The importlib mode of pytest puts no test folder on the path; identity_kit.py is beside this file.
sys.path.append(str(Path(__file__).parent))


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    """An open store in memory."""
    memory = MemoryStore()
    await memory.open()
    yield memory
    await memory.aclose()
