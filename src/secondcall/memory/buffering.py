"""The buffer of a session: filled from the record, fed by recording, summarised beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, get_args
from weakref import WeakSet

from secondcall import telemetry
from secondcall.checks import check_limit, from_us
from secondcall.facts.moved import is_moved
from secondcall.facts.sweep import remove_facts
from secondcall.memory.calling import CallIds
from secondcall.memory.following import changes_since, reach
from secondcall.memory.pinning import pinned
from secondcall.memory.shelved import RecordShelf, items_of, place_of
from secondcall.record.append import decode_entry
from secondcall.shortterm.buffer import MAX_TOKEN_LIMIT, ChatBuffer
from secondcall.shortterm.kept import BEGINNING, Head, drop_items
from secondcall.shortterm.measure import Measure
from secondcall.shortterm.owned import has_run_out
from secondcall.shortterm.summary import ModelSummarizer, SummarizingBuffer
from secondcall.shortterm.turns import is_system
from secondcall.types import Fact, ItemKey, ItemKind, Message, RecordedItem

if TYPE_CHECKING:
    from secondcall.abc import EntryKey, Epoch, NewEntry, Scope, TokenCounter, Written
    from secondcall.memory.shared import Place
    from secondcall.memory.user import UserMemory
    from secondcall.record.retain import Retention
    from secondcall.shortterm.report import BufferReport
    from secondcall.types import Item

__all__ = [
    "DEFAULT_TOKEN_LIMIT",
    "BufferedSession",
    "Buffers",
    "drop_summaries",
    "explained",
    "feed",
    "open_buffer",
]

DEFAULT_TOKEN_LIMIT = 3_000
_FRAMING_TOKENS = 4
_MAX_LOADED = 10_000
_MAX_WAITING = 16
"""So many token limits of what waits to be summarised are taken up from a process that ended."""
_FIRST_ITEMS = 20
"""So far into a session system messages are looked for that were recorded before each was named."""
_ITEM_KINDS: tuple[ItemKind, ...] = get_args(ItemKind)


@dataclass(slots=True)
class _Seen:
    """How far the record was when the buffer was filled, and the policy then."""

    headers: dict[Scope, tuple[Epoch, int] | None]
    policy: Retention


class BufferedSession:
    """One buffer and the session that it belongs to."""

    def __init__(
        self,
        user: UserMemory,
        place: Place,
        session_id: str,
        *,
        token_limit: int,
        summarise: bool,
        every: int | None,
        scopes: Sequence[Scope],
    ) -> None:
        shared = place.shared
        self._user = user
        self._place = place
        self._session_id = session_id
        self.settings = (token_limit, summarise, every)
        self._measure = Measure(
            shared.counter, token_limit=token_limit, framing_tokens=_FRAMING_TOKENS
        )
        self.shelf = RecordShelf(self)
        self.calls = CallIds()
        """The ids of the tool calls that went through the buffer."""
        self.scopes: Collection[Scope] = scopes
        """The partitions that it is filled from."""
        self.version = 0
        """Moves on with whatever is put in or let go."""
        self._seen: _Seen | None = None
        self._meanwhile: list[RecordedItem] = []
        self._loading: asyncio.Task[None] | None = None
        self._begins: tuple[int, int] | None = None
        self.buffer: _FedBuffer | SummarizingBuffer
        if not summarise:
            self.buffer = _FedBuffer(token_limit, counter=shared.counter, session=self)
            return
        self.buffer = SummarizingBuffer(
            token_limit,
            summarizer=None if shared.model is None else ModelSummarizer(shared.model),
            every=every,
            counter=shared.counter,
            framing_tokens=_FRAMING_TOKENS,
            clock=shared.clock,
            shelf=self.shelf,
        )

    @property
    def place(self) -> Place:
        """The user whose session it is."""
        return self._place

    @property
    def session_id(self) -> str:
        """The session."""
        return self._session_id

    def cutoffs(self) -> Mapping[ItemKind, int]:
        """What was said before these times (microseconds) has run out, by kind of item."""
        if self._seen is None or not self._seen.policy.keep:
            return {}
        now = self._place.shared.clock.now()
        found: dict[ItemKind, int] = {}
        for kind in _ITEM_KINDS:
            cutoff = self._seen.policy.cutoff_us(kind, now)
            if cutoff is not None:
                found[kind] = cutoff
        return found

    async def refresh(
        self, by: Place, headers: Mapping[Scope, tuple[Epoch, int] | None] | None = None
    ) -> None:
        """See what came into the record since, or became sensitive, or is kept otherwise now; no
        more than a look at the ``headers`` where nothing has. ``by`` has just looked its partitions
        up."""
        if self._loading is not None:
            await self.load()
        if by is not self._place:
            self._place.look_again()
            headers = None
        seen, before = await self._look(headers), self._seen
        for scope, known in () if before is None else before.headers.items():
            header = seen.headers.get(scope)
            if header and known and header[0] == known[0] and header[1] < known[1]:
                seen.headers[scope] = known  # fed since those headers were read
        if seen == before:
            return
        changed = None if before is None else await self._changed(before, seen)
        if changed is None:
            await self.load()
            self.settle_if_due()
            return
        self._seen = seen
        self.take(changed)

    async def fed(
        self,
        by: Place,
        scope: Scope,
        epoch: Epoch,
        written: Written,
        recorded: Sequence[RecordedItem],
    ) -> None:
        """Take in what ``by`` has just recorded; and what others did meanwhile, if they did."""
        seen = self._seen
        if seen is None or seen.headers.keys() != set(await by.scopes()):
            await self.refresh(by)  # it was merged or unmerged meanwhile
            return
        known = seen.headers[scope] or (epoch, 0)
        if known[1] == written.first_change - 1:
            seen.headers[scope] = (known[0], written.change)
            self.take(recorded)
        elif known[1] < written.change:
            await self.refresh(by)

    async def _look(self, headers: Mapping[Scope, tuple[Epoch, int] | None] | None = None) -> _Seen:
        found = await reach(self._place) if headers is None else dict(headers)
        return _Seen(found, await self._place.retention())

    async def _changed(self, before: _Seen, now: _Seen) -> list[RecordedItem] | None:
        """What others recorded in this session; ``None`` when it takes reading it anew."""
        if before.policy != now.policy:
            return None
        changes = await changes_since(self._place, before.headers, now.headers)
        found: list[RecordedItem] = []
        for user_id, change in () if changes is None else changes:
            if change.kind == "document" and self._place.trust != "verified":
                return None
            if change.key is None or change.key.session_id != self._session_id:
                continue
            if change.entry is None:
                return None
            found.append(decode_entry(user_id, change.entry))
        return None if changes is None else found

    async def load(self) -> None:
        """Fill the buffer anew: with what was summarised, and the newest items after it. Asked for
        again meanwhile it is done once."""
        loading, loop = self._loading, asyncio.get_running_loop()
        if loading is None or loading.get_loop() is not loop:
            loading = self._loading = asyncio.ensure_future(self._load())
        await asyncio.shield(loading)

    def take(self, items: Sequence[RecordedItem]) -> None:
        """Take in what was recorded, and summarise in the background when that is due."""
        if self._loading is not None:
            self._meanwhile.extend(items)
            return
        self._put(items)
        self.settle_if_due()

    async def _load(self) -> None:
        try:
            self._seen = await self._look()
            self.scopes = self._seen.headers.keys()
            head, items = None, list[RecordedItem]()
            if isinstance(self.buffer, SummarizingBuffer):
                await self.buffer.reload(hidden=await self._hidden())
                head = await self.shelf.load()
                items = await self._still_there(self.buffer)
            boundary = BEGINNING if head is None else head.boundary
            late = () if head is None else await items_of(self._place, head.late)
            newest = await self.newest(boundary)
            items += [*await self._system(head), *late, *newest]
            self._begins = place_of(newest[0]) if newest else None
        except BaseException:  # cancelled too: what was half loaded is loaded again; raised on
            self._seen = None
            raise
        finally:
            self._loading = None
            meanwhile, self._meanwhile = self._meanwhile, []
        if isinstance(self.buffer, ChatBuffer):
            self.buffer.clear()
        self._put(list({one.key: one for one in [*items, *meanwhile]}.values()))
        if isinstance(self.buffer, SummarizingBuffer):
            self.buffer.sort()

    async def _still_there(self, buffer: SummarizingBuffer) -> list[RecordedItem]:
        """What the buffer holds, as it is in the record now; it lets go of what may not be shown
        any more."""
        held = buffer.held()
        found = await items_of(self._place, held)
        buffer.let_go(held.difference(one.key for one in found))
        return found

    def _put(self, items: Sequence[RecordedItem]) -> None:
        self.version += 1
        items = [one for one in items if not self._is_older(one)]
        self.calls.learn(one.item for one in items)
        if isinstance(self.buffer, SummarizingBuffer):
            self.buffer.feed(items)
        else:
            self.buffer.put(*(one.item for one in items))

    def _is_older(self, one: RecordedItem) -> bool:
        """Whether it corrects an item from between what was summarised and what was loaded."""
        if self._begins is None or one.change <= one.position or is_system(one.item):
            return False
        return self.buffer.boundary < place_of(one) < self._begins

    async def discard(self, keys: Collection[ItemKey]) -> None:
        """Let go of what was removed from the record, and of what rested on it."""
        if not any(key.session_id == self._session_id for key in keys):
            return
        if isinstance(self.buffer, SummarizingBuffer):
            self.buffer.discard(keys)
            await self.buffer.reload()
            self.settle_if_due()
        else:
            await self.load()

    def settle_if_due(self) -> None:
        """Begin to summarise in the background, if there is something to."""
        buffer = self.buffer
        if isinstance(buffer, SummarizingBuffer) and buffer.due():
            key = ("summarise", self._place.tenant_id, self._place.user_id, self._session_id)
            self._place.shared.background.start((*key, id(buffer)), self._settle)

    async def newest(self, boundary: tuple[int, int]) -> list[RecordedItem]:
        """The items behind ``boundary``, in reading order; of very many the newest, and where
        nothing was summarised yet those that the buffer has room for."""
        found, tokens = list[RecordedItem](), 0
        most = self.buffer.token_limit * (1 if boundary == BEGINNING else _MAX_WAITING)
        async for one in self._user.items(session_id=self._session_id, newest_first=True):
            if place_of(one) <= boundary:
                break
            found.append(one)
            tokens += self._measure.size(one.item).tokens
            starts = isinstance(one.item, Message) and one.item.role == "user"
            if (tokens > most and starts) or len(found) == _MAX_LOADED:
                break
        return found[::-1]

    async def _settle(self) -> None:
        assert isinstance(self.buffer, SummarizingBuffer)
        with (
            telemetry.operation("summarise", store=self._place.shared.scheme) as span,
            self._place.metered("buffer", self._session_id),
        ):
            span.set(changed=await self.buffer.settle(), tokens=self.buffer.tokens)

    async def _system(self, head: Head | None) -> list[RecordedItem]:
        """The system messages of the session, those of before they were named too."""
        keys = set(await pinned(self._place, self._session_id))
        seen = 0
        async for one in self._user.items(session_id=self._session_id):
            seen += 1
            if isinstance(one.item, Message) and one.item.role == "system":
                keys.add(one.key)
            if seen == _FIRST_ITEMS:
                break
        keys.update(() if head is None else head.system)
        return await items_of(self._place, keys)

    async def _hidden(self) -> Collection[ItemKey]:
        verified = self._place.trust == "verified"
        return frozenset() if verified else await self._place.sensitive_items()


class _FedBuffer(ChatBuffer):
    """A plain buffer that keeps what feeds it alive."""

    boundary = BEGINNING

    def __init__(
        self, token_limit: int, *, counter: TokenCounter, session: BufferedSession
    ) -> None:
        super().__init__(token_limit, counter=counter, framing_tokens=_FRAMING_TOKENS)
        self.session = session

    def _before_read(self) -> None:
        cutoffs = self.session.cutoffs()
        if cutoffs:
            self.let_go(lambda item: has_run_out(item, cutoffs))


class Buffers:
    """The buffers that are in use in this process, by partition and session."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], WeakSet[BufferedSession]] = {}

    def of(self, scopes: Collection[Scope], session_id: str) -> list[BufferedSession]:
        """Those of one session that are filled from one of these partitions."""
        tenants = {scope.tenant_id for scope in scopes}
        return [
            one
            for tenant_id in tenants
            for one in self._open.get((tenant_id, session_id), ())
            if not set(scopes).isdisjoint(one.scopes)
        ]

    def add(self, one: BufferedSession) -> None:
        """Remember a buffer for as long as somebody holds it."""
        for key in [key for key, some in self._open.items() if not some]:
            del self._open[key]
        self._open.setdefault((one.place.tenant_id, one.session_id), WeakSet()).add(one)

    async def discard(self, scopes: Collection[Scope], keys: Collection[ItemKey]) -> None:
        """Let the buffers of these partitions drop what was removed."""
        for session_id in {key.session_id for key in keys}:
            for one in self.of(scopes, session_id):
                await one.discard(keys)

    async def facts_changed(self, scopes: Collection[Scope]) -> None:
        """Let the buffers of merely claimed callers see what has become sensitive."""
        for one in self._all():
            if one.place.trust != "verified" and not set(scopes).isdisjoint(one.scopes):
                await one.refresh(one.place)

    def erased(self, scope: Scope) -> None:
        """Empty the buffers of a user who was forgotten."""
        for one in self._all():
            if scope in one.scopes:
                one.buffer.clear()

    def _all(self) -> Iterator[BufferedSession]:
        for some in list(self._open.values()):
            yield from list(some)


