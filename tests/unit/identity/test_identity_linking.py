from __future__ import annotations

from typing import Any, cast

import pytest
from identity_kit import (
    OTHER_PHONE,
    PHONE,
    TENANT,
    call,
    faults,
    ids,
    one_id,
    relay,
    user_ids,
)

from secondcall.abc import Store
from secondcall.errors import InvalidValue, TooLarge
from secondcall.identity import audit, identities_of, link, link_all, merge, unlink
from secondcall.identity.linking import MAX_LINKS

pytestmark = pytest.mark.anyio


async def test_a_linked_identity_leads_to_its_user(store: Store) -> None:
    """What a host links is found, also for a user whom the host named and nobody wrote to."""
    made = await link(
        store, TENANT, "ann", one_id(phone=PHONE), now_us=7, actor="crm", reason="import"
    )
    assert (made.user_id, made.kind, made.masked, made.trust) == (
        "ann",
        "phone",
        "phone +1********00",
        "claimed",
    )
    caller = await call(store, phone=PHONE)
    assert (caller.user_id, caller.known) == ("ann", True)
    (entry,) = await audit(store, TENANT, "ann")
    assert (entry.action, entry.actor, entry.reason, entry.identity) == (
        "linked",
        "crm",
        "import",
        "phone +1********00",
    )
    assert entry.at == made.linked_at


async def test_linking_again_changes_nothing(store: Store) -> None:
    """A repeated link is the same link, with one entry in the trail."""
    one = await link(store, TENANT, "ann", one_id(phone=PHONE), now_us=1)
    two = await link(store, TENANT, "ann", one_id(phone=PHONE), now_us=2)
    assert one == two
    assert len(await audit(store, TENANT, "ann")) == 1


async def test_linking_verified_upgrades_and_claimed_does_not_downgrade(store: Store) -> None:
    """A link becomes verified by the host's word and stays so."""
    claimed, verified = one_id(phone=PHONE), one_id(phone=PHONE, verified=["phone"])
    await link(store, TENANT, "ann", claimed, now_us=1)
    assert (await link(store, TENANT, "ann", verified, now_us=2)).trust == "verified"
    assert (await link(store, TENANT, "ann", claimed, now_us=3)).trust == "verified"
    assert [e.action for e in await audit(store, TENANT, "ann")] == ["linked", "verified"]


async def test_another_users_identity_cannot_be_taken(store: Store) -> None:
    """Linking what points to somebody else is refused, masked, and changes nothing."""
    await link(store, TENANT, "ann", one_id(phone=PHONE), now_us=1)
    with pytest.raises(InvalidValue, match=r"phone \+1\*+00 points to another user") as caught:
        await link(store, TENANT, "bob", one_id(phone=PHONE), now_us=2)
    assert "ann" not in str(caught.value)
    assert (await call(store, phone=PHONE)).user_id == "ann"
    assert await user_ids(store) == ["ann"]


async def test_several_identities_are_linked_together(store: Store) -> None:
    """Identities of one call are linked, best first, each once; a repeat changes nothing."""
    given = [
        one_id(email="ann@example.com"),
        one_id(phone=PHONE),
        one_id(phone=PHONE, verified=["phone"]),
    ]
    made = await link_all(store, TENANT, "ann", given, now_us=1, actor="crm")
    assert [(i.kind, i.trust) for i in made] == [("phone", "verified"), ("email", "claimed")]
    assert await link_all(store, TENANT, "ann", given, now_us=2) == made
    assert await link_all(store, TENANT, "ann", [], now_us=2) == []
    assert [(e.action, e.actor) for e in await audit(store, TENANT, "ann")] == [
        ("linked", "crm")
    ] * 2
    assert await faults(store) == []


