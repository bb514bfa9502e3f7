from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secondcall.errors import InvalidValue, MissingExtra
from secondcall.identity import Identifier, IdentityKind, identifiers_from
from secondcall.identity.identifiers import KINDS, in_order_of_trust, partition_name


def test_the_best_identifier_comes_first() -> None:
    """Verified identifiers come first, then subject, phone, SIP, email and device."""
    found = identifiers_from(
        device="handset-1",
        email="ann@example.com",
        sip="sip:ann@example.com",
        phone="+14155550100",
        subject="account-1",
        verified=["email"],
    )
    assert [(i.kind, i.trust) for i in found.usable] == [
        ("subject", "verified"),
        ("email", "verified"),
        ("phone", "claimed"),
        ("sip", "claimed"),
        ("device", "claimed"),
    ]
    assert found.rejected == ()


def test_two_fields_of_one_number_are_one_identifier() -> None:
    """A number given as phone and inside a SIP address counts once, with the better trust."""
    found = identifiers_from(
        phone="+14155550100", sip="sip:+14155550100@example.com", verified=["sip"]
    )
    assert found.usable == (Identifier("phone", "+14155550100", "verified"),)


def test_two_numbers_are_two_identifiers() -> None:
    """A number that differs from the one in the SIP address stays beside it."""
    found = identifiers_from(phone="+14155550100", sip="sip_+14155550111")
    assert [i.value for i in found.usable] == ["+14155550100", "+14155550111"]


def test_a_useless_field_is_reported_and_the_rest_is_used() -> None:
    """Bug #37: a missing number beside a usable SIP identity still identifies the caller."""
    found = identifiers_from(phone="", sip="sip_+17135550100", email="nonsense", device=7)
    assert found.usable == (Identifier("phone", "+17135550100"),)
    assert [r.field for r in found.rejected] == ["phone", "email", "device"]
    assert all(r.reason for r in found.rejected)


@pytest.mark.parametrize(
    "value", ["tel:+14155550100", "sip:+14155550100@h.example", "sip_+14155550100"]
)
def test_a_phone_field_may_hold_an_address_of_a_number(value: str) -> None:
    """Addresses of numbers are read in the phone field too; others are pointed to the right one."""
    assert identifiers_from(phone=value).usable == (Identifier("phone", "+14155550100"),)
    (rejected,) = identifiers_from(phone="sip:ann@example.com").rejected
    assert "give it as sip" in rejected.reason


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "None",
        "null",
        "undefined",
        "nan",
        "Anonymous",
        "unknown",
        "guest",
        "default",
        "User",
        "test",
        "false",
        "{}",
        "[]",
        "[object Object]",
        "0",
        "-1",
        "true",
        "---",
        "a\x00b",
        "a\nb",
        "\ud800",
        "x" * 1001,
        7,
        b"bytes",
        ["list"],
        1.5,
    ],
)
def test_placeholders_are_not_ids(value: object) -> None:
    """A missing value turned into text, and what is not text, is nobody's subject or device."""
    found = identifiers_from(subject=value, device=value)
    assert found.usable == ()
    assert len(found.rejected) == 2


@pytest.mark.parametrize(
    "value",
    [
        "00000000-0000-0000-0000-000000000000",
        "{00000000-0000-0000-0000-000000000000}",
        "000000000000000",
        "0000",
        "FFFFFFFF-ffff-ffff-ffff-ffffffffffff",
        "ff:ff:ff:ff:ff:ff",
        "xxxxxxxx",
        "02:00:00:00:00:00",
        "02-00-00-00-00-00",
        "9774d56d682e549c",
        "9774D56D682E549C",
    ],
)
def test_ids_that_many_devices_share_are_no_devices(value: str) -> None:
    """Blanked and stock device ids identify nobody, however they are separated or cased."""
    found = identifiers_from(device=value)
    assert found.usable == ()
    (rejected,) = found.rejected
    assert "many devices share" in rejected.reason


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("device", "11"),
        ("device", "00000000-0000-0000-0000-000000000001"),
        ("device", "02:00:00:00:00:01"),
        ("device", "9774d56d682e549c1"),
        ("device", "test-phone"),
        ("subject", "user1"),
        ("subject", "user:default"),
        ("subject", "test-user"),
        ("subject", "10"),
        ("subject", "nancy"),
        ("email", "testa@example.com"),
        ("email", "guest.smith@example.com"),
        ("email", "nan@example.com"),
        ("email", "ann@noreply.com"),
        ("email", "test+ann@example.com"),
    ],
)
def test_values_that_only_contain_a_placeholder_are_kept(field: str, value: str) -> None:
    """A placeholder is refused as a whole value only, never as a part of one."""
    (found,) = identifiers_from(**cast("Any", {field: value})).usable
    assert found.value == value


