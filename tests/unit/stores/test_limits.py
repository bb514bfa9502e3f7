"""Isolation as a property: any two different names are two places."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from secondcall.abc import Batch, NewEntry, Scope, Store
from secondcall.stores.memory import MemoryStore
from secondcall.stores.sqlite import SqliteStore
from secondcall.testing.conformance.material import EPOCH, NOW_US, document, key

NAMES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=12
)
SCOPES = st.lists(
    st.builds(Scope, NAMES, st.sampled_from(["user", "identity"]), NAMES),
    min_size=2,
    max_size=6,
    unique=True,
)


async def _check(store: Store, scopes: list[Scope], session_id: str, item_id: str) -> None:
    await store.open()
    for number, scope in enumerate(scopes):
        body = b"%d" % number
        new = NewEntry(key=key(item_id, session_id), at_us=NOW_US, body=body, digest=body)
        await store.write(
            scope,
            Batch(entries=[new], documents=[document(item_id, body)]),
            epoch=EPOCH,
            now_us=NOW_US,
            create=True,
        )
    await store.erase(scopes[0])
    assert sum((await store.scan(scopes[0])).values()) == 0
    for number, scope in enumerate(scopes[1:], start=1):
        (found,) = await store.read(scope, session_id=session_id, limit=9)
        assert found.body == b"%d" % number
        (listed,) = await store.documents(scope, "fact", prefix=item_id, limit=9)
        assert listed.body == b"%d" % number
        names = [one.name for one in await store.scopes(scope.tenant_id, scope.partition, limit=9)]
        assert scope.name in names
        assert names == sorted(names)
    await store.aclose()


@given(scopes=SCOPES, session_id=NAMES, item_id=NAMES)
@settings(max_examples=40, deadline=None)
def test_any_two_scopes_are_apart_in_memory(
    scopes: list[Scope], session_id: str, item_id: str
) -> None:
    """Whatever characters the names hold, a scope reads and erases only its own."""
    asyncio.run(_check(MemoryStore(), scopes, session_id, item_id))


@given(scopes=SCOPES, session_id=NAMES, item_id=NAMES)
@settings(max_examples=20, deadline=None)
def test_any_two_scopes_are_apart_in_sqlite(
    scopes: list[Scope], session_id: str, item_id: str
) -> None:
    """Whatever characters the names hold, a scope reads and erases only its own."""
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(f"sqlite:///{Path(folder, 'memory.db')}?synchronous=normal")
        asyncio.run(_check(store, scopes, session_id, item_id))
