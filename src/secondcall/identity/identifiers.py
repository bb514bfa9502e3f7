"""What a host knows of a caller, checked and brought to one form.

A field that cannot identify anybody is reported and left out; it never stops the call. The form of
a value decides which memory is opened, so everything doubtful is refused.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal, get_args

from secondcall.errors import InvalidValue
from secondcall.identity.phone import MAX_CHARACTERS, mask_phone, normalize_phone, withheld_word
from secondcall.identity.sip import Address, normalize_sip
from secondcall.types import Trust

__all__ = [
    "Identifier",
    "Identifiers",
    "IdentityKind",
    "Rejected",
    "identifiers_from",
    "partition_name",
]

IdentityKind = Literal["subject", "phone", "sip", "email", "device"]
KINDS: tuple[IdentityKind, ...] = get_args(IdentityKind)
"""Best first, among equals in trust."""

_SHARED_MAILBOXES = frozenset(
    {
        "anonymous",
        "do-not-reply",
        "do.not.reply",
        "do_not_reply",
        "donotreply",
        "guest",
        "no-reply",
        "no.reply",
        "no_reply",
        "none",
        "noreply",
        "null",
        "test",
        "undefined",
        "unknown",
    }
)
_PLACEHOLDERS = frozenset(
    {"0", "-1", "default", "false", "guest", "object object", "test", "true", "user"}
)
_SHARED_DEVICES = frozenset({"020000000000", "9774d56d682e549c"})
"""Without separators: the hardware address that Android and iOS give instead of the real one, and
the Android id that emulators and whole model series have in common."""
_FILLER_CHARACTERS = 6
"""From this length on one repeated character is a filler; below it may be room 11."""
_DOMAIN_LABEL = re.compile(r"\w(?:[\w-]{0,61}\w)?")


@dataclass(frozen=True, slots=True, repr=False)
class Identifier:
    """One normalised value that can point to a user. Its ``repr`` is masked.

    Make them with ``identifiers_from``: a value that is not normalised is another identity.
    """

    kind: IdentityKind
    value: str
    trust: Trust = "claimed"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidValue(f"identity kind must be one of {', '.join(KINDS)}")
        if not self.value or not _is_text(self.value):
            raise InvalidValue(f"the value of the {self.kind} identity is empty or not text")

    def __repr__(self) -> str:
        return f"<Identifier {self.masked}, {self.trust}>"

    @property
    def name(self) -> str:
        """The name of its identity partition."""
        return partition_name(self.kind, self.value)

    @property
    def masked(self) -> str:
        """Kind and value as they may stand in messages and in the audit trail."""
        return f"{self.kind} {_mask(self.kind, self.value)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A field that identifies nobody, and why. The reason never holds the value."""

    field: IdentityKind
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Identifiers:
    """What can identify the caller, best first, and what cannot."""

    usable: tuple[Identifier, ...]
    rejected: tuple[Rejected, ...] = ()


def partition_name(kind: str, value: str) -> str:
    """The name of an identity's partition: SHA-256 over length-prefixed kind and value, in hex."""
    digest = hashlib.sha256()
    for part in (kind.encode(), value.encode()):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()


def identifiers_from(
    *,
    phone: object = None,
    sip: object = None,
    subject: object = None,
    email: object = None,
    device: object = None,
    verified: Collection[IdentityKind] = (),
    default_region: str | None = None,
) -> Identifiers:
    """The usable identifiers among the fields, normalised, best first; ``None`` is not given.

    ``subject`` is an id that your backend authenticated and is always verified; ``verified`` names
    other fields that it proved. A SIP address of a phone number gives that phone number.

    Raises: ``InvalidValue`` for an unknown name in ``verified`` or an unknown ``default_region``;
    ``MissingExtra`` for a ``default_region`` without ``phonenumbers``.
    """
    unknown = [name for name in verified if name not in KINDS]
    if isinstance(verified, str) or unknown:
        raise InvalidValue(f"verified takes a collection of field names, of {', '.join(KINDS)}")
    if default_region is not None:
        normalize_phone("+14155550100", default_region=default_region)
    readers: dict[IdentityKind, tuple[object, Callable[[str], Address | tuple[str, str]]]] = {
        "subject": (subject, lambda text: ("subject", _opaque(text))),
        "phone": (phone, lambda text: ("phone", _phone_field(text, default_region))),
        "sip": (sip, lambda text: normalize_sip(text, default_region=default_region)),
        "email": (email, lambda text: ("email", _email(text))),
        "device": (device, lambda text: ("device", _device(text))),
    }
    usable: list[Identifier] = []
    rejected: list[Rejected] = []
    for field, (given, read) in readers.items():
        if given is None:
            continue
        trust: Trust = "verified" if field == "subject" or field in verified else "claimed"
        try:
            kind, value = read(_text(given))
        except InvalidValue as error:
            rejected.append(Rejected(field=field, reason=str(error)))
        else:
            usable.append(Identifier(kind, value, trust))  # pyright: ignore[reportArgumentType] - kinds are checked
    return Identifiers(usable=in_order_of_trust(usable), rejected=tuple(rejected))