async def open_buffer(
    user: UserMemory,
    place: Place,
    session_id: str,
    *,
    token_limit: int | None,
    summarise: bool,
    every: int | None,
) -> BufferedSession:
    """The buffer of a session, filled; one that is in use with the same settings is shared."""
    limit = DEFAULT_TOKEN_LIMIT
    if token_limit is not None:
        limit = check_limit("token_limit", token_limit, maximum=MAX_TOKEN_LIMIT)
    place.look_again()
    for known in place.shared.buffers.of(await place.scopes(), session_id):
        same_caller = known.place.trust == place.trust and known.place.user_id == place.user_id
        if known.settings == (limit, summarise, every) and same_caller:
            await known.refresh(place)
            return known
    opened = BufferedSession(
        user,
        place,
        session_id,
        token_limit=limit,
        summarise=summarise,
        every=every,
        scopes=await place.scopes(),
    )
    place.shared.buffers.add(opened)
    await opened.load()
    opened.settle_if_due()
    return opened


async def explained(user: UserMemory, session_id: str, *, token_limit: int | None) -> BufferReport:
    """What a buffer of this size would show of the session now, and why; nothing is summarised by
    looking, so that an agent's own buffer stays as it is. Raises: ``InvalidValue``."""
    place = user._place  # pyright: ignore[reportPrivateUsage] - a room of the same user
    limit = DEFAULT_TOKEN_LIMIT
    if token_limit is not None:
        limit = check_limit("token_limit", token_limit, maximum=MAX_TOKEN_LIMIT)
    seen = BufferedSession(
        user,
        place,
        session_id,
        token_limit=limit,
        summarise=True,
        every=None,
        scopes=await place.scopes(),
    )
    await seen.load()
    return seen.buffer.explain()


