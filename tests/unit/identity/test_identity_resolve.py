from __future__ import annotations

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
from secondcall.identity import audit, identifiers_from, identities_of, link, merge, resolve
from secondcall.identity.person import Where, read_person, user_scope

pytestmark = pytest.mark.anyio


async def test_the_second_call_is_the_same_user(store: Store) -> None:
    """A number that calls again reaches the same user, who is then known."""
    first = await call(store, phone=PHONE)
    second = await call(store, phone="+1 (415) 555-0100")
    assert not first.known
    assert second.known
    assert second.user_id == first.user_id
    assert (first.trust, second.trust) == ("claimed", "claimed")


async def test_a_stranger_is_another_user(store: Store) -> None:
    """Another number, and the same number of another tenant, are other users."""
    first = await call(store, phone=PHONE)
    stranger = await call(store, phone=OTHER_PHONE)
    elsewhere = await resolve(store, "other tenant", ids(phone=PHONE), now_us=0)
    assert len({first.user_id, stranger.user_id, elsewhere.user_id}) == 3
    assert not elsewhere.known


@pytest.mark.parametrize("phone", ["", "anonymous", "+266696687", "1001", "+1234", "0000000000"])
async def test_a_withheld_caller_shares_nothing(store: Store, phone: str) -> None:
    """Each call without a usable identity has a user of its own, and nothing is stored."""
    one = await call(store, phone=phone)
    two = await call(store, phone=phone)
    assert one.anonymous
    assert not one.known
    assert one.user_id != two.user_id
    assert await user_ids(store) == []
    assert await store.scopes(TENANT, "identity", limit=10) == []


async def test_a_late_number_finds_the_caller(store: Store) -> None:
    """Bug #37: the number inside a SIP identity and the number itself are one caller."""
    early = await call(store, phone=None, sip="sip_+17135550100")
    late = await call(store, phone="+1 713 555 0100", sip="sip_+17135550100")
    assert late.user_id == early.user_id


async def test_a_known_caller_costs_three_reads_and_no_write(store: Store) -> None:
    """Resolving a known caller reads the claim, the user's document and its header, no more."""
    await call(store, phone=PHONE)
    calls: list[str] = []

    async def step(name: str, done: bool) -> None:
        if not done:
            calls.append(name)

    await call(relay(store, step), phone=PHONE)
    assert calls == ["document", "document", "header"]


async def test_what_a_new_user_came_with_is_linked(store: Store) -> None:
    """All identifiers of a first call lead to its user afterwards, each with its own trust."""
    first = await call(store, phone=PHONE, device="handset-1", subject="account-1")
    assert first.trust == "verified"
    for fields, trust in (
        ({"phone": PHONE}, "claimed"),
        ({"device": "handset-1"}, "claimed"),
        ({"subject": "account-1"}, "verified"),
    ):
        caller = await call(store, **fields)
        assert (caller.user_id, caller.known, caller.trust) == (first.user_id, True, trust)


async def test_a_verified_caller_brings_a_claimed_number(store: Store) -> None:
    """A number claimed by a verified caller is linked as claimed: alone it proves nothing."""
    first = await call(store, subject="account-1")
    both = await call(store, subject="account-1", phone=PHONE)
    alone = await call(store, phone=PHONE)
    assert {first.user_id, both.user_id, alone.user_id} == {first.user_id}
    assert (both.trust, alone.trust) == ("verified", "claimed")
    assert both.conflicts == ()


async def test_a_claimed_caller_gets_nothing_linked(store: Store) -> None:
    """A known number does not pull an unknown device in: a spoofed call would keep its way in."""
    first = await call(store, phone=PHONE)
    again = await call(store, phone=PHONE, device="stranger's")
    device = await call(store, device="stranger's")
    assert again.user_id == first.user_id
    assert device.user_id != first.user_id
    assert not device.known


async def test_a_verified_caller_is_never_found_by_caller_id(store: Store) -> None:
    """A new verified subject on a known number is a new user; the number is a conflict."""
    owner = await call(store, phone=PHONE)
    stranger = await call(store, subject="account-2", phone=PHONE)
    assert stranger.user_id != owner.user_id
    assert (stranger.trust, stranger.known) == ("verified", False)
    assert stranger.conflicts == ("phone +1********00",)
    assert (await call(store, phone=PHONE)).user_id == owner.user_id


async def test_conflicts_are_reported_and_change_nothing(store: Store) -> None:
    """Two fields of two users: the better one decides, the other is named, masked, and kept."""
    one = await call(store, subject="account-1")
    two = await call(store, phone=PHONE)
    three = await call(store, device="handset-1")
    caller = await call(
        store, subject="account-1", phone=PHONE, device="handset-1", email="ann@example.com"
    )
    assert caller.user_id == one.user_id
    assert (
        caller.conflicts == ("phone +1********00", "device han***"[:9] + "***")
        or len(caller.conflicts) == 2
    )
    assert PHONE not in "".join(caller.conflicts)
    assert (await call(store, phone=PHONE)).user_id == two.user_id
    assert (await call(store, device="handset-1")).user_id == three.user_id
    assert [i.kind for i in await identities_of(store, TENANT, one.user_id)] == ["subject"]


async def test_claimed_fields_that_disagree_go_by_rank(store: Store) -> None:
    """Among claimed fields the phone outranks email and device; nobody is verified by it."""
    phone = await call(store, phone=PHONE)
    email = await call(store, email="ann@example.com")
    caller = await call(store, email="ann@example.com", phone=PHONE)
    assert caller.user_id == phone.user_id
    assert caller.trust == "claimed"
    assert caller.conflicts == ("email a***@e***",)
    assert email.user_id != phone.user_id


