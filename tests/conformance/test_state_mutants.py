"""The conformance suite of states itself: stores that are wrong in one way each must fail it.

Over 500 lines, since it lists every way of being wrong that was thought of, one class each.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import anyio
import anyio.lowlevel
import pytest

from secondcall.abc import Epoch, Scope
from secondcall.abc_state import (
    StateCapabilities,
    StateChange,
    StateConflict,
    StateKey,
    StateStore,
    StoredState,
)
from secondcall.errors import NotOpen, StoreUnavailable, TooLarge, UserErased
from secondcall.stores.memory import MemoryStore
from secondcall.stores.memory_state import HeldUser, MemoryStates
from secondcall.testing.conformance import StateHarness, state_failures


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """The arguments of one save."""

    key: StateKey
    body: bytes
    expected: int | None
    epoch: Epoch
    now_us: int
    by: str
    summary: bytes
    schema: int
    expires_us: int | None
    due_us: int | None


class Sound(MemoryStates):
    """The in-memory store in a form that can be made wrong in one way; ``away``: unreachable."""

    def __init__(self) -> None:
        place = MemoryStore()
        super().__init__(
            place,
            place._find,  # pyright: ignore[reportPrivateUsage] - a store to be broken
            place._users,  # pyright: ignore[reportPrivateUsage] - a store to be broken
            place._erased,  # pyright: ignore[reportPrivateUsage] - a store to be broken
            place._lock,  # pyright: ignore[reportPrivateUsage] - a store to be broken
            owner=True,
        )
        self.away = False

    async def open(self) -> None:
        if self.away:
            raise StoreUnavailable("away")
        await super().open()

    async def save(
        self,
        key: StateKey,
        body: bytes,
        *,
        expected_version: int | None,
        epoch: Epoch,
        now_us: int,
        by: str,
        summary: bytes = b"{}",
        schema: int = 1,
        expires_us: int | None = None,
        due_us: int | None = None,
    ) -> StoredState:
        return await self.save_as(
            Save(
                key=key,
                body=body,
                expected=expected_version,
                epoch=epoch,
                now_us=now_us,
                by=by,
                summary=summary,
                schema=schema,
                expires_us=expires_us,
                due_us=due_us,
            )
        )

    async def save_as(self, given: Save) -> StoredState:
        """Save; what a mutant overrides."""
        if self.away:
            raise StoreUnavailable("away")
        return await super().save(
            given.key,
            given.body,
            expected_version=given.expected,
            epoch=given.epoch,
            now_us=given.now_us,
            by=given.by,
            summary=given.summary,
            schema=given.schema,
            expires_us=given.expires_us,
            due_us=given.due_us,
        )


class Harness(StateHarness):
    """A mutant, and whether it is away."""

    can_stop = True
    url = "memory://"
    increments = 1

    def __init__(self, mutant: type[Sound]) -> None:
        self._mutant = mutant
        self._made: list[Sound] = []
        self._away = False

    def make(self) -> StateStore:
        store = self._mutant()
        store.away = self._away
        self._made.append(store)
        return store

    async def stop(self) -> None:
        self._set_away(True)

    async def start(self) -> None:
        self._set_away(False)

    def _set_away(self, away: bool) -> None:
        self._away = away
        for one in self._made:
            one.away = away


class LostUpdate(Sound):
    """Compares versions first and writes later, without comparing again."""

    async def save_as(self, given: Save) -> StoredState:
        current = await self.load(given.key)
        if given.expected != (None if current is None else current.version):
            raise StateConflict(expected=given.expected, current=current)
        await anyio.lowlevel.checkpoint()
        current = await self.load(given.key)
        blind = None if current is None else current.version
        return await super().save_as(dataclasses.replace(given, expected=blind))


class LastWriterWins(Sound):
    """Does not compare versions."""

    async def save_as(self, given: Save) -> StoredState:
        current = await self.load(given.key)
        if current is not None and given.expected is not None:
            given = dataclasses.replace(given, expected=current.version)
        return await super().save_as(given)


class InsertOrReplace(Sound):
    """Takes "if absent" for "whatever is there"."""

    async def save_as(self, given: Save) -> StoredState:
        current = await self.load(given.key)
        if current is not None and given.expected is None:
            given = dataclasses.replace(given, expected=current.version)
        return await super().save_as(given)


class ZeroIsAbsent(Sound):
    """Takes version 0 for absent."""

    async def save_as(self, given: Save) -> StoredState:
        return await super().save_as(dataclasses.replace(given, expected=given.expected or None))


class ReusedVersions(Sound):
    """Begins again at version 1 after a deletion."""

    async def save_as(self, given: Save) -> StoredState:
        held = self._find(given.key)
        if held is not None and held.now is None:
            held.version = 0
        return await super().save_as(given)


class BlindConflict(Sound):
    """Says that there is a conflict and not with what."""

    async def save_as(self, given: Save) -> StoredState:
        try:
            return await super().save_as(given)
        except StateConflict as conflict:
            conflict.current = None
            raise


class StaleConflict(Sound):
    """Tells a conflict from what it read before."""

    def __init__(self) -> None:
        super().__init__()
        self._read: dict[StateKey, StoredState | None] = {}

    async def load(self, key: StateKey) -> StoredState | None:
        found = await super().load(key)
        return self._read.setdefault(key, found) and found

    async def save_as(self, given: Save) -> StoredState:
        try:
            return await super().save_as(given)
        except StateConflict:
            current = self._read.get(given.key)
            raise StateConflict(expected=given.expected, current=current) from None


class LateHistory(Sound):
    """Writes the state first and the history in a transaction of its own."""

    async def save_as(self, given: Save) -> StoredState:
        saved = await super().save_as(given)
        held = self._find(given.key)
        assert held is not None
        change = held.changes.pop()
        await anyio.sleep(0.0005)
        held.changes.append(change)
        return saved


class HistoryOfRefusals(Sound):
    """Keeps the row of the history of a save that was refused."""

    async def save_as(self, given: Save) -> StoredState:
        try:
            return await super().save_as(given)
        except StateConflict:
            held = self._find(given.key)
            if held is not None and held.changes:
                held.changes.append(held.changes[-1])
            raise


class LostDeletion(Sound):
    """Leaves no row of a deletion in the history."""

    async def delete(
        self,
        key: StateKey,
        *,
        expected_version: int,
        epoch: Epoch,
        now_us: int,
        by: str,
        summary: bytes = b"{}",
    ) -> None:
        await super().delete(
            key,
            expected_version=expected_version,
            epoch=epoch,
            now_us=now_us,
            by=by,
            summary=summary,
        )
        held = self._find(key)
        assert held is not None
        held.changes.pop()


class BlindDeletion(Sound):
    """Deletes whatever version is there."""

    async def delete(
        self,
        key: StateKey,
        *,
        expected_version: int,
        epoch: Epoch,
        now_us: int,
        by: str,
        summary: bytes = b"{}",
    ) -> None:
        current = await self.load(key)
        version = expected_version if current is None else current.version
        await super().delete(
            key, expected_version=version, epoch=epoch, now_us=now_us, by=by, summary=summary
        )


class OldestFirst(Sound):
    """Gives the history oldest first."""

    async def history(
        self, key: StateKey, *, limit: int, before: int | None = None
    ) -> Sequence[StateChange]:
        return (await super().history(key, limit=limit, before=before))[::-1]


class ClosedPages(Sound):
    """Gives the change at ``before`` once more."""

    async def history(
        self, key: StateKey, *, limit: int, before: int | None = None
    ) -> Sequence[StateChange]:
        return await super().history(key, limit=limit, before=before and before + 1)


class NarrowTrim(Sound):
    """Keeps one row less than asked for."""

    async def trim_history(
        self, key: StateKey, *, keep: int | None = None, older_than_us: int | None = None
    ) -> int:
        return await super().trim_history(key, keep=keep and keep - 1, older_than_us=older_than_us)


class TrimToThePast(Sound):
    """Trims what is as old as the bound, too."""

    async def trim_history(
        self, key: StateKey, *, keep: int | None = None, older_than_us: int | None = None
    ) -> int:
        bound = None if older_than_us is None else older_than_us + 1
        return await super().trim_history(key, keep=keep, older_than_us=bound)


class WideIsNone(Sound):
    """Writes the session of a user-wide state as the text *None*."""

    async def save_as(self, given: Save) -> StoredState:
        key = given.key._replace(session_id=str(given.key.session_id))
        saved = await super().save_as(dataclasses.replace(given, key=key))
        return dataclasses.replace(saved, key=given.key)

    async def load(self, key: StateKey) -> StoredState | None:
        found = await super().load(key._replace(session_id=str(key.session_id)))
        return found and dataclasses.replace(found, key=key)


class JoinedKeys(Sound):
    """Finds a state by tenant, user and session joined with a colon."""

    def __init__(self) -> None:
        super().__init__()
        self._first: dict[str, StateKey] = {}

    async def save_as(self, given: Save) -> StoredState:
        self._first.setdefault(_joined(given.key), given.key)
        return await super().save_as(given)

    async def load(self, key: StateKey) -> StoredState | None:
        return await super().load(self._first.get(_joined(key), key))


def _joined(key: StateKey) -> str:
    return ":".join(part or "" for part in key)


class CaseBlind(Sound):
    """Compares user ids without their case."""

    async def load(self, key: StateKey) -> StoredState | None:
        return await super().load(key._replace(user_id=key.user_id.casefold()))


class IgnoredEpoch(Sound):
    """Saves under any epoch."""

    async def save_as(self, given: Save) -> StoredState:
        user = self._find_user(Scope(given.key.tenant_id, "user", given.key.user_id))
        if user is not None:
            given = dataclasses.replace(given, epoch=user.epoch)
        return await super().save_as(given)


class SelfAdmitting(Sound):
    """Lets a user in with the first save."""

    async def save_as(self, given: Save) -> StoredState:
        key = given.key
        await self.admit(key.tenant_id, key.user_id, epoch=given.epoch, now_us=given.now_us)
        return await super().save_as(given)


class ConflictFirst(Sound):
    """Compares versions before the epoch, and so tells a late writer what is there now."""

    async def save_as(self, given: Save) -> StoredState:
        current = await self.load(given.key)
        if given.expected != (None if current is None else current.version):
            raise StateConflict(expected=given.expected, current=current)
        return await super().save_as(given)


class ForgottenErasure(Sound):
    """Lets a user in again under the erased epoch."""

    async def erase(
        self, tenant_id: str, user_id: str, *, epoch: Epoch | None = None
    ) -> Mapping[str, int]:
        removed = await super().erase(tenant_id, user_id, epoch=epoch)
        self._erased.clear()
        return removed


class UnmarkedErasure(Sound):
    """Does not remember the epoch of a user who was never here."""

    async def erase(
        self, tenant_id: str, user_id: str, *, epoch: Epoch | None = None
    ) -> Mapping[str, int]:
        return await super().erase(tenant_id, user_id)


class HalfErasure(Sound):
    """Erases the states and keeps the histories."""

    def __init__(self) -> None:
        super().__init__()
        self._left: dict[tuple[str, str], int] = {}

    async def erase(
        self, tenant_id: str, user_id: str, *, epoch: Epoch | None = None
    ) -> Mapping[str, int]:
        removed = await super().erase(tenant_id, user_id, epoch=epoch)
        self._left[tenant_id, user_id] = removed["state_history"]
        return removed

    async def scan(self, tenant_id: str, user_id: str) -> Mapping[str, int]:
        found = dict(await super().scan(tenant_id, user_id))
        found["state_history"] += self._left.get((tenant_id, user_id), 0)
        return found


class EternalClaim(Sound):
    """Never lets a claim run out."""

    async def claim_due(
        self, tenant_id: str, *, now_us: int, limit: int, holder: str, seconds: float
    ) -> Sequence[StateKey]:
        return await super().claim_due(
            tenant_id, now_us=now_us, limit=limit, holder=holder, seconds=1e9
        )


class NoClaim(Sound):
    """Only lists what is due."""

    async def claim_due(
        self, tenant_id: str, *, now_us: int, limit: int, holder: str, seconds: float
    ) -> Sequence[StateKey]:
        return await super().claim_due(
            tenant_id, now_us=now_us, limit=limit, holder=holder, seconds=0
        )


class OwnClaim(Sound):
    """Gives a holder what it already has."""

    def __init__(self) -> None:
        super().__init__()
        self._given: dict[str, list[StateKey]] = {}

    async def claim_due(
        self, tenant_id: str, *, now_us: int, limit: int, holder: str, seconds: float
    ) -> Sequence[StateKey]:
        new = await super().claim_due(
            tenant_id, now_us=now_us, limit=limit, holder=holder, seconds=seconds
        )
        again = self._given.get(holder, [])
        self._given[holder] = [*again, *new]
        return [*again, *new]


class LastingClaim(Sound):
    """Keeps a claim over a save."""

    async def save_as(self, given: Save) -> StoredState:
        held = self._find(given.key)
        until_us = None if held is None else held.held_until_us
        saved = await super().save_as(given)
        held = self._find(given.key)
        assert held is not None
        held.held_until_us = until_us
        return saved


class LatestFirst(Sound):
    """Gives out what is due last first."""

    async def claim_due(
        self, tenant_id: str, *, now_us: int, limit: int, holder: str, seconds: float
    ) -> Sequence[StateKey]:
        found = await super().claim_due(
            tenant_id, now_us=now_us, limit=limit, holder=holder, seconds=seconds
        )
        return found[::-1]


class TimersOfAll(Sound):
    """Gives a tenant the timers of every tenant whose name looks like it."""

    def __init__(self) -> None:
        super().__init__()
        users = self._users
        place = self._store
        assert isinstance(place, MemoryStore)

        def of_look_alikes(tenant_id: str) -> Iterable[tuple[str, HeldUser]]:
            found = place._partitions  # pyright: ignore[reportPrivateUsage] - a store to be broken
            names = {one.tenant_id for one in found}
            alike = [name for name in names if name.strip().casefold() == tenant_id]
            return [one for name in {tenant_id, *alike} for one in users(name)]

        self._users = of_look_alikes


class CutState(Sound):
    """Cuts what is too long, as some databases do."""

    async def save_as(self, given: Save) -> StoredState:
        most = self.capabilities.max_state_bytes - len(given.summary)
        return await super().save_as(dataclasses.replace(given, body=given.body[:most]))


class VagueSize(Sound):
    """Says that a state is too large and not how large."""

    async def save_as(self, given: Save) -> StoredState:
        try:
            return await super().save_as(given)
        except TooLarge:
            raise TooLarge("the state is too large") from None


class HiddenExpiry(Sound):
    """Hides what has expired by some clock of its own."""

    async def load(self, key: StateKey) -> StoredState | None:
        found = await super().load(key)
        if found is not None and found.expires_us is not None:
            return None if found.expires_us < found.updated_us else found
        return found


class ClockDecides(Sound):
    """Takes a save with an earlier time for an older one."""

    async def save_as(self, given: Save) -> StoredState:
        current = await self.load(given.key)
        if current is not None and current.updated_us > given.now_us:
            raise StateConflict(expected=given.expected, current=current)
        return await super().save_as(given)


class CachedLoad(Sound):
    """Answers each second load from a cache, as a replica that is behind does."""

    def __init__(self) -> None:
        super().__init__()
        self._cache: dict[StateKey, StoredState | None] = {}

    async def load(self, key: StateKey) -> StoredState | None:
        if key in self._cache:
            return self._cache.pop(key)
        found = self._cache[key] = await super().load(key)
        return found


class SkippedStates(Sound):
    """Loses a state at each page's edge."""

    async def list(
        self, tenant_id: str, user_id: str, *, after: StateKey | None = None, limit: int
    ) -> Sequence[StateKey]:
        found = await super().list(tenant_id, user_id, after=after, limit=limit)
        return found[1:] if after is not None else found