@pytest.mark.parametrize(
    "value", ["a", "user/1:2_3..%20 x", "üñï", "日本", "x" * 1000, "auth0|5f7c8ec7c33c6c004bbafe82"]
)
def test_ids_of_any_characters_are_kept_as_they_are(value: str) -> None:
    """Subjects are opaque: any printable text up to 1,000 characters, in its own case."""
    (found,) = identifiers_from(subject=value).usable
    assert found.value == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Ann@Example.COM", "Ann@example.com"),
        (" ann@example.com. ", "ann@example.com"),
        ("ann+tag@mail.example.co.uk", "ann+tag@mail.example.co.uk"),
        ("jo\u0308rg@bücher.example", "j\u00f6rg@bücher.example"),
    ],
)
def test_emails_have_one_form(text: str, value: str) -> None:
    """The domain of an email is case-folded, its local part is kept."""
    assert identifiers_from(email=text).usable == (Identifier("email", value),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ann",
        "@example.com",
        "ann@",
        "ann@localhost",
        "a b@example.com",
        "ann@exa mple.com",
        "Ann <ann@example.com>",
        "ann@example..com",
        "a@b@example.com",
        "anonymous@anonymous.invalid",
        "no-reply@example.com",
        "Guest@example.com",
        "none@example.com",
        "null@example.com",
        "noreply@example.com",
        "donotreply@example.com",
        "anonymous@example.com",
        "unknown@example.com",
        "TEST@example.com",
        "unknown",
        "ann@" + "a" * 300 + ".com",
        "a\x00@example.com",
    ],
)
def test_emails_of_nobody_are_refused(text: str) -> None:
    """Malformed, shared and anonymous addresses identify nobody."""
    assert identifiers_from(email=text).usable == ()


def test_wrong_calls_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown name in verified, a bad region and a missing extra are errors."""
    with pytest.raises(InvalidValue):
        identifiers_from(phone="+14155550100", verified=cast("Any", ["telephone"]))
    with pytest.raises(InvalidValue):
        identifiers_from(phone="+14155550100", verified=cast("Any", "phone"))
    with pytest.raises(InvalidValue):
        identifiers_from(default_region="Atlantis")
    with pytest.raises(InvalidValue, match="default_region must be text, not int"):
        identifiers_from(default_region=cast("Any", 5))
    with pytest.raises(InvalidValue):
        Identifier(cast("Any", "fax"), "1")
    with pytest.raises(InvalidValue):
        Identifier("device", "")
    monkeypatch.setitem(__import__("sys").modules, "phonenumbers", None)
    with pytest.raises(InvalidValue, match="default_region must be text, not int"):
        identifiers_from(default_region=cast("Any", 5))
    with pytest.raises(MissingExtra):
        identifiers_from(default_region="US")


def test_nothing_shows_a_whole_value() -> None:
    """The repr and the mask of an identifier hold neither numbers nor addresses nor ids."""
    for identifier in identifiers_from(
        phone="+14155550100",
        sip="sip:ann@example.com",
        email="ann@example.com",
        subject="account-12345",
        device="handset-12345",
    ).usable:
        for shown in (repr(identifier), identifier.masked):
            assert identifier.value not in shown
            assert "12345" not in shown
            assert "example" not in shown


_KIND = st.sampled_from(KINDS)
_VALUE = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@given(_KIND, _VALUE, _KIND, _VALUE)
def test_two_identities_never_share_a_partition(
    k1: IdentityKind, v1: str, k2: IdentityKind, v2: str
) -> None:
    """Partition names are equal exactly for equal kinds and values."""
    assert (partition_name(k1, v1) == partition_name(k2, v2)) == ((k1, v1) == (k2, v2))


def test_a_partition_name_cannot_be_forged_by_moving_text() -> None:
    """Kind and value are length-prefixed: text moved from one to the other changes the name."""
    assert partition_name("sip", "phone+1") != partition_name("sipphone", "+1")


@given(st.text(), st.text(), st.text(), st.text(), st.text())
def test_no_text_crashes(phone: str, sip: str, subject: str, email: str, device: str) -> None:
    """Every text in every field is used or reported, and nothing is raised."""
    found = identifiers_from(phone=phone, sip=sip, subject=subject, email=email, device=device)
    assert (
        len({r.field for r in found.rejected}) == len(found.rejected) >= 5 - len(found.usable) - 1
    )
    assert in_order_of_trust(found.usable) == found.usable
    again = {i.kind: i.value for i in found.usable if i.kind != "phone"}
    for kind, value in again.items():
        (same,) = identifiers_from(**cast("Any", {kind: value})).usable
        assert same.value == value
    for rejected in found.rejected:
        given_text = {"phone": phone, "sip": sip, "email": email}.get(rejected.field, "")
        assert len(given_text) < 12 or given_text not in rejected.reason
