"""Phone numbers: to E.164, or a reason why they identify nobody.

With the extra ``phone`` the numbers are checked by ``phonenumbers`` and national ones are read with
a region; without it only ``+`` numbers are taken, digit by digit. What cannot be read for certain
is refused: a wrong number would open somebody else's memory.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import TYPE_CHECKING

from secondcall.errors import InvalidValue, MissingExtra

if TYPE_CHECKING:
    from types import ModuleType

__all__ = [
    "country_region",
    "mask_phone",
    "normalize_phone",
    "refuse_placeholder",
    "warm_phone",
    "withheld_forms",
    "withheld_word",
]

MAX_CHARACTERS = 1000

_WORDS = frozenset(
    {
        "anonymous",
        "anonym",
        "blocked",
        "caller id blocked",
        "caller id unavailable",
        "callerid blocked",
        "hidden",
        "id unavailable",
        "id withheld",
        "n a",
        "nan",
        "nil",
        "no caller id",
        "no number",
        "no id",
        "none",
        "not available",
        "not provided",
        "null",
        "number withheld",
        "out of area",
        "payphone",
        "private",
        "private caller",
        "private name",
        "private number",
        "restricted",
        "restricted number",
        "suppressed",
        "unavailable",
        "undefined",
        "unknown",
        "unknown caller",
        "unknown name",
        "unknown number",
        "withheld",
        "withheld number",
    }
)
# Gateways without a number spell a word on the keypad; ANONYMOUS arrives as +266696687.
_KEYPAD = str.maketrans("abcdefghijklmnopqrstuvwxyz", "22233344455566677778889999")
_SPELLED = frozenset(
    word.translate(_KEYPAD)
    for word in ("anonymous", "blocked", "restricted", "unavailable", "unknown")
)
_EXTENSION = re.compile(r"(?:;ext=|[\s,;]*(?:extension|ext\.?|x|#)\s*)(\d{1,10})$")
_ZEROS_AFTER_COUNTRY = re.compile(r"\+?\d{0,3}0{7,}")
_E164 = re.compile(r"\+[1-9][0-9]{7,14}")


def normalize_phone(text: str, *, default_region: str | None = None) -> str:
    """The E.164 form, ``+14155550100``; behind a switchboard ``+14155550100;ext=12``.

    ``default_region`` (``"US"``) reads national numbers and needs the extra ``phone``. The result
    is a fixed point: normalising it again gives it back.

    Raises: ``InvalidValue`` when the number is withheld, malformed, short or needs a region;
    ``MissingExtra`` for a region without ``phonenumbers``. No message holds the number.
    """
    region = _checked_region(default_region)
    plain = _plain_text(text)
    if withheld_word(plain) or plain in ("o", "p", "u"):  # CNAM codes: out of area, private
        raise InvalidValue("the number is withheld")
    found = _EXTENSION.search(plain)
    main = plain[: found.start()] if found else plain
    dialled = "".join(c for c in main if not _is_separator(c))
    if not re.fullmatch(r"\+?[0-9]+", dialled):
        raise InvalidValue("the number is malformed: expected digits, with + and the country code")
    refuse_placeholder(dialled.removeprefix("+"))
    number = _e164(dialled, main, region)
    refuse_placeholder(number.removeprefix("+"))
    return f"{number};ext={found.group(1)}" if found else number


def mask_phone(text: str) -> str:
    """A number fit for messages and logs: at most the first and the last two digits are left."""
    digits = "".join(c for c in text.partition(";")[0] if c.isdecimal())
    if len(digits) < 7:
        return "***"
    plus = "+" if text.lstrip().startswith("+") else ""
    return f"{plus}{digits[0]}{'*' * (len(digits) - 3)}{digits[-2:]}"


def withheld_word(text: str) -> bool:
    """True for empty text and for the words that stand where a number or address is withheld."""
    words = re.sub(r"[\W_]+", " ", unicodedata.normalize("NFKC", text).casefold()).strip()
    return not words or words in _WORDS


def withheld_forms() -> Iterator[str]:
    """What gateways are known to send in place of a number, in the spellings that are usual: words,
    digits that spell one, extensions. For a host that is given only a hash of what was sent."""
    yield ""
    for word in _WORDS:
        for joined in {word, word.replace(" ", "_"), word.replace(" ", "-"), word.replace(" ", "")}:
            title = joined.title()
            yield from {joined, joined.upper(), joined.capitalize(), title}
            yield re.sub(r"\bId\b", "ID", title)
    for digits in _SPELLED:
        yield from (digits, f"+{digits}")
    for length in range(1, 5):
        yield from (f"{number:0{length}d}" for number in range(10**length))
    for digit in "0123456789":
        yield from (digit * length for length in range(5, 16))


def warm_phone() -> None:
    """Import ``phonenumbers`` now, if it is installed, so that the first call need not wait."""
    _library()


def country_region(context: str) -> str | None:
    """The region of a bare country code such as ``+44``; ``None`` for any other context.

    Raises: ``InvalidValue`` without the extra ``phone``.
    """
    if not re.fullmatch(r"\+[1-9][0-9]{0,2}", context):
        return None
    phonenumbers = _library()
    if phonenumbers is None:
        raise InvalidValue("the number is national; pip install 'secondcall[phone]' to read it")
    region = str(phonenumbers.region_code_for_country_code(int(context)))
    return region if region in phonenumbers.SUPPORTED_REGIONS else None


def _plain_text(text: str) -> str:
    if len(text) > MAX_CHARACTERS:
        raise InvalidValue(f"the number has {len(text)} characters, at most {MAX_CHARACTERS}")
    characters: list[str] = []
    for character in unicodedata.normalize("NFKC", text).casefold():
        category = unicodedata.category(character)
        if category == "Nd":
            characters.append(str(unicodedata.decimal(character)))
        elif category != "Cf":
            characters.append(character)
    return "".join(characters).strip()


def _is_separator(character: str) -> bool:
    return character in "().-/ \t" or unicodedata.category(character) in ("Zs", "Pd")


def refuse_placeholder(digits: str) -> None:
    """Refuse digits that stand for no number: ``0000000000``, ``+266696687`` (ANONYMOUS).

    Raises: ``InvalidValue``.
    """
    if digits in _SPELLED:
        raise InvalidValue("the number is withheld: its digits spell a word")
    if len(set(digits)) == 1 or _ZEROS_AFTER_COUNTRY.fullmatch(digits):
        raise InvalidValue("the number is a placeholder, not somebody's number")


def _e164(dialled: str, written: str, region: str | None) -> str:
    phonenumbers = _library()
    if phonenumbers is None:
        if not dialled.startswith("+"):
            raise InvalidValue(
                "the number has no country code; give it with +, or a default_region "
                "(pip install 'secondcall[phone]')"
            )
        # "+44 (0)20 …": whether the zero counts depends on the country.
        if "(0)" in written:
            raise InvalidValue("the number holds (0); pip install 'secondcall[phone]' to read it")
        if not _E164.fullmatch(dialled):
            raise InvalidValue("the number is malformed: expected + and 8 to 15 digits")
        return dialled
    value = _parsed(phonenumbers, dialled, region)
    if _parsed(phonenumbers, value, None) != value:
        raise InvalidValue("the number can be read in two ways; give it with + and without a 0")
    return value


def _parsed(phonenumbers: ModuleType, dialled: str, region: str | None) -> str:
    try:
        number = phonenumbers.parse(dialled, region)
    except phonenumbers.NumberParseException:
        raise InvalidValue(
            "the number is malformed, or needs a country code or a default_region"
        ) from None
    possible = phonenumbers.is_possible_number_with_reason(number)
    if possible != phonenumbers.ValidationResult.IS_POSSIBLE:
        raise InvalidValue("the number has a wrong length for its country")
    value = str(phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164))
    if not re.fullmatch(r"\+[1-9][0-9]{6,14}", value):
        raise InvalidValue("the number is malformed: expected + and at most 15 digits")
    return value


def _checked_region(region: object) -> str | None:
    if region is None:
        return None
    if not isinstance(region, str):
        raise InvalidValue(f"default_region must be text, not {type(region).__name__}")
    phonenumbers = _library()
    if phonenumbers is None:
        raise MissingExtra(
            "default_region needs phonenumbers: pip install 'secondcall[phone]', "
            "or leave it out and give numbers with + and the country code"
        )
    if region.upper() not in phonenumbers.SUPPORTED_REGIONS:
        raise InvalidValue(f"default_region {region[:20]!r} is not a region such as 'US' or 'DE'")
    return region.upper()


def _library() -> ModuleType | None:
    try:
        import phonenumbers
    except ImportError:
        return None
    return phonenumbers
