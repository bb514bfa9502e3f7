"""The claim of an identity: which user its partition points to.

Taken by save-if-absent, or over one that counts no longer, always by compare-and-set. Removed in
two steps: first marked released, which nobody may take over, then erased with its partition, so
that not even the hash of a phone number stays.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from secondcall.abc import Batch, DocumentWrite, Epoch, Scope
from secondcall.errors import StoreCorrupt, UserErased, VersionConflict
from secondcall.identity.person import ATTEMPTS, Person, Where, Work, busy, pause, read_person

__all__ = [
    "Claim",
    "await_release",
    "holder_of",
    "identity_scope",
    "read_claim",
    "release_claim",
    "take_claim",
]

KIND = "claim"
KEY = "claim"
FORMAT = 1
_LEASE = "release"
_LEASE_SECONDS = 30.0
_PATIENCE = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The user, under one epoch, that an identity points to. ``released``: it is being removed."""

    user_id: str
    epoch: Epoch
    version: int
    updated_us: int
    released: bool = False

    def is_of(self, user_id: str, epoch: Epoch) -> bool:
        """Whether it points to this user under this epoch."""
        return self.user_id == user_id and self.epoch == epoch


def identity_scope(tenant_id: str, name: str) -> Scope:
    """The partition of an identity."""
    return Scope(tenant_id, "identity", name)


async def read_claim(where: Where, name: str) -> Claim | None:
    """The claim of an identity as it stands, whether or not it still counts."""
    document = await where.store.document(identity_scope(where.tenant_id, name), KIND, KEY)
    if document is None:
        return None
    try:
        data: dict[str, Any] = json.loads(document.body)
        return Claim(
            user_id=data["user_id"],
            epoch=bytes.fromhex(data["epoch"]),
            released=data["released"],
            version=document.version,
            updated_us=document.updated_us,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise StoreCorrupt(
            f"the claim of identity {name[:12]}… cannot be read ({type(error).__name__})"
        ) from None


async def holder_of(where: Where, name: str, claim: Claim | None) -> Person | None:
    """The user that a claim points to, if it still counts: the user lists it, under this epoch."""
    if claim is None or claim.released:
        return None
    person = await read_person(where, claim.user_id)
    return person if person.holds(name, claim.epoch) else None


async def take_claim(work: Work, name: str, person: Person, *, replaces: Claim | None) -> bool:
    """Point an identity to ``person``, who must list it already; ``False`` if somebody was faster.

    ``replaces`` is the claim that was found not to count, ``None`` if there was none.
    """
    scope = identity_scope(work.tenant_id, name)
    # The epoch first: a partition erased and made anew afterwards refuses the write.
    header = await work.store.header(scope)
    found = await read_claim(work, name)
    if found is not None and not found.released and found.is_of(person.user_id, person.epoch):
        return True
    if found != replaces or (found is not None and found.released):
        return False
    claim = Claim(user_id=person.user_id, epoch=person.epoch, version=0, updated_us=0)
    write = DocumentWrite(
        kind=KIND,
        key=KEY,
        body=_encode(claim),
        expected_version=found.version if found else None,
    )
    try:
        await work.store.write(
            scope,
            Batch(documents=[write]),
            epoch=header.epoch if header else work.random(16),
            now_us=work.now_us,
            create=header is None,
        )
    except (VersionConflict, UserErased):
        return False
    return True


async def release_claim(work: Work, name: str, *, user_id: str, epoch: Epoch) -> Mapping[str, int]:
    """Erase an identity's partition if it points to this user; how many rows went, by place.

    Raises: ``StoreBusy`` when another release of it does not end.
    """
    return await _remove(work, name, lambda claim: claim.is_of(user_id, epoch))


async def await_release(work: Work, name: str) -> None:
    """Wait until a claim that is being removed is gone; complete it if its remover died.

    Raises: ``StoreBusy`` when it is still being removed after a moment.
    """
    for attempt in range(_PATIENCE):
        claim = await read_claim(work, name)
        if claim is None or not claim.released:
            return
        await pause(attempt, work.random)
    await _remove(work, name, lambda claim: claim.released)


async def _remove(work: Work, name: str, wanted: Callable[[Claim], bool]) -> Mapping[str, int]:
    # An erasure has no condition. The lease keeps a second remover from erasing, late, what was
    # claimed anew after the first.
    scope = identity_scope(work.tenant_id, name)
    holder = work.random(16).hex()
    for attempt in range(ATTEMPTS):
        header = await work.store.header(scope)
        claim = await read_claim(work, name)
        if header is None or claim is None or not wanted(claim):
            return Counter()
        if not await work.store.acquire_lease(
            scope, _LEASE, holder=holder, now_us=work.now_us, seconds=_LEASE_SECONDS
        ):
            await pause(attempt, work.random)
            continue
        try:
            if await _mark_released(work, name, header.epoch, claim):
                return await work.store.erase(scope)
        finally:
            await work.store.release_lease(scope, _LEASE, holder=holder)
    raise busy()


async def _mark_released(work: Work, name: str, epoch: Epoch, claim: Claim) -> bool:
    # Written again when it is marked already: the compare-and-set proves that it still is.
    body = _encode(replace(claim, released=True))
    write = DocumentWrite(kind=KIND, key=KEY, body=body, expected_version=claim.version)
    try:
        await work.store.write(
            identity_scope(work.tenant_id, name),
            Batch(documents=[write]),
            epoch=epoch,
            now_us=work.now_us,
        )
    except (VersionConflict, UserErased):
        return False
    return True


def _encode(claim: Claim) -> bytes:
    body = {
        "format": FORMAT,
        "user_id": claim.user_id,
        "epoch": claim.epoch.hex(),
        "released": claim.released,
    }
    return json.dumps(body, separators=(",", ":")).encode()