class WideLast(Sound):
    """Lists the user-wide state after the sessions."""

    async def list(
        self, tenant_id: str, user_id: str, *, after: StateKey | None = None, limit: int
    ) -> Sequence[StateKey]:
        found = await super().list(tenant_id, user_id, after=after, limit=limit)
        return sorted(found, key=lambda one: one.session_id is None)


class Forgetful(Sound):
    """Declares what it cannot do: durable commits."""

    capabilities = StateCapabilities(durable="commit", shared=False, max_state_bytes=1_000_000)


class FalselyShared(Sound):
    """Declares that others may open the same place, which they cannot."""

    capabilities = StateCapabilities(durable="never", shared=True, max_state_bytes=1_000_000)


class LeakedDriverError(Sound):
    """Lets the driver's own error pass while the place is away."""

    async def save_as(self, given: Save) -> StoredState:
        if self.away:
            raise ConnectionResetError("the driver's own")
        return await super().save_as(given)


class EmptyPromise(Sound):
    """Acknowledges every second save while the place is away, and then loses it."""

    def __init__(self) -> None:
        super().__init__()
        self._asked = 0

    async def save_as(self, given: Save) -> StoredState:
        self._asked += 1
        if not self.away or self._asked % 2:
            return await super().save_as(given)
        before = await self.load(given.key)
        self.away = False
        saved = await super().save_as(given)
        self.away = True
        held = self._find(given.key)
        assert held is not None
        held.now = before
        held.version -= 1
        held.changes.pop()
        return saved


