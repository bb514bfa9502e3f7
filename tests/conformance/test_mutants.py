"""The conformance suite itself: stores that are wrong in one way each must fail it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import anyio.lowlevel
import pytest

from secondcall.abc import (
    ANY_VERSION,
    Batch,
    Capabilities,
    Change,
    Document,
    EntryKey,
    Epoch,
    Header,
    Partition,
    Scope,
    SessionOutline,
    StoredEntry,
    Written,
)
from secondcall.errors import UserErased, VersionConflict
from secondcall.stores.memory import MemoryStore
from secondcall.testing.conformance import failures


class LostUpdate(MemoryStore):
    """Compares versions first and writes later, without comparing again."""

    async def write(
        self, scope: Scope, batch: Batch, *, epoch: Epoch, now_us: int, create: bool = False
    ) -> Written:
        for one in batch.documents:
            found = await self.document(scope, one.kind, one.key)
            version = None if found is None else found.version
            if one.expected_version not in (ANY_VERSION, version):
                raise VersionConflict("document", expected=one.expected_version, found=version)
        await anyio.lowlevel.checkpoint()
        blind = [dataclasses.replace(one, expected_version=ANY_VERSION) for one in batch.documents]
        return await super().write(
            scope,
            dataclasses.replace(batch, documents=blind),
            epoch=epoch,
            now_us=now_us,
            create=create,
        )


class DroppedScope(MemoryStore):
    """Looks documents up by tenant and key and forgets whose they are."""

    async def document(self, scope: Scope, kind: str, key: str) -> Document | None:
        found = await super().document(scope, kind, key)
        for other in await self.scopes(scope.tenant_id, scope.partition, limit=1_000):
            found = found or await super().document(other, kind, key)
        return found


class JoinedScope(MemoryStore):
    """Joins tenant and name with a colon."""

    async def header(self, scope: Scope) -> Header | None:
        return await super().header(_joined(scope))

    async def write(
        self, scope: Scope, batch: Batch, *, epoch: Epoch, now_us: int, create: bool = False
    ) -> Written:
        return await super().write(_joined(scope), batch, epoch=epoch, now_us=now_us, create=create)


def _joined(scope: Scope) -> Scope:
    return Scope("", scope.partition, f"{scope.tenant_id}:{scope.name}")


class CaseBlindScope(MemoryStore):
    """Compares names as many databases do by default: without their case."""

    async def write(
        self, scope: Scope, batch: Batch, *, epoch: Epoch, now_us: int, create: bool = False
    ) -> Written:
        folded = scope._replace(name=scope.name.casefold())
        return await super().write(folded, batch, epoch=epoch, now_us=now_us, create=create)

    async def read(
        self,
        scope: Scope,
        *,
        session_id: str | None = None,
        since_us: int | None = None,
        until_us: int | None = None,
        after: tuple[int, int] | None = None,
        newest_first: bool = False,
        limit: int,
    ) -> Sequence[StoredEntry]:
        return await super().read(
            scope._replace(name=scope.name.casefold()),
            session_id=session_id,
            since_us=since_us,
            until_us=until_us,
            after=after,
            newest_first=newest_first,
            limit=limit,
        )


class LateBlob(MemoryStore):
    """Acknowledges a blob before it is there."""

    def __init__(self) -> None:
        super().__init__()
        self._late: list[tuple[Scope, str, bytes, Epoch]] = []

    async def put_blob(self, scope: Scope, name: str, data: bytes, *, epoch: Epoch) -> None:
        self._late.append((scope, name, data, epoch))

    async def blob(self, scope: Scope, name: str) -> bytes | None:
        found = await super().blob(scope, name)
        for late in self._late:
            await super().put_blob(late[0], late[1], late[2], epoch=late[3])
        self._late.clear()
        return found


class LostBlob(MemoryStore):
    """Loses blobs over a megabyte, as behind a limit that nobody looked up."""

    async def put_blob(self, scope: Scope, name: str, data: bytes, *, epoch: Epoch) -> None:
        await super().put_blob(scope, name, data[:1_000_000], epoch=epoch)


class IgnoredEpoch(MemoryStore):
    """Writes items under any epoch."""

    async def write(
        self, scope: Scope, batch: Batch, *, epoch: Epoch, now_us: int, create: bool = False
    ) -> Written:
        header = await self.header(scope)
        return await super().write(
            scope,
            batch,
            epoch=epoch if header is None else header.epoch,
            now_us=now_us,
            create=create,
        )


class IgnoredEpochOfBlobs(MemoryStore):
    """Puts blobs under any epoch."""

    async def put_blob(self, scope: Scope, name: str, data: bytes, *, epoch: Epoch) -> None:
        header = await self.header(scope)
        if header is None:
            raise UserErased(scope.name)
        await super().put_blob(scope, name, data, epoch=header.epoch)


class ForgottenErasure(MemoryStore):
    """Lets a late first write make a partition anew under the erased epoch."""

    async def erase(self, scope: Scope) -> Mapping[str, int]:
        removed = await super().erase(scope)
        self._erased.clear()
        return removed


class HalfErasure(MemoryStore):
    """Erases a partition and keeps its blobs."""

    def __init__(self) -> None:
        super().__init__()
        self._left: dict[Scope, int] = {}

    async def erase(self, scope: Scope) -> Mapping[str, int]:
        self._left[scope] = len(await self.blobs(scope))
        return await super().erase(scope)

    async def scan(self, scope: Scope) -> Mapping[str, int]:
        found = dict(await super().scan(scope))
        found["blobs"] += self._left.get(scope, 0)
        return found


class MovedPosition(MemoryStore):
    """Gives a correction a position of its own."""

    async def entries(self, scope: Scope, keys: Sequence[EntryKey]) -> Sequence[StoredEntry]:
        found = await super().entries(scope, keys)
        return [dataclasses.replace(one, position=one.change) for one in found]


class GapInNumbers(MemoryStore):
    """Takes a number for an unchanged entry and throws it away."""

    async def changes(self, scope: Scope, *, after: int, limit: int) -> Sequence[Change]:
        found = await super().changes(scope, after=after, limit=limit)
        return [dataclasses.replace(one, number=one.number + (one.number > 2)) for one in found]


class NotAtomic(MemoryStore):
    """Writes the entries first and the documents in a transaction of their own."""

    async def write(
        self, scope: Scope, batch: Batch, *, epoch: Epoch, now_us: int, create: bool = False
    ) -> Written:
        entries = Batch(entries=batch.entries, removals=batch.removals)
        written = await super().write(scope, entries, epoch=epoch, now_us=now_us, create=create)
        if not batch.documents:
            return written
        documents = Batch(documents=batch.documents)
        then = await super().write(scope, documents, epoch=epoch, now_us=now_us)
        return dataclasses.replace(written, change=then.change)


class ReusedVersions(MemoryStore):
    """Begins again at version 1 after a deletion."""

    async def write(
        self, scope: Scope, batch: Batch, *, epoch: Epoch, now_us: int, create: bool = False
    ) -> Written:
        held = self._partitions.get(scope)
        if held is not None:
            held.versions = {name: one.version for name, one in held.documents.items()}
        return await super().write(scope, batch, epoch=epoch, now_us=now_us, create=create)


class KeptContent(MemoryStore):
    """Leaves the words of a removed item in the change log."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[tuple[Scope, int], Change] = {}

    async def changes(self, scope: Scope, *, after: int, limit: int) -> Sequence[Change]:
        found = await super().changes(scope, after=after, limit=limit)
        return [self._kept.get((scope, one.number), one) for one in found]

    async def write(
        self, scope: Scope, batch: Batch, *, epoch: Epoch, now_us: int, create: bool = False
    ) -> Written:
        written = await super().write(scope, batch, epoch=epoch, now_us=now_us, create=create)
        for one in await super().changes(scope, after=0, limit=10_000):
            if one.entry is not None:
                self._kept[scope, one.number] = one
        return written