async def test_several_identities_of_which_one_is_taken_write_nothing(store: Store) -> None:
    """If one of them points to somebody else, none is linked or upgraded and no user is made."""
    await link(store, TENANT, "bob", one_id(email="bob@example.com"), now_us=1)
    await link(store, TENANT, "ann", one_id(device="handset-1"), now_us=1)
    given = ids(phone=PHONE, email="bob@example.com", device="handset-1", verified=["device"])
    with pytest.raises(InvalidValue, match=r"email b\*\*\*@e\*\*\* points to another user; unlink"):
        await link_all(store, TENANT, "ann", given, now_us=2)
    with pytest.raises(InvalidValue, match=r"device .* and email .* point to another user"):
        await link_all(store, TENANT, "new", given, now_us=2)
    assert await user_ids(store) == ["ann", "bob"]
    assert [i.trust for i in await identities_of(store, TENANT, "ann")] == ["claimed"]
    assert not (await call(store, phone=PHONE)).known


async def test_several_identities_of_which_one_is_taken_meanwhile_are_taken_back(
    store: Store,
) -> None:
    """What the call linked is unlinked, with its trail; what the user had before stays."""
    await link(store, TENANT, "ann", one_id(device="handset-1"), now_us=1)
    given = ids(phone=PHONE, email="ann@example.com", device="handset-1")
    stolen = one_id(email="ann@example.com")
    waiting = True

    async def step(name: str, done: bool) -> None:
        nonlocal waiting
        if name == "write" and waiting:
            waiting = False
            await link(store, TENANT, "bob", stolen, now_us=2)

    with pytest.raises(InvalidValue, match=r"email .* points to another user"):
        await link_all(relay(store, step), TENANT, "ann", given, now_us=2)
    assert [i.kind for i in await identities_of(store, TENANT, "ann")] == ["device"]
    assert not (await call(store, phone=PHONE)).known
    assert (await call(store, email="ann@example.com")).user_id == "bob"
    trail = [(e.action, e.actor, e.identity) for e in await audit(store, TENANT, "ann")]
    assert trail[1:] == [
        ("linked", "host", "phone +1********00"),
        ("unlinked", "secondcall", "phone +1********00"),
    ]
    assert await faults(store) == []


async def test_an_unlinked_identity_leads_to_a_new_user(store: Store) -> None:
    """After unlink the number is nobody's, its partition is gone, the trail says who did it."""
    first = await call(store, phone=PHONE, email="ann@example.com")
    assert await unlink(store, TENANT, first.user_id, one_id(phone=PHONE), now_us=5, actor="desk")
    assert len(await store.scopes(TENANT, "identity", limit=10)) == 1
    assert (await call(store, email="ann@example.com")).user_id == first.user_id
    second = await call(store, phone=PHONE)
    assert second.user_id != first.user_id
    assert (await audit(store, TENANT, first.user_id))[-1].actor == "desk"
    assert await faults(store) == []


async def test_unlinking_takes_what_the_list_shows(store: Store) -> None:
    """An entry of identities_of can be unlinked; what is not the user's gives false."""
    first = await call(store, phone=PHONE)
    (listed,) = await identities_of(store, TENANT, first.user_id)
    assert not await unlink(store, TENANT, "nobody", listed, now_us=1)
    assert await unlink(store, TENANT, first.user_id, listed, now_us=1)
    assert not await unlink(store, TENANT, first.user_id, listed, now_us=1)
    assert await identities_of(store, TENANT, first.user_id) == []


async def test_an_unlinked_identity_can_be_linked_again(store: Store) -> None:
    """Unlinking leaves the number free for anybody, the old user included."""
    await link(store, TENANT, "ann", one_id(phone=PHONE), now_us=1)
    await unlink(store, TENANT, "ann", one_id(phone=PHONE), now_us=2)
    await link(store, TENANT, "bob", one_id(phone=PHONE), now_us=3)
    await unlink(store, TENANT, "bob", one_id(phone=PHONE), now_us=4)
    await link(store, TENANT, "ann", one_id(phone=PHONE), now_us=5)
    assert (await call(store, phone=PHONE)).user_id == "ann"
    assert await faults(store) == []


