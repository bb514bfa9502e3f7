from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secondcall.errors import InvalidValue
from secondcall.identity import normalize_sip


@pytest.mark.parametrize(
    "text",
    [
        "sip:+14155550100@trunk.example.com",
        "sips:+14155550100@Trunk.Example.com:5061",
        "SIP:+1-415-555-0100@10.0.0.1;user=phone",
        '"Bob <b>" <sip:+14155550100@trunk.example.com;transport=tcp>;tag=abc',
        "Bob <sip:+14155550100@trunk.example.com>",
        "<tel:+1-415-555-0100>",
        "tel:+1(415)555.0100;isub=7",
        "sip:+14155550100;npdi@trunk.example.com?subject=x@y",
        "sip:%2B14155550100@trunk.example.com",
        "sip:+14155550100:secret@trunk.example.com",
        "sip_+14155550100",
        "SIP_+1 415 555 0100",
        "sip_+14155550100@trunk.example.com",
        "+14155550100",
        "+14155550100@trunk.example.com",
        "tel:4155550100;phone-context=+1",
        "sip:(415)555-0100;phone-context=+1@gateway.example.com;user=phone",
    ],
)
def test_an_address_of_a_number_is_the_number(text: str) -> None:
    """A global number identifies the same caller in every address form."""
    assert normalize_sip(text) == ("phone", "+14155550100")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("sip:alice@Example.COM", "alice@example.com"),
        ("sip:Alice@example.com", "Alice@example.com"),
        ("sips:alice@example.com.;transport=tls", "alice@example.com"),
        ("sip:alice@example.com:5060", "alice@example.com"),
        ("sip:alice@example.com:5070", "alice@example.com:5070"),
        ("alice@example.com", "alice@example.com"),
        ("sip:%61lice@example.com", "alice@example.com"),
        ("sip:a%40b@example.com", "a%40b@example.com"),
        ("sip:j%C3%B6rg@example.com", "j%C3%B6rg@example.com"),
        ("sip:jörg@example.com", "j%C3%B6rg@example.com"),
        ("sip:alice;day=tuesday@example.com", "alice;day=tuesday@example.com"),
        ("sip:alice@[2001:DB8:0::1]:5060", "alice@[2001:db8::1]"),
        ("sip:alice@192.0.2.1", "alice@192.0.2.1"),
        ("sip:4155550100@gateway.example.com", "4155550100@gateway.example.com"),
    ],
)
def test_any_other_address_is_user_and_host(text: str, value: str) -> None:
    """The user keeps its case, the host does not, escapes and default ports make no difference."""
    assert normalize_sip(text) == ("sip", value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sip:",
        "sip:@example.com",
        "sip:example.com",
        "sip:anonymous@anonymous.invalid",
        '"Anonymous" <sip:c8oqz84zk7z@privacy.invalid>',
        "sip:anonymous@example.com",
        "sip:Restricted@10.0.0.1",
        "sip:unavailable@example.com",
        "sip:%61nonymous@example.com",
        '"asterisk" <sip:asterisk@10.0.0.5>',
        "sip:Asterisk@10.0.0.5:5080",
        "sip:%61sterisk;x=1@example.com",
        "sip:asterisk:secret@example.com",
        "sip_freeswitch@example.com",
        "sip:s@example.com",
        "sip:S@10.0.0.5",
        "sip:unknown@10.0.0.5",
        "sip:anonymous@10.0.0.5",
        "sip:guest@example.com",
        "sips:guest@example.com",
        "sip:default@example.com",
        "sip:test@example.com",
        "sip:user@example.com",
        "anonymous",
        "sip_anonymous",
        "sip_",
        "sip_1001",
        "sip_14155550100",
        "sip:1001@pbx.example.com",
        "sip:100@10.0.0.1",
        "sip:0000000000@example.com",
        "sip:266696687@example.com",
        "sip:+266696687@example.com",
        "sip:+1234@example.com",
        "sip:1234567890123456789@example.com",
        "sip:alice@localhost",
        "sip:alice@127.0.0.1",
        "sip:alice@[::1]",
        "sip:alice@0.0.0.0",
        "sip:alice@exa mple.com",
        "sip:alice@b@example.com",
        "sip:al%zzice@example.com",
        "sip:al%00ice@example.com",
        "sip:al%ffice@example.com",
        "sip:alice@-example-.com",
        "sip:alice@example.com:99999999",
        "<sip:alice@example.com",
        "sip:alice@example.com>",
        "tel:",
        "tel:5550100",
        "tel:1001;phone-context=pbx.example.com",
        "tel:863-1234;phone-context=+1-914-555",
        "tel:+14155550100;ext=abc",
        "tel:anonymous",
        "alice",
        "room-42",
        "sip:alice@" + "a" * 2000,
    ],
)
def test_what_is_withheld_or_malformed_identifies_nobody(text: str) -> None:
    """Anonymous, local, short, broken and default addresses are refused."""
    with pytest.raises(InvalidValue):
        normalize_sip(text)


@pytest.mark.parametrize("user", ["sam", "asterisk-ann", "ann.s", "guest7", "s-s", "unknown2"])
def test_users_that_only_contain_a_default_are_kept(user: str) -> None:
    """A gateway's default user is refused as a whole only, and never for the host's name."""
    for host in ("example.com", "asterisk.example.com", "s"):
        assert normalize_sip(f"sip:{user}@{host}") == ("sip", f"{user}@{host}")


@pytest.mark.parametrize(
    "text", ["sip_14155550100", "sip:4155550100@gateway.example.com", "tel:415-555-0100"]
)
def test_a_region_reads_national_user_parts(text: str) -> None:
    """With a default region a national number identifies its E.164 number."""
    assert normalize_sip(text, default_region="US") == ("phone", "+14155550100")


def test_an_extension_behind_a_number_is_kept() -> None:
    """An extension in an address is another identity than the number itself."""
    assert normalize_sip("tel:+14155550100;ext=12") == ("phone", "+14155550100;ext=12")
    assert normalize_sip("sip:+14155550100;ext=1-2@example.com") == (
        "phone",
        "+14155550100;ext=12",
    )


_PARTS = st.sampled_from(
    ["sip:", "sips:", "tel:", "sip_", "<", ">", '"', "@", ";", "?", ":", "%", "%41", "%2B", "+"]
) | st.text(max_size=6)


@given(st.text() | st.lists(_PARTS, max_size=12).map("".join))
def test_normalising_an_address_is_a_fixed_point(text: str) -> None:
    """Any text is refused or has a form that is its own form; nothing else is raised."""
    try:
        address = normalize_sip(text)
    except InvalidValue:
        return
    assert normalize_sip(address.value) == address


_USER = st.text("abcABC01@;:%/ü ", min_size=1, max_size=6)


@given(_USER, _USER)
def test_two_users_of_a_host_are_two(one: str, other: str) -> None:
    """Different users, once escaped, never have one form."""
    from urllib.parse import quote

    try:
        forms = [normalize_sip(f"sip:{quote(user, safe='')}@example.com") for user in (one, other)]
    except InvalidValue:
        return
    assert (forms[0] == forms[1]) == (one == other) or forms[0].kind == "phone"