class ArrivalOrder(MemoryStore):
    """Reads in the order of arrival and not of time."""

    async def read(
        self,
        scope: Scope,
        *,
        session_id: str | None = None,
        since_us: int | None = None,
        until_us: int | None = None,
        after: tuple[int, int] | None = None,
        newest_first: bool = False,
        limit: int,
    ) -> Sequence[StoredEntry]:
        found = await super().read(
            scope,
            session_id=session_id,
            since_us=since_us,
            until_us=until_us,
            after=after,
            newest_first=newest_first,
            limit=limit,
        )
        return sorted(found, key=lambda one: one.position, reverse=newest_first)


class ClosedBounds(MemoryStore):
    """Includes what stands exactly at ``until_us``."""

    async def read(
        self,
        scope: Scope,
        *,
        session_id: str | None = None,
        since_us: int | None = None,
        until_us: int | None = None,
        after: tuple[int, int] | None = None,
        newest_first: bool = False,
        limit: int,
    ) -> Sequence[StoredEntry]:
        return await super().read(
            scope,
            session_id=session_id,
            since_us=since_us,
            until_us=None if until_us is None else until_us + 1,
            after=after,
            newest_first=newest_first,
            limit=limit,
        )


class StaleOutlines(MemoryStore):
    """Counts items up and never down."""

    async def sessions(
        self, scope: Scope, *, limit: int, after: tuple[int, str] | None = None
    ) -> Sequence[SessionOutline]:
        found = await super().sessions(scope, limit=limit, after=after)
        log = await self.changes(scope, after=0, limit=10_000)
        added = {
            one.session_id: sum(
                change.kind == "entry"
                and change.key is not None
                and change.key.session_id == one.session_id
                for change in log
            )
            for one in found
        }
        return [dataclasses.replace(one, items=added[one.session_id]) for one in found]


