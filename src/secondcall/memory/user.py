"""One user: what was said, what is known, asking for it, and forgetting it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

from secondcall import telemetry
from secondcall.checks import check_deadline, check_id, check_limit, from_us, to_us
from secondcall.context.brief import compose
from secondcall.errors import InvalidValue
from secondcall.facts.restore import restore
from secondcall.facts.supersede import check_fact, new_fact
from secondcall.memory.asking import ask
from secondcall.memory.attached import read_attached
from secondcall.memory.briefing import gather, recaps
from secondcall.memory.choosing import question_of
from secondcall.memory.erasing import entry_key, forget, sweep
from secondcall.memory.merging import merged, pages
from secondcall.memory.metering import total_usage
from secondcall.memory.recapping import recap_sessions
from secondcall.memory.screening import Screen
from secondcall.memory.session import SessionMemory
from secondcall.memory.shared import Place, Shared
from secondcall.memory.stating import StateHandle, state_of
from secondcall.memory.telling import end, held, ids_of, move_on, past, tell
from secondcall.recall.confidence import DEFAULT_CONFIDENCE
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
    Recap,
    Receipt,
    RecordedItem,
    Role,
    SessionSummary,
    Trust,
)

if TYPE_CHECKING:
    from secondcall.abc import EntryKey, Scope
    from secondcall.usage import Usage

__all__ = ["UserMemory"]


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

    def now(self) -> datetime:
        """The time by the memory's clock."""
        return self._place.shared.clock.now()

    async def session(self, session_id: str) -> SessionMemory:
        """One conversation, new or going on; what is recorded through it is durable at once.

        Meanwhile the recaps of earlier ones that have none, after a crash, are made in the
        background.

        Raises: ``InvalidValue``.
        """
        session = SessionMemory(self, self._place, check_id("session_id", session_id))
        recap_sessions(self._place, but=session_id)
        return session

    @property
    def state(self) -> StateHandle[Mapping[str, Any]]:
        """The user-wide state, which outlives sessions; see ``StateHandle``."""
        return state_of(self._place, None)

    async def known(self) -> bool:
        """Whether anything was ever recorded or remembered of this user."""
        self._place.look_again()
        store = self._place.shared.store
        headers = [await store.header(scope) for scope in await self._place.scopes()]
        return any(header is not None and header.change > 0 for header in headers)

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
        store = self._place.shared.store
        streams = [
            pages(
                store,
                scope,
                session_id=session_id,
                since_us=since_us,
                until_us=until_us,
                newest_first=newest_first,
            )
            for scope in await self._place.scopes()
        ]
        async for scope, entry in merged(streams, newest_first=newest_first):
            cutoff = policy.cutoff_us(entry.key.kind, now)
            if cutoff is not None and entry.at_us < cutoff:
                continue
            if ItemKey(scope.name, *entry.key) not in hidden:
                yield decode_entry(scope.name, entry)

    async def attached(self, keys: Sequence[ItemKey]) -> Mapping[ItemKey, bytes]:
        """What hosts attached to these items (``ListedSession.append``); those without are left
        out. Raises: ``StoreCorrupt``, store errors."""
        scopes, hidden = await self._place.scopes(), await self._hidden()
        store, keys = self._place.shared.store, [one for one in keys if one not in hidden]
        return await read_attached(store, scopes, keys)

    async def item(self, key: ItemKey) -> RecordedItem | None:
        """One item of this user's record, or ``None``."""
        wanted = entry_key(key)
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

    async def recaps(self, *, limit: int = 3) -> list[Recap]:
        """What the last ``limit`` conversations came to, the last one first, as this caller may see
        it; one without a recap that holds is left out."""
        return await recaps(self._place, check_limit("limit", limit, maximum=100))

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
        multi: bool | None = None,
        rests_on: Sequence[Fact | str] | None = None,
    ) -> Fact:
        """Remember a fact. It ends the older one of the same subject and predicate, which stays in
        the history; saying again what holds changes nothing.

        With ``multi`` the predicate has several values, each with a life of its own; it is known
        from then on. With an older ``valid_from`` the fact takes its place in the history. When one
        of the facts that it ``rests_on`` ends, it is to be confirmed (``Fact.to_confirm``) until
        it is told again. Where facts belong: ``docs/which-layer.md``.

        Raises: ``InvalidValue`` (also for a circle), ``UnknownName`` for an unknown ground,
        ``TooLarge``, ``UserErased``, ``VersionConflict`` when others were faster for 30 seconds.
        """
        fact = new_fact(
            predicate,
            value,
            kind=kind,
            subject=subject,
            now=self._place.shared.clock.now(),
            valid_from=None if valid_from is None else from_us(to_us("valid_from", valid_from)),
            due_at=None if due_at is None else from_us(to_us("due_at", due_at)),
            sensitive=sensitive,
            sources=sources,
            metadata=metadata,
            rests_on=ids_of(rests_on),
        )
        return await tell(self._place, fact, multi=multi, keeps_rests_on=rests_on is None)

    async def settle(
        self,
        predicate: str,
        status: FactStatus,
        *,
        subject: str = "user",
        value: JsonValue = None,
        at: datetime | None = None,
    ) -> Fact:
        """Move a promise (kept, broken, withdrawn) or an issue (resolved, open) on, ``at`` a time.

        Of several values name the ``value``. Raises: ``UnknownName`` when none of that predicate
        stands, ``InvalidValue`` when the status may not follow.
        """
        return await move_on(self._place, predicate, status, subject, value=value, at=at)

    async def retract(
        self,
        predicate: str,
        *,
        subject: str = "user",
        value: JsonValue = None,
        at: datetime | None = None,
    ) -> Fact:
        """End a fact with nothing in its place, ``at`` a time, now by default. Of several values
        only the ``value`` ends. Raises: ``UnknownName``, ``InvalidValue``."""
        return await end(self._place, predicate, subject, value=value, at=at)

    async def facts(
        self,
        *,
        as_of: datetime | None = None,
        believed_at: datetime | None = None,
        kinds: Collection[FactKind] | None = None,
    ) -> list[Fact]:
        """What is true now, or was true ``as_of``, oldest first; one fact a predicate or value.

        ``believed_at`` goes by what had been told by then, about then unless ``as_of`` says
        otherwise. What was said is in the record (``recall``): ``docs/which-layer.md``.
        """
        return await held(self._place, as_of=as_of, believed_at=believed_at, kinds=kinds)

    async def history(self, predicate: str | None = None, *, subject: str = "user") -> list[Fact]:
        """Every fact of one predicate, or of all, oldest first, ended ones included."""
        return await past(self._place, predicate, subject)

    async def restore(self, facts: Sequence[Fact]) -> int:
        """Bring exported facts back with their ids, times and status; how many were not there yet.

        Raises: ``InvalidValue``, ``UserErased``, ``VersionConflict``.
        """
        checked = [check_fact(fact) for fact in facts]
        shared = self._place.shared
        self._place.look_again()
        home, epoch = await self._place.home(), await self._place.epoch()
        added = await restore(shared.store, home, checked, epoch=epoch, now_us=shared.now_us())
        await shared.buffers.facts_changed(await self._place.scopes())
        return added

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
        apart_from: tuple[str, datetime] | None = None,
        told: Collection[ItemKey | str] = (),
        time: Literal["soft", "hard"] = "soft",
        time_zone: str | None = None,
        stale: Literal["mark", "drop"] = "mark",
        prefer_current: bool = True,
        screen: Screen | None = None,
        min_confidence: float = DEFAULT_CONFIDENCE,
        neighbours: int | Literal["turn"] = 0,
        small_talk: bool = False,
        explain: bool = False,
        max_tokens: int | None = None,
        deadline_seconds: float | None = None,
    ) -> Recalled:
        """What was said and done that answers ``query``, best first; facts apart.

        ``at`` is the moment of asking, now by default. The filters apply before ranking: ``where``
        to metadata (equal values) and ``kinds`` to items and facts (with ``kinds=["promise"]`` only
        promises are found); ``roles``, ``sessions`` and ``since`` ≤ time < ``until`` to items, and
        ``apart_from=(session_id, since)``: what that session holds from then on, such as the
        conversation that asks, is not found, nor what was ``told`` (keys of items, ids of facts).
        What states facts that had ended by then is marked, or dropped, as ``stale`` says, and with
        ``prefer_current`` comes after what states the fact that holds, unless a time is asked for.
        A time that the query names ("last month", "two calls ago") is a hint, or with ``time``
        "hard" a filter, on the clock of ``time_zone`` (UTC). Below ``min_confidence`` nothing is
        found; ``screen`` is your own function over the items; so many ``neighbours`` of each come
        along, with "turn" the reply to a user's words and the question before a reply; greetings
        and thanks only with ``small_talk`` (all in ``docs/how-to/recall.md``).
        When ``deadline_seconds`` run out, what is there by then is returned and marked ``stale``.
        An empty query finds nothing and says so. See ``docs/which-layer.md``.

        Raises: ``InvalidValue``, store errors.
        """
        started = perf_counter()
        question = question_of(
            query,
            now=self._place.shared.clock.now(),
            limit=limit,
            at=at,
            by=by,
            where=where,
            kinds=kinds,
            roles=roles,
            sessions=sessions,
            since=since,
            until=until,
            apart_from=apart_from,
            told=told,
            stale=stale,
            prefer_current=prefer_current,
            max_tokens=max_tokens,
            deadline_seconds=deadline_seconds,
            time=time,
            time_zone=time_zone,
            screen=screen,
            min_confidence=min_confidence,
            neighbours=neighbours,
            small_talk=small_talk,
            explain=explain,
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
        the first ``recall`` is warm, and recaps that are missing are made. What the parts come
        from: ``docs/which-layer.md``.

        Raises: ``InvalidValue``, store errors.
        """
        started = perf_counter()
        check_limit("max_tokens", max_tokens)
        with telemetry.operation("brief", store=self._place.shared.scheme) as span:
            parts = await gather(
                self._place,
                deadline_seconds=check_deadline(deadline_seconds),
                max_sessions=check_limit("max_sessions", max_sessions, maximum=100),
                max_facts=check_limit("facts", facts, maximum=10_000),
            )
            recap_sessions(self._place, at_once=True)
            shared = self._place.shared
            found = compose(
                parts,
                max_tokens=max_tokens,
                counter=shared.counter,
                now=shared.clock.now(),
                started=started,
            )
            span.set(tokens=found.tokens, left_out=found.left_out)
            for part in found.missing:
                telemetry.count_late("brief", part)
            return found

    async def usage(self, *, since: datetime | None = None) -> Usage:
        """What model and embedding calls for this user took since then, at most 90 days back:
        tokens, and cost where the gateway told it, by layer, session and model. Days that were
        added up count whole. See ``docs/how-to/metering.md``.

        Raises: ``InvalidValue``, store errors.
        """
        self._place.look_again()
        since = None if since is None else from_us(to_us("since", since))
        return await total_usage(self._place.shared.meter, await self._place.scopes(), since)

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
        for key, wanted in [(key, entry_key(key)) for key in keys]:
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
        how many items, facts, states and versions of states. With ``dry_run`` only count."""
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