async def feed(
    place: Place,
    session_id: str,
    scope: Scope,
    epoch: Epoch,
    items: Sequence[Item],
    entries: Sequence[NewEntry],
    written: Written,
) -> None:
    """Give what was just recorded to the session's buffers, if there are any."""
    buffers = place.shared.buffers.of(await place.scopes(), session_id)
    if not buffers:
        return
    recorded, corrected = list[RecordedItem](), list[ItemKey]()
    for item, entry, outcome, change in zip(
        items, entries, written.outcomes, written.entry_changes, strict=True
    ):
        key, at = ItemKey(scope.name, *entry.key), from_us(entry.at_us)
        if outcome == "corrected":
            corrected.append(key)
        elif outcome == "added":
            item = (
                replace(item, id=key.id, at=at)
                if isinstance(item, Message)
                else replace(item, at=at)
            )
            recorded.append(
                RecordedItem(
                    key=key, item=item, at=at, change=change, position=change, recorded_at=at
                )
            )
    recorded += await items_of(place, corrected)
    for one in buffers:
        await one.fed(place, scope, epoch, written, recorded)


async def drop_summaries(
    place: Place, scope: Scope, keys: Sequence[EntryKey], *, removed: bool
) -> None:
    """Drop what summaries, key facts and open buffers rest on: before the items are ``removed``, so
    that a crash leaves nothing behind, and after, since somebody may have summarised meanwhile."""
    shared = place.shared
    items = frozenset(ItemKey(scope.name, *key) for key in keys)
    scopes = await place.scopes()
    for one in scopes:
        header = await shared.store.header(one)
        if header is None:
            continue
        await drop_items(shared.store, one, items, epoch=header.epoch, now_us=shared.now_us())
        await remove_facts(
            shared.store,
            one,
            lambda fact: _rests_only_on(fact, items),
            epoch=header.epoch,
            now_us=shared.now_us(),
        )
    if removed:
        await shared.buffers.discard(scopes, items)


def _rests_only_on(fact: Fact, items: frozenset[ItemKey]) -> bool:
    return is_moved(fact) and bool(fact.sources) and items.issuperset(fact.sources)
