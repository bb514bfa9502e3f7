"""What the tests of the LlamaIndex adapter share: a store of their own, closed behind each."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pydantic
import pytest

with warnings.catch_warnings():  # the oldest release warns of its own fields as it is imported
    warnings.simplefilter("ignore")
    import llama_index.core.agent.workflow

from secondcall.adapters.llama_index.places import close_places

assert llama_index.core.agent.workflow

_FOLDER = Path(__file__).parent
_THEIRS = (
    "ignore::pydantic.warnings.PydanticDeprecationWarning",
    "ignore:is_running called from within a step:DeprecationWarning",
)
"""LlamaIndex looks at every attribute of an agent, deprecated ones of pydantic among them."""


def pytest_report_header() -> str:
    """Say which pydantic LlamaIndex writes contexts with."""
    return f"pydantic {pydantic.VERSION}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let pass what LlamaIndex itself warns of, in the tests of this folder."""
    for item in items:
        if _FOLDER in item.path.parents:
            for one in _THEIRS:
                item.add_marker(pytest.mark.filterwarnings(one))


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The URL of an empty store."""
    return f"sqlite:///{tmp_path / 'memory.db'}"


@pytest.fixture(autouse=True)
def _closed_behind() -> Iterator[None]:
    """Close what was opened by name or URL."""
    yield
    close_places()