async def test_a_number_verified_later_is_upgraded(store: Store) -> None:
    """A link made on a claim becomes verified when the caller proves the number."""
    first = await call(store, phone=PHONE)
    proved = await call(store, 5, phone=PHONE, verified=["phone"])
    claimed = await call(store, phone=PHONE)
    assert proved.user_id == claimed.user_id == first.user_id
    assert (proved.trust, claimed.trust) == ("verified", "claimed")
    (identity,) = await identities_of(store, TENANT, first.user_id)
    assert identity.trust == "verified"
    actions = [entry.action for entry in await audit(store, TENANT, first.user_id)]
    assert actions == ["linked", "verified"]


async def test_a_claimed_link_does_not_open_another_persons_user(store: Store) -> None:
    """Proving a number that a verified user merely claimed gives that user's memory as claimed."""
    owner = await call(store, subject="account-1", phone=PHONE)
    proved = await call(store, phone=PHONE, verified=["phone"])
    assert proved.user_id == owner.user_id
    assert proved.trust == "claimed"
    both = await call(store, subject="account-1", phone=PHONE, verified=["phone"])
    assert both.trust == "verified"
    assert (await call(store, phone=PHONE, verified=["phone"])).trust == "verified"


async def test_two_proved_fields_join_a_user(store: Store) -> None:
    """A new subject proved together with a known user's number leads to that user from then on."""
    first = await call(store, phone=PHONE)
    both = await call(store, subject="account-1", phone=PHONE, verified=["phone"])
    assert (both.user_id, both.trust, both.known) == (first.user_id, "verified", True)
    assert (await call(store, subject="account-1")).user_id == first.user_id


async def test_an_erased_user_is_not_found_again(store: Store) -> None:
    """A claim whose user was erased, even behind its back, gives a new user."""
    first = await call(store, phone=PHONE)
    await store.erase(user_scope(TENANT, first.user_id))
    second = await call(store, phone=PHONE)
    assert second.user_id != first.user_id
    assert not second.known
    assert (await call(store, phone=PHONE)).user_id == second.user_id
    assert await faults(store) == []


async def test_a_user_who_returned_is_not_the_erased_one(store: Store) -> None:
    """A claim holds for one epoch of its user: made anew under the same id, it is another."""
    await link(store, TENANT, "ann", one_id(phone=PHONE), now_us=0)
    await store.erase(user_scope(TENANT, "ann"))
    await link(store, TENANT, "ann", one_id(device="handset-1"), now_us=0)
    caller = await call(store, phone=PHONE)
    assert caller.user_id != "ann"
    ann = await read_person(Where(store=store, tenant_id=TENANT), "ann")
    device = one_id(device="handset-1").name
    assert ann.holds(device, ann.epoch)
    assert not ann.holds(device, b"the epoch before")


async def test_a_merged_user_resolves_to_the_canonical_one(store: Store) -> None:
    """Identities of a merged user lead to the canonical user, with the trust of their own link."""
    phone = await call(store, phone=PHONE)
    account = await call(store, subject="account-1")
    await merge(store, TENANT, phone.user_id, account.user_id, now_us=1)
    caller = await call(store, phone=PHONE)
    assert (caller.user_id, caller.trust) == (account.user_id, "claimed")
    both = await call(store, phone=PHONE, subject="account-1")
    assert both.conflicts == ()


async def test_ids_are_random_or_from_the_given_source(store: Store) -> None:
    """User ids are opaque, 130 bits from the given source of random bytes."""
    caller = await resolve(
        store, TENANT, ids(phone=PHONE), now_us=0, random=lambda size: bytes(size)
    )
    assert caller.user_id == "user_" + "a" * 26
    anonymous = await resolve(store, TENANT, (), now_us=0, random=lambda size: bytes(size))
    assert anonymous.user_id == "anonymous_" + "a" * 26


async def test_no_number_is_stored_in_the_clear(store: Store) -> None:
    """Neither names nor documents of any partition hold the number, the email or the subject."""
    found = identifiers_from(phone=PHONE, email="ann@example.com", subject="account-12345")
    await resolve(store, TENANT, found.usable, now_us=0)
    text = ""
    for scope in [
        *await store.scopes(TENANT, "user", limit=10),
        *await store.scopes(TENANT, "identity", limit=10),
    ]:
        text += scope.name
        for kind in ("identity", "identity_audit", "claim"):
            for document in await store.documents(scope, kind, limit=100):
                text += document.key + document.body.decode()
    assert text
    for secret in ("4155550", "example", "12345"):
        assert secret not in text


@pytest.mark.parametrize(
    "fields",
    [
        {"device": "00000000-0000-0000-0000-000000000000"},
        {"device": "02:00:00:00:00:00"},
        {"sip": '"asterisk" <sip:asterisk@10.0.0.5>'},
        {"email": "guest@example.com"},
        {"subject": "default"},
    ],
)
async def test_strangers_with_one_stock_value_share_nothing(
    store: Store, fields: dict[str, str]
) -> None:
    """Two callers with the same stock value are two, both anonymous, and nothing is stored."""
    one, two = await call(store, **fields), await call(store, **fields)
    assert (one.anonymous, two.anonymous) == (True, True)
    assert one.user_id != two.user_id
    assert await store.scopes(TENANT, "identity", limit=10) == []
