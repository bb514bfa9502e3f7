"""The identity document of a user: what points to the user, and the merges.

One document in the user's partition, changed by compare-and-set together with its audit entry. It
is the truth: a claim counts only while this document lists it, and a merged user is one whose own
document says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, cast

import anyio

from secondcall.abc import Batch, DocumentWrite, Epoch, Scope, Store
from secondcall.errors import StoreBusy, StoreCorrupt, UserErased, VersionConflict
from secondcall.identity.audit import Event, audit_write
from secondcall.identity.identifiers import IdentityKind
from secondcall.types import Trust

if TYPE_CHECKING:
    from secondcall.abc import Document, Header

__all__ = [
    "DOCUMENT",
    "Alias",
    "Change",
    "Child",
    "Link",
    "Person",
    "Where",
    "Work",
    "change_person",
    "pause",
    "person_in",
    "read_person",
    "user_scope",
]

Random = Callable[[int], bytes]
KIND = "identity"
KEY = "links"
DOCUMENT = (KIND, KEY)
ATTEMPTS = 40
FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The store and the tenant that a step reads."""

    store: Store
    tenant_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(Where):
    """The same for a step that writes, with its time and its source of random bytes."""

    now_us: int
    random: Random


LinkState = Literal["intended", "linked", "leaving"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One identity of a user. ``intended``: its claim may not have been made yet; ``leaving``: it
    no longer counts, and its claim may not have been removed yet."""

    kind: IdentityKind
    masked: str
    trust: Trust
    state: LinkState
    at_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """Where a merged user's memory continues; another epoch there ends it.

    ``token`` names the merge.
    """

    user_id: str
    epoch: Epoch
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A user who may be merged into this one by the merge that ``token`` names.

    ``merged``: it is. ``intended`` and ``leaving``: only its own document can tell. ``leaf``:
    nobody is merged into it.
    """

    state: Literal["intended", "merged", "leaving"]
    leaf: bool
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A user's identity document, or the absence of one (``version`` ``None``).

    ``alive``: the partition exists, under ``epoch``, and is not being erased. ``created``: the
    partition was made by ``resolve`` and nothing was confirmed yet.
    """

    user_id: str
    epoch: Epoch
    exists: bool
    version: int | None = None
    closed: bool = False
    created: bool = False
    links: Mapping[str, Link] = field(default_factory=dict[str, Link])
    into: Alias | None = None
    merged: Mapping[str, Child] = field(default_factory=dict[str, Child])

    @property
    def alive(self) -> bool:
        """Whether identities and merges may point here."""
        return self.exists and not self.closed

    def holds(self, name: str, epoch: Epoch) -> bool:
        """Whether a claim of this partition name, made under ``epoch``, is this user's."""
        link = self.links.get(name)
        return self.alive and epoch == self.epoch and link is not None and link.state != "leaving"

    def with_link(self, name: str, link: Link | None) -> Person:
        """This document with one link set, or taken out."""
        links = {**self.links, name: link} if link else _without(self.links, name)
        return replace(self, links=cast("Mapping[str, Link]", links))

    def with_child(self, user_id: str, child: Child | None) -> Person:
        """This document with one merged user set, or taken out."""
        merged = {**self.merged, user_id: child} if child else _without(self.merged, user_id)
        return replace(self, merged=cast("Mapping[str, Child]", merged))


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A new form of the document, with the audit events written in the same transaction."""

    person: Person
    events: tuple[Event, ...] = ()


def user_scope(tenant_id: str, user_id: str) -> Scope:
    """The partition of a user."""
    return Scope(tenant_id, "user", user_id)


async def read_person(where: Where, user_id: str) -> Person:
    """The user's identity document as it stands."""
    scope = user_scope(where.tenant_id, user_id)
    # An epoch seen in a glance was alive while the document was read.
    seen = await where.store.glance(scope, documents=[DOCUMENT])
    return person_in(user_id, seen.header, seen.documents[0])


def person_in(user_id: str, header: Header | None, document: Document | None) -> Person:
    """The identity document of a user, from what one glance gave of it.

    Raises: ``StoreCorrupt``.
    """
    if header is None:
        return Person(user_id=user_id, epoch=b"", exists=False)
    if document is None:
        return Person(user_id=user_id, epoch=header.epoch, exists=True)
    person = _decode(user_id, document.version, document.body)
    if person.epoch != header.epoch:
        return Person(user_id=user_id, epoch=header.epoch, exists=True, version=document.version)
    return person


async def change_person(
    work: Work, user_id: str, change: Callable[[Person], Change | None], *, create: bool = False
) -> Person:
    """Change the document by compare-and-set; ``change`` may run several times, ``None`` leaves it.

    With ``create`` a user without a partition gets one. Gives the document as it now stands.

    Raises: ``UserErased`` when the partition is absent (and not ``create``), or erased meanwhile;
    ``StoreBusy`` when other writers won every time.
    """
    for attempt in range(ATTEMPTS):
        person = await read_person(work, user_id)
        if not person.exists:
            if not create:
                raise UserErased(user_id)
            person = replace(person, epoch=work.random(16), exists=True)
        changed = change(person)
        if changed is None:
            return person
        try:
            return await write_person(work, changed, create=create)
        except VersionConflict:
            await pause(attempt, work.random)
        except UserErased:
            # Somebody else made the partition between our read and our write.
            if not create:
                raise
            await pause(attempt, work.random)
    raise busy()


async def write_person(work: Work, change: Change, *, create: bool) -> Person:
    """Write the document over the version it was read at, with its audit events.

    Raises: ``VersionConflict``, ``UserErased``.
    """
    person = change.person
    documents = [
        DocumentWrite(kind=KIND, key=KEY, body=_encode(person), expected_version=person.version)
    ]
    version = (person.version or 0) + 1
    documents += [
        audit_write(event, now_us=work.now_us, version=version, place=place)
        for place, event in enumerate(change.events)
    ]
    await work.store.write(
        user_scope(work.tenant_id, person.user_id),
        Batch(documents=documents),
        epoch=person.epoch,
        now_us=work.now_us,
        create=create,
    )
    return replace(person, version=version)


def busy() -> StoreBusy:
    """The error for a change that other writers overtook at every attempt."""
    return StoreBusy("other writers changed the identities at every attempt; try again")


async def pause(attempt: int, random: Random) -> None:
    """Wait a random moment before the next attempt, so that rivals do not meet again."""
    spread = min(2**attempt, 32) / 1000
    await anyio.sleep(spread * int.from_bytes(random(2), "big") / 65535)


def _without(mapping: Mapping[str, object], name: str) -> dict[str, object]:
    return {key: value for key, value in mapping.items() if key != name}


def _encode(person: Person) -> bytes:
    into = person.into
    body = {
        "format": FORMAT,
        "epoch": person.epoch.hex(),
        "closed": person.closed,
        "created": person.created,
        "links": {
            name: [link.kind, link.masked, link.trust, link.state, link.at_us]
            for name, link in person.links.items()
        },
        "into": [into.user_id, into.epoch.hex(), into.token] if into else None,
        "merged": {
            name: [child.state, child.leaf, child.token] for name, child in person.merged.items()
        },
    }
    return json.dumps(body, separators=(",", ":")).encode()


def _decode(user_id: str, version: int, body: bytes) -> Person:
    try:
        data: dict[str, Any] = json.loads(body)
        return Person(
            user_id=user_id,
            epoch=bytes.fromhex(data["epoch"]),
            exists=True,
            version=version,
            closed=data["closed"],
            created=data["created"],
            links={
                name: Link(kind=kind, masked=masked, trust=trust, state=state, at_us=at_us)
                for name, (kind, masked, trust, state, at_us) in data["links"].items()
            },
            into=_alias(data["into"]),
            merged={
                name: Child(state=state, leaf=leaf, token=token)
                for name, (state, leaf, token) in data["merged"].items()
            },
        )
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise StoreCorrupt(
            f"the identity document of user {user_id!r} cannot be read ({type(error).__name__})"
        ) from None


def _alias(data: list[str] | None) -> Alias | None:
    if data is None:
        return None
    user_id, epoch, token = data
    return Alias(user_id=user_id, epoch=bytes.fromhex(epoch), token=token)
