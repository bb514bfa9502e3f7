"""The store in memory, beyond the contract."""

from __future__ import annotations

import pytest

from secondcall.errors import InvalidValue
from secondcall.registry import store_from_url
from secondcall.stores.memory import MemoryStore
from secondcall.testing.conformance.material import SCOPE, all_changes, entry, record

pytestmark = pytest.mark.anyio


def test_registry_knows_the_scheme() -> None:
    """``memory://`` gives this store, a new one each time."""
    assert isinstance(store_from_url("memory://"), MemoryStore)
    assert store_from_url("memory://") is not store_from_url("memory://")


@pytest.mark.parametrize("url", ["memory://name", "memory:///file.db", "memory://?size=1"])
def test_more_than_the_scheme_is_refused(url: str) -> None:
    """A name, path or option, which would have no effect, is an error."""
    with pytest.raises(InvalidValue, match="memory://"):
        MemoryStore(url)


async def test_closing_and_opening_keeps_what_is_there() -> None:
    """The object holds its data for as long as it lives, closed or open."""
    store = MemoryStore()
    await store.open()
    await record(store, entry("a"))
    await store.aclose()
    await store.open()
    assert len(await all_changes(store)) == 1
    await store.aclose()


async def test_callers_cannot_change_what_is_stored() -> None:
    """A buffer that the caller changes later was copied when it was written."""
    store = MemoryStore()
    await store.open()
    await record(store)
    data = bytearray(b"before")
    await store.put_blob(SCOPE, "b", data, epoch=b"0123456789abcdef")  # pyright: ignore[reportArgumentType] - any buffer
    data[:] = b"after!"
    assert await store.blob(SCOPE, "b") == b"before"
    await store.aclose()