class EternalLease(MemoryStore):
    """Never lets a lease run out."""

    async def acquire_lease(
        self, scope: Scope, name: str, *, holder: str, now_us: int, seconds: float
    ) -> bool:
        return await super().acquire_lease(scope, name, holder=holder, now_us=0, seconds=1_000_000)


class SharedLease(MemoryStore):
    """Gives a lease to everybody."""

    async def acquire_lease(
        self, scope: Scope, name: str, *, holder: str, now_us: int, seconds: float
    ) -> bool:
        return await super().acquire_lease(
            scope, name, holder="same", now_us=now_us, seconds=seconds
        )


class SloppyPrefix(MemoryStore):
    """Matches prefixes without their case, as LIKE does."""

    async def documents(
        self, scope: Scope, kind: str, *, prefix: str = "", after: str = "", limit: int
    ) -> Sequence[Document]:
        found = await super().documents(scope, kind, after=after, limit=10_000)
        wanted = [one for one in found if one.key.casefold().startswith(prefix.casefold())]
        return wanted[:limit] if limit > 0 else await super().documents(scope, kind, limit=limit)


class SkippedScopes(MemoryStore):
    """Loses a scope at each page's edge."""

    async def scopes(
        self, tenant_id: str, partition: Partition, *, after: str = "", limit: int
    ) -> Sequence[Scope]:
        found = await super().scopes(tenant_id, partition, after=after, limit=limit)
        return found[1:] if after else found


class Forgetful(MemoryStore):
    """Declares what it cannot do: durable commits."""

    capabilities = Capabilities(
        durable="commit", shared=False, max_document_bytes=1_000_000, max_blob_bytes=8_000_000
    )


class FalselyShared(MemoryStore):
    """Declares that others may open the same place, which they cannot."""

    capabilities = Capabilities(
        durable="never", shared=True, max_document_bytes=1_000_000, max_blob_bytes=8_000_000
    )


MUTANTS: list[tuple[type[MemoryStore], str]] = [
    (LostUpdate, "test_no_update_is_lost"),
    (DroppedScope, "test_empty_scopes_show_nothing_of_others"),
    (JoinedScope, "test_scopes_do_not_meet"),
    (CaseBlindScope, "test_scopes_do_not_meet"),
    (LateBlob, "test_blobs_come_back"),
    (LostBlob, "test_blobs_come_back"),
    (IgnoredEpoch, "test_other_epoch_is_refused"),
    (IgnoredEpochOfBlobs, "test_other_epoch_is_refused"),
    (ForgottenErasure, "test_erased_epoch_is_refused_for_ever"),
    (HalfErasure, "test_erasure_empties_every_place"),
    (MovedPosition, "test_correction_keeps_its_position"),
    (GapInNumbers, "test_numbers_have_no_gaps test_changes_come_in_pages"),
    (NotAtomic, "test_refused_batch_leaves_nothing"),
    (ReusedVersions, "test_versions_count_over_a_deletion"),
    (KeptContent, "test_removal_blanks_every_entry_of_an_item"),
    (ArrivalOrder, "test_reading_order_is_time_then_position"),
    (ClosedBounds, "test_time_bounds_are_half_open"),
    (StaleOutlines, "test_sessions_show_what_they_hold"),
    (EternalLease, "test_lease_has_one_holder"),
    (SharedLease, "test_lease_has_one_holder test_lease_has_one_winner"),
    (SloppyPrefix, "test_list_takes_a_prefix_literally"),
    (SkippedScopes, "test_scopes_are_listed_by_code_points"),
    (Forgetful, "test_store_is_reopened"),
    (FalselyShared, "test_two_stores_share_one_log"),
]


@pytest.mark.parametrize(
    ("mutant", "caught_by"), MUTANTS, ids=lambda one: getattr(one, "__name__", "")
)
def test_mutant_fails_the_suite(mutant: type[MemoryStore], caught_by: str) -> None:
    """A store that is wrong in this one way fails the tests that are about it."""
    names = caught_by.split()
    assert failures(lambda: mutant, only=names) == sorted(names)


def test_every_mutant_is_tried() -> None:
    """Each subclass of the in-memory store in this file is in the list."""
    here = {one for one in MemoryStore.__subclasses__() if one.__module__ == __name__}
    assert {one for one, _ in MUTANTS} == here


def test_store_without_a_mutation_passes() -> None:
    """The store that the mutants are made from passes the whole suite in the same runner."""
    assert failures(lambda: MemoryStore) == []
