"""Names for stores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import secondcall
from secondcall import InvalidValue, Memory, UnknownName
from secondcall.named import named_memory, store_name

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _forgotten_behind() -> Iterator[None]:
    """Take the names away again."""
    yield
    secondcall.configure(main=None, other=None)


async def test_a_name_means_the_store_that_was_configured(tmp_path: Path) -> None:
    """A configured name opens its store; a function may open it with other settings."""
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    secondcall.configure(main=url, other=lambda: Memory.open(url, tenant_id="acme"))
    async with named_memory("main") as memory, named_memory("other") as other:
        assert (memory.tenant_id, other.tenant_id) == ("default", "acme")
    assert store_name(url) == "main"


def test_a_name_that_nobody_knows() -> None:
    """An unknown name is an error that names it and says what to do."""
    with pytest.raises(UnknownName, match=r"'main'.*secondcall\.configure.*SECONDCALL_URL"):
        named_memory("main")


async def test_the_store_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``SECONDCALL_URL`` is meant by ``default`` and by the name made of it, by no other."""
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    monkeypatch.setenv("SECONDCALL_URL", url)
    for name in ("default", store_name(url)):
        async with named_memory(name) as memory:
            assert await memory.users() == []
    with pytest.raises(UnknownName):
        named_memory("main")


def test_a_made_name_holds_no_secret() -> None:
    """The name made of a URL is the same whoever logs in, and another for another store."""
    url = "postgresql://ann:hunter2@db.example.org/memory?sslmode=require"
    name = store_name(url)
    assert name == store_name("postgresql://db.example.org/memory")
    assert name != store_name("postgresql://db.example.org/other")
    assert "hunter2" not in name
    assert "example" not in name


@pytest.mark.parametrize("opening", [1, b"sqlite://", ["x"]])
def test_wrong_openings(opening: object) -> None:
    """What is neither a URL nor a function is refused, and nothing is configured."""
    with pytest.raises(InvalidValue, match="'main'"):
        secondcall.configure({"other": "memory://", "main": opening})  # pyright: ignore[reportArgumentType] - wrong on purpose
    with pytest.raises(UnknownName):
        named_memory("other")