async def test_links_of_a_merged_user_go_to_the_canonical_one(store: Store) -> None:
    """New identities of an alias are the canonical user's, and stay there after unmerge."""
    await link(store, TENANT, "ann", one_id(phone=PHONE), now_us=1)
    await link(store, TENANT, "bob", one_id(phone=OTHER_PHONE), now_us=1)
    await merge(store, TENANT, "bob", "ann", now_us=2)
    made = await link(store, TENANT, "bob", one_id(device="handset-1"), now_us=3)
    assert made.user_id == "ann"
    assert {i.user_id for i in await identities_of(store, TENANT, "ann")} == {"ann", "bob"}
    assert await unlink(store, TENANT, "ann", one_id(phone=OTHER_PHONE), now_us=4)


async def test_a_user_has_room_for_many_identities_and_no_more(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One link over the limit is refused; a call with one more identity still finds its user."""
    assert MAX_LINKS == 256
    monkeypatch.setattr("secondcall.identity.linking.MAX_LINKS", 4)
    for number in range(3):
        await link(store, TENANT, "ann", one_id(device=f"handset-{number}"), now_us=1)
    await link(store, TENANT, "ann", one_id(subject="account-1"), now_us=1)
    with pytest.raises(TooLarge, match="at most 4"):
        await link(store, TENANT, "ann", one_id(phone=PHONE), now_us=1)
    await unlink(store, TENANT, "ann", one_id(device="handset-0"), now_us=1)
    with pytest.raises(TooLarge, match="at most 4"):
        await link_all(store, TENANT, "ann", ids(phone=PHONE, device="handset-0"), now_us=1)
    assert len(await identities_of(store, TENANT, "ann")) == 3
    await link(store, TENANT, "ann", one_id(device="handset-0"), now_us=1)
    caller = await call(store, subject="account-1", phone=PHONE)
    assert caller.user_id == "ann"
    assert len(await identities_of(store, TENANT, "ann")) == 4


@pytest.mark.parametrize(
    ("actor", "reason"), [("", ""), (" ", ""), ("a" * 201, ""), ("a", "r" * 1001)]
)
async def test_notes_are_checked_before_anything_is_written(
    store: Store, actor: str, reason: str
) -> None:
    """An empty or overlong actor or reason is refused and nothing is half-written."""
    with pytest.raises(InvalidValue):
        await link(store, TENANT, "ann", one_id(phone=PHONE), now_us=1, actor=actor, reason=reason)
    assert await user_ids(store) == []


@pytest.mark.parametrize("user_id", ["", "a\x00b", "\ud800", "x" * 1025])
async def test_ids_that_cannot_be_stored_are_refused(store: Store, user_id: str) -> None:
    """An empty, broken or overlong user id is refused by name and nothing is written."""
    await link(store, TENANT, "ann", one_id(device="handset-1"), now_us=1)
    with pytest.raises(InvalidValue, match="user_id"):
        await link(store, TENANT, user_id, one_id(phone=PHONE), now_us=1)
    with pytest.raises(InvalidValue, match="from_user"):
        await merge(store, TENANT, user_id, "ann", now_us=1)
    assert await user_ids(store) == ["ann"]


async def test_the_trail_is_in_order_and_limited(store: Store) -> None:
    """Entries come oldest first, also before 1970 and within one moment, at most the limit."""
    for at in (5, -62_135_596_800_000_000, 5):
        await link(store, TENANT, "ann", one_id(device=f"handset{at}"), now_us=at)
        await unlink(store, TENANT, "ann", one_id(device=f"handset{at}"), now_us=at)
    actions = [(e.at.year, e.action) for e in await audit(store, TENANT, "ann")]
    assert actions == [(1, "linked"), (1, "unlinked")] + [(1970, "linked"), (1970, "unlinked")] * 2
    assert len(await audit(store, TENANT, "ann", limit=3)) == 3


@pytest.mark.parametrize("limit", [0, -1, None, "3", 1.5, True])
async def test_a_limit_that_is_no_count_is_refused(store: Store, limit: object) -> None:
    """The trail's limit is a whole number from 1, or an error that names it."""
    with pytest.raises(InvalidValue, match="limit"):
        await audit(store, TENANT, "ann", limit=cast("Any", limit))
