"""One user: what was said, what is known, asking for it, and forgetting it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

from secondcall.abc import EntryKey
from secondcall.checks import check_id, check_limit, check_metadata, from_us, to_us
from secondcall.context.brief import compose
from secondcall.errors import InvalidValue
from secondcall.facts import read
from secondcall.facts.restore import restore
from secondcall.facts.supersede import check_fact, new_fact
from secondcall.memory.asking import Question, ask, clamp_query
from secondcall.memory.briefing import gather
from secondcall.memory.erasing import forget, sweep
from secondcall.memory.session import SessionMemory
from secondcall.memory.shared import Place, Shared
from secondcall.memory.telling import end, move_on, shown, tell
from secondcall.record.append import decode_entry
from secondcall.record.retain import Retention, change_policy, parse_retention
from secondcall.types import (
    Brief,
    Fact,
    FactKind,
    FactStatus,
    ItemKey,
    ItemKind,
    JsonValue,
    Metadata,
    Recalled,
    Receipt,
    RecordedItem,
    Role,
    SessionSummary,
    Trust,
)

if TYPE_CHECKING:
    from secondcall.abc import Scope, StoredEntry

__all__ = ["UserMemory"]

_PAGE = 500
_KINDS = frozenset((*get_args(ItemKind), *get_args(FactKind)))
_ROLES = frozenset(get_args(Role))

Name = TypeVar("Name", bound=str)


class UserMemory:
    """Everything remembered of one user. Made by ``memory.user(...)``; reaches nobody else."""

    def __init__(self, shared: Shared, tenant_id: str, user_id: str, *, trust: Trust) -> None:
        self._place = Place(shared, tenant_id, user_id, trust)

    @property
    def user_id(self) -> str:
        """The id that the handle was made with."""
        return self._place.user_id

    @property
    def trust(self) -> Trust:
        """How far the identity is proved; a *claimed* caller is shown nothing sensitive."""
        return self._place.trust

    async def session(self, session_id: str) -> SessionMemory:
        """One conversation, new or going on; what is recorded through it is durable at once.

        Raises: ``InvalidValue``.
        """
        return SessionMemory(self, self._place, check_id("session_id", session_id))

    async def known(self) -> bool:
        """Whether anything was ever recorded or remembered of this user."""
        self._place.look_again()
        for scope in await self._place.scopes():
            header = await self._place.shared.store.header(scope)
            if header is not None and header.change > 0:
                return True
        return False

    async def items(
        self,
        *,
        session_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        newest_first: bool = False,
    ) -> AsyncIterator[RecordedItem]:
        """The record, word for word, in order of time then position, read page by page."""
        self._place.look_again()
        since_us = None if since is None else to_us("since", since)
        until_us = None if until is None else to_us("until", until)
        policy = await self._place.retention()
        now = self._place.shared.clock.now()
        hidden = await self._hidden()
        streams = [
            self._entries(scope, session_id, since_us, until_us, newest_first)
            for scope in await self._place.scopes()
        ]
        async for scope, entry in _merged(streams, newest_first=newest_first):
            cutoff = policy.cutoff_us(entry.key.kind, now)
            if cutoff is not None and entry.at_us < cutoff:
                continue
            if ItemKey(scope.name, *entry.key) not in hidden:
                yield decode_entry(scope.name, entry)

    async def item(self, key: ItemKey) -> RecordedItem | None:
        """One item of this user's record, or ``None``."""
        wanted = _entry_key(key)
        self._place.look_again()
        for scope in await self._place.scopes():
            if scope.name == key.user_id and key not in await self._hidden():
                found = await self._place.shared.store.entries(scope, [wanted])
                now = self._place.shared.clock.now()
                cutoff = (await self._place.retention()).cutoff_us(key.kind, now)
                if found and (cutoff is None or found[0].at_us >= cutoff):
                    return decode_entry(scope.name, found[0])
        return None

    async def sessions(self, *, limit: int = 20) -> list[SessionSummary]:
        """The user's conversations, the last one first."""
        check_limit("limit", limit)
        self._place.look_again()
        now = self._place.shared.clock.now()
        ended = (await self._place.retention()).session_cutoff_us(now)
        found: list[SessionSummary] = []
        for scope in await self._place.scopes():
            outlines = await self._place.shared.store.sessions(scope, limit=limit)
            found.extend(
                SessionSummary(
                    user_id=scope.name,
                    session_id=outline.session_id,
                    first_at=from_us(outline.first_us),
                    last_at=from_us(outline.last_us),
                    items=outline.items,
                )
                for outline in outlines
                if ended is None or outline.last_us >= ended
            )
        found.sort(key=lambda one: (one.last_at, one.session_id), reverse=True)
        return found[:limit]

    async def remember(
        self,
        predicate: str,
        value: JsonValue,
        *,
        kind: FactKind = "attribute",
        subject: str = "user",
        valid_from: datetime | None = None,
        due_at: datetime | None = None,
        sensitive: bool = False,
        sources: Sequence[ItemKey] = (),
        metadata: Metadata | None = None,
    ) -> Fact:
        """Remember a fact. It ends the older one of the same subject and predicate, which stays in
        the history; saying again what holds changes nothing.

        For what was said, record it; for what must be true (money, steps, commitments), use state:
        ``docs/which-layer.md``.

        Raises: ``InvalidValue``, ``TooLarge``, ``UserErased``, ``VersionConflict``.
        """
        shared = self._place.shared
        fact = new_fact(
            predicate,
            value,
            kind=kind,
            subject=subject,
            now=shared.clock.now(),
            valid_from=None if valid_from is None else from_us(to_us("valid_from", valid_from)),
            due_at=None if due_at is None else from_us(to_us("due_at", due_at)),
            sensitive=sensitive,
            sources=sources,
            metadata=metadata,
        )
        return await tell(self._place, fact)

    async def settle(self, predicate: str, status: FactStatus, *, subject: str = "user") -> Fact:
        """Move a promise (kept, broken, withdrawn) or an issue (resolved, open) on.

        Raises: ``UnknownName`` when none of that predicate stands, ``InvalidValue`` when the status
        may not follow.
        """
        return await move_on(self._place, predicate, status, subject)

    async def retract(self, predicate: str, *, subject: str = "user") -> Fact:
        """End a fact with nothing in its place. Raises: ``UnknownName``."""
        return await end(self._place, predicate, subject)

    async def facts(
        self, *, as_of: datetime | None = None, kinds: Collection[FactKind] | None = None
    ) -> list[Fact]:
        """What is true now, or was true ``as_of``, oldest first; one fact a predicate.

        What was said is in the record (``recall``): ``docs/which-layer.md`` tells them apart.
        """
        shared = self._place.shared
        self._place.look_again()
        moment = shared.clock.now() if as_of is None else from_us(to_us("as_of", as_of))
        found = await read.facts_at(shared.store, await self._place.scopes(), moment, kinds=kinds)
        return await shown(self._place, found)

    async def history(self, predicate: str | None = None, *, subject: str = "user") -> list[Fact]:
        """Every fact of one predicate, or of all, oldest first, ended ones included."""
        self._place.look_again()
        store, scopes = self._place.shared.store, await self._place.scopes()
        if predicate is None:
            return await shown(self._place, await read.all_facts(store, scopes))
        found = await read.history(store, scopes, predicate, subject=subject)
        return await shown(self._place, found)

    async def restore(self, facts: Sequence[Fact]) -> int:
        """Bring exported facts back with their ids, times and status; how many were not there yet.

        Raises: ``InvalidValue``, ``UserErased``, ``VersionConflict``.
        """
        checked = [check_fact(fact) for fact in facts]
        shared = self._place.shared
        self._place.look_again()
        home, epoch = await self._place.home(), await self._place.epoch()
        return await restore(shared.store, home, checked, epoch=epoch, now_us=shared.now_us())

    async def recall(
        self,
        query: str,
        *,
        limit: int = 5,
        at: datetime | None = None,
        by: Literal["message", "turn", "session"] = "message",
        where: Metadata | None = None,
        kinds: Collection[ItemKind | FactKind] | None = None,
        roles: Collection[Role] | None = None,
        sessions: Collection[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        max_tokens: int | None = None,
        deadline_seconds: float | None = None,
    ) -> Recalled:
        """What was said and done that answers ``query``, best first; facts apart.

        ``at`` is the moment of asking, now by default. The filters apply before ranking: ``where``
        to metadata (equal values) and ``kinds`` to items and facts (with ``kinds=["promise"]`` only
        promises are found); ``roles``, ``sessions`` and ``since`` ≤ time < ``until`` to items. When
        ``deadline_seconds`` run out, what is there by then is returned and marked ``stale``.
        An empty query finds nothing and says so. See ``docs/which-layer.md``.

        Raises: ``InvalidValue``, store errors.
        """
        started = time.perf_counter()
        question = Question(
            query=clamp_query(query),
            limit=check_limit("limit", limit, maximum=10_000),
            at=self._place.shared.clock.now() if at is None else from_us(to_us("at", at)),
            by=by,
            where=None if where is None else check_metadata("where", where),
            kinds=_chosen("kinds", kinds, _KINDS),
            roles=_chosen("roles", roles, _ROLES),
            sessions=_collected("sessions", sessions),
            since=None if since is None else from_us(to_us("since", since)),
            until=None if until is None else from_us(to_us("until", until)),
            max_tokens=None if max_tokens is None else check_limit("max_tokens", max_tokens),
            deadline_seconds=_deadline(deadline_seconds),
        )
        return await ask(self._place, question, started)

    async def brief(
        self,
        *,
        max_tokens: int = 400,
        deadline_seconds: float | None = 0.05,
        max_sessions: int = 3,
        facts: int = 2_000,
    ) -> Brief:
        """What a new conversation starts with: promises, open issues, facts, last conversations.

        Key reads only. When ``deadline_seconds`` run out, what is there by then is used and
        ``missing`` names the rest. Meanwhile the search index is loaded in the background, so that
        the first ``recall`` is warm. What the parts come from: ``docs/which-layer.md``.

        Raises: ``InvalidValue``, store errors.
        """
        started = time.perf_counter()
        check_limit("max_tokens", max_tokens)
        parts = await gather(
            self._place,
            deadline_seconds=_deadline(deadline_seconds),
            max_sessions=check_limit("max_sessions", max_sessions, maximum=100),
            max_facts=check_limit("facts", facts, maximum=10_000),
        )
        shared = self._place.shared
        return compose(
            parts,
            max_tokens=max_tokens,
            counter=shared.counter,
            now=shared.clock.now(),
            started=started,
        )

    async def forget(self) -> Receipt:
        """Remove everything of this user: every partition, index, identity and document.

        The receipt names what went from each place and what a scan found afterwards. Other handles
        of the user can write no more. What lives on in backups is said in ``docs/erasure.md``.

        Raises: ``InvalidValue`` under a legal hold, store errors; run it again to complete it.
        """
        return await forget(self._place)

    async def remove(self, keys: Sequence[ItemKey]) -> int:
        """Remove single items from the record and from every index; how many were there.

        Raises: ``InvalidValue`` under a legal hold or for another user's key.
        """
        self._place.look_again()
        scopes = {scope.name: scope for scope in await self._place.scopes()}
        by_scope: dict[Scope, list[EntryKey]] = {}
        for key in keys:
            wanted = _entry_key(key)
            if key.user_id not in scopes:
                raise InvalidValue(f"item {key.id!r} belongs to another user; nothing was removed")
            by_scope.setdefault(scopes[key.user_id], []).append(wanted)
        return await sweep(self._place, by_scope, dry_run=False)

    async def retain(self, keep: object) -> None:
        """Give this user a retention policy of their own; ``None`` takes the tenant's again."""
        kept = None if keep is None else parse_retention(keep).keep
        await self._set_policy(
            lambda policy: replace(policy, keep=kept or {}, own=kept is not None)
        )

    async def hold(self, on: bool = True) -> None:
        """Put the user under a legal hold, or lift it: nothing is swept or forgotten meanwhile."""
        await self._set_policy(lambda policy: replace(policy, hold=on))

    async def retention(self) -> Mapping[str, object]:
        """The policy in force: seconds kept by kind, whether it is the user's own, and the hold."""
        self._place.look_again()
        policy = await self._place.retention()
        keep = {kind: one.total_seconds() for kind, one in policy.keep.items()}
        return {"keep_seconds": keep, "own": policy.own, "hold": policy.hold}

    async def sweep(self, *, dry_run: bool = False) -> int:
        """Remove what has run out by the policy, from the record and all that is derived from it;
        how many items and facts. With ``dry_run`` only count."""
        self._place.look_again()
        return await sweep(self._place, None, dry_run=dry_run)

    async def reindex(self, *, progress: Callable[[int, int], None] | None = None) -> int:
        """Build the search segments anew with today's analyzer and embedder, while the old ones
        serve; how many changes were indexed. ``progress`` is called with (done, total)."""
        shared = self._place.shared
        self._place.look_again()
        done = 0
        for scope in await self._place.scopes():
            header = await shared.store.header(scope)
            if header is not None:
                done += await shared.sealer.rebuild(scope, header.epoch, progress=progress)
                shared.cache.drop(scope)
        return done

    async def flush(self) -> None:
        """Wait until background indexing is done. Writes are durable without it."""
        await self._place.shared.background.wait()

    async def _set_policy(self, change: Callable[[Retention], Retention]) -> None:
        shared = self._place.shared
        self._place.look_again()
        await change_policy(
            shared.store,
            await self._place.home(),
            change,
            epoch=await self._place.epoch(),
            now_us=shared.now_us(),
        )
        self._place.look_again()

    async def _hidden(self) -> Collection[ItemKey]:
        return frozenset() if self.trust == "verified" else await self._place.sensitive_items()

    async def _entries(
        self,
        scope: Scope,
        session_id: str | None,
        since_us: int | None,
        until_us: int | None,
        newest_first: bool,
    ) -> AsyncIterator[tuple[Scope, StoredEntry]]:
        after: tuple[int, int] | None = None
        while True:
            page = await self._place.shared.store.read(
                scope,
                session_id=session_id,
                since_us=since_us,
                until_us=until_us,
                after=after,
                newest_first=newest_first,
                limit=_PAGE,
            )
            for entry in page:
                yield scope, entry
            if len(page) < _PAGE:
                return
            after = (page[-1].at_us, page[-1].position)


async def _merged(
    streams: Sequence[AsyncIterator[tuple[Scope, StoredEntry]]], *, newest_first: bool
) -> AsyncIterator[tuple[Scope, StoredEntry]]:
    """The entries of several partitions in one reading order."""
    if len(streams) == 1:
        async for one in streams[0]:
            yield one
        return
    heads: dict[int, tuple[Scope, StoredEntry]] = {}
    for number, stream in enumerate(streams):
        if (first := await anext(stream, None)) is not None:
            heads[number] = first
    choose = max if newest_first else min
    while heads:
        number = choose(heads, key=lambda one: (heads[one][1].at_us, heads[one][1].position, -one))
        yield heads[number]
        following = await anext(streams[number], None)
        if following is None:
            del heads[number]
        else:
            heads[number] = following


def _entry_key(key: ItemKey) -> EntryKey:
    if not isinstance(key, tuple) or len(key) != len(ItemKey._fields):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
        raise InvalidValue("an item is named by its ItemKey: user_id, session_id, kind and id")
    return EntryKey(key.session_id, key.kind, key.id)


def _collected(field: str, names: Collection[Name] | None) -> Collection[Name] | None:
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Collection):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
        raise InvalidValue(f"{field} must be a list of names, not {type(names).__name__}")
    for name in names:
        check_id(field, name)
    return names


def _chosen(
    field: str, names: Collection[Name] | None, known: frozenset[str]
) -> Collection[Name] | None:
    for name in _collected(field, names) or ():
        if name not in known:
            raise InvalidValue(f"{field} has {name!r}, expected {', '.join(sorted(known))}")
    return names


def _deadline(value: float | None) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
        raise InvalidValue(f"deadline_seconds must be a number, not {type(value).__name__}")
    if not value >= 0:
        raise InvalidValue(f"deadline_seconds is {value}, expected 0 or more, or None for no limit")
    return value
