"""Who is calling, as far as job, room and participants tell. Reads and decides; waits for nothing.

An id is believed where only the operator can have written it: the job's metadata and attributes, a
participant's identity, and its metadata and attributes unless its permissions let it write them
itself. A caller id is what the telephone network claims. The name of the room and the agent's own
identity never say who is calling, and a room's metadata only if the application says that it does.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Literal, TypedDict, cast

from livekit import rtc

from secondcall.checks import check_deadline
from secondcall.errors import InvalidValue
from secondcall.identity import withheld_forms

if TYPE_CHECKING:
    from livekit.agents import JobContext

    from secondcall.memory.tenant import Memory
    from secondcall.types import Caller

__all__ = ["CallerFields", "CallerOptions", "CallerSource", "Reading", "Rules", "read_caller"]

CallerSource = Literal[
    "job_metadata",
    "attributes",
    "participant_metadata",
    "room_metadata",
    "participant",
    "callee",
    "sip",
    "pseudonym",
    "anonymous",
]

_PEOPLE = frozenset(
    {
        rtc.ParticipantKind.PARTICIPANT_KIND_STANDARD,
        rtc.ParticipantKind.PARTICIPANT_KIND_SIP,
        rtc.ParticipantKind.PARTICIPANT_KIND_CONNECTOR,
    }
)
_ON_BEHALF = "lk.publish_on_behalf"
_HIDDEN_IDENTITY = re.compile(r"sip_[0-9a-f]{16}")
"""What LiveKit's SIP service makes of a number that its dispatch rule hides: a hash."""
_MAX_CHARACTERS = 65_536


