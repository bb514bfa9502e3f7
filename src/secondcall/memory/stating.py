"""The state of one user or session: loading, changing and deleting it, and its history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from secondcall.abc_state import StateConflict, StateKey, StoredState
from secondcall.checks import check_id, check_limit, from_us, to_us
from secondcall.errors import InvalidValue, UserErased
from secondcall.memory.expiring import trim
from secondcall.memory.preferring import prefer, preferences, seen_names, state_and_preferences
from secondcall.memory.settling import SUMMARY_ROOM, due_us, encode_summary, settle_merged
from secondcall.memory.stated import StateRecord, record_of
from secondcall.state.agent_state import AgentState
from secondcall.state.body import (
    FORMAT,
    MAX_STATE_BYTES,
    Fields,
    FieldsMigration,
    decode_state,
    encode_state,
    fresh_state,
    same_body,
)
from secondcall.state.update import Retry, apply_change, compare_and_set, summary_of

if TYPE_CHECKING:
    from secondcall.abc import Scope
    from secondcall.abc_state import StateStore
    from secondcall.memory.shared import Place, Shared
    from secondcall.types import JsonValue, Trust

__all__ = ["StateHandle", "claim_due", "state_of"]

F = TypeVar("F")
G = TypeVar("G")

_TRIM_EVERY = 64
_LOOK_AGAIN_SECONDS = 1.0
_LONGEST_CLAIM_SECONDS = 30 * 86_400
_UNTYPED: Fields[Mapping[str, Any]] = Fields()


@dataclass(slots=True)
class _Writing(Generic[F]):
    """One ``update`` or ``save`` under way: what it stands on stays the same over its retries."""

    by: str
    reason: str
    key: str | None = None
    always: bool = False
    preferences: Mapping[str, JsonValue] = field(default_factory=dict[str, "JsonValue"])
    told: dict[str, JsonValue] = field(default_factory=dict[str, "JsonValue"])
    first: F | None = None
    """The fields of a fresh state, where writing one that is no different would be idle."""

    def unchanged(self, after: AgentState[F], body: bytes, expires_us: int | None) -> bool:
        """Whether an update came to what is stored already; a ``save`` is always written."""
        if self.always:
            return False
        if after.origin is None:
            return not after.frames and after.fields == self.first and expires_us is None
        stored = after.origin[0]
        return same_body(body, stored.body) and expires_us == stored.expires_us


class StateHandle(Generic[F]):
    """The state of one session (``session.state``) or user-wide (``user.state``).

    State is for what must be true: money, steps, commitments. What was said is in the record, what
    is stated and can change in the facts: see ``docs/which-layer.md``.
    """

    def __init__(
        self,
        place: Place,
        session_id: str | None,
        fields: Fields[F],
        retry: Retry | None = None,
    ) -> None:
        self._place = place
        self._session_id = session_id
        self._fields = fields
        self._retry = Retry() if retry is None else retry

    @property
    def session_id(self) -> str | None:
        """The session whose state it is; ``None``: the user-wide one."""
        return self._session_id

    @property
    def user_id(self) -> str:
        """The user whose state it is."""
        return self._place.user_id

    @property
    def trust(self) -> Trust:
        """How far the user's identity is proved."""
        return self._place.trust

    def of(
        self,
        kind: type[G],
        *,
        version: int = 1,
        migrations: Mapping[int, FieldsMigration] | None = None,
        default: Callable[[], G] | None = None,
    ) -> StateHandle[G]:
        """The same state, its ``fields`` read as a dataclass or pydantic model of yours.

        ``version`` numbers the class; ``migrations`` bring stored fields (plain values by name)
        from an older version to the next. ``default`` makes the first fields where the class cannot
        begin empty. Raises: ``InvalidValue``.
        """
        check_limit("version", version, maximum=2**31)
        fields = Fields(kind, version=version, migrations=migrations or {}, default=default)
        return StateHandle(self._place, self._session_id, fields, self._retry)

    def retrying(self, retry: Retry) -> StateHandle[F]:
        """The same state, with another number of tries and other waits for ``update``."""
        return StateHandle(self._place, self._session_id, self._fields, retry)

    async def load(self) -> AgentState[F] | None:
        """The state as it is now, or ``None``: timers that ran out have gone off, and one past its
        ``expires_at`` is absent. After a merge the state of the merged user is found too.

        Raises: ``StoreCorrupt``, ``SchemaTooNew``, ``InvalidValue`` when fields do not fit their
        class, store errors.
        """
        stored, held = await self._read_both()
        return self._decoded(stored, held)

    async def update(
        self,
        change: Callable[[AgentState[F]], AgentState[F]],
        *,
        by: str = "host",
        reason: str = "",
        key: str | None = None,
    ) -> AgentState[F]:
        """Change the state: read it, apply ``change``, save it if nobody else did meanwhile, and
        else do it again with what the other one wrote. An absent state is a fresh one to
        ``change``, which must be a plain function without effects: it may run several times, and
        nothing is held while it runs. If it raises, nothing has changed.

        Preferences are written first, as facts; a save that then fails does not undo them. Under
        the same ``key``, which is of this state and holds for 30 days, each value is written once,
        however often and wherever the update is tried again. State is for what must be true;
        ``docs/which-layer.md`` says what belongs elsewhere.

        Raises: what ``change`` raises (``StateError`` and its kinds), ``InvalidValue``,
        ``TooLarge``, ``VersionConflict`` when the tries are used up, ``UserErased``, store errors.
        """
        writing = _Writing[F](
            by=check_id("by", by),
            reason=_reason(reason),
            key=None if key is None else check_id("key", key),
            first=self._fields.first(),
        )

        async def read() -> StoredState | None:
            stored, writing.preferences = await self._read_both()
            return stored

        with self._place.shared.in_flight():
            return await compare_and_set(read, partial(self._attempt, change, writing), self._retry)

    async def save(
        self, state: AgentState[F], *, by: str = "host", reason: str = ""
    ) -> AgentState[F]:
        """Save a state that was loaded and changed, if it is still at the version it was loaded at;
        ``version`` ``None``: if there is none. ``update`` does it again where this gives up.

        Raises: ``VersionConflict`` with both versions, and as ``update``.
        """
        if not isinstance(state, AgentState):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
            raise InvalidValue(f"save takes an AgentState, not {type(state).__name__}")
        self._check_owner(state)
        writing = _Writing[F](
            by=check_id("by", by),
            reason=_reason(reason),
            always=True,
        )
        with self._place.shared.in_flight():
            await self._look()
            if state.version is None:
                stored = await self._read()
                if not self._absent(stored) and self._is_home(cast("StoredState", stored)):
                    raise StateConflict(expected=None, current=stored)
                return await self._write(stored, state, writing)
            stored = None if state.origin is None else state.origin[0]
            if stored is None or stored.version != state.version:  # somebody else's doing
                stored = await self._read()
                if stored is None or stored.version != state.version:
                    raise StateConflict(expected=state.version, current=stored)
            return await self._write(stored, state, writing)

    async def settle(self, *, by: str = "timer") -> AgentState[F] | None:
        """Save what timers did since the last save, so that history shows it; the state then.

        After a merge also in the state of the merged user, which is due no more then.
        """
        if await self._read() is None:
            return None
        state = await self.update(lambda state: state, by=by)
        for key, scope in (await self._keys())[1:]:
            await settle_merged(self._place, self._fields, key, scope, by)
        return state

    async def delete(
        self, *, expected_version: int | None = None, by: str = "host", reason: str = ""
    ) -> bool:
        """Delete the state; whether there was one. Its history stays, and a later state goes on
        with its versions. A state that cannot be read can be deleted. Preferences stay.

        Raises: ``VersionConflict`` when it is not at ``expected_version``, ``UserErased``.
        """
        check_id("by", by)
        summary = encode_summary({"reason": _reason(reason)} if reason else {})
        found = False
        with self._place.shared.in_flight():
            self._place.look_again()
            for key, scope in await self._keys():

                async def attempt(
                    stored: StoredState | None, key: StateKey = key, scope: Scope = scope
                ) -> bool:
                    return await self._delete(key, scope, stored, expected_version, by, summary)

                read = partial(self._states().load, key)
                found = await compare_and_set(read, attempt, self._retry) or found
        return found

    async def history(self, *, limit: int = 50, before: int | None = None) -> list[StateRecord[F]]:
        """What the state was, newest first, below version ``before``; readable even when the state
        itself is not. Versions go beyond the newest 1,000 and by the retention of *state*, and all
        of it with ``user.forget``."""
        check_limit("limit", limit)
        await self._look()
        home = (await self._keys())[0][0]
        policy, now = await self._place.retention(), self._place.shared.clock.now()
        cutoff_us = policy.cutoff_us("state", now)
        changes = await self._states().history(home, limit=limit, before=before)
        seen = await seen_names(self._place)
        return [
            record_of(
                home,
                one,
                self._fields,
                trust=self._place.trust,
                known=self._place.shared.workflows,
                seen=seen,
            )
            for one in changes
            if cutoff_us is None or one.at_us >= cutoff_us
        ]

    async def _attempt(
        self,
        change: Callable[[AgentState[F]], AgentState[F]],
        writing: _Writing[F],
        stored: StoredState | None,
    ) -> AgentState[F]:
        state = self._decoded(stored, writing.preferences)
        if state is None:
            state = replace(self._fresh(), preferences=writing.preferences)
        return await self._write(stored, apply_change(change, state), writing)

    async def _write(
        self,
        stored: StoredState | None,
        after: AgentState[F],
        writing: _Writing[F],
    ) -> AgentState[F]:
        """Write preferences, then the state over what is stored, which may be nothing."""
        shared = self._place.shared
        states = self._states()
        most = min(MAX_STATE_BYTES, states.capabilities.max_state_bytes - SUMMARY_ROOM)
        body = encode_state(after, self._fields, max_bytes=most)
        before = self._fresh() if after.origin is None else after.origin[1]
        summary = encode_summary(summary_of(before, after, writing.reason))
        if after.preferred:
            key = None if writing.key is None else (self._session_id, writing.key)
            await prefer(self._place, after.preferred, told=writing.told, key=key)
            after = replace(after, preferences=await preferences(self._place))
        expires_us = None if after.expires_at is None else to_us("expires_at", after.expires_at)
        if writing.unchanged(after, body, expires_us):
            return replace(after, preferred=())
        home = (await self._keys())[0][0]
        here = stored is not None and stored.key == home
        now_us = max(shared.now_us(), to_us("now", after.now))
        save = partial(
            states.save,
            home,
            body,
            expected_version=stored.version if stored is not None and here else None,
            now_us=now_us,
            by=writing.by,
            summary=summary,
            schema=FORMAT,
            expires_us=expires_us,
            due_us=due_us(after),
        )
        saved = await self._admitted(lambda epoch: save(epoch=epoch), home)
        shared.learn(after.known)
        if saved.version % _TRIM_EVERY == 0:
            shared.background.start(("trim", home), lambda: trim(self._place, home))
        return replace(
            after,
            preferred=(),
            version=saved.version,
            updated_at=from_us(saved.updated_us),
            updated_by=saved.updated_by,
            now=from_us(saved.updated_us),
            origin=(saved, after),
        )

    async def _admitted(self, write: Callable[[bytes], Any], home: StateKey) -> StoredState:
        """Write under this handle's epoch; a store of its own is told of a new user first."""
        shared = self._place.shared
        epoch = await self._place.epoch()
        try:
            return await write(epoch)
        except UserErased:
            if not shared.states_apart:
                raise
        await self._states().admit(
            home.tenant_id, home.user_id, epoch=epoch, now_us=shared.now_us()
        )
        return await write(epoch)

    async def _delete(
        self,
        key: StateKey,
        scope: Scope,
        stored: StoredState | None,
        expected_version: int | None,
        by: str,
        summary: bytes,
    ) -> bool:
        is_home = scope == await self._place.home()
        version = None if stored is None else stored.version
        if is_home and expected_version not in (None, version):
            raise StateConflict(expected=expected_version, current=stored)
        if stored is None:
            return False
        if is_home:
            epoch = await self._place.epoch()
        else:
            header = await self._place.shared.store.header(scope)
            if header is None:
                return False
            epoch = header.epoch
        await self._states().delete(
            key,
            expected_version=stored.version,
            epoch=epoch,
            now_us=max(self._place.shared.now_us(), stored.updated_us),
            by=by,
            summary=summary,
        )
        return True

    async def _look(self) -> None:
        """Look up the partitions, and the epoch that all that is read now belongs to."""
        self._place.look_again(after_seconds=_LOOK_AGAIN_SECONDS)
        await self._place.seen_epoch()

    async def _read(self) -> StoredState | None:
        """The stored state: of the partition that is written to, or else the newest of those merged
        into it."""
        await self._look()
        found: list[StoredState] = []
        for key, _ in await self._keys():
            stored = await self._states().load(key)
            if stored is not None:
                if not found and key == (await self._keys())[0][0]:
                    return stored
                found.append(stored)
        return max(found, key=lambda one: one.updated_us, default=None)

    async def _read_both(self) -> tuple[StoredState | None, Mapping[str, JsonValue]]:
        await self._look()
        both = await state_and_preferences(self._place, (await self._keys())[0][0])
        return both or (await self._read(), await preferences(self._place))

    async def _keys(self) -> Sequence[tuple[StateKey, Scope]]:
        return [
            (StateKey(scope.tenant_id, scope.name, self._session_id), scope)
            for scope in await self._place.scopes()
        ]

    def _states(self) -> StateStore:
        return self._place.shared.state_store()

    def _absent(self, stored: StoredState | None) -> bool:
        if stored is None or stored.expires_us is None:
            return stored is None
        return stored.expires_us <= max(self._place.shared.now_us(), stored.updated_us)

    def _fresh(self) -> AgentState[F]:
        shared = self._place.shared
        key = StateKey(self._place.tenant_id, self._place.user_id, self._session_id)
        return fresh_state(
            key,
            self._fields,
            now=shared.clock.now(),
            trust=self._place.trust,
            known=shared.workflows,
        )

    def _decoded(
        self, stored: StoredState | None, held: Mapping[str, JsonValue]
    ) -> AgentState[F] | None:
        if stored is None or self._absent(stored):
            return None
        state = decode_state(
            stored,
            self._fields,
            now=self._place.shared.clock.now(),
            trust=self._place.trust,
            known=self._place.shared.workflows,
            preferences=held,
        )
        home = self._is_home(stored)
        if home and state.user_id == self._place.user_id:
            return state
        return replace(state, user_id=self._place.user_id, version=state.version if home else None)

    def _is_home(self, stored: StoredState) -> bool:
        looked = self._place.home_seen()
        return looked is None or stored.key.user_id == looked.name

    def _check_owner(self, state: AgentState[Any]) -> None:
        own = (self._place.tenant_id, self._place.user_id, self._session_id)
        if (state.tenant_id, state.user_id, state.session_id) != own:
            raise InvalidValue("the state belongs to another user or session; nothing was saved")


def state_of(place: Place, session_id: str | None) -> StateHandle[Mapping[str, Any]]:
    """The state of a session or, without one, of the user."""
    return StateHandle(place, session_id, _UNTYPED)


async def claim_due(
    shared: Shared,
    tenant_id: str,
    place: Callable[[str], Place],
    *,
    limit: int,
    holder: str,
    seconds: float,
) -> list[StateHandle[Mapping[str, Any]]]:
    """Handles of states whose timers are due, each given to one holder at a time."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
        raise InvalidValue(f"seconds must be a number, not {type(seconds).__name__}")
    if not 0 < seconds <= _LONGEST_CLAIM_SECONDS:
        raise InvalidValue(
            f"seconds is {seconds}, expected more than 0, at most {_LONGEST_CLAIM_SECONDS:,}"
        )
    keys = await shared.state_store().claim_due(
        tenant_id, now_us=shared.now_us(), limit=limit, holder=holder, seconds=seconds
    )
    return [state_of(place(key.user_id), key.session_id) for key in keys]


def _reason(reason: str) -> str:
    return check_id("reason", reason) if reason else ""
