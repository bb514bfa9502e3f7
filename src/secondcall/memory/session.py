"""One session: what is recorded, and reading it back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio.to_thread

from secondcall import telemetry
from secondcall.abc import Batch
from secondcall.checks import check_limit
from secondcall.errors import InvalidValue
from secondcall.memory.buffering import feed, open_buffer
from secondcall.memory.calling import CallIds
from secondcall.memory.contextual import Contextual, check_request
from secondcall.memory.extracting import extract_at_close, extract_waiting, note_recorded
from secondcall.memory.keeping import KeptShortTerm
from secondcall.memory.listed import ListedSession
from secondcall.memory.pinning import pins
from secondcall.memory.recapping import recap_at_close
from secondcall.memory.stating import StateHandle, state_of
from secondcall.record.append import encode_items, report, weight
from secondcall.shortterm.userdata import ShortTermMemory
from secondcall.types import Item, Recorded, RecordedItem, ToolCall

if TYPE_CHECKING:
    from secondcall.abc import DocumentWrite, NewEntry
    from secondcall.context.parts import Context
    from secondcall.memory.buffering import BufferedSession
    from secondcall.memory.shared import Place
    from secondcall.memory.user import UserMemory
    from secondcall.shortterm.buffer import ChatBuffer
    from secondcall.shortterm.summary import SummarizingBuffer

__all__ = ["SessionMemory"]

T = TypeVar("T")

_LOOK_AGAIN_SECONDS = 1.0
"""How long recording may go on in a partition after the user was merged or unmerged elsewhere."""
_INLINE_ITEMS = 50
_INLINE_CHARACTERS = 100_000
"""So much is checked and encoded at once, without the detour over a thread."""


class SessionMemory:
    """One conversation of one user. Made by ``user.session(session_id)``."""

    def __init__(self, user: UserMemory, place: Place, session_id: str) -> None:
        self._user = user
        self._place = place
        self._session_id = session_id
        self._contextual: Contextual | None = None
        self._buffered: BufferedSession | None = None
        self._calls = CallIds()
        self._listed: ListedSession | None = None
        self._closed = False
        extract_waiting(place, session_id)

    @property
    def session_id(self) -> str:
        """The session that this handle is bound to."""
        return self._session_id

    @property
    def user(self) -> UserMemory:
        """The user whose session it is."""
        return self._user

    @property
    def state(self) -> StateHandle[Mapping[str, Any]]:
        """The state of this session: what must be true in it; see ``StateHandle``."""
        return state_of(self._place, self._session_id)

    async def record(self, *items: Item) -> Recorded:
        """Append what was said and done, all of it or nothing; durable when this returns.

        An item whose id is there with the same content changes nothing; with other content it is a
        correction, which keeps its place. A different tool call with the id of an answered one is
        another call, and gets ``#2`` behind its id (see ``ToolCall``). Recall is for finding it
        again, state for what must be true: see ``docs/which-layer.md``.

        Raises: ``InvalidValue``, ``TooLarge`` naming the item; ``UserErased``; store errors.
        """
        if not items:
            raise InvalidValue("record got no items; give at least one Message or ToolCall")
        shared = self._place.shared
        with shared.in_flight(), telemetry.operation("record", store=shared.scheme) as span:
            span.set(items=len(items))
            return await self._append(items)

    def listed(self) -> ListedSession:
        """This session as a list that can be rearranged; what it no longer has stays in the record.

        For hosts that keep a chat as a list of their own: see ``ListedSession``.
        """
        if self._listed is None:
            self._listed = ListedSession(self._user, self._place, self._session_id, self._append)
        return self._listed

    async def _append(
        self,
        items: Sequence[Item],
        beside: Callable[[Sequence[NewEntry]], Sequence[DocumentWrite]] = lambda _: (),
    ) -> Recorded:
        """Append the items, and in the same write the documents that go beside their entries."""
        shared = self._place.shared
        now = shared.clock.now()
        if any(isinstance(item, ToolCall) for item in items):
            items = self._named(items)
        encode = partial(encode_items, self._session_id, items, now=now)
        small = len(items) <= _INLINE_ITEMS and weight(items) <= _INLINE_CHARACTERS
        entries = encode() if small else await anyio.to_thread.run_sync(encode)
        self._place.look_again(after_seconds=_LOOK_AGAIN_SECONDS)
        scope, epoch = await self._place.home(), await self._place.epoch()
        written = await shared.store.write(
            scope,
            Batch(
                entries=entries,
                documents=[*beside(entries), *pins(self._session_id, items, entries)],
            ),
            epoch=epoch,
            now_us=shared.now_us(),
        )
        self._place.appended(written, scope, epoch)
        if self._closed:
            recap_at_close(self._place, self._session_id)
        note_recorded(self._place, items, closed=self._closed)
        await feed(self._place, self._session_id, scope, epoch, items, entries, written)
        if self._contextual is not None:
            self._contextual.recorded(scope, written)
        return report(scope.name, entries, written)

    def _named(self, items: Sequence[Item]) -> Sequence[Item]:
        """The items, with calls that reuse an id told apart by what this handle has seen."""
        held = None if self._contextual is None else self._contextual.buffered
        for one in (held, self._buffered):
            if one is not None:
                self._calls.absorb(one.calls)
        return self._calls.named(items)

    async def buffer(
        self,
        token_limit: int | None = None,
        *,
        summarise: bool = True,
        every: int | None = None,
    ) -> SummarizingBuffer | ChatBuffer:
        """The newest turns of this session within ``token_limit`` (3,000 by default), loaded from
        the record and fed by ``record``; with ``summarise`` what is older stands in its summary.

        Summaries are written in the background when the turns pass the limit, and after ``every``
        so many, by the memory's model if it has one. They are kept: a later process goes on where
        this one stopped. What the buffer is for: ``docs/which-layer.md``; how it summarises:
        ``docs/summaries.md``.

        Raises: ``InvalidValue``, store errors.
        """
        self._buffered = await open_buffer(
            self._user,
            self._place,
            self._session_id,
            token_limit=token_limit,
            summarise=summarise,
            every=every,
        )
        return self._buffered.buffer

    async def context(
        self,
        question: str | None = None,
        *,
        window: int,
        reserve: int = 1_000,
        system: str = "",
        tools: Sequence[object] = (),
        shares: Mapping[str, float] | None = None,
        limit: int = 3,
        deadline_seconds: float | None = None,
    ) -> Context:
        """What a model needs for its next reply, within ``window`` tokens: where the workflows of
        session and user stand, the brief, what is recalled for ``question`` (by default the newest
        user message), the newest turns.

        ``reserve`` tokens are kept for the answer; ``system`` and ``tools`` (texts, or JSON that
        describes them) are counted. ``shares`` split the rest: 0.6 ``buffer``, 0.2 ``recall``, 0.2
        ``state`` (the workflows first, then the brief). The turns are those of
        ``session.buffer()`` where it was asked for, else the record's. At most ``limit`` turns are
        recalled, none of them from the buffer. What ``deadline_seconds`` cut off is named in
        ``missing``, what did not fit in ``left_out``.
        Which part is for what: ``docs/which-layer.md``.

        Raises: ``OverBudget`` naming the part that does not fit; ``InvalidValue``; store errors.
        """
        request = check_request(
            question,
            window=window,
            reserve=reserve,
            system=system,
            tools=tools,
            shares=shares,
            limit=limit,
            deadline_seconds=deadline_seconds,
        )
        if self._contextual is None:
            self._contextual = Contextual(self._user, self._place, self._session_id)
        return await self._contextual.context(request, self._buffered)

    async def shortterm(
        self,
        start: type[T] | T,
        *,
        ttl_seconds: float | Mapping[str, float | None] | None = 300.0,
        message_limit: int = 10,
        message_tokens: int = 1_000,
        flag_limit: int = 100,
        max_entries: int = 1_000,
        max_characters: int = 100_000,
    ) -> KeptShortTerm[T]:
        """This session's typed short-term memory, taken up where it was saved last: by this
        process or by one that is gone. ``await kept.save()`` keeps what it holds then.

        ``start`` is your dataclass or pydantic model; the settings are those of
        ``ShortTermMemory``. The time in between counts against every TTL. Loading writes nothing.
        When to keep it at all: ``docs/which-layer.md``.

        Raises: ``InvalidValue``, ``UnknownName``, ``StoreCorrupt``, ``SchemaTooNew``, store errors.
        """
        memory = ShortTermMemory[T](
            start,
            ttl_seconds=ttl_seconds,
            message_limit=message_limit,
            message_tokens=message_tokens,
            flag_limit=flag_limit,
            max_entries=max_entries,
            max_characters=max_characters,
            counter=self._place.shared.counter,
            clock=self._place.shared.clock,
        )
        kept = KeptShortTerm(memory, self._place, self._session_id)
        await kept.reload()
        return kept

    async def items(self, *, limit: int = 1_000, newest_first: bool = False) -> list[RecordedItem]:
        """The items of this session in reading order, or backwards."""
        check_limit("limit", limit)
        found: list[RecordedItem] = []
        async for item in self._user.items(session_id=self._session_id, newest_first=newest_first):
            found.append(item)
            if len(found) == limit:
                break
        return found

    async def epoch(self) -> str | None:
        """The random mark that the user is stored under, as text; ``None`` while nothing is stored.

        Made with the first write and gone with ``forget``. What this handle writes from here on is
        written under it or refused. Keep it with what is to be written later: ``has_epoch``.
        """
        self._place.look_again()
        epoch = await self._place.seen_epoch()
        return None if epoch is None else epoch.hex()

    async def has_epoch(self, epoch: str) -> bool:
        """Whether the user, or a partition merged into it, is still stored under ``epoch``:
        ``False`` once that was forgotten, also when the user has returned since."""
        if await self.epoch() is None:
            return False
        store = self._place.shared.store
        headers = [await store.header(scope) for scope in await self._place.scopes()]
        return any(header is not None and header.epoch.hex() == epoch for header in headers)

    async def claim(self, holder: str, *, seconds: float) -> bool:
        """Take this session for ``holder``, or renew what it holds, for so long: it runs out by
        itself. ``False`` while somebody else holds it, or while nothing is stored of the user.

        It keeps nobody from recording; whoever would continue a session asks it first. Raises:
        store errors.
        """
        shared = self._place.shared
        return await shared.store.acquire_lease(
            await self._place.home(),
            f"session:{self._session_id}",
            holder=holder,
            now_us=shared.now_us(),
            seconds=seconds,
        )

    async def release(self, holder: str) -> None:
        """Give up what ``claim`` took; harmless if somebody else has it. Raises: store errors."""
        name = f"session:{self._session_id}"
        await self._place.shared.store.release_lease(await self._place.home(), name, holder=holder)

    async def close(self) -> None:
        """Say that the conversation is over: its recap is made, and with a model facts are looked
        for, in the background. Returns at once.

        Nothing is saved here, the record is durable already. Without it the recap is made when the
        user comes next. What is recorded afterwards is kept, and the recap made anew; closing again
        is harmless.
        """
        self._closed = True
        recap_at_close(self._place, self._session_id)
        extract_at_close(self._place)
