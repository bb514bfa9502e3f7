"""Damaged documents raise a named error, and show nothing."""

from __future__ import annotations

import pytest

from secondcall import ItemKey, Memory, Message, StoreCorrupt
from secondcall.abc import ANY_VERSION, Batch, DocumentWrite, Scope

pytestmark = pytest.mark.anyio

SCOPE = Scope("default", "user", "ann")


async def _damage(memory: Memory, kind: str, key: str) -> None:
    store = memory._shared.store  # pyright: ignore[reportPrivateUsage] - broken from inside
    header = await store.header(SCOPE)
    assert header is not None
    write = DocumentWrite(kind=kind, key=key, body=b"{", expected_version=ANY_VERSION)
    await store.write(SCOPE, Batch(documents=[write]), epoch=header.epoch, now_us=0)


async def test_a_damaged_policy_is_named(memory: Memory) -> None:
    """A retention policy that cannot be read raises StoreCorrupt, not a decoder's error."""
    user = memory.user("ann")
    await (await user.session("s")).record(Message("user", "hello"))
    await _damage(memory, "retention", "policy")
    with pytest.raises(StoreCorrupt, match="retention policy of user 'ann'"):
        await user.recall("hello")
    with pytest.raises(StoreCorrupt, match="retention policy of user 'ann'"):
        await user.forget()


async def test_a_damaged_list_of_sensitive_items_hides_rather_than_shows(memory: Memory) -> None:
    """When what is sensitive cannot be read, a claimed caller gets an error and no words."""
    caller = await memory.identify(phone="+14155550100")
    await memory.link("ann", email="ann@example.com")
    user = memory.user("ann")
    recorded = await (await user.session("s")).record(Message("user", "I have asthma.", id="m"))
    assert recorded.keys == (ItemKey("ann", "s", "message", "m"),)
    await _damage(memory, "fact_sensitive", "x")
    assert caller.trust == "claimed"
    claimed = memory.user(await memory.identify(email="ann@example.com"))
    with pytest.raises(StoreCorrupt, match="list of sensitive items"):
        await claimed.recall("asthma")