class Closed(Sound):
    """Does not come back by itself after an outage."""

    async def save_as(self, given: Save) -> StoredState:
        try:
            return await super().save_as(given)
        except StoreUnavailable:
            await self.aclose()
            raise


class OpenWhenClosed(Sound):
    """Answers loads after ``aclose``."""

    async def load(self, key: StateKey) -> StoredState | None:
        try:
            return await super().load(key)
        except NotOpen:
            return None


class ErasedForAll(Sound):
    """Takes a user who is not here for one who was erased."""

    async def admit(self, tenant_id: str, user_id: str, *, epoch: Epoch, now_us: int) -> None:
        if self._erased:
            raise UserErased(user_id)
        await super().admit(tenant_id, user_id, epoch=epoch, now_us=now_us)


MUTANTS: list[tuple[type[Sound], str]] = [
    (LostUpdate, "test_no_update_is_lost"),
    (LastWriterWins, "test_other_versions_are_refused"),
    (InsertOrReplace, "test_save_if_absent_leaves_what_is_there"),
    (ZeroIsAbsent, "test_versions_below_1_are_refused"),
    (ReusedVersions, "test_versions_go_on_over_a_deletion"),
    (BlindConflict, "test_other_versions_are_refused test_save_if_absent_has_one_winner"),
    (StaleConflict, "test_other_versions_are_refused"),
    (LateHistory, "test_cancelled_saves_are_whole_or_absent"),
    (HistoryOfRefusals, "test_other_versions_are_refused"),
    (LostDeletion, "test_history_comes_newest_first test_versions_go_on_over_a_deletion"),
    (BlindDeletion, "test_other_versions_are_refused"),
    (OldestFirst, "test_history_comes_newest_first"),
    (ClosedPages, "test_history_comes_newest_first"),
    (NarrowTrim, "test_history_is_trimmed test_long_history_is_trimmed"),
    (TrimToThePast, "test_history_is_trimmed"),
    (WideIsNone, "test_user_wide_state_is_no_session"),
    (JoinedKeys, "test_states_do_not_meet"),
    (CaseBlind, "test_absent_states_show_nothing_of_others test_states_do_not_meet"),
    (IgnoredEpoch, "test_other_epoch_is_refused"),
    (SelfAdmitting, "test_user_must_be_admitted"),
    (ConflictFirst, "test_other_epoch_is_refused"),
    (ForgottenErasure, "test_erased_epoch_is_refused_for_ever"),
    (UnmarkedErasure, "test_epoch_is_refused_without_having_been_here"),
    (HalfErasure, "test_erasure_empties_every_place"),
    (EternalClaim, "test_claim_runs_out"),
    (NoClaim, "test_due_states_are_claimed_once"),
    (OwnClaim, "test_due_states_are_claimed_once"),
    (LastingClaim, "test_save_ends_a_claim"),
    (LatestFirst, "test_earliest_come_first"),
    (TimersOfAll, "test_timers_of_tenants_do_not_meet"),
    (CutState, "test_states_over_the_declared_size_are_refused"),
    (VagueSize, "test_states_over_the_declared_size_are_refused"),
    (HiddenExpiry, "test_expiry_is_the_callers"),
    (ClockDecides, "test_clocks_that_jump_change_nothing"),
    (CachedLoad, "test_save_is_read_at_once"),
    (SkippedStates, "test_states_are_listed_in_order"),
    (WideLast, "test_states_are_listed_in_order"),
    (Forgetful, "test_store_is_reopened"),
    (FalselyShared, "test_acknowledged_saves_are_seen_by_others test_processes_lose_no_update"),
    (LeakedDriverError, "test_store_that_is_away_says_so"),
    (EmptyPromise, "test_nothing_acknowledged_is_lost_in_an_outage"),
    (Closed, "test_nothing_acknowledged_is_lost_in_an_outage test_store_that_is_away_says_so"),
    (OpenWhenClosed, "test_closed_store_refuses_everything"),
    (ErasedForAll, "test_returning_user_begins_anew"),
]


@pytest.mark.parametrize(
    ("mutant", "caught_by"), MUTANTS, ids=lambda one: getattr(one, "__name__", "")
)
def test_mutant_fails_the_suite(mutant: type[Sound], caught_by: str) -> None:
    """A store that is wrong in this one way fails the tests that are about it."""
    names = caught_by.split()
    assert state_failures(lambda: Harness(mutant), only=names) == sorted(names)


def test_every_mutant_is_tried() -> None:
    """Each subclass of the sound store in this file is in the list."""
    assert {one for one, _ in MUTANTS} == set(Sound.__subclasses__())


def test_store_without_a_mutation_passes() -> None:
    """The store that the mutants are made from passes the whole suite, outages included."""
    assert state_failures(lambda: Harness(Sound)) == []


def test_harness_says_what_it_lacks() -> None:
    """A harness that declares what it cannot do is told what to write."""

    class Bare(StateHarness):
        def make(self) -> StateStore:
            return Sound()

    harness = Bare()
    for call in (harness.stop, harness.start):
        with pytest.raises(NotImplementedError, match="stop and start"):
            anyio.run(call)
