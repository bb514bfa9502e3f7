"""SIP and telephone addresses: ``sip:``, ``sips:``, ``tel:`` and LiveKit's ``sip_+1415…``.

An address whose user part is a global phone number identifies that number, whatever gateway it came
through; any other identifies ``user@host``, the user as written and the host case-folded (RFC 3261
section 19.1.4). Extensions, anonymous hosts (RFC 3323), the default users of gateways and local
numbers without a country identify nobody.
"""

from __future__ import annotations

import re
import unicodedata
from ipaddress import ip_address
from typing import Literal, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from secondcall.errors import InvalidValue
from secondcall.identity.phone import (
    MAX_CHARACTERS,
    country_region,
    normalize_phone,
    refuse_placeholder,
    withheld_word,
)

__all__ = ["Address", "normalize_sip"]

_NAME_ADDRESS = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^<"]*)\s*<([^<>]*)>[^<>]*', re.DOTALL)
_SCHEME = re.compile(r"(sips?|tel):(.*)", re.IGNORECASE | re.DOTALL)
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"\+?[0-9().\- ]+")
_UNESCAPED = "-_.!~*'()&=+$,;?/"
"""RFC 3261's ``unreserved`` and ``user-unreserved`` marks."""
_DEFAULT_USERS = frozenset({"asterisk", "default", "freeswitch", "guest", "s", "test", "user"})
"""What a gateway puts into ``From`` when nobody set it: the same for all of its callers."""


class Address(NamedTuple):
    """What an address identifies: an E.164 phone number or a ``user@host``."""

    kind: Literal["phone", "sip"]
    value: str


def normalize_sip(text: str, *, default_region: str | None = None) -> Address:
    """The phone number or SIP address that a URI, a ``From`` value or an identity names.

    Raises: ``InvalidValue`` when it is withheld, malformed, a short extension or a local number;
    ``MissingExtra`` for a region without ``phonenumbers``. No message holds the address.
    """
    if len(text) > MAX_CHARACTERS:
        raise InvalidValue(f"the address has {len(text)} characters, at most {MAX_CHARACTERS}")
    address = text.strip()
    if "<" in address:
        bracketed = _NAME_ADDRESS.fullmatch(address)
        if bracketed is None:
            raise InvalidValue("the address is malformed: < and > do not match")
        address = bracketed.group(1).strip()
    if withheld_word(address):
        raise InvalidValue("the address is withheld")
    scheme = _SCHEME.fullmatch(address)
    if scheme and scheme.group(1).lower() == "tel":
        return Address("phone", _telephone(scheme.group(2), default_region))
    if scheme:
        return _uri(scheme.group(2), default_region)
    if address[:4].lower() == "sip_":
        address = address[4:]
    if "@" in address:
        return _uri(address, default_region)
    return Address("phone", normalize_phone(address, default_region=default_region))


def _uri(rest: str, region: str | None) -> Address:
    userinfo, at, location = rest.partition("@")
    if not at:
        raise InvalidValue("the address names a host and no user")
    user = _unescaped(userinfo.partition(":")[0])
    host = _host(re.split(r"[;?]", location, maxsplit=1)[0])
    base, *parameters = user.split(";")
    if withheld_word(base) or host.rpartition(".")[2] == "invalid":
        raise InvalidValue("the address is withheld")
    if unicodedata.normalize("NFKC", base).casefold().strip() in _DEFAULT_USERS:
        raise InvalidValue("the address is a gateway's default, not somebody's own")
    if _NUMBER.fullmatch(base):
        number = _user_number(base, parameters, region)
        if number is not None:
            return Address("phone", number)
    return Address("sip", f"{quote(user, safe=_UNESCAPED)}@{host}")


def _user_number(base: str, parameters: list[str], region: str | None) -> str | None:
    """The phone number of a user part of digits; ``None`` if it is only known to its host."""
    if base.startswith("+"):
        return _telephone(";".join([base, *parameters]), region)
    if _parameter(parameters, "phone-context") is not None:
        return _telephone(";".join([base, *parameters]), region)
    if region is not None:
        try:
            return _telephone(";".join([base, *parameters]), region)
        except InvalidValue:
            pass
    digits = re.sub(r"[^0-9]", "", base)
    if not 8 <= len(digits) <= 15:
        raise InvalidValue(f"the address is an extension or no number: it has {len(digits)} digits")
    # Refuses 0000000000 and the numbers that spell ANONYMOUS, whatever the host.
    refuse_placeholder(digits)
    return None


def _telephone(rest: str, region: str | None) -> str:
    number, *parameters = _unescaped(rest.partition("?")[0]).split(";")
    extension = _parameter(parameters, "ext")
    if not number.lstrip().startswith("+"):
        context = _parameter(parameters, "phone-context")
        if context is not None:
            # A context is where a number can be dialled, not its prefix (RFC 3966, 5.1.5); only a
            # bare country code says in full how to read a national number.
            region = country_region(context)
            if region is None:
                raise InvalidValue("the number is local to its phone-context")
    if extension is not None:
        digits = re.sub(r"[().\- ]", "", extension)
        if not re.fullmatch(r"[0-9]{1,10}", digits):
            raise InvalidValue("the extension is malformed: expected 1 to 10 digits")
        number = f"{number};ext={digits}"
    return normalize_phone(number, default_region=region)


def _parameter(parameters: list[str], name: str) -> str | None:
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip().lower() == name:
            return value.strip()
    return None


def _unescaped(text: str) -> str:
    if re.search(r"%(?![0-9a-fA-F]{2})", text):
        raise InvalidValue("the address is malformed: a % is not followed by two hex digits")
    try:
        user = unquote_to_bytes(text.encode()).decode()
    except UnicodeError:
        raise InvalidValue("the address is malformed: it is not UTF-8") from None
    if re.search(r"[\x00-\x1f\x7f-\x9f]", user):
        raise InvalidValue("the address is malformed: it holds control characters")
    return user


def _host(location: str) -> str:
    text = location.strip().lower()
    bracketed = re.fullmatch(r"\[([0-9a-f:.]+)\](?::([0-9]{1,5}))?", text)
    plain = re.fullmatch(r"([a-z0-9_.-]+?)\.?(?::([0-9]{1,5}))?", text)
    found = bracketed or plain
    if found is None:
        raise InvalidValue("the address is malformed: its host is not a name or IP address")
    host = found.group(1)
    try:
        ip = ip_address(host)
    except ValueError:
        labels = host.split(".")
        if bracketed or len(host) > 253 or not all(map(_LABEL.fullmatch, labels)):
            raise InvalidValue("the address is malformed: its host is not a name") from None
        if host in ("localhost", "unknown", "anonymous"):
            raise InvalidValue("the address is withheld: its host names no place") from None
    else:
        if ip.is_loopback or ip.is_unspecified:
            raise InvalidValue("the address is withheld: its host names no place")
        host = f"[{ip.compressed}]" if ip.version == 6 else ip.compressed
    port = found.group(2)
    return host if port is None or int(port) in (5060, 5061) else f"{host}:{int(port)}"