class CallerOptions(TypedDict, total=False):
    """How a caller is found.

    ``timeout_seconds`` (10) is how long to wait for a participant, ``attribute_seconds`` (1) for
    the attributes of one who came without, ``identify_seconds`` (2) for the store.

    ``user_id_keys`` (``user_id``, ``userId``, ``customer_id``, ``customerId``) name your backend's
    id in metadata and attributes; ``phone_keys`` (``sip.phoneNumber``) the caller's number in
    attributes; ``pseudonym_keys`` (none) an attribute by which you tell apart callers whose number
    is hidden. With ``hidden_identity`` the hash that LiveKit makes of a hidden number is taken as
    one: callers whose gateway sends an unusual word in place of a withheld number then share it.
    ``room_metadata``: the room's metadata name the caller, though all in it share them.
    ``participant_identity`` (true): the identity in a participant's token is your id of a user.

    ``outbound``: the agent calls; the number to call is in the job's metadata under ``callee_keys``
    (``phone_number``, ``phoneNumber``), and nobody is waited for. ``participant`` is the identity
    of the one to take among several; by default the first, as the session links.
    ``default_region`` reads national numbers, such as ``"US"``.
    """

    timeout_seconds: float
    attribute_seconds: float
    identify_seconds: float
    user_id_keys: Sequence[str]
    phone_keys: Sequence[str]
    pseudonym_keys: Sequence[str]
    callee_keys: Sequence[str]
    hidden_identity: bool
    room_metadata: bool
    participant_identity: bool
    outbound: bool
    participant: str | None
    default_region: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """``CallerOptions`` with their defaults."""

    timeout_seconds: float = 10.0
    attribute_seconds: float = 1.0
    identify_seconds: float = 2.0
    user_id_keys: Sequence[str] = ("user_id", "userId", "customer_id", "customerId")
    phone_keys: Sequence[str] = ("sip.phoneNumber",)
    pseudonym_keys: Sequence[str] = ()
    callee_keys: Sequence[str] = ("phone_number", "phoneNumber")
    hidden_identity: bool = False
    room_metadata: bool = False
    participant_identity: bool = True
    outbound: bool = False
    participant: str | None = None
    default_region: str | None = None

    def __post_init__(self) -> None:
        for name in ("timeout_seconds", "attribute_seconds", "identify_seconds"):
            if check_deadline(getattr(self, name)) is None:
                raise InvalidValue(f"{name} must be a number of seconds, not None")
        for name in ("user_id_keys", "phone_keys", "pseudonym_keys", "callee_keys"):
            if isinstance(getattr(self, name), str):
                raise InvalidValue(f"{name} takes several names, such as a list of one")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CallerFields:
    """What can identify the caller, as it was found. Its ``repr`` names fields, never values."""

    subject: str | None = None
    phone: str | None = None
    sip: str | None = None
    device: str | None = None

    def __repr__(self) -> str:
        given = [name for name in self.__slots__ if getattr(self, name) is not None]
        return f"<CallerFields {', '.join(given) or 'nothing'}>"

    @property
    def given(self) -> bool:
        """Whether there is anything to look up; it may still identify nobody."""
        return any(getattr(self, name) is not None for name in self.__slots__)

    async def identify(self, memory: Memory, *, default_region: str | None = None) -> Caller:
        """The caller that these fields point to. Raises: ``InvalidValue``, store errors."""
        return await memory.identify(
            subject=self.subject,
            phone=self.phone,
            sip=self.sip,
            device=self.device,
            default_region=default_region,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What is known of the caller at one moment.

    ``is_settled``: waiting would add nothing. ``problems`` say what was there and could not be
    used, in words without values.
    """

    fields: CallerFields
    source: CallerSource
    participant: str | None = None
    outbound: bool = False
    is_settled: bool = False
    problems: tuple[str, ...] = ()


def read_caller(ctx: JobContext, rules: Rules) -> Reading:
    """What job, room and participants tell of the caller now."""
    reader = _Reader(ctx, rules)
    return reader.read()


class _Reader:
    def __init__(self, ctx: JobContext, rules: Rules) -> None:
        self._ctx = ctx
        self._rules = rules
        self._problems: list[str] = []
        self._own = _own_identity(ctx.room)
        self._job = self._object(ctx.job.metadata, "the job's metadata")

    def read(self) -> Reading:
        person = self._person()
        attributes: Mapping[str, str] = {} if person is None else _texts(person.attributes)
        is_sip = person is not None and person.kind == rtc.ParticipantKind.PARTICIPANT_KIND_SIP
        outbound = self._rules.outbound or (is_sip and _is_called(attributes))
        subject, source = self._subject(person, attributes)
        fields = CallerFields(subject=subject)
        if person is not None and not _may_edit(person):
            fields = self._telephone(fields, person, attributes, is_sip=is_sip)
        if outbound and fields.phone is None:
            callee = self._id(self._job, self._rules.callee_keys, "the job's metadata")
            fields = replace(fields, phone=callee)
        return Reading(
            fields=fields,
            source=source or self._telephone_source(fields, outbound),
            participant=None if person is None else person.identity,
            outbound=outbound,
            is_settled=self._is_settled(person, fields, source, attributes, is_sip=is_sip),
            problems=tuple(dict.fromkeys(self._problems)),
        )

    def _person(self) -> rtc.RemoteParticipant | None:
        """Who is called or calls: the one that the job or the application names, else the first
        that the session would link."""
        job = self._ctx.job
        wanted = self._rules.participant
        if wanted is None and job.HasField("participant"):
            wanted = job.participant.identity or None
        for one in self._ctx.room.remote_participants.values():
            if wanted is not None:
                if one.identity == wanted and one.identity != self._own:
                    return one
            elif self._may_call(one):
                return one
        return None

    def _may_call(self, one: rtc.RemoteParticipant) -> bool:
        if one.kind not in _PEOPLE or one.identity == self._own:
            return False
        return not _texts(one.attributes).get(_ON_BEHALF) and one.permissions.hidden is not True

    def _subject(
        self, person: rtc.RemoteParticipant | None, attributes: Mapping[str, str]
    ) -> tuple[str | None, CallerSource | None]:
        """The backend's id of the caller, and where it stands; the best place first."""
        keys = self._rules.user_id_keys
        job = _texts(dict(self._ctx.job.attributes))
        if found := self._id(self._job, keys, "the job's metadata") or self._id(job, keys, ""):
            return found, "job_metadata"
        if person is not None and (found := self._token_subject(person, attributes)) is not None:
            return found
        if self._rules.room_metadata:
            text = self._ctx.room.metadata or self._ctx.job.room.metadata
            room = self._object(text, "the room's metadata")
            if found := self._id(room, keys, "the room's metadata"):
                return found, "room_metadata"
        if person is not None and self._rules.participant_identity and _has_own_identity(person):
            return person.identity, "participant"
        return None, None

    def _token_subject(
        self, person: rtc.RemoteParticipant, attributes: Mapping[str, str]
    ) -> tuple[str, CallerSource] | None:
        keys = self._rules.user_id_keys
        metadata = self._object(person.metadata, "the participant's metadata")
        found = self._id(attributes, keys, "")
        source: CallerSource = "attributes"
        if found is None:
            found = self._id(metadata, keys, "the participant's metadata")
            source = "participant_metadata"
        if found is not None and _may_edit(person):
            self._problems.append(
                "the participant may write its own metadata and attributes, so the id in them "
                "proves nothing"
            )
            return None
        return None if found is None else (found, source)

    def _telephone(
        self,
        fields: CallerFields,
        person: rtc.RemoteParticipant,
        attributes: Mapping[str, str],
        *,
        is_sip: bool,
    ) -> CallerFields:
        rules = self._rules
        phone = next((attributes[key] for key in rules.phone_keys if attributes.get(key)), None)
        host = attributes.get("sip.hostname")
        sip = f"sip:{phone}@{host}" if is_sip and phone and host else None
        if phone is None and is_sip and person.identity.startswith("sip_+"):
            phone = person.identity
        device = None
        if phone is None:
            names = (attributes[key] for key in rules.pseudonym_keys if attributes.get(key))
            device = next(names, None)
            if device is None and rules.hidden_identity and is_sip:
                device = person.identity if _is_pseudonym(person.identity) else None
        device = None if device is None else f"livekit pseudonym {device}"
        return replace(fields, phone=phone, sip=sip, device=device)

    def _telephone_source(self, fields: CallerFields, outbound: bool) -> CallerSource:
        if fields.phone is not None:
            return "callee" if outbound else "sip"
        return "anonymous" if fields.device is None else "pseudonym"

    def _is_settled(
        self,
        person: rtc.RemoteParticipant | None,
        fields: CallerFields,
        source: CallerSource | None,
        attributes: Mapping[str, str],
        *,
        is_sip: bool,
    ) -> bool:
        if source == "job_metadata" or (self._rules.outbound and fields.given):
            return True
        if person is None:
            return False
        # A SIP participant's attributes come all at once: without a number it stays hidden.
        return fields.given or (is_sip and any(key.startswith("sip.") for key in attributes))

    def _object(self, text: object, where: str) -> Mapping[str, object]:
        """The JSON object in a metadata text; empty if there is none."""
        if not isinstance(text, str) or not text.strip():
            return {}
        try:
            value: object = json.loads(text) if len(text) <= _MAX_CHARACTERS else None
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            self._problems.append(f"{where} ({len(text)} characters) are not a JSON object")
            return {}
        return cast("Mapping[str, object]", value)

    def _id(self, fields: Mapping[str, object], keys: Sequence[str], where: str) -> str | None:
        """The first of the keys that holds an id: text, or a whole number."""
        for key in keys:
            value = fields.get(key)
            if isinstance(value, int) and not isinstance(value, bool):
                value = str(value)
            if isinstance(value, str) and value.strip():
                if value.strip() != self._own:
                    return value
                self._problems.append(f"{key} in {where or 'attributes'} is the agent's own")
            elif value is not None and not isinstance(value, str):
                kind = type(value).__name__
                self._problems.append(f"{key} in {where} must be text, not {kind}")
        return None


def _is_pseudonym(identity: str) -> bool:
    return _HIDDEN_IDENTITY.fullmatch(identity) is not None and identity not in _withheld()


@cache
def _withheld() -> frozenset[str]:
    """The identities of callers who withheld their number before it was hidden: shared by all."""
    hashes = (hashlib.sha256(form.encode()) for form in withheld_forms())
    return frozenset(f"sip_{one.hexdigest()[:16]}" for one in hashes)


def _texts(attributes: object) -> Mapping[str, str]:
    """The attributes that are text, by name."""
    if not isinstance(attributes, Mapping):
        return {}
    given = cast("Mapping[object, object]", attributes)
    return {
        key: value
        for key, value in given.items()
        if isinstance(key, str) and isinstance(value, str)
    }


def _own_identity(room: rtc.Room) -> str | None:
    try:
        return room.local_participant.identity or None
    except Exception:  # LiveKit raises no narrower class before the room is connected
        return None


def _has_own_identity(person: rtc.RemoteParticipant) -> bool:
    """Whether the identity came with a token that a backend made, not from the SIP service."""
    return bool(person.identity) and person.kind != rtc.ParticipantKind.PARTICIPANT_KIND_SIP


def _may_edit(person: rtc.RemoteParticipant) -> bool:
    return person.permissions.can_update_metadata is True


def _is_called(attributes: Mapping[str, str]) -> bool:
    """Whether a SIP participant was called: nobody's call went through a dispatch rule."""
    return "sip.callID" in attributes and not attributes.get("sip.ruleID")