def in_order_of_trust(identifiers: Collection[Identifier]) -> tuple[Identifier, ...]:
    """Verified first, then subject, phone, SIP, email, device; each value once, at its best."""
    ordered = sorted(identifiers, key=lambda i: (i.trust != "verified", KINDS.index(i.kind)))
    best: dict[tuple[str, str], Identifier] = {}
    for identifier in ordered:
        best.setdefault((identifier.kind, identifier.value), identifier)
    return tuple(best.values())


def _text(given: object) -> str:
    if not isinstance(given, str):
        raise InvalidValue(f"expected text, found {type(given).__name__}")
    if len(given) > MAX_CHARACTERS:
        raise InvalidValue(f"{len(given)} characters, at most {MAX_CHARACTERS}")
    if not _is_text(given):
        raise InvalidValue("not valid Unicode: it holds a lone surrogate")
    return given


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _phone_field(text: str, region: str | None) -> str:
    if ":" not in text and "@" not in text and text[:4].lower() != "sip_":
        return normalize_phone(text, default_region=region)
    kind, value = normalize_sip(text, default_region=region)
    if kind != "phone":
        raise InvalidValue("the address is not a phone number; give it as sip")
    return value


def _opaque(text: str) -> str:
    value = text.strip()
    if re.search(r"[\x00-\x1f\x7f-\x9f]", value):
        raise InvalidValue("it holds control characters")
    if withheld_word(value):
        raise InvalidValue("it is empty or withheld")
    # Hosts that turn a missing value into text would share one memory among all their users.
    words = re.sub(r"[\W_]+", " ", unicodedata.normalize("NFKC", value).casefold()).strip()
    if value in _PLACEHOLDERS or words in _PLACEHOLDERS:
        raise InvalidValue("it is a placeholder, not somebody's id")
    return value


def _device(text: str) -> str:
    value = _opaque(text)
    plain = re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", value).casefold())
    filler = len(plain) >= _FILLER_CHARACTERS and len(set(plain)) == 1
    if filler or not plain.strip("0") or plain in _SHARED_DEVICES:
        raise InvalidValue("it is a placeholder that many devices share, not one device's id")
    return value


def _email(text: str) -> str:
    value = unicodedata.normalize("NFC", text.strip())
    local, at, domain = value.rpartition("@")
    domain = unicodedata.normalize("NFKC", domain).casefold().removesuffix(".")
    labels = domain.split(".")
    if withheld_word(value) or labels[-1] == "invalid":
        raise InvalidValue("the address is withheld")
    if not at or not re.fullmatch(r"[^\s@<>,;:\\\"()\x00-\x20\x7f-\x9f]{1,64}", local):
        raise InvalidValue("the address is malformed: expected name@domain")
    if len(labels) < 2 or len(domain) > 253 or not all(map(_DOMAIN_LABEL.fullmatch, labels)):
        raise InvalidValue("the address is malformed: its domain is not a name")
    if unicodedata.normalize("NFKC", local).casefold() in _SHARED_MAILBOXES:
        raise InvalidValue("the address is nobody's own")
    return f"{local}@{domain}"


def _mask(kind: IdentityKind, value: str) -> str:
    if kind == "phone":
        return mask_phone(value)
    if kind in ("sip", "email"):
        user, _, host = value.rpartition("@")
        return f"{user[:1]}***@{host[:1]}***"
    return f"{value[:2]}***" if len(value) > 8 else "***"
