from __future__ import annotations

import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from secondcall.errors import InvalidValue, MissingExtra
from secondcall.identity import mask_phone, normalize_phone, withheld_forms

SAME = [
    "+14155550100",
    "+1 415 555 0100",
    "+1-415-555-0100",
    "+1 (415) 555-0100",
    "(+1) 415.555.0100",
    " +1/415/5550100 ",
    "+1\u00a0415\u2011555\u20110100",
    "\u202a+1 415 555 0100\u202c",
    "＋１４１５５５５０１００",
    "+١٤١٥٥٥٥٠١٠٠",
]
WITHHELD = [
    "",
    "   ",
    "\u200b",
    "anonymous",
    "Anonymous",
    "RESTRICTED",
    "Unknown",
    "private",
    "Private Number",
    "No Caller ID",
    "unavailable",
    "blocked",
    "withheld",
    "out-of-area",
    "NULL",
    "None",
    "undefined",
    "n/a",
    "P",
    "-",
    "+",
    "+266696687",
    "266696687",
    "+7378742833",
    "+86282452253",
    "+8656696",
    "+2562533",
    "0000000000",
    "+0000000000",
    "0",
    "+10000000000",
    "+1111111111",
    "999999999999",
]
MALFORMED = [
    "100",
    "1001",
    "911",
    "*67",
    "5550100",
    "+1",
    "+1234",
    "+12345678901234567",
    "+0123456789",
    "++14155550100",
    "+1415555+0100",
    "14155550100",
    "0044 20 7946 0018",
    "+1-800-FLOWERS",
    "+1 415 555 0100, +1 415 555 0111",
    "call me",
    "+1415555010\x00",
    "x" * 100_000,
]


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if phonenumbers were not installed."""
    monkeypatch.setitem(sys.modules, "phonenumbers", None)


@pytest.mark.parametrize("text", SAME)
def test_spellings_of_a_number_are_one(text: str) -> None:
    """However a + number is written, it has one E.164 form."""
    assert normalize_phone(text) == "+14155550100"


@pytest.mark.usefixtures("no_library")
@pytest.mark.parametrize("text", SAME)
def test_spellings_are_one_without_the_library(text: str) -> None:
    """Without phonenumbers the form is the same, so that installing it loses nobody."""
    assert normalize_phone(text) == "+14155550100"


@pytest.mark.parametrize("text", [*WITHHELD, *MALFORMED])
def test_what_is_no_number_identifies_nobody(text: str) -> None:
    """Withheld, short and malformed numbers are refused, and the message does not hold them."""
    with pytest.raises(InvalidValue) as caught:
        normalize_phone(text)
    digits = [part for part in text.split() if len(part) > 5 and part[-1].isdigit()]
    assert not any(part in str(caught.value) for part in digits)


@pytest.mark.usefixtures("no_library")
@pytest.mark.parametrize("text", [*WITHHELD, *MALFORMED, "+44 (0)20 7946 0018"])
def test_what_is_no_number_identifies_nobody_without_the_library(text: str) -> None:
    """Without phonenumbers the same are refused, and what only it can read."""
    with pytest.raises(InvalidValue):
        normalize_phone(text)


@pytest.mark.parametrize(
    ("text", "region", "value"),
    [
        ("(415) 555-0100", "US", "+14155550100"),
        ("1 415 555 0100", "us", "+14155550100"),
        ("020 7946 0018", "GB", "+442079460018"),
        ("0044 20 7946 0018", "DE", "+442079460018"),
        ("030 901820", "DE", "+4930901820"),
        ("06 698 12345", "IT", "+390669812345"),
        ("+44 (0)20 7946 0018", None, "+442079460018"),
        ("+14155550100", "DE", "+14155550100"),
    ],
)
def test_a_region_reads_national_numbers(text: str, region: str | None, value: str) -> None:
    """National numbers are read in the default region, + numbers the same in any."""
    assert normalize_phone(text, default_region=region) == value


def test_an_extension_is_another_identity() -> None:
    """Whoever sits behind a switchboard is not the switchboard, nor the next extension."""
    values = {normalize_phone(f"+14155550100{ext}") for ext in ("", " x12", " ext. 13", "#14")}
    assert values == {
        "+14155550100",
        "+14155550100;ext=12",
        "+14155550100;ext=13",
        "+14155550100;ext=14",
    }


def test_an_unknown_region_is_a_wrong_call() -> None:
    """A region that does not exist is refused by name."""
    with pytest.raises(InvalidValue, match="'XX'"):
        normalize_phone("+14155550100", default_region="XX")


@pytest.mark.usefixtures("no_library")
def test_a_region_needs_the_extra() -> None:
    """Without phonenumbers a region says what to install."""
    with pytest.raises(MissingExtra, match=r"pip install 'secondcall\[phone\]'"):
        normalize_phone("4155550100", default_region="US")


@given(st.text() | st.from_regex(r"\+?[0-9 ().\-]{0,20}( ?x[0-9]{1,4})?"))
@example("+5500000000001")
def test_normalising_is_a_fixed_point(text: str) -> None:
    """Any text is refused or has a form that is its own form; nothing else is raised."""
    try:
        value = normalize_phone(text)
    except InvalidValue:
        return
    assert normalize_phone(value) == value


@given(st.from_regex(r"\+[1-9][0-9]{6,14}", fullmatch=True))
def test_a_masked_number_is_not_the_number(number: str) -> None:
    """A mask keeps at most three digits."""
    masked = mask_phone(number)
    assert sum(c.isdigit() for c in masked) <= 3
    assert number not in masked


def test_masks() -> None:
    """A mask shows the first and the last two digits, and nothing of what is short."""
    assert mask_phone("+14155550100") == "+1********00"
    assert mask_phone("+14155550100;ext=12") == "+1********00"
    assert mask_phone("12345") == "***"


def test_no_withheld_form_is_a_number() -> None:
    """What stands in place of a number is refused as one, in every spelling."""
    accepted: list[str] = []
    for form in withheld_forms():
        try:
            accepted.append(normalize_phone(form))
        except InvalidValue:
            continue
    assert accepted == []
    assert {"", "anonymous", "Anonymous", "No Caller ID", "+266696687", "1001"} <= {
        *withheld_forms()
    }
