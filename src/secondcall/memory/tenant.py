"""One tenant: opening and closing, who is calling, and the users."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import anyio.to_thread

from secondcall import identity, registry
from secondcall.abc import Clock, Embedder, LanguageModel, Store, TokenCounter
from secondcall.abc_state import StatefulStore, StateStore
from secondcall.checks import check_id, check_limit, to_us
from secondcall.errors import InvalidValue, NotOpen
from secondcall.memory.background import Background
from secondcall.memory.metering import Meter
from secondcall.memory.shared import Place, Shared, SystemClock
from secondcall.memory.stating import StateHandle, claim_due
from secondcall.memory.user import UserMemory
from secondcall.memory.warming import warm
from secondcall.record.index import IndexCache
from secondcall.record.retain import parse_retention
from secondcall.record.seal import Sealer
from secondcall.shortterm.measure import SafeCounter
from secondcall.state.known import Workflows
from secondcall.types import Caller

if TYPE_CHECKING:
    from secondcall.identity import AuditEntry, Identifier, IdentityKind, LinkedIdentity
    from secondcall.state.workflow import Workflow

__all__ = ["Memory"]

_CLOSE_SECONDS = 30.0


class Memory:
    """One tenant's memory over one store. Made by ``Memory.open``."""

    def __init__(self, shared: Shared, tenant_id: str, *, owner: bool) -> None:
        self._shared = shared
        self._tenant_id = tenant_id
        self._owner = owner

    @classmethod
    def open(
        cls,
        url: str | Store,
        *,
        tenant_id: str = "default",
        state: str | StateStore | None = None,
        workflows: Iterable[Workflow] = (),
        embedder: str | Embedder = "static",
        model: str | LanguageModel | None = None,
        extract: bool = True,
        counter: TokenCounter | None = None,
        clock: Clock | None = None,
        retain: object = None,
        index_bytes: int = 512 * 1024 * 1024,
    ) -> Memory:
        """Memory over ``url``, to be used as ``async with Memory.open(...) as memory``.

        ``embedder`` is a name like ``"static"`` or ``"openai:model"``, or an object. ``model`` is a
        language model, by name or as an object, that works in the background; none is needed.
        Unless ``extract`` is false it also finds facts: see ``docs/how-to/extract-facts.md``.
        ``state`` is the URL of another store for states, or an object; by default they are kept
        with the rest. ``workflows`` are those that states may be in here, all versions that still
        run; one that is started is known from then on. ``retain`` is how long things are kept:
        ``"90d"``, a ``timedelta``, or one by kind (``{"tool_call": "30d"}``); for ever by default.
        ``index_bytes`` bounds the search indexes held in memory.

        Raises: ``UnknownName``, ``MissingExtra``, ``InvalidValue``.
        """
        check_id("tenant_id", tenant_id)
        store = registry.store_from_url(url) if isinstance(url, str) else url
        if not isinstance(store, Store):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
            raise InvalidValue(f"url must be text or a Store, not {type(url).__name__}")
        states = _states(store, None if state == url else state)
        if isinstance(embedder, str):
            embedder = registry.embedder_from_name(embedder)
        if isinstance(model, str):
            model = registry.model_from_name(model)
        clock = SystemClock() if clock is None else clock
        background = Background()
        meter = Meter(store, background, lambda: to_us("now", clock.now()))
        shared = Shared(
            store=store,
            embedder=embedder,
            model=model,
            extract=extract,
            counter=SafeCounter.of(registry.default_counter() if counter is None else counter),
            clock=clock,
            cache=IndexCache(
                store, embedder, max_bytes=check_limit("index_bytes", index_bytes, maximum=1 << 50)
            ),
            sealer=Sealer(
                store,
                embedder,
                lambda: to_us("now", clock.now()),
                metered=lambda scope, epoch: meter.calls("recall", scope, epoch, session_id=""),
            ),
            background=background,
            retention=parse_retention(retain),
            meter=meter,
            scheme=urlsplit(url).scheme if isinstance(url, str) else type(url).__name__,
            states=states,
            workflows=Workflows(workflows),
            states_apart=state not in (None, url),
        )
        return cls(shared, tenant_id, owner=True)

    @property
    def tenant_id(self) -> str:
        """The tenant that this handle is bound to."""
        return self._tenant_id

    @property
    def counter(self) -> TokenCounter:
        """What tokens are counted with: the counter that was given, made safe from failing."""
        return self._shared.counter

    @property
    def is_open(self) -> bool:
        """Whether it is open, by ``async with``."""
        return self._shared.is_open

    @property
    def place(self) -> str:
        """Tells this memory's store from others on the machine; see ``Store.place``."""
        return self._shared.store.place

    def beside(
        self, name: str, place: str, erase: Callable[[str, str], Awaitable[int]] | None
    ) -> None:
        """Make known what is kept of users beside the store, such as journals in a folder.

        ``forget`` awaits ``erase(tenant_id, partition)`` for each partition, those of users by
        their ids and those of identities by their hashes, and puts the count into its receipt under
        ``name``; an error makes the receipt incomplete. The same name and ``place`` again replaces
        it, ``None`` takes it away.
        """
        if erase is None:
            self._shared.beside.pop((name, place), None)
        else:
            self._shared.beside[name, place] = erase

    def tenant(self, tenant_id: str) -> Memory:
        """The same store for another tenant, sharing pools and caches. Close only the first."""
        return Memory(self._shared, check_id("tenant_id", tenant_id), owner=False)

    async def __aenter__(self) -> Self:
        if self._owner and not self._shared.is_open:
            await self._open_stores()
            self._shared.is_open = True
            self._shared.background.open()
            self._shared.background.start(
                "warm", lambda: anyio.to_thread.run_sync(warm, lambda: self._shared.is_open)
            )
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Finish background work and close the store. Harmless when repeated."""
        if self._owner and self._shared.is_open:
            self._shared.is_open = False
            await self._shared.drain(_CLOSE_SECONDS)
            await self._shared.background.aclose(_CLOSE_SECONDS)
            self._shared.extracting.close()
            await self._shared.meter.finish()
            await self._shared.embedder.aclose()
            if self._shared.model is not None:
                await self._shared.model.aclose()
            if self._shared.states is not None and self._shared.states_apart:
                await self._shared.states.aclose()
            await self._shared.store.aclose()

    async def identify(
        self,
        *,
        phone: object = None,
        sip: object = None,
        subject: object = None,
        email: object = None,
        device: object = None,
        verified: Collection[IdentityKind] = (),
        default_region: str | None = None,
    ) -> Caller:
        """Who is calling. Several fields are taken in order of trust; conflicts are reported.

        ``subject`` is an id that your backend authenticated; name in ``verified`` what else it
        proved. Withheld or malformed fields never become a shared memory: with nothing usable the
        caller is anonymous, with a user id for this call alone. See ``docs/identity.md``.

        Raises: ``InvalidValue`` for a wrong call, store errors.
        """
        found = identity.identifiers_from(
            phone=phone,
            sip=sip,
            subject=subject,
            email=email,
            device=device,
            verified=verified,
            default_region=default_region,
        )
        shared = self._opened()
        return await identity.resolve(
            shared.store, self._tenant_id, found.usable, now_us=shared.now_us()
        )

    def user(self, caller: Caller | str) -> UserMemory:
        """The memory of one user: of an identified caller, with the caller's trust, or of a user id
        that the host has authenticated itself.

        Raises: ``InvalidValue``.
        """
        shared = self._opened()
        if isinstance(caller, Caller):
            return UserMemory(shared, self._tenant_id, caller.user_id, trust=caller.trust)
        return UserMemory(shared, self._tenant_id, check_id("user_id", caller), trust="verified")

    async def users(self, *, after: str = "", limit: int = 1_000) -> list[str]:
        """User ids in order, above ``after``."""
        check_limit("limit", limit)
        scopes = await self._opened().store.scopes(
            self._tenant_id, "user", after=after, limit=limit
        )
        return [scope.name for scope in scopes]

    async def link(
        self,
        user_id: str,
        *,
        phone: object = None,
        sip: object = None,
        subject: object = None,
        email: object = None,
        device: object = None,
        verified: Collection[IdentityKind] = (),
        default_region: str | None = None,
        reason: str = "",
    ) -> list[LinkedIdentity]:
        """Give a user further identities, in the fields of ``identify``: all of them or none.

        Raises: ``InvalidValue`` when one is malformed or another user's.
        """
        found = _usable(phone, sip, subject, email, device, verified, default_region)
        shared = self._opened()
        return await identity.link_all(
            shared.store,
            self._tenant_id,
            user_id,
            found,
            now_us=shared.now_us(),
            reason=reason,
        )

    async def unlink(
        self,
        user_id: str,
        *,
        phone: object = None,
        sip: object = None,
        subject: object = None,
        email: object = None,
        device: object = None,
        default_region: str | None = None,
        reason: str = "",
    ) -> int:
        """Take identities from a user; how many were the user's. Raises: ``InvalidValue``."""
        found = _usable(phone, sip, subject, email, device, (), default_region)
        shared = self._opened()
        taken = 0
        for one in found:
            taken += await identity.unlink(
                shared.store,
                self._tenant_id,
                user_id,
                one,
                now_us=shared.now_us(),
                reason=reason,
            )
        return taken

    async def merge(self, from_user: str, into_user: str, *, reason: str = "") -> None:
        """Make two users one: ``into_user`` reads both, new writes go to it. ``unmerge`` undoes it.

        Raises: ``InvalidValue``, ``UnknownName``, ``UserErased``.
        """
        shared = self._opened()
        await identity.merge(
            shared.store,
            self._tenant_id,
            from_user,
            into_user,
            now_us=shared.now_us(),
            reason=reason,
        )

    async def unmerge(self, from_user: str, *, reason: str = "") -> None:
        """Take a merge back; each side keeps what was written to it. Raises: ``UnknownName``."""
        shared = self._opened()
        await identity.unmerge(
            shared.store, self._tenant_id, from_user, now_us=shared.now_us(), reason=reason
        )

    async def identities(self, user_id: str) -> Sequence[LinkedIdentity]:
        """The identities of a user, masked."""
        return await identity.identities_of(self._opened().store, self._tenant_id, user_id)

    async def audit(self, user_id: str, *, limit: int = 1_000) -> Sequence[AuditEntry]:
        """What was linked, merged and taken back, oldest first."""
        return await identity.audit(self._opened().store, self._tenant_id, user_id, limit=limit)

    async def sweep(
        self, *, dry_run: bool = False, progress: Callable[[str, int], None] | None = None
    ) -> dict[str, int]:
        """Remove what has run out by the retention policies, from the record and everything derived
        from it: user id to how many items, facts, states and versions of states. With ``dry_run``
        only count. What a crash left of identities and erasures is tidied up too.
        """
        if not dry_run:
            await self._finish_erasures()
        swept: dict[str, int] = {}
        after = ""
        while page := await self.users(after=after):
            for user_id in page:
                count = await self.user(user_id).sweep(dry_run=dry_run)
                if count:
                    swept[user_id] = count
                if progress is not None:
                    progress(user_id, count)
            after = page[-1]
        return swept

    async def due_states(
        self, *, limit: int = 100, seconds: float = 60.0, holder: str | None = None
    ) -> list[StateHandle[Mapping[str, Any]]]:
        """States whose timers have gone off, earliest first, each given to nobody else for
        ``seconds``: ``settle()`` each to save what its timer did, after doing what follows from it.

        Raises: ``InvalidValue``, store errors.
        """
        shared = self._opened()
        return await claim_due(
            shared,
            self._tenant_id,
            lambda user_id: Place(shared, self._tenant_id, user_id, "verified"),
            limit=check_limit("limit", limit),
            holder=secrets.token_hex(8) if holder is None else check_id("holder", holder),
            seconds=seconds,
        )

    async def problems(self) -> list[str]:
        """What a self-check of the store finds wrong, one line each."""
        shared = self._opened()
        found = list(await shared.store.problems())
        if shared.states is not None and shared.states_apart:
            found += [f"states: {line}" for line in await shared.states.problems()]
        return found

    async def flush(self) -> None:
        """Wait until all background work started so far is done. Writes never need this."""
        await self._opened().background.wait()

    async def _finish_erasures(self) -> None:
        shared = self._opened()
        left = await identity.sweep(shared.store, self._tenant_id, now_us=shared.now_us())
        for user_id in left.unfinished:
            await self.user(user_id).forget()

    async def _open_stores(self) -> None:
        shared = self._shared
        await shared.store.open()
        if shared.states is not None and shared.states_apart:
            try:
                await shared.states.open()
            except BaseException:  # cancelled too: nothing stays half open; raised on
                await shared.store.aclose()
                raise

    def _opened(self) -> Shared:
        if not self._shared.is_open:
            raise NotOpen("this memory is not open; use 'async with Memory.open(url) as memory'")
        return self._shared


def _states(store: Store, state: str | StateStore | None) -> StateStore | None:
    """Where states are kept: apart, with the records, or nowhere. Raises: ``InvalidValue``."""
    if state is None:
        return store.states() if isinstance(store, StatefulStore) else None
    states = registry.state_store_from_url(state) if isinstance(state, str) else state
    if not isinstance(states, StateStore):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
        raise InvalidValue(f"state must be text or a StateStore, not {type(state).__name__}")
    return states


def _usable(
    phone: object,
    sip: object,
    subject: object,
    email: object,
    device: object,
    verified: Collection[IdentityKind],
    default_region: str | None,
) -> Sequence[Identifier]:
    """The identifiers in these fields. Raises: ``InvalidValue`` when one identifies nobody."""
    found = identity.identifiers_from(
        phone=phone,
        sip=sip,
        subject=subject,
        email=email,
        device=device,
        verified=verified,
        default_region=default_region,
    )
    if found.rejected:
        first = found.rejected[0]
        raise InvalidValue(f"{first.field} cannot identify anybody: {first.reason}")
    if not found.usable:
        raise InvalidValue("no identity was given; name at least one of phone, sip, subject, ...")
    return found.usable
